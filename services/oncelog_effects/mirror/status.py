"""How far a mirror is, as both clusters tell it: no mirror has to run for that.

The target's producer `mirror/…` says what is copied, the source's subscription `mirror-CLUSTER` who copies, and the
source's messages behind the last copy what is still to be copied: those without an origin.
"""

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from oncelog.client.client import AsyncClient
from oncelog.client.rest_calls import owner_stats, rest, topic_path
from oncelog.client.two_clusters import AT_SOURCE, AT_TARGET, ClusterIds, two_clusters
from oncelog.core.errors import OncelogError, SubscriptionNotFound, TopicNotFound
from oncelog.core.names import TopicName
from oncelog_effects.mirror.producers import producer_of
from oncelog_effects.mirror.store import LEAVE_OUT, ToCopy, first_to_copy, mirror_producer, unsupported
from oncelog_effects.mirror.topics import (
    Choice,
    check_partitions,
    parts_of,
    subscription_of,
    topics_of,
)


class MirrorState(StrEnum):
    """Of one topic without partitions, or one partition. The first one that holds."""

    #: Nothing is at the target: the topic is missing there, or no mirror has copied anything.
    NOT_MIRRORED = "not_mirrored"
    #: The numbers of partitions differ.
    PARTITIONS_DIFFER = "partitions_differ"
    #: The target has copies of messages that the source has forgotten: the source was restored.
    SOURCE_BEHIND = "source_behind"
    #: The source has deleted messages that are not copied.
    GAP = "gap"
    #: The next message is in chunks, and a mirror copies none.
    TOO_LARGE = "too_large"
    #: The next message has a null or an encrypted value, and a mirror copies none.
    UNSUPPORTED = "unsupported"
    #: Messages wait to be copied, and no mirror is connected.
    NO_MIRROR = "no_mirror"
    #: The target has lost copies that the source counts as acknowledged; a mirror copies them again.
    REWINDING = "rewinding"
    COPYING = "copying"
    COPIED = "copied"


