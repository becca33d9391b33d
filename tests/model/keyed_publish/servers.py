"""The simulated servers of keyed publish: Redis and the log, and how a process reaches them.

Every request waits until the run decides what becomes of it: performed and answered; performed, and the answer is
lost; refused; or lost on its way, and performed later or never. The log keeps of a producer what a topic owner keeps:
its generation and its last id. It refuses a batch of an older generation, and one that does not follow the last id.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from oncelog.core.errors import (
    IdempotencyUnavailable,
    InvalidArgument,
    OncelogError,
    ProducerFenced,
    ServiceUnavailable,
)
from oncelog.core.http_publish.key_dataset import DatasetRecord, FoundDataset
from oncelog.core.ids import TopicId
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.topics.topic_lookup import Located
from oncelog.metadata_store.keys.idempotency_backend import Guard, Holder, KeyReply
from oncelog.metadata_store.session.store_session import Versioned

TOPIC_ID = TopicId("0" * 32)
#: A message that the log refuses as invalid.
INVALID = b"invalid"


class WrongOrder(AssertionError):
    """A process handed ids to a producer that do not follow the last ones."""


@dataclass
class Redis:
    """leases: {producer name: when it expires}. run: the id of the server's process."""

    marker: str | None = None
    run: int = 0
    writes: int = 0
    values: dict[str, bytes] = field(default_factory=dict)
    leases: dict[str, int] = field(default_factory=dict)

    def restart(self) -> None:
        self.run += 1

    def forget(self) -> None:
        self.restart()
        self.marker, self.writes, self.values, self.leases = None, 0, {}, {}

    def holds(self, guard: Guard) -> bool:
        return guard[:2] == (self.marker, str(self.run)) and self.writes >= guard.writes


@dataclass
class LogProducer:
    generation: int = 0
    last: int = -1
    #: {first id: index of its entry}
    entries: dict[int, int] = field(default_factory=dict)


@dataclass
class Log:
    """entries: (producer name, first id, messages) of every stored batch, in order."""

    deduplicates: bool = True
    producers: dict[str, LogProducer] = field(default_factory=dict)
    entries: list[tuple[str, int, tuple[bytes, ...]]] = field(default_factory=list)

    def open(self, name: str) -> tuple[int, int]:
        """The new generation, and the last id."""
        producer = self.producers.setdefault(name, LogProducer())
        producer.generation += 1
        return producer.generation, producer.last

    def append(self, name: str, generation: int, first: int, values: tuple[bytes, ...]) -> int:
        """The index of the entry, stored now or before. Raises ProducerFenced, ServiceUnavailable (a gap)."""
        producer = self.producers[name]
        if generation < producer.generation:
            raise ProducerFenced
        if first <= producer.last and self.deduplicates:
            return producer.entries[first]
        if first > producer.last + 1:
            raise ServiceUnavailable("the ids have a gap")
        producer.last = first + len(values) - 1
        producer.entries[first] = len(self.entries)
        self.entries.append((name, first, values))
        return len(self.entries) - 1


@dataclass(eq=False)
class Request:
    """One request of a process. perform: at the server; raises OncelogError. lost: its result if no answer comes, which
    says nothing of whether it was performed; an exception is raised. line: batches of one instance of a producer keep
    their order."""

    owner: object
    perform: Callable[[], Any]
    lost: Any
    writes: bool
    answer: "asyncio.Future[Any] | None"
    line: "Producer | None" = None

    def settle(self, result: Any) -> None:
        if self.answer is None or self.answer.done():
            return
        if isinstance(result, BaseException):
            self.answer.set_exception(result)
        else:
            self.answer.set_result(result)


class Wire:
    """The requests of all processes. late: sent, not answered any more, and perhaps performed later."""

    def __init__(self) -> None:
        self.waiting: list[Request] = []
        self.late: list[Request] = []
        self.over = False

    def ask(
        self, owner: object, perform: Callable[[], Any], lost: Any, *, writes: bool, line: "Producer | None" = None
    ) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.over:
            answer.set_exception(IdempotencyUnavailable("the run is over"))
        else:
            self.waiting.append(Request(owner, perform, lost, writes, answer, line))
        return answer


