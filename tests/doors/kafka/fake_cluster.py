"""A cluster of topics in memory, in the forms that a door needs for Kafka's clients, with the rules of the real one."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.access import UNCHECKED, Caller, Right
from oncelog.core.errors import (
    OncelogError,
    PermissionDenied,
    ProducerClosed,
    ReaderClosed,
    SessionSuperseded,
    TopicNotFound,
)
from oncelog.core.formats.epoched_ids import begins_epoch
from oncelog.core.ids import NO_SEQUENCE, EntryId, LedgerId, Position, SequenceId, TopicId
from oncelog.core.names import NamespaceName, TopicName, parse_topic
from oncelog_doors.core.kafka.batch_checks import CheckedBatch
from oncelog_doors.core.kafka.batch_cuts import at_offset
from oncelog_doors.core.kafka.batch_numbers import GivenIds
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.core.kafka.topic_configs import AppliedConfigs, OwnConfigs
from oncelog_doors.core.shared.named_topics import NamedTopic
from oncelog_doors.kafka.administration_ports import KnownProducer
from oncelog_doors.kafka.ports import (
    NO_OFFSET,
    Bounds,
    Decided,
    Decision,
    FoundOffset,
    NotStored,
    ReadBatch,
    StoredAt,
    StoredPlace,
)
from tests.doors.fake_tokens import FakeTokens
from tests.doors.kafka.fake_administration import FakeAdministration
from tests.doors.kafka.fake_groups import FakeGroups
from tests.doors.kafka.fake_offsets import FakeOffsets


class Entry(NamedTuple):
    records: bytes
    base: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here


@dataclass
class FakeLog:
    """Of one partition. takes: False: what is given waits. refuses: the next batches are refused with these codes."""

    takes: bool = True
    owned: asyncio.Event = field(default_factory=asyncio.Event)
    topic_id: TopicId = TopicId("0f" * 16)
    first: int = 0
    entries: list[Entry] = field(default_factory=list)
    refuses: list[ErrorCode] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    marks: dict[int, SequenceId] = field(default_factory=dict)
    #: {producer id: {ids: offset}}; None of the value: the place is forgotten
    stored: dict[int, dict[GivenIds, int | None]] = field(default_factory=dict)
    sessions: dict[int, "FakeProducer"] = field(default_factory=dict)
    waiting: list[tuple["FakeProducer", CheckedBatch, GivenIds, Decided]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.owned.set()

    @property
    def end(self) -> int:
        return self.entries[-1].base + self.entries[-1].count if self.entries else self.first

    def append(self, records: bytes, count: int) -> int:
        base = self.end
        self.entries.append(Entry(records, base, count))
        self.arrived.set()
        return base

    def take(self) -> None:
        """Take what waits, and all that comes."""
        self.takes = True
        waiting, self.waiting = self.waiting, []
        for producer, batch, ids, decided in waiting:
            decided(producer.decision(batch, ids))


class FakeProducer:
    """Has the form of `ProducerPort`."""

    def __init__(self, log: FakeLog, producer_id: int | None) -> None:
        self.log, self.producer_id = log, producer_id
        self.end: asyncio.Future[OncelogError] = asyncio.get_running_loop().create_future()
        self.mark = None if producer_id is None else log.marks.get(producer_id, NO_SEQUENCE)
        if producer_id is not None:
            former = log.sessions.get(producer_id)
            if former is not None:
                former.finish(SessionSuperseded("another door has opened it"))
            log.sessions[producer_id] = self

    def has_room(self, size: int) -> bool:
        return size < 1_000_000

    async def room(self, size: int) -> None:
        await asyncio.sleep(0)  # noqa: TID251  # it lets other tasks run

    def give(self, batch: CheckedBatch, ids: GivenIds, decided: Decided) -> None:
        if self.end.done():
            decided(None)
        elif self.log.takes:
            decided(self.decision(batch, ids))
        else:
            self.log.waiting.append((self, batch, ids, decided))

    def decision(self, batch: CheckedBatch, ids: GivenIds) -> Decision:
        log = self.log
        if log.refuses:
            return NotStored(log.refuses.pop(0), "the log refuses it")
        if self.producer_id is None:
            return self._stored_now(log.append(batch.records, batch.head.count))
        stored = log.stored.setdefault(self.producer_id, {})
        if ids in stored:
            place = stored[ids]
            return StoredAt(None) if place is None else self._stored(place)
        mark = log.marks.get(self.producer_id, NO_SEQUENCE)
        if ids.first != mark + 1 and not begins_epoch(ids.first, mark):
            return NotStored(ErrorCode.NOT_ENOUGH_REPLICAS, "there is a gap")
        log.marks[self.producer_id] = ids.last
        stored[ids] = offset = log.append(batch.records, batch.head.count)
        return self._stored_now(offset)

    @staticmethod
    def _stored(offset: int) -> StoredAt:
        return StoredAt(StoredPlace(Position(LedgerId(1), EntryId(offset)), 0))

    @staticmethod
    def _stored_now(offset: int) -> StoredAt:
        return StoredAt(StoredPlace(Position(LedgerId(1), EntryId(offset)), 0, offset))

    async def ended(self) -> OncelogError:
        return await asyncio.shield(self.end)

    def finish(self, error: OncelogError) -> None:
        if not self.end.done():
            self.end.set_result(error)
            mine = [each for each in self.log.waiting if each[0] is self]
            self.log.waiting = [each for each in self.log.waiting if each[0] is not self]
            for *_, decided in mine:
                decided(None)

    async def close(self) -> None:
        self.finish(ProducerClosed("closed"))


class FakeReader:
    """Has the form of `ReaderPort`."""

    read_ahead_bytes = 1_000_000

    def __init__(self, log: FakeLog, offset: int) -> None:
        self._log, self._offset = log, offset
        self.topic_id = log.topic_id
        #: what ends it, and what it only reports
        self.error: OncelogError | None = None
        self.errors: list[OncelogError] = []
        self.closed = False

    def take(self) -> Entry | None:
        for entry in self._log.entries:
            if entry.base + entry.count > self._offset:
                self._offset = entry.base + entry.count
                return entry
        return None

    def size_of(self, entry: Entry) -> int:
        return len(entry.records)

    def prepare(self, entry: Entry) -> ReadBatch:
        return ReadBatch(at_offset(entry.records, entry.base), entry.base, entry.base + entry.count - 1)

    async def arrival(self) -> None:
        if self.error is not None:
            raise self.error
        self._log.arrived.clear()
        await self._log.arrived.wait()
        if self.errors:
            raise self.errors.pop(0)

    def close(self) -> None:
        self.error, self.closed = ReaderClosed("closed"), True


class FakeCluster(FakeTokens):
    """Has the form of `ClusterPort`."""

    cluster_id = "cluster"
    batch_bytes_max = 1_000_000
    partitions_default = 1

    def __init__(self, tokens: dict[str, str] | None = None) -> None:
        super().__init__(tokens)
        self.groups = FakeGroups()
        self.offsets = FakeOffsets(self)
        self.logs: dict[TopicName, FakeLog] = {}
        self.partition_counts: dict[str, int] = {"public/default/orders": 0}
        #: each topic whose number of partitions was asked for
        self.lookups: list[str] = []
        self.list_error: OncelogError | None = None
        #: roles that may use nothing
        self.denied: set[str] = set()
        self.created: list[str] = []
        self.opened: list[FakeProducer] = []
        self.readers: list[FakeReader] = []
        self.producer_ids = 1_000
        #: calls of `offset_at_place`
        self.places_asked = 0
        #: {role: its rights}; others have all
        self.rights: dict[str, frozenset[Right]] = {}
        self._init_administration()

    def _init_administration(self) -> None:
        #: the tokens of requests, and those without the right
        self.administered_with: list[str | None] = []
        self.no_admins: set[str | None] = set()
        self.admin_error: OncelogError | None = None
        #: of setting configurations
        self.config_error: OncelogError | None = None
        self.configs: dict[str, OwnConfigs] = {}
        self.configs_of_namespace = AppliedConfigs()
        #: (topic, number of partitions before, and after)
        self.growths: list[tuple[str, int, int]] = []
        #: cleared: deletions are not complete
        self.deletions = asyncio.Event()
        self.deletions.set()
        #: {log: stored bytes}
        self.sizes: dict[str, int] = {}
        self.known_producers: dict[str, list[KnownProducer]] = {}

    def administration(self, token: str | None) -> FakeAdministration:
        return FakeAdministration(self, token)

    async def rights_of(self, namespace: NamespaceName, caller: Caller) -> frozenset[Right]:
        return frozenset(Right) if caller is UNCHECKED else self.rights.get(caller.role, frozenset(Right))

    def log(self, name: str = "orders") -> FakeLog:
        return self.logs.setdefault(parse_topic(name), FakeLog())

    def _check(self, caller: Caller) -> None:
        if caller is not UNCHECKED and caller.role in self.denied:
            raise PermissionDenied(f"role {caller.role} may not do that")

    async def partitions(self, topic: TopicName, caller: Caller, *, may_create: bool) -> int:
        self._check(caller)
        name = str(topic)
        self.lookups.append(name)
        if name not in self.partition_counts:
            if not may_create:
                raise TopicNotFound(f"there is no topic {name}")
            self.created.append(name)
            self.partition_counts[name] = self.partitions_default
        return self.partition_counts[name]

    async def topics_of(self, namespace: NamespaceName, caller: Caller) -> Sequence[NamedTopic]:
        self._check(caller)
        if self.list_error is not None:
            raise self.list_error
        return [
            NamedTopic(name, count) for name, count in self.partition_counts.items() if name.startswith(f"{namespace}/")
        ]

    async def bounds(self, log: TopicName, caller: Caller) -> Bounds:
        self._check(caller)
        found = self.log(str(log))
        return Bounds(found.first, found.end)

    async def offset_at(self, log: TopicName, caller: Caller, time_ms: int) -> FoundOffset:
        self._check(caller)
        return NO_OFFSET if time_ms > 1_000 else FoundOffset(3, time_ms)

    async def open_reader(self, log: TopicName, caller: Caller, offset: int) -> FakeReader:
        self._check(caller)
        found = self.log(str(log))
        await found.owned.wait()
        self.readers.append(FakeReader(found, offset))
        return self.readers[-1]

    async def new_producer_id(self) -> int:
        if self.list_error is not None:
            raise self.list_error
        self.producer_ids += 1
        return self.producer_ids

    def is_ours(self, producer_id: int) -> bool:
        return producer_id >= 1_000

    async def open_producer(self, log: TopicName, caller: Caller, producer_id: int | None) -> FakeProducer:
        self._check(caller)
        found = self.log(str(log))
        await found.owned.wait()
        self.opened.append(FakeProducer(found, producer_id))
        return self.opened[-1]

    async def offset_at_place(self, log: TopicName, place: StoredPlace) -> int:
        self.places_asked += 1
        return int(place.position.entry_id)
