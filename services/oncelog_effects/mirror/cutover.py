"""From the source of a mirror to its target: as planned, or in a disaster.

    planned: nobody publishes or consumes at the source -> everything is copied -> the positions of consumers
        -> still nobody has published -> the names of producers
    forced:  no mirror runs -> how far the target is -> the highest id of each producer in the copies
        -> the names of producers

Rules
- Everything may be repeated. What is at the target already is left as it is.
- A name is opened at the target last, because its ids up to the mark count as stored there from then on.
- A planned cutover changes nothing at the source. No policy refuses messages: that is left to rights, and is said.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace

from oncelog.client.client import AsyncClient
from oncelog.client.rest_calls import owner_stats
from oncelog.client.stored import stored_batches
from oncelog.client.two_clusters import AT_SOURCE, AT_TARGET, ClusterIds, two_clusters
from oncelog.core.counted import counted
from oncelog.core.errors import Conflict, DeadlineExceeded, InvalidArgument, TopicNotFound
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.ids import NO_SEQUENCE, SequenceId
from oncelog.core.names import MIRROR, TopicName, is_reserved
from oncelog.core.publishing.dedup_state import assigned_name
from oncelog_effects.mirror.positions import copy_positions, origins_of
from oncelog_effects.mirror.producers import open_behind, producers_of
from oncelog_effects.mirror.status import TROUBLE, PartitionStatus, partition_status, status_of
from oncelog_effects.mirror.topics import (
    MIRROR_SUBSCRIPTION,
    Choice,
    partition_counts,
    parts_of,
    topics_of,
)
from oncelog_effects.topic_store import topic_id_of

_LOOK_EVERY_S = 0.5
#: What looks as `assigned_name`: copies do not name the id.
_ASSIGNED = re.compile(r"producer-[0-9]+")
#: Names that an error lists.
_NAMED_MAX = 10


@dataclass(frozen=True, slots=True)
class MovedProducer:
    """One name in one log. last_sequence_id: the highest one that is copied: the application goes on behind it. opened:
    whether the name is at the target with it, as `--producers` does it. assigned: the source has given the name, to a
    producer without one or to a leased id; if the source is not asked: it looks so."""

    name: str
    last_sequence_id: int
    mode: str
    role: str
    opened: bool = False
    assigned: bool = False


@dataclass(slots=True)
class MovedPartition:
    """One topic without partitions, or one partition.

    Attributes:
        last_index: of the source, up to which everything is copied; -1: nothing is.
        subscriptions: {name: index of the first message at the target that is not acknowledged}.
        left_out: {subscription: why its position was not moved}.
        producers: that have published messages that are copied.
    """

    topic: str
    last_index: int
    subscriptions: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    producers: list[MovedProducer] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Cutover:
    """source: the id of its cluster."""

    source: str
    forced: bool
    partitions: list[MovedPartition]


async def cut_over(
    source: AsyncClient, target: AsyncClient, choice: Choice, *, producers: bool, wait_s: float, timeout_ms: int
) -> Cutover:
    """As planned. producers: open their names at the target. wait_s: until everything must be copied. timeout_ms: of
    each answer.

    Raises Conflict while somebody publishes or consumes at the source, or the mirror needs an operator;
    DeadlineExceeded; PermissionDenied; the errors of REST.
    """
    ids = await two_clusters(source, target, timeout_ms)
    status = await status_of(source, target, choice, timeout_ms)
    troubles = [f"{each.topic}: {each.message}" for each in status if each.state in TROUBLE]
    if troubles:
        raise Conflict(f"the mirror needs help before a cutover: {'; '.join(troubles[:_NAMED_MAX])}")
    topics = await topics_of(source, choice, timeout_ms)
    parts = [part for topic in topics for part in await _parts(source, topic, timeout_ms)]
    for part in parts:
        await _refuse_users(source, part, timeout_ms)
    copied = await _all_copied(source, target, ids, parts, wait_s, timeout_ms)
    moved = []
    for part in parts:
        one = MovedPartition(str(part), copied[str(part)].source_last)
        await _move_positions(source, target, part, one)
        one.producers = [each async for each in _publishers(source, part, timeout_ms)]
        moved.append(one)
    for part in parts:  # whoever has published meanwhile would send the same ids to the target again
        await _refuse_users(source, part, timeout_ms)
        again = await partition_status(source, target, ids, part, timeout_ms)
        if again.source_last != copied[str(part)].source_last:
            raise Conflict(
                f"messages were published to {part} at the source meanwhile: stop its producers, and try again"
            )
    if producers:
        for topic in topics:
            await _check_growths(source, target, topic, timeout_ms)
        await _open_all(target, moved, parts, "", timeout_ms)
    return Cutover(ids.source, False, moved)


async def cut_over_forced(
    target: AsyncClient, choice: Choice, *, cluster_id: str | None, producers: bool, role: str, timeout_ms: int
) -> Cutover:
    """Without the source. cluster_id: of the source; None: the only one that was mirrored here. role: that owns the
    names of producers; empty: the caller's.

    Raises Conflict while a mirror is connected; InvalidArgument if several clusters were mirrored, or none was.
    """
    parts = [
        part
        for topic in await topics_of(target, choice, timeout_ms, AT_TARGET)
        for part in await parts_of(target, topic, AT_TARGET, timeout_ms)
    ]
    mirrors = {str(part): [each async for each in _mirrors_of(target, part, timeout_ms)] for part in parts}
    found = sorted({each.cluster_id for some in mirrors.values() for each in some})
    if cluster_id is None and len(found) != 1:
        what = f"copies of {len(found)} clusters are here: {', '.join(found)}" if found else "no mirror has copied them"
        raise InvalidArgument(f"{what}: say with --cluster which one is lost", field="cluster")
    lost = found[0] if cluster_id is None else cluster_id
    moved = []
    for part in parts:
        own = [each for each in mirrors[str(part)] if each.cluster_id == lost]
        one = MovedPartition(str(part), max((each.last_index for each in own), default=-1))
        one.producers = await _copied_producers(target, part, lost, role)
        moved.append(one)
    if producers:
        await _open_all(target, moved, parts, role, timeout_ms)
    return Cutover(lost, True, moved)


# --- the source -------------------------------------------------------------------------------------------------------


async def _parts(source: AsyncClient, topic: TopicName, timeout_ms: int) -> list[TopicName]:
    """Without partitions that nobody has used."""
    found = []
    for part in await parts_of(source, topic, AT_SOURCE, timeout_ms):
        try:
            await owner_stats(source, part, timeout_ms=timeout_ms)
        except TopicNotFound:
            continue
        found.append(part)
    return found


async def _refuse_users(source: AsyncClient, part: TopicName, timeout_ms: int) -> None:
    """Raises Conflict. The producers of mirrors store copies, which are not copied on."""
    names = [each["name"] async for each in producers_of(source, part, timeout_ms, connected=True)]
    publishing = [name for name in names if not name.startswith(MIRROR)]
    if publishing:
        raise Conflict(
            f"{counted(len(publishing), 'producer')} connected to {part} at the source ({_some(publishing)}): stop "
            "them, and try again"
        )
    subscriptions = (await owner_stats(source, part, timeout_ms=timeout_ms))["subscriptions"]
    used = [
        name
        for name, found in subscriptions.items()
        if found["consumer_count"] and not name.startswith(MIRROR_SUBSCRIPTION)
    ]
    if used:
        raise Conflict(
            f"consumers of {part} are connected at the source (subscriptions {_some(used)}): stop them, and try again, "
            "because what they acknowledge from now on would be delivered again at the target"
        )


async def _all_copied(
    source: AsyncClient,
    target: AsyncClient,
    ids: ClusterIds,
    parts: list[TopicName],
    wait_s: float,
    timeout_ms: int,
) -> dict[str, PartitionStatus]:
    """Wait until nothing is left to copy. Raises DeadlineExceeded."""
    found: dict[str, PartitionStatus] = {}
    late = list(parts)
    try:
        async with asyncio.timeout(wait_s):
            while True:
                for part in late:
                    found[str(part)] = await partition_status(source, target, ids, part, timeout_ms)
                late = [part for part in late if found[str(part)].lag_messages or found[str(part)].lost_messages]
                if not late:
                    return found
                await asyncio.sleep(_LOOK_EVERY_S)
    except TimeoutError as error:
        waits = ", ".join(
            f"{part}: {counted(found[str(part)].lag_messages, 'message')}" for part in late if str(part) in found
        )
        raise DeadlineExceeded(
            f"not everything was copied within {wait_s:.0f} s ({waits or 'no answer'}): look at `oncelog mirror "
            "status`, and try again"
        ) from error


async def _move_positions(source: AsyncClient, target: AsyncClient, part: TopicName, moved: MovedPartition) -> None:
    """Until nothing moves any more: one look passes a limited number of messages."""
    await topic_id_of(target, part)  # of an empty topic nothing may be there yet
    origins = await origins_of(source, part)
    while await copy_positions(source, target, part, origins):
        pass
    here = (await owner_stats(source, part))["subscriptions"]
    there = (await owner_stats(target, part))["subscriptions"]
    for name, found in here.items():
        if name.startswith(MIRROR_SUBSCRIPTION):
            continue
        known = there.get(name)
        if found["effects"] is not None:
            moved.left_out[name] = "its position is in a store: use `oncelog effects translate`"
        elif known is not None and known["consumer_count"]:
            moved.left_out[name] = "consumers are connected at the target"
        elif known is not None:
            moved.subscriptions[name] = int(known["mark_delete"])


async def _publishers(source: AsyncClient, part: TopicName, timeout_ms: int) -> AsyncIterator[MovedProducer]:
    """Everything that they have stored is copied."""
    async for each in producers_of(source, part, timeout_ms):
        if each["persisted"] > NO_SEQUENCE and not is_reserved(each["name"]):
            assigned = each["name"] == assigned_name(each["producer_id"])
            yield MovedProducer(each["name"], each["persisted"], each["mode"], each["role"] or "", assigned=assigned)


async def _check_growths(source: AsyncClient, target: AsyncClient, topic: TopicName, timeout_ms: int) -> None:
    """Messages without a key go to a partition by the number of partitions when their producer's name was new. Raises
    Conflict if that cannot be the same at both sides (hazard resent-to-another-partition)."""
    if topic.partition is not None:
        return
    here = await partition_counts(source, topic, AT_SOURCE, timeout_ms)
    there = await partition_counts(target, topic, AT_TARGET, timeout_ms)
    if here.former != there.former:
        raise Conflict(
            f"{topic} has got more partitions since its producers were new, and its copy has not: what they send again "
            "could go to another partition. Publish at the target under other names, without --producers"
        )


# --- the target -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _MirrorProducer:
    cluster_id: str
    last_index: int


async def _mirrors_of(target: AsyncClient, part: TopicName, timeout_ms: int) -> AsyncIterator[_MirrorProducer]:
    """Raises Conflict if one is connected."""
    async for each in producers_of(target, part, timeout_ms, name_prefix=MIRROR):
        if each["connected"]:
            raise Conflict(
                f"a mirror copies into {part} now ({each['name']}): stop all mirrors of the lost cluster, and see to "
                "it that none starts again. What they copy after the cutover would be stored beside what is sent again"
            )
        yield _MirrorProducer(each["name"].removeprefix(MIRROR).split("/")[0], each["persisted"])


async def _copied_producers(target: AsyncClient, part: TopicName, cluster_id: str, role: str) -> list[MovedProducer]:
    """From all copies: reads the whole topic, and keeps one number for each producer."""
    highest: dict[str, int] = {}
    async for batch in stored_batches(target, str(part)):
        origin = batch.origin_of(batch.count - 1)
        if origin is None or origin.cluster_id != cluster_id or origin.producer_name is None:
            continue
        known = highest.get(origin.producer_name, NO_SEQUENCE)
        highest[origin.producer_name] = max(known, origin.sequence_id)
    mode = SequenceMode.MONOTONIC.name.lower()
    return [
        MovedProducer(name, mark, mode, role, assigned=_ASSIGNED.fullmatch(name) is not None)
        for name, mark in sorted(highest.items())
        if not is_reserved(name)
    ]


async def _open_all(
    target: AsyncClient, moved: list[MovedPartition], parts: list[TopicName], role: str, timeout_ms: int
) -> None:
    growths: dict[TopicName, int] = {}
    for part, one in zip(parts, moved, strict=True):
        base = replace(part, partition=None)
        if part.partition is not None and base not in growths:
            growths[base] = len((await partition_counts(target, base, AT_TARGET, timeout_ms)).former)
        for number, each in enumerate(one.producers):
            await open_behind(
                target, part, each.name, SequenceId(each.last_sequence_id), mode=SequenceMode[each.mode.upper()],
                role=each.role or role, growths=growths.get(base, 0), timeout_ms=timeout_ms,
            )  # fmt: skip
            one.producers[number] = replace(each, opened=True)


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - _NAMED_MAX} more" if len(listed) > _NAMED_MAX else ""
    return ", ".join(listed[:_NAMED_MAX]) + more
