"""A simulated world for keyed publishes: one store, one log, processes that crash, pause and resume, and late writes.

For each producer the log keeps what a topic owner keeps: the current generation and the last id. It refuses a batch of
an older generation, and a batch that does not follow the last id. It relies on nothing else from the processes.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from oncelog.core.errors import IdempotencyUnavailable, ProducerFenced, ServiceUnavailable
from oncelog.core.http_publish.idempotency import (
    AnswerWritten,
    CheckHolder,
    ClaimPublished,
    ClaimWritten,
    FenceCompleted,
    FenceProducer,
    HolderChecked,
    IdsReserved,
    KeyedPublish,
    KeyedPublishEffect,
    KeyedPublishEvent,
    KeyedPublishRequested,
    KeyRead,
    PublishClaim,
    PublishFailed,
    ReadKey,
    RejectRequest,
    ReleaseClaim,
    RepublishClaim,
    ReserveIds,
    RetireProducer,
    ReturnAnswer,
    StepFailed,
    WriteAnswer,
    WriteClaim,
)
from oncelog.core.http_publish.key_record import FoundKey, decode_key_record, encode_key_record
from oncelog.core.http_publish.keyed_producer import Claim, KeyedProducer
from oncelog.core.ids import NO_SEQUENCE, SequenceId
from oncelog.core.records.status import WriteStatus


@dataclass
class Producer:
    generation: int = 0
    last: SequenceId = NO_SEQUENCE


@dataclass
class Log:
    producers: dict[str, Producer] = field(default_factory=dict)
    #: (producer name, first id, body) of every stored batch
    entries: list[tuple[str, int, str]] = field(default_factory=list)

    def open(self, name: str) -> tuple[int, SequenceId]:
        producer = self.producers.setdefault(name, Producer())
        producer.generation += 1
        return producer.generation, producer.last

    def append(self, claim: Claim, generation: int, body: str) -> bool:
        """Whether it is stored, now or before. Raises ProducerFenced, ServiceUnavailable (a gap)."""
        producer = self.producers[claim.producer_name]
        if generation < producer.generation:
            raise ProducerFenced
        if claim.last <= producer.last:
            return True
        if claim.first != producer.last + 1:
            raise ServiceUnavailable
        producer.last = claim.last
        self.entries.append((claim.producer_name, claim.first, body))
        return True

    def copies(self, body: str) -> int:
        return sum(entry[2] == body for entry in self.entries)


@dataclass
class Process:
    """keyed: its keyed producer. awake: its leases are renewed. keyed_count: keyed producers so far."""

    name: str
    awake: bool = True
    crashed: bool = False
    keyed_count: int = 0
    keyed: KeyedProducer | None = None
    holder: "Run | None" = None


class World:
    """unknown: called for each write; True: its reply is lost, and the write is applied now, later or never."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self.log = Log()
        self.records: dict[str, bytes] = {}
        self.processes: list[Process] = []
        self.late_writes: list[tuple[str, bytes, bytes | None]] = []
        self.chance = chance or random.Random(0)
        self.unknown: Callable[[], bool] = lambda: False
        self.fences = True

    def process(self) -> Process:
        self.processes.append(Process(f"p{len(self.processes)}"))
        return self.processes[-1]

    def found(self, key: str) -> FoundKey | None:
        stored = self.records.get(key)
        return None if stored is None else FoundKey(decode_key_record(stored), stored)

    def write(self, key: str, data: bytes, replaces: bytes | None) -> WriteStatus:
        if self.unknown():
            if self.chance.random() < 0.5:
                self._apply(key, data, replaces)
            else:
                self.late_writes.append((key, data, replaces))
            return WriteStatus.UNKNOWN
        return WriteStatus.OK if self._apply(key, data, replaces) else WriteStatus.CONFLICT

    def _apply(self, key: str, data: bytes, replaces: bytes | None) -> bool:
        if self.records.get(key) != replaces:
            return False
        self.records[key] = data
        return True

    def late_write_arrives(self) -> None:
        if self.late_writes:
            self._apply(*self.late_writes.pop(self.chance.randrange(len(self.late_writes))))

    def alive(self, producer_name: str) -> bool:
        return any(p.awake and p.keyed is not None and p.keyed.producer_name == producer_name for p in self.processes)


