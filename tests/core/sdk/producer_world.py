"""A small owner, and a network that loses streams, for the tests of the producer session.

The owner checks batches only by the marks and stores at once. Each request and answer stays in a queue until it is
delivered or its stream is lost.
"""

import zlib
from collections import deque
from random import Random

from oncelog.core.errors import OncelogError, ProducerFenced, SequenceGap, SessionEnded
from oncelog.core.formats.batch import BatchHeader, Buffer, decode_batch
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.outcome import Outcome, ResultKind, ResultRange
from oncelog.core.ids import (
    NO_SEQUENCE,
    EntryId,
    Generation,
    InstanceId,
    LedgerId,
    OwnerEpoch,
    Position,
    ProducerId,
    SequenceId,
    SessionNumber,
)
from oncelog.core.sdk.owner_attempts import (
    FailSession,
    LookUp,
    OpenWanted,
    OwnerFound,
    SessionTimerFired,
    StartSessionTimer,
    StreamLost,
    TimerKey,
    TimerKind,
)
from oncelog.core.sdk.producer.events import (
    BatchesAnswered,
    Complete,
    Fail,
    ProducerEffect,
    ProducerEvent,
    ReportOpen,
    SessionClosedByOwner,
)
from oncelog.core.sdk.producer.opening import CloseSession, OpenProducer, ProducerGranted, ProducerSettings
from oncelog.core.sdk.producer.pending_batches import BatchReady, SendBatches
from oncelog.core.sdk.producer.sequence_ids import BatchIds
from oncelog.core.sdk.producer.session import ProducerSession, ProducerSessionState

PID = ProducerId(7)
INSTANCE = InstanceId(b"instance of test")


def checksum(data: Buffer, value: int) -> int:
    return zlib.crc32(data, value)


def stored(count: int, *, entry: int = 0) -> Outcome:
    return (ResultRange(ResultKind.STORED, count, Position(LedgerId(1), EntryId(entry)), 0),)


def ready(request: int, count: int = 1, *, ids: BatchIds | None = None, value: bytes = b"v") -> BatchReady:
    return BatchReady(request, encode_values([value] * count), count, ids, now_ms=1_000 + request)


def explicit(first: int, last: int | None = None) -> BatchIds:
    return BatchIds(SequenceId(first), SequenceId(first if last is None else last))


def grant(
    attempt: int,
    *,
    session: int = 1,
    last: int = -1,
    epoch: int = 1,
    generation: int = 1,
    final: bool = True,
    producer_id: int = PID,
    for_client: bool = True,
) -> ProducerGranted:
    return ProducerGranted(
        attempt,
        SessionNumber(session),
        "importer",
        ProducerId(producer_id),
        Generation(generation),
        SequenceId(last),
        final,
        OwnerEpoch(epoch),
        for_client=for_client,
    )


def answered(session: int, *answers: tuple[int, Outcome | OncelogError], epoch: int = 1) -> BatchesAnswered:
    return BatchesAnswered(SessionNumber(session), list(answers), OwnerEpoch(epoch))


def new_producer(**settings: object) -> ProducerSession:
    return ProducerSession(ProducerSettings(name="importer", **settings), checksum, INSTANCE)  # type: ignore[arg-type]


def opened(*, session: int = 1, last: int = -1, **settings: object) -> ProducerSession:
    """A producer with its first grant, attempt 1."""
    producer = new_producer(**settings)
    producer.handle(OpenWanted())
    producer.handle(OwnerFound(1, OwnerEpoch(1)))
    producer.handle(grant(1, session=session, last=last))
    assert producer.state is ProducerSessionState.OPEN
    return producer


def reopened(
    producer: ProducerSession, *, session: int, epoch: int = 1, last: int | None = None
) -> list[ProducerEffect]:
    """Bring a producer that is looking up, or waits for a retry, to its next session. Returns the effects of that.

    last: of the grant. None: what the producer knows.
    """
    if producer.opening.phase.value == "waiting":
        producer.handle(SessionTimerFired(TimerKey(TimerKind.RETRY, producer.opening.attempt)))
    attempt = producer.opening.attempt
    producer.handle(OwnerFound(attempt, OwnerEpoch(epoch)))
    known = producer.numbers.stored if last is None else last
    return producer.handle(grant(attempt, session=session, epoch=epoch, last=known))


def sent_requests(effects: list[ProducerEffect]) -> list[int]:
    return [request for effect in effects if isinstance(effect, SendBatches) for request, _ in effect.batches]


