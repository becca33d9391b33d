"""A mirror: every chosen topic of one cluster is copied into the topic of the same name of another one.

    look for topics -> prepare: the target has as many partitions, or is created with them -> copy, as a Process
        a final error: the topic waits and is tried again, the others go on; a single topic ends the mirror

Its subscription at the source is `mirror-CLUSTER`, with the target's cluster id, of type failover: of several mirrors,
one copies each partition. So the backlog of the subscription is the lag, and retention waits for it.
"""

import asyncio
import logging
from dataclasses import dataclass, field

from oncelog.client.client import AsyncClient
from oncelog.client.producing.sender import CompressionName, compression_of
from oncelog.client.rest_calls import cluster_id_of
from oncelog.client.stored import end_of
from oncelog.client.two_clusters import AT_SOURCE, AT_TARGET
from oncelog.core.errors import MessageTooLarge, OncelogError, TopicNotFound
from oncelog.core.names import TopicName, parse_topic
from oncelog.runtime.tasks import CancelledByNobody, asked_cancellations_only
from oncelog_effects.mirror.positions import copy_positions, origins_of
from oncelog_effects.mirror.store import Copies, MirrorEffects, copy, too_large
from oncelog_effects.mirror.topics import Choice, parts_of, prepared, subscription_of, topics_of
from oncelog_effects.processes import CONCURRENCY_MAX, Process, run_processes
from oncelog_effects.status import SourceStatus

logger = logging.getLogger(__name__)

#: How often topics are looked for, and how long one with a final error waits.
LOOK_EVERY_S = 30.0
TRY_AGAIN_S = 60.0
#: How often positions of consumers are copied.
POSITIONS_EVERY_S = 10.0
#: How often both clusters are asked whether they answer, and for how long.
REACH_EVERY_S = 5.0
_REACH_TIMEOUT_MS = 2_000
#: Copies of one batch that are under way for longer wait for the target.
SLOW_AFTER_S = 15.0


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

    def waits_for(self, now: float) -> str:
        """Why nothing is copied now, or what it waits for; empty: it copies, or another mirror does. now: seconds since
        1970."""
        if self.trouble or self.process is None:
            return self.trouble or "it waits for the number of its partitions at both clusters"
        for status in self.statuses.values():
            if status.trouble:
                return status.trouble
            if status.running_s(now) > SLOW_AFTER_S:
                return f"copies of {status.topic} were not answered for {status.running_s(now):.0f} s"
        return ""


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
        #: {where: why that cluster did not answer when it was asked last}
        self.unreachable = dict.fromkeys((AT_SOURCE, AT_TARGET), "it was not asked yet")
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
            # A task that a cancellation of others ends is dropped by its group without a word.
            for client, where in ((self._source, AT_SOURCE), (self._target, AT_TARGET)):
                group.create_task(asked_cancellations_only(self._reach(client, where), what=f"the look {where}"))
            if self._subscriptions:
                following = self._follow_positions()
                group.create_task(asked_cancellations_only(following, what="the copying of positions"))
            while True:
                try:
                    found = await topics_of(self._source, self._choice)
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
        names = await topics_of(self._source, self._choice, timeout_ms)
        async with asyncio.TaskGroup() as group:
            for name in names:
                self.topics[str(name)] = topic = self._made(name)
                group.create_task(self._copy_once(topic, timeout_ms))

    async def _reach(self, client: AsyncClient, where: str) -> None:
        """Nothing that waits for a cluster says so while it waits."""
        while True:
            try:
                await cluster_id_of(client, _REACH_TIMEOUT_MS, where=where)
                self.unreachable.pop(where, None)
            except OncelogError as error:
                self.unreachable[where] = error.message
            await asyncio.sleep(REACH_EVERY_S)

    async def _copy_once(self, topic: MirroredTopic, timeout_ms: int | None) -> None:
        topic.process = await self._prepare(topic, timeout_ms)
        await self._learn_ends(topic, timeout_ms)
        copying = asyncio.ensure_future(self._run(topic.process))
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
                await asked_cancellations_only(self._copy(topic), what=f"the mirror of {topic.name}")
            except (OncelogError, CancelledByNobody) as error:
                if single and isinstance(error, OncelogError) and not error.retriable:
                    raise
                topic.trouble = f"{type(error).__name__}: {error}"
                logger.error("%s is not mirrored; will retry in %.0f s: %s", topic.name, TRY_AGAIN_S, topic.trouble)
            await asyncio.sleep(TRY_AGAIN_S)

    async def _copy(self, topic: MirroredTopic) -> None:
        topic.process = await self._prepare(topic)
        topic.trouble = ""
        await self._run(topic.process)

    def _made(self, name: TopicName) -> MirroredTopic:
        effects = MirrorEffects(self._target, name, allow_gap=self._allow_gap, compression=self._compression)
        return MirroredTopic(name, effects)

    # --- topics -------------------------------------------------------------------------------------------------------

    async def _prepare(self, topic: MirroredTopic, timeout_ms: int | None = None) -> Process[Copies]:
        """As `prepared`."""
        cluster_id = await prepared(self._source, self._target, topic.name, timeout_ms)
        subscription, effects = subscription_of(cluster_id), topic.effects
        return Process(
            copy, str(topic.name), subscription=subscription, effects=effects, batch=effects.batch,
            concurrency=CONCURRENCY_MAX, on_encrypted="pass",
        )  # fmt: skip

    async def _run(self, process: Process[Copies]) -> None:
        """As `run_processes`, and says what a mirror can do about a message above the client's max_message_bytes."""
        try:
            await run_processes(self._source, [process])
        except MessageTooLarge as error:
            index = error.details.get("index")
            if index is None:
                raise
            raise too_large(str(error.details["topic"]), int(index), error, in_chunks=True) from error

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
        origins = await origins_of(self._source, part)
        topic.positions[str(part)] = await copy_positions(self._source, self._target, part, origins)

    # --- ends ---------------------------------------------------------------------------------------------------------

    async def _learn_ends(self, topic: MirroredTopic, timeout_ms: int | None) -> None:
        for part in await parts_of(self._source, topic.name, AT_SOURCE, timeout_ms):
            try:
                topic.ends[str(part)] = await end_of(self._source, str(part))
            except TopicNotFound:
                if part.partition is None:
                    raise
                topic.ends[str(part)] = 0  # a partition that nobody has used yet


async def _until_copied(topic: MirroredTopic) -> None:
    positions, moved = topic.effects.positions, topic.effects.moved
    while any(positions.get(each, -1) < end for each, end in topic.ends.items()):
        moved.clear()
        await moved.wait()