#: States in which nothing more is copied unless somebody does something.
TROUBLE = frozenset(
    (
        MirrorState.NOT_MIRRORED,
        MirrorState.PARTITIONS_DIFFER,
        MirrorState.SOURCE_BEHIND,
        MirrorState.GAP,
        MirrorState.TOO_LARGE,
        MirrorState.UNSUPPORTED,
        MirrorState.NO_MIRROR,
    )
)


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One topic without partitions, or one partition.

    Attributes:
        topic, state: see `MirrorState`. message: what is wrong, and what to do; empty: nothing.
        source_last: the index of the last message at the source; -1: there is none.
        copied_to: the highest index of the source that is copied; -1: none is.
        lag_messages: messages at the source from the first one on that must be copied. Copies of other clusters among
            them count, too.
        lag_s: how long ago that first message was published, in seconds; 0: there is none.
        gap_messages: messages that the source has deleted and that are not copied.
        lost_messages: messages that were copied once, and that the target does not have any more.
        rewound: how often the mirror's subscription has gone back, because the target had lost messages.
        opened: how often a mirror has opened its producer at the target; each one has fenced the one before.
        mirrors: how many are connected to the source. active: one of them copies this partition.
    """

    topic: str
    state: MirrorState
    message: str = ""
    source_last: int = -1
    copied_to: int = -1
    lag_messages: int = 0
    lag_s: float = 0.0
    gap_messages: int = 0
    lost_messages: int = 0
    rewound: int = 0
    opened: int = 0
    mirrors: int = 0
    active: bool = False


async def status_of(
    source: AsyncClient, target: AsyncClient, choice: Choice, timeout_ms: int | None
) -> list[PartitionStatus]:
    """Of all chosen topics, in order. Changes nothing. timeout_ms: for each answer. Raises InvalidArgument for one
    cluster, TopicNotFound for a topic that the source does not have, DeadlineExceeded, PermissionDenied."""
    found: list[PartitionStatus] = []
    ids = await two_clusters(source, target, timeout_ms)
    for topic in await topics_of(source, choice, timeout_ms):
        parts = await parts_of(source, topic, AT_SOURCE, timeout_ms)
        try:
            there = await parts_of(target, topic, AT_TARGET, timeout_ms)
        except TopicNotFound:
            there = []
        if there:
            try:
                check_partitions(topic, _count(parts), _count(there))
            except OncelogError as error:
                found.append(PartitionStatus(str(topic), MirrorState.PARTITIONS_DIFFER, error.message))
                continue
        found += [await partition_status(source, target, ids, part, timeout_ms) for part in parts]
    return found


def _count(parts: list[TopicName]) -> int:
    return 0 if parts[0].partition is None else len(parts)


async def partition_status(
    source: AsyncClient, target: AsyncClient, ids: ClusterIds, part: TopicName, timeout_ms: int | None
) -> PartitionStatus:
    """Of one log. Raises as `status_of`."""
    stats = await _stats_or_none(source, part, timeout_ms)
    if stats is None:
        return PartitionStatus(str(part), MirrorState.COPIED)  # a partition that nobody has used yet
    # In this order, because a mirror may copy meanwhile: what is consumed, then what is copied, then the source's end.
    name = subscription_of(ids.target)
    consumed = await _consumed(source, part, name, timeout_ms) if name in stats["subscriptions"] else []
    copies = await _copies(ids.source, stats["topic_id"], target, part, timeout_ms)
    copied_to = -1 if copies is None else int(copies["persisted"])
    following = await first_to_copy(source, str(part), copied_to)
    stats = await owner_stats(source, part, timeout_ms=timeout_ms)
    end, known = int(stats["message_count"]), stats["subscriptions"].get(name)
    mirrors, active = (0, False) if known is None else (known["consumer_count"], known["active_consumer"] is not None)
    gap = sum(behind - first for first, behind in following.gaps) if copied_to >= 0 else 0
    lag = max(0, end - following.position)
    lost = sum(last - max(first, following.position) + 1 for first, last in consumed if last >= following.position)
    state, message = _judged(part, end, copied_to, following, gap=gap, lag=lag, lost=lost, mirrors=mirrors)
    return PartitionStatus(
        str(part), state, message, end - 1, copied_to, lag,
        max(0.0, time.time() - following.publish_time_ms / 1000) if lag and following.publish_time_ms else 0.0,
        gap, lost, 0 if known is None else known["seek_epoch"], 0 if copies is None else copies["generation"],
        mirrors, active,
    )  # fmt: skip


def _judged(
    part: TopicName, end: int, copied_to: int, following: ToCopy, *, gap: int, lag: int, lost: int, mirrors: int
) -> tuple[MirrorState, str]:
    if copied_to >= end:
        return MirrorState.SOURCE_BEHIND, (
            f"the target has a copy of index {copied_to}, and the source ends at {end - 1}: the source was restored, "
            "or is another cluster. Mirror into another topic, or restore the source to the same time"
        )
    if gap:
        return MirrorState.GAP, (
            f"the source has deleted {gap} messages behind index {copied_to} before they were copied: a mirror refuses "
            "to go on without --allow-gap"
        )
    if lag and following.in_chunks:
        return MirrorState.TOO_LARGE, (
            f"message {following.position} of the source is in chunks, which a mirror does not copy: {LEAVE_OUT}"
        )
    if lag and following.unsupported:
        return MirrorState.UNSUPPORTED, unsupported("the source", following.position, following.unsupported)
    if lag and not mirrors:
        what = f"oncelog mirror --from … --to … --topic {part}"
        if copied_to < 0:
            return MirrorState.NOT_MIRRORED, f"nothing is copied, and no mirror is connected: start `{what}`"
        return MirrorState.NO_MIRROR, f"no mirror is connected: start `{what}`"
    if lost:
        return MirrorState.REWINDING, ""
    return (MirrorState.COPYING if lag else MirrorState.COPIED), ""


async def _stats_or_none(client: AsyncClient, part: TopicName, timeout_ms: int | None) -> dict[str, Any] | None:
    try:
        return await owner_stats(client, part, timeout_ms=timeout_ms)
    except TopicNotFound:
        return None


async def _copies(
    cluster_id: str, topic_id: str, target: AsyncClient, part: TopicName, timeout_ms: int | None
) -> dict[str, Any] | None:
    """The mirror's producer at the target; None: there is none."""
    partition = -1 if part.partition is None else part.partition
    name = mirror_producer(cluster_id, topic_id, partition)
    try:
        return await producer_of(target, part, name, timeout_ms)
    except TopicNotFound:
        return None


async def _consumed(source: AsyncClient, part: TopicName, name: str, timeout_ms: int | None) -> list[tuple[int, int]]:
    """Ranges of messages, both ends included, that the mirror has acknowledged."""
    path = f"{topic_path(part)}/subscription/{name}?consumed_from=0"
    try:
        shown = await rest(source, "GET", path, timeout_ms=timeout_ms, what=f"subscription {name} {AT_SOURCE}")
    except SubscriptionNotFound:
        return []
    [one] = shown.values()
    return [(first, last) for first, last in one["effects"]["consumed"]]