class Owner:
    """The topic's current owner: a log, the epoch, and the sessions that still accept batches."""

    def __init__(self, random: Random, mode: SequenceMode) -> None:
        self.random = random
        self.mode = mode
        #: every id, in the order stored
        self.log: list[int] = []
        self.epoch = 1
        self.generation = 0
        self.session = 0
        self.live: list[int] = []

    @property
    def mark(self) -> int:
        return self.log[-1] if self.log else NO_SEQUENCE

    def take_over(self) -> list[ProducerEvent]:
        """A new owner; the old one's sessions end."""
        self.epoch += 1
        ended: list[ProducerEvent] = [
            SessionClosedByOwner(SessionNumber(session), SessionEnded(), OwnerEpoch(self.epoch))
            for session in self.live
        ]
        self.live.clear()
        return ended

    def grant(self, message: OpenProducer) -> ProducerEvent:
        if message.resume is None:
            self.generation += 1
        elif message.resume.generation != self.generation:
            raise AssertionError("only one instance lives in this world")
        self.session += 1
        self.live = [self.session]
        return grant(
            message.attempt, session=self.session, last=self.mark, epoch=self.epoch, generation=self.generation
        )

    def ack_limit(self, message: SendBatches) -> ProducerEvent:
        answers: list[tuple[int, Outcome | OncelogError]] = []
        for request, data in message.batches:
            result = self._verdict(decode_batch(data, checksum))
            answers.append((request, result))
            if isinstance(result, OncelogError):
                self.live.remove(message.session)
                break
        self.random.shuffle(answers)
        return answered(message.session, *answers, epoch=self.epoch)

    def _verdict(self, header: BatchHeader) -> Outcome | OncelogError:
        if header.generation != self.generation:
            return ProducerFenced(current=self.generation)
        if header.last <= self.mark:
            return (ResultRange(ResultKind.DUPLICATE, header.count, None, 0),)
        if header.first != self.mark + 1 and self.mode is SequenceMode.CONTIGUOUS:
            return SequenceGap(expected=self.mark + 1)
        if self.random.random() < 0.1:
            return SessionEnded("a write failed")
        assert header.first > self.mark, "a batch changed its boundaries"
        self.log += range(header.first, header.last + 1)
        return stored(header.count)


class World:
    """One producer, the owner of its topic, and the messages in between, which can be lost."""

    def __init__(self, seed: int, mode: SequenceMode) -> None:
        self.random = Random(seed)
        self.owner = Owner(self.random, mode)
        self.producer = new_producer(mode=mode, in_flight_count_max=4)
        #: one stream: what is on its way to the owner, and back
        self.to_owner: deque[OpenProducer | SendBatches] = deque()
        self.to_client: deque[ProducerEvent] = deque()
        self.timers: list[TimerKey] = []
        self.completed: dict[int, BatchIds] = {}
        self.failed: list[OncelogError] = []
        self.open = False
        self.feed(OpenWanted())

    def feed(self, event: ProducerEvent) -> None:
        effects = self.producer.handle(event)
        self.producer.check_invariants()
        for effect in effects:
            match effect:
                case OpenProducer() | SendBatches():
                    self.to_owner.append(effect)
                case LookUp():
                    self.to_client.append(OwnerFound(effect.attempt, OwnerEpoch(self.owner.epoch)))
                case StartSessionTimer():
                    self.timers.append(effect.key)
                case ReportOpen():
                    self.open = True
                case Complete():
                    assert effect.request not in self.completed, "answered twice"
                    self.completed[effect.request] = effect.ids
                case Fail() | FailSession():
                    self.failed.append(effect.error)
                case CloseSession():
                    if effect.session in self.owner.live:
                        self.owner.live.remove(effect.session)

    def owner_step(self) -> None:
        message = self.to_owner.popleft()
        if isinstance(message, OpenProducer):
            self.to_client.append(self.owner.grant(message))
        elif message.session in self.owner.live:
            self.to_client.append(self.owner.ack_limit(message))

    def lose_stream(self) -> None:
        self.to_owner.clear()
        self.to_client.clear()
        self.owner.live.clear()
        self.feed(StreamLost(self.producer.opening.attempt))

    def step(self, *, faults: bool) -> bool:
        """Perform one random event. False if none is possible."""
        chance = self.random.random()
        if faults and chance < 0.03:
            self.lose_stream()
        elif faults and chance < 0.06:
            self.to_client.extend(self.owner.take_over())
        elif self.to_owner and (chance < 0.5 or not self.to_client):
            self.owner_step()
        elif self.to_client:
            self.feed(self.to_client.popleft())
        elif self.timers:
            self.feed(SessionTimerFired(self.timers.pop(0)))
        else:
            return False
        return True