class Producer:
    """One instance of a producer, as the SDK opens it: batches reach the log in order, and one failure ends it."""

    def __init__(self, wire: Wire, log: Log, owner: object, name: str, opened: tuple[int, int]) -> None:
        self.producer_name = name
        self.generation, self.last_sequence_id = opened
        self.failure: OncelogError | None = None
        self.last_error: OncelogError | None = None
        self._next = self.last_sequence_id + 1
        self._wire, self._log, self._owner = wire, log, owner

    async def send_many(self, values: Sequence[bytes], *, sequence_ids: Sequence[int], **_: Any) -> SimpleNamespace:
        if INVALID in values:
            raise InvalidArgument("the message is invalid")
        if self.failure is not None:
            raise self.failure
        first, batch = sequence_ids[0], tuple(values)
        if first > self._next:
            raise WrongOrder(f"{self.producer_name}: ids from {first} on were sent, {self._next} is next")
        self._next = max(self._next, sequence_ids[-1] + 1)

        def append() -> SimpleNamespace:
            at = self._log.append(self.producer_name, self.generation, first, batch)
            return SimpleNamespace(message_ids=[f"entry {at}"])

        lost = ServiceUnavailable("no answer from the log")
        return await self._wire.ask(self._owner, append, lost, writes=True, line=self)  # type: ignore[no-any-return]

    async def close(self, *, flush: bool) -> None:
        assert not flush


class Client:
    """The SDK client of one process."""

    def __init__(self, wire: Wire, log: Log, owner: object) -> None:
        self._wire, self._log, self._owner = wire, log, owner

    async def create_producer(self, _: str, *, producer_name: str, **__: Any) -> Producer:
        lost = ServiceUnavailable("no answer from the owner")
        opened = await self._wire.ask(self._owner, lambda: self._log.open(producer_name), lost, writes=True)
        return Producer(self._wire, self._log, self._owner, producer_name, opened)


class Lookup:
    """One topic without partitions."""

    async def locate(self, _: object, *, create: bool) -> Located:
        assert create
        return Located(TOPIC_ID, 0)

    async def find(self, _: object) -> SimpleNamespace:
        return SimpleNamespace(topic_id=TOPIC_ID)


class Policies:
    def __init__(self, log: Log) -> None:
        self._log = log

    async def effective_of(self, *_: object) -> SimpleNamespace:
        return SimpleNamespace(deduplication=SimpleNamespace(value=self._log.deduplicates))


class Datasets:
    """The cluster's record of the data set, in ZooKeeper, which loses nothing here."""

    def __init__(self) -> None:
        self._record: Versioned[DatasetRecord] | None = None

    async def read(self) -> Versioned[DatasetRecord] | None:
        return self._record

    async def note(self) -> None: ...

    async def write(self, record: DatasetRecord, *, version: int) -> None:
        if version == (ABSENT_VERSION if self._record is None else self._record.version):
            self._record = Versioned(record, version + 1)


class RedisConnection:
    """Redis, as one process reaches it. window_ms is the time that no run lasts: keys do not expire here."""

    def __init__(self, wire: Wire, redis: Redis, owner: object, now_ms: Callable[[], int]) -> None:
        self._wire, self._redis, self._owner, self._now_ms = wire, redis, owner, now_ms

    def _ask(self, perform: Callable[[], Any], *, writes: bool = False) -> "asyncio.Future[Any]":
        return self._wire.ask(self._owner, perform, IdempotencyUnavailable("no answer from Redis"), writes=writes)

    async def check_settings(self) -> None: ...

    async def look(self) -> FoundDataset:
        def look() -> FoundDataset:
            return FoundDataset(self._redis.marker, str(self._redis.run), self._redis.writes, 0)

        return await self._ask(look)  # type: ignore[no-any-return]

    async def install(self, marker: str, *, replaces: str | None) -> None:
        def install() -> None:
            if self._redis.marker == replaces:
                self._redis.marker = marker

        await self._ask(install, writes=True)

    async def read(self, guard: Guard, key: str) -> KeyReply:
        def read() -> KeyReply:
            return KeyReply(True, value=self._redis.values.get(key)) if self._redis.holds(guard) else KeyReply(False)

        return await self._ask(read)  # type: ignore[no-any-return]

    async def write(
        self, guard: Guard, key: str, value: bytes, *, replaces: bytes | None, window_ms: int, lease: Holder | None
    ) -> KeyReply:
        def write() -> KeyReply:
            redis = self._redis
            if not redis.holds(guard):
                return KeyReply(False)
            if redis.values.get(key) != replaces:
                return KeyReply(True, WriteStatus.CONFLICT, redis.values.get(key))
            redis.values[key] = value
            if lease is not None:
                redis.leases[lease.name] = self._now_ms() + lease.lease_ms
            redis.writes += 1
            return KeyReply(True, writes=redis.writes)

        unknown = KeyReply(True, WriteStatus.UNKNOWN)
        return await self._wire.ask(self._owner, write, unknown, writes=True)  # type: ignore[no-any-return]

    async def renew(self, lease: Holder) -> None:
        def renew() -> None:
            self._redis.leases[lease.name] = self._now_ms() + lease.lease_ms

        await self._ask(renew, writes=True)

    async def drop(self, name: str) -> None:
        await self._ask(lambda: self._redis.leases.pop(name, None), writes=True)

    async def holds(self, name: str) -> bool:
        return await self._ask(lambda: self._redis.leases.get(name, 0) > self._now_ms())  # type: ignore[no-any-return]

    async def close(self) -> None: ...