class Run:
    """One request at one process, one effect at a time."""

    def __init__(self, world: World, process: Process, key: str, body: str) -> None:
        self.world, self.process, self.key, self.body = world, process, key, body
        self.core = KeyedPublish(body)
        self.result: ReturnAnswer | RejectRequest | None = None
        #: the keyed producer on which it reserved ids
        self.keyed: KeyedProducer | None = None
        #: the batch in flight to the log: (claim, generation of the sender)
        self.in_flight: tuple[Claim, int] | None = None
        self._fenced: dict[str, int] = {}
        self._waiting: list[KeyedPublishEffect] = self.core.handle(KeyedPublishRequested())

    @property
    def over(self) -> bool:
        return self.result is not None or self.process.crashed

    @property
    def can_step(self) -> bool:
        waits = bool(self._waiting) and isinstance(self._waiting[0], ReserveIds)
        return not self.over and not (waits and self.process.holder not in {None, self})

    def step(self) -> None:
        """Perform the next effect, or let the batch in flight arrive."""
        if self.in_flight is not None:
            self.feed(self.arrive())
            return
        event = self.perform(self._waiting.pop(0))
        if event is not None:
            self.feed(event)

    def feed(self, event: KeyedPublishEvent) -> None:
        self._waiting += self.core.handle(event)

    def arrive(self) -> ClaimPublished | PublishFailed:
        """The batch reaches the log, also after its process has crashed."""
        assert self.in_flight is not None
        claim, generation = self.in_flight
        self.in_flight = None
        try:
            self.world.log.append(claim, generation, self.body)
        except (ProducerFenced, ServiceUnavailable) as error:
            return PublishFailed(error)
        return ClaimPublished(f"stored at {claim.producer_name}:{claim.first}")

    def perform(self, effect: KeyedPublishEffect) -> KeyedPublishEvent | None:
        world, process = self.world, self.process
        match effect:
            case ReadKey():
                return KeyRead(world.found(self.key))
            case ReserveIds():
                return IdsReserved(self._reserve())
            case WriteClaim(record, replaces):
                status = world.write(self.key, encode_key_record(record), replaces)
                return ClaimWritten(status, world.found(self.key) if status is WriteStatus.CONFLICT else None)
            case ReleaseClaim(claim):
                assert self.keyed is not None
                self.keyed.release(claim)
                self._release()
            case RetireProducer(name):
                if process.keyed is not None and process.keyed.producer_name == name:
                    process.keyed.retire()
                    process.keyed = None
                self._release()
            case PublishClaim(claim):
                assert self.keyed is not None
                self._release()
                if self.keyed.retired:
                    return PublishFailed(ServiceUnavailable("the keyed producer was retired during the request"))
                self.keyed.use(claim)
                self.in_flight = (claim, 1)
            case CheckHolder(name):
                return HolderChecked(world.alive(name))
            case FenceProducer(name):
                return FenceCompleted(self._open(name))
            case RepublishClaim(claim):
                self.in_flight = (claim, self._fenced[claim.producer_name])
            case WriteAnswer(record, replaces):
                return AnswerWritten(world.write(self.key, encode_key_record(record), replaces))
            case ReturnAnswer() | RejectRequest():
                self.result = effect
        return None

    def _open(self, name: str) -> SequenceId:
        if not self.world.fences:  # the planted bug: read the last id without fencing the producer
            producer = self.world.log.producers.get(name, Producer())
            self._fenced[name] = producer.generation
            return producer.last
        self._fenced[name], last = self.world.log.open(name)
        return last

    def _reserve(self) -> Claim:
        process = self.process
        if process.keyed is None:
            process.keyed_count += 1
            name = f"{process.name}-keyed{process.keyed_count}"
            self.world.log.open(name)
            process.keyed = KeyedProducer(name)
        process.holder, self.keyed = self, process.keyed
        return process.keyed.reserve(1)

    def _release(self) -> None:
        if self.process.holder is self:
            self.process.holder = None

    def finish(self) -> ReturnAnswer | RejectRequest:
        """Run to the end without interruption."""
        for _ in range(100):
            if self.result is not None:
                return self.result
            assert self.can_step
            self.step()
        raise AssertionError("no end")


def repeat_until_answered(world: World, process: Process, key: str, body: str) -> ReturnAnswer:
    """Repeat the request until it is answered, as a client does."""
    for _ in range(20):
        result = Run(world, process, key, body).finish()
        if isinstance(result, ReturnAnswer):
            return result
        assert result.error.retriable, result.error
    raise AssertionError("never answered")


def unavailable() -> StepFailed:
    return StepFailed(IdempotencyUnavailable("no answer"))
