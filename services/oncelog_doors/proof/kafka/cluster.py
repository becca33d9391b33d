"""The left side of the proof: the same cluster and the same door, where Kafka's rule decides instead of the log.

Batches are stored under a producer of the door, so the log knows what the door sends twice, and nothing of the numbers
of clients. What is kept of them is in the memory of this door, as in that of a broker.
"""

import asyncio
import time
from typing import assert_never

from oncelog.core.access import Caller
from oncelog.core.errors import OncelogError
from oncelog.core.formats.kafka import RecordBatchHead, read_head
from oncelog.core.ids import SequenceId
from oncelog.core.names import TopicName
from oncelog_doors.core.kafka.batch_checks import CheckedBatch
from oncelog_doors.core.kafka.batch_numbers import GivenIds
from oncelog_doors.kafka.ports import Decided, Decision, NotStored, ProducerPort, StoredAt, StoredPlace
from oncelog_doors.log_client.kafka_cluster import KafkaCluster
from oncelog_doors.proof.kafka.rule import Batch, Duplicate, KafkaRule, Refused, Stored


class RuleCluster(KafkaCluster):
    """Producers as Kafka has them, for one door. Its readers are those of every door."""

    _partitions: dict[TopicName, "asyncio.Task[RulePartition]"] | None = None

    def is_ours(self, producer_id: int) -> bool:
        return True  # any number may be one of this cluster

    async def open_producer(self, log: TopicName, caller: Caller, producer_id: int | None) -> ProducerPort:
        if producer_id is None:
            return await super().open_producer(log, caller, None)
        if self._partitions is None:
            self._partitions = {}
        if log not in self._partitions:
            self._partitions[log] = asyncio.create_task(self._load(log, caller))
        return RuleProducer(await asyncio.shield(self._partitions[log]))

    async def _load(self, log: TopicName, caller: Caller) -> "RulePartition":
        """As a broker does when it starts."""
        writer = await super().open_producer(log, caller, None)  # it creates the partition
        found: list[tuple[Batch, StoredPlace]] = []
        end = (await self.bounds(log, caller)).end
        if end:
            reader = await self.open_reader(log, caller, 0)
            try:
                offset = 0
                while offset < end:
                    while (entry := reader.take()) is None:
                        await reader.arrival()
                    read = reader.prepare(entry)
                    found.append((_batch_of(read_head(read.records)), StoredPlace(entry.stored.entry.position, 0)))
                    offset = read.last_offset + 1
            finally:
                reader.close()
        rule = KafkaRule.recovered([batch for batch, _ in found], _now_ms())
        return RulePartition(rule, writer, [place for _, place in found])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _batch_of(head: RecordBatchHead) -> Batch:
    return Batch(head.producer_id, head.producer_epoch, head.base_sequence, head.count, head.max_timestamp)


class RulePartition:
    """A partition of a broker. writer: stores what the rule lets through. places: of the batches that are stored."""

    def __init__(self, rule: KafkaRule, writer: ProducerPort, places: list[StoredPlace]) -> None:
        self._rule, self.writer = rule, writer
        self._next = SequenceId(0)
        #: {number of a batch: what becomes of it}
        self._decisions: dict[int, asyncio.Future[Decision | None]] = {}
        for number, place in enumerate(places):
            self._decision(number).set_result(StoredAt(place))

    def _decision(self, number: int) -> "asyncio.Future[Decision | None]":
        return self._decisions.setdefault(number, asyncio.get_running_loop().create_future())

    def give(self, batch: CheckedBatch, decided: Decided) -> None:
        """A duplicate is answered when its first copy is."""
        match self._rule.judge(_batch_of(batch.head), _now_ms()):
            case Refused(code):
                decided(NotStored(code, "by Kafka's rule"))
            case Duplicate(number):
                self._decision(number).add_done_callback(lambda done: decided(done.result()))
            case Stored(number):
                decision = self._decision(number)
                decision.add_done_callback(lambda done: decided(done.result()))
                ids = GivenIds(self._next, SequenceId(self._next + batch.head.count - 1))
                self._next = SequenceId(ids.last + 1)
                self.writer.give(batch, ids, decision.set_result)
            case verdict:
                assert_never(verdict)


class RuleProducer:
    """A producer id on a partition, in the form of `ProducerPort`. Its batches are given as they come."""

    mark = None

    def __init__(self, partition: RulePartition) -> None:
        self._partition = partition
        self._end: asyncio.Future[OncelogError] = asyncio.get_running_loop().create_future()

    def has_room(self, size: int) -> bool:
        return self._partition.writer.has_room(size)

    async def room(self, size: int) -> None:
        await self._partition.writer.room(size)

    def give(self, batch: CheckedBatch, _ids: GivenIds, decided: Decided) -> None:
        self._partition.give(batch, decided)

    async def ended(self) -> OncelogError:
        return await self._end

    async def close(self) -> None:
        if not self._end.done():
            self._end.set_result(OncelogError("it was closed"))
