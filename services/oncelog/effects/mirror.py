"""A mirror: every chosen topic of one cluster is copied into the topic of the same name of another one.

    look for topics -> prepare: the target has as many partitions, or is created with them -> copy, as a Process
        a final error: the topic waits and is tried again, the others go on; a single topic ends the mirror

Its subscription at the source is `mirror-CLUSTER`, with the target's cluster id, of type failover: of several mirrors,
one copies each partition. So the backlog of the subscription is the lag, and retention waits for it.
"""

import asyncio
import logging
import re
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.network.backoff import persist
from oncelog.client.network.lookup import PartitionCounts
from oncelog.client.producing.sender import CompressionName, compression_of
from oncelog.core.effects.errors import PartitionsDiffer
from oncelog.core.errors import InvalidArgument, OncelogError, TopicNotFound
from oncelog.core.names import NamespaceName, TopicName, parse_topic
from oncelog.effects.mirror_positions import MIRROR_SUBSCRIPTION, Origins, copy_positions
from oncelog.effects.mirror_store import Copies, MirrorEffects, copy, end_of
from oncelog.effects.process import CONCURRENCY_MAX, Process, run_processes
from oncelog.effects.rest import rest
from oncelog.effects.status import SourceStatus
from oncelog.effects.topic_store import topic_id_of

logger = logging.getLogger(__name__)

