"""A world for keyed publishes: one store, one log, processes that crash, sleep and wake, and writes that arrive late.

The log knows of producers what an owner knows: the generation that counts, and the last id. A batch of an older
generation is refused; a contiguous one must follow the last id. Nothing else is trusted to the processes.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from oncelog.core.errors import IdempotencyUnavailable, ProducerFenced, ServiceUnavailable
from oncelog.core.http_publish.idempotency import (
    Answer,
    AnswerWritten,
    AskHolder,
    Begin,
    ClaimWritten,
    Effect,
    Event,
    Fenced,
    FenceProducer,
    GiveBack,
    HolderTold,
    KeyedPublish,
    KeyRead,
    PlaceReserved,
    Publish,
    PublishAgain,
    Published,
    PublishFailed,
    ReadKey,
    Refuse,
    ReservePlace,
    RetireLane,
    StepFailed,
    WriteAnswer,
    WriteClaim,
)
from oncelog.core.http_publish.key_record import FoundKey, decode_key_record, encode_key_record
from oncelog.core.http_publish.keyed_producer import Claim, Lane
from oncelog.core.ids import NO_SEQUENCE, SequenceId
from oncelog.core.store_status import WriteStatus


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
    """Its lane; awake: its leases are renewed."""

    name: str
    awake: bool = True
    crashed: bool = False
    lanes: int = 0
    lane: Lane | None = None
    holder: "Run | None" = None


class World:
    """unknown: asked for each write; True: its reply is lost. late: True: what was lost arrives later."""

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

    def lives(self, producer_name: str) -> bool:
        return any(p.awake and p.lane is not None and p.lane.producer_name == producer_name for p in self.processes)


class Run:
    """One request at one process, one effect at a time."""

    def __init__(self, world: World, process: Process, key: str, body: str) -> None:
        self.world, self.process, self.key, self.body = world, process, key, body
        self.core = KeyedPublish(body)
        self.result: Answer | Refuse | None = None
        #: the lane it reserved on
        self.lane: Lane | None = None
        #: on its way to the log: (claim, generation of the sender)
        self.in_flight: tuple[Claim, int] | None = None
        self._fenced: dict[str, int] = {}
        self._waiting: list[Effect] = self.core.handle(Begin())

    @property
    def over(self) -> bool:
        return self.result is not None or self.process.crashed

    @property
    def can_step(self) -> bool:
        waits = bool(self._waiting) and isinstance(self._waiting[0], ReservePlace)
        return not self.over and not (waits and self.process.holder not in {None, self})

    def step(self) -> None:
        """Perform the next effect, or let what is in flight arrive."""
        if self.in_flight is not None:
            self.feed(self.arrive())
            return
        event = self.perform(self._waiting.pop(0))
        if event is not None:
            self.feed(event)

    def feed(self, event: Event) -> None:
        self._waiting += self.core.handle(event)

    def arrive(self) -> Published | PublishFailed:
        """The batch reaches the log; also that of a process which has crashed."""
        assert self.in_flight is not None
        claim, generation = self.in_flight
        self.in_flight = None
        try:
            self.world.log.append(claim, generation, self.body)
        except (ProducerFenced, ServiceUnavailable) as error:
            return PublishFailed(error)
        return Published(f"stored at {claim.producer_name}:{claim.first}")

    def perform(self, effect: Effect) -> Event | None:
        world, process = self.world, self.process
        match effect:
            case ReadKey():
                return KeyRead(world.found(self.key))
            case ReservePlace():
                return PlaceReserved(self._reserve())
            case WriteClaim(record, replaces):
                status = world.write(self.key, encode_key_record(record), replaces)
                return ClaimWritten(status, world.found(self.key) if status is WriteStatus.CONFLICT else None)
            case GiveBack(claim):
                assert self.lane is not None
                self.lane.give_back(claim)
                self._release()
            case RetireLane(name):
                if process.lane is not None and process.lane.producer_name == name:
                    process.lane.retire()
                    process.lane = None
                self._release()
            case Publish(claim):
                assert self.lane is not None
                self._release()
                if self.lane.retired:
                    return PublishFailed(ServiceUnavailable("the lane was retired meanwhile"))
                self.lane.use(claim)
                self.in_flight = (claim, 1)
            case AskHolder(name):
                return HolderTold(world.lives(name))
            case FenceProducer(name):
                return Fenced(self._open(name))
            case PublishAgain(claim):
                self.in_flight = (claim, self._fenced[claim.producer_name])
            case WriteAnswer(record, replaces):
                return AnswerWritten(world.write(self.key, encode_key_record(record), replaces))
            case Answer() | Refuse():
                self.result = effect
        return None

    def _open(self, name: str) -> SequenceId:
        if not self.world.fences:  # the planted bug: the last id is looked at, and nobody is fenced
            producer = self.world.log.producers.get(name, Producer())
            self._fenced[name] = producer.generation
            return producer.last
        self._fenced[name], last = self.world.log.open(name)
        return last

    def _reserve(self) -> Claim:
        process = self.process
        if process.lane is None:
            process.lanes += 1
            name = f"{process.name}-lane{process.lanes}"
            self.world.log.open(name)
            process.lane = Lane(name)
        process.holder, self.lane = self, process.lane
        return process.lane.reserve(1)

    def _release(self) -> None:
        if self.process.holder is self:
            self.process.holder = None

    def finish(self) -> Answer | Refuse:
        """To the end, alone."""
        for _ in range(100):
            if self.result is not None:
                return self.result
            assert self.can_step
            self.step()
        raise AssertionError("no end")


def repeat_until_answered(world: World, process: Process, key: str, body: str) -> Answer:
    """What a client does: the same request until it is answered."""
    for _ in range(20):
        result = Run(world, process, key, body).finish()
        if isinstance(result, Answer):
            return result
        assert result.error.retriable, result.error
    raise AssertionError("never answered")


def unavailable() -> StepFailed:
    return StepFailed(IdempotencyUnavailable("no answer"))