#: How often topics are looked for, and how long one with a final error waits.
LOOK_EVERY_S = 30.0
TRY_AGAIN_S = 60.0
#: How often positions of consumers are copied.
POSITIONS_EVERY_S = 10.0
#: How the names of dead-letter topics end, unless an application has chosen another name.
DEAD_LETTERS_END = "-DLQ"
#: Which cluster is meant, for log and errors.
_AT_SOURCE, _AT_TARGET = "in the source cluster (--from)", "in the target cluster (--to)"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which topics are mirrored: those that are named, or those of a namespace whose local names match."""

    topics: tuple[TopicName, ...] = ()
    namespace: NamespaceName | None = None
    pattern: re.Pattern[str] | None = None

    def takes(self, topic: TopicName) -> bool:
        """Of a topic of the namespace. Not dead-letter topics: their messages are those of another topic."""
        if topic.local.endswith(DEAD_LETTERS_END):
            return False
        return self.pattern is None or self.pattern.fullmatch(topic.local) is not None


@dataclass(slots=True)
class MirroredTopic:
    """process: None: it was not prepared yet. trouble: why nothing is copied now; empty: nothing is known. ends: of a
    mirror that ends: {partition: where the source ended at its start}."""

    name: TopicName
    effects: MirrorEffects
    process: Process[Copies] | None = None
    trouble: str = ""
    ends: dict[str, int] = field(default_factory=dict)
    #: {partition: {subscription: where it begins in the target}}, of those that the newest look has moved
    positions: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def statuses(self) -> dict[str, SourceStatus]:
        return {} if self.process is None else self.process.statuses

    @property
    def lag_messages(self) -> int:
        """Of the source, in the partitions that this mirror copies, that are not copied yet."""
        return sum(status.lag_messages for status in self.statuses.values() if status.active)

    def lag_s(self, now: float) -> float:
        """How long ago the newest message was published that is copied, of the partition that is furthest behind."""
        return max((status.lag_s(now) for status in self.statuses.values() if status.active), default=0.0)


class Mirror:
    """From one cluster to another one."""

    def __init__(
        self,
        source: AsyncClient,
        target: AsyncClient,
        choice: Choice,
        *,
        allow_gap: bool = False,
        compression: CompressionName | None = None,
        subscriptions: bool = False,
    ) -> None:
        """allow_gap: go on behind messages that the source has deleted before they were copied. subscriptions: also
        copy the positions of consumers, see `mirror_positions`. compression: of the copies; those of the source do not
        matter. Raises CompressionUnavailable, InvalidArgument."""
        compression_of(compression)  # at once, not for each topic and each minute
        #: {name: topic}
        self.topics: dict[str, MirroredTopic] = {}
        self._source = source
        self._target = target
        self._choice = choice
        self._allow_gap = allow_gap
        self._compression = compression
        self._subscriptions = subscriptions

    async def run(self) -> None:
        """For ever. Raises the final error of the only topic."""
        single = self._choice.namespace is None and len(self._choice.topics) == 1
        async with asyncio.TaskGroup() as group:
            if self._subscriptions:
                group.create_task(self._follow_positions())
            while True:
                try:
                    found = await self._found()
                except OncelogError as error:
                    if not error.retriable:
                        raise
                    logger.warning("the topics of the source could not be listed; will retry: %s", error.message)
                    found = []
                for name in found:
                    if str(name) not in self.topics:
                        self.topics[str(name)] = topic = self._made(name)
                        group.create_task(self._keep(topic, single=single))
                await asyncio.sleep(LOOK_EVERY_S)

    async def run_once(self, timeout: float | None = None) -> None:
        """Copy what the topics have now. timeout: seconds in which each cluster must answer before the first message is
        copied; None: no limit. Raises the errors of topics as a group; DeadlineExceeded names the cluster."""
        timeout_ms = None if timeout is None else max(1, int(timeout * 1000))
        names = await self._found(timeout_ms)
        async with asyncio.TaskGroup() as group:
            for name in names:
                self.topics[str(name)] = topic = self._made(name)
                group.create_task(self._copy_once(topic, timeout_ms))

    async def _copy_once(self, topic: MirroredTopic, timeout_ms: int | None) -> None:
        topic.process = await self._prepare(topic, timeout_ms)
        await self._learn_ends(topic, timeout_ms)
        copying = asyncio.ensure_future(run_processes(self._source, [topic.process]))
        done = asyncio.ensure_future(_until_copied(topic))
        try:
            await asyncio.wait([copying, done], return_when=asyncio.FIRST_COMPLETED)
            if copying.done():
                copying.result()
        finally:
            done.cancel()
            copying.cancel()  # what was copied is acknowledged
            await asyncio.wait([copying, done])
        if self._subscriptions:
            for part in topic.ends:
                await self._copy_positions(topic, parse_topic(part))

    async def _keep(self, topic: MirroredTopic, *, single: bool) -> None:
        while True:
            try:
                topic.process = await self._prepare(topic)
                topic.trouble = ""
                await run_processes(self._source, [topic.process])
            except OncelogError as error:
                if single and not error.retriable:
                    raise
                topic.trouble = f"{type(error).__name__}: {error.message}"
                logger.error("%s is not mirrored; will retry in %.0f s: %s", topic.name, TRY_AGAIN_S, topic.trouble)
            await asyncio.sleep(TRY_AGAIN_S)

    def _made(self, name: TopicName) -> MirroredTopic:
        effects = MirrorEffects(self._target, name, allow_gap=self._allow_gap, compression=self._compression)
        return MirroredTopic(name, effects)

    # --- topics -------------------------------------------------------------------------------------------------------

    async def _found(self, timeout_ms: int | None = None) -> list[TopicName]:
        if self._choice.namespace is None:
            return list(self._choice.topics)
        namespace = self._choice.namespace
        listed = await rest(
            self._source, "GET", f"/admin/v2/persistent/{namespace}", timeout_ms=timeout_ms,
            what=f"the topics of {namespace} {_AT_SOURCE}",
        )  # fmt: skip
        names = {replace(parse_topic(name), partition=None) for name in listed}
        return sorted((name for name in names if self._choice.takes(name)), key=str)

    async def _prepare(self, topic: MirroredTopic, timeout_ms: int | None = None) -> Process[Copies]:
        """Raises PartitionsDiffer; InvalidArgument for a mirror of a cluster into itself; TopicNotFound."""
        base = replace(topic.name, partition=None)
        counts = await _partitions(self._source, base, _AT_SOURCE, timeout_ms)
        try:
            there = await _partitions(self._target, base, _AT_TARGET, timeout_ms)
        except TopicNotFound:
            await _create(self._target, base, counts.now, timeout_ms)
            there = await _partitions(self._target, base, _AT_TARGET, timeout_ms)
        cluster_id = network_of(self._target).lookup.cluster_id
        if cluster_id == network_of(self._source).lookup.cluster_id:
            message = f"both URLs are of cluster {cluster_id}: a topic cannot be a copy of itself"
            raise InvalidArgument(message, field="to")
        if counts.now != there.now:
            raise PartitionsDiffer(
                f"{base} has {counts.now} partitions at the source and {there.now} at the target, so a key would be in "
                "different ones: give the smaller one more partitions (oncelog admin topics update-partitioned-topic)",
                source=counts.now,
                target=there.now,
            )
        subscription, effects = subscription_of(cluster_id), topic.effects
        return Process(
            copy, str(topic.name), subscription=subscription, effects=effects, batch=effects.batch,
            concurrency=CONCURRENCY_MAX,
        )  # fmt: skip

    # --- positions of consumers ---------------------------------------------------------------------------------------

    async def _follow_positions(self) -> None:
        while True:
            await asyncio.sleep(POSITIONS_EVERY_S)
            for topic in list(self.topics.values()):
                for part in [name for name, status in topic.statuses.items() if status.active]:
                    try:
                        await self._copy_positions(topic, parse_topic(part))
                    except OncelogError as error:
                        logger.warning("positions of consumers of %s were not copied: %s", part, error.message)

    async def _copy_positions(self, topic: MirroredTopic, part: TopicName) -> None:
        origins = Origins(network_of(self._source).lookup.cluster_id, await topic_id_of(self._source, part))
        topic.positions[str(part)] = await copy_positions(self._source, self._target, part, origins)

    # --- ends ---------------------------------------------------------------------------------------------------------

    async def _learn_ends(self, topic: MirroredTopic, timeout_ms: int | None) -> None:
        counts = PartitionCounts(0)
        if topic.name.partition is None:
            counts = await _partitions(self._source, topic.name, _AT_SOURCE, timeout_ms)
        parts = [replace(topic.name, partition=number) for number in range(counts.now)] or [topic.name]
        for part in parts:
            topic.ends[str(part)] = await end_of(self._source, str(part))


async def _until_copied(topic: MirroredTopic) -> None:
    positions, moved = topic.effects.positions, topic.effects.moved
    while any(positions.get(each, -1) < end for each, end in topic.ends.items()):
        moved.clear()
        await moved.wait()


def subscription_of(cluster_id: str) -> str:
    """Of the mirror into that cluster, at the source."""
    return f"{MIRROR_SUBSCRIPTION}{cluster_id}"


async def _partitions(client: AsyncClient, topic: TopicName, where: str, timeout_ms: int | None) -> PartitionCounts:
    lookup = network_of(client).lookup
    return await persist(
        lambda _: lookup.partition_counts(topic), timeout_ms=timeout_ms, what=f"the partitions of {topic} {where}"
    )


async def _create(client: AsyncClient, topic: TopicName, partitions: int, timeout_ms: int | None) -> None:
    path = f"/admin/v2/persistent/{topic.tenant}/{topic.namespace}/{quote(topic.local_full, safe='')}"
    what = f"the creation of {topic} {_AT_TARGET}"
    if partitions:
        await rest(client, "PUT", f"{path}/partitions", partitions, may_exist=True, timeout_ms=timeout_ms, what=what)
    else:
        await rest(client, "PUT", path, may_exist=True, timeout_ms=timeout_ms, what=what)
