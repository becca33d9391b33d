"""An owner in one screen, and a network that loses streams: what the tests of the producer session drive it with.

The owner judges by the marks alone and stores at once; every answer, and everything sent, lies in a queue until it is
delivered or its stream is lost.
"""

import zlib
from collections import deque
from random import Random

from oncelog.core.batch import Buffer, decode_batch
from oncelog.core.columns import encode_values
from oncelog.core.entry import SequenceMode
from oncelog.core.errors import (
    OncelogError,
    ProducerFenced,
    SequenceGap,
    SessionEnded,
)
from oncelog.core.ids import (
    NO_SEQUENCE,
    EntryId,
    Generation,
    LedgerId,
    OwnerEpoch,
    Position,
    ProducerId,
    SequenceId,
    SessionNumber,
)
from oncelog.core.outcome import Outcome, Part, PartKind
from oncelog.core.pending_batches import BatchReady, SendBatches
from oncelog.core.producer_session import (
    BatchesAnswered,
    Complete,
    Effect,
    Event,
    Fail,
    FailProducer,
    OpenWanted,
    ProducerSession,
    ReportOpen,
    State,
)
from oncelog.core.producer_session import SessionEnded as SessionEndedEvent
from oncelog.core.sequence_ids import BatchIds
from oncelog.core.session_opening import (
    EndSession,
    LookUp,
    OpenProducer,
    OwnerFound,
    ProducerGranted,
    ProducerSettings,
    StartTimer,
    StreamLost,
    TimerFired,
    TimerKey,
    TimerKind,
)

PID = ProducerId(7)


def checksum(data: Buffer, value: int) -> int:
    return zlib.crc32(data, value)


def stored(count: int, *, entry: int = 0) -> Outcome:
    return (Part(PartKind.STORED, count, Position(LedgerId(1), EntryId(entry)), 0),)


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
    )


def answered(session: int, *answers: tuple[int, Outcome | OncelogError], epoch: int = 1) -> BatchesAnswered:
    return BatchesAnswered(SessionNumber(session), list(answers), OwnerEpoch(epoch))


def new_producer(**settings: object) -> ProducerSession:
    return ProducerSession(ProducerSettings(name="importer", **settings), checksum)  # type: ignore[arg-type]


def opened(*, session: int = 1, last: int = -1, **settings: object) -> ProducerSession:
    """A producer with its first grant, attempt 1."""
    producer = new_producer(**settings)
    producer.handle(OpenWanted())
    producer.handle(OwnerFound(1, OwnerEpoch(1)))
    producer.handle(grant(1, session=session, last=last))
    assert producer.state is State.OPEN
    return producer


def reopened(producer: ProducerSession, *, session: int, epoch: int = 1, last: int = -1) -> list[Effect]:
    """Bring a producer that is looking up, or waits for a retry, to its next session; what it sends there."""
    if producer.opening.phase.value == "waiting":
        producer.handle(TimerFired(TimerKey(TimerKind.RETRY, producer.opening.attempt)))
    attempt = producer.opening.attempt
    producer.handle(OwnerFound(attempt, OwnerEpoch(epoch)))
    return producer.handle(grant(attempt, session=session, epoch=epoch, last=last))


def sent_requests(effects: list[Effect]) -> list[int]:
    return [request for effect in effects if isinstance(effect, SendBatches) for request, _ in effect.batches]


class World:
    """One producer and the owner of its topic, with everything in between that can be lost."""

    def __init__(self, seed: int, mode: SequenceMode) -> None:
        self.random = Random(seed)
        self.mode = mode
        self.producer = new_producer(mode=mode, in_flight_count_max=4)
        #: the log: every id, in the order stored
        self.log: list[int] = []
        self.epoch = 1
        self.generation = 0
        self.session = 0
        #: sessions that still take batches
        self.live: list[int] = []
        #: one stream: what is on its way to the owner, and back
        self.to_owner: deque[OpenProducer | SendBatches] = deque()
        self.to_client: deque[Event] = deque()
        self.timers: list[TimerKey] = []
        self.completed: dict[int, BatchIds] = {}
        self.failed: list[OncelogError] = []
        self.open = False
        self.feed(OpenWanted())

    def feed(self, event: Event) -> None:
        effects = self.producer.handle(event)
        self.producer.check_invariants()
        for effect in effects:
            match effect:
                case OpenProducer() | SendBatches():
                    self.to_owner.append(effect)
                case LookUp():
                    self.to_client.append(OwnerFound(effect.attempt, OwnerEpoch(self.epoch)))
                case StartTimer():
                    self.timers.append(effect.key)
                case ReportOpen():
                    self.open = True
                case Complete():
                    assert effect.request not in self.completed, "answered twice"
                    self.completed[effect.request] = effect.ids
                case Fail() | FailProducer():
                    self.failed.append(effect.error)
                case EndSession():
                    if effect.session in self.live:
                        self.live.remove(effect.session)

    def owner_step(self) -> None:
        message = self.to_owner.popleft()
        if isinstance(message, OpenProducer):
            self._grant(message)
        elif message.session in self.live:
            self._judge(message)

    def _grant(self, message: OpenProducer) -> None:
        if message.resume is None:
            self.generation += 1
        elif message.resume.generation != self.generation:
            raise AssertionError("only one instance lives in this world")
        self.session += 1
        self.live = [self.session]
        last = self.log[-1] if self.log else NO_SEQUENCE
        event = grant(message.attempt, session=self.session, last=last, epoch=self.epoch, generation=self.generation)
        self.to_client.append(event)

    def _judge(self, message: SendBatches) -> None:
        answers: list[tuple[int, Outcome | OncelogError]] = []
        for request, data in message.batches:
            header = decode_batch(data, checksum)
            mark = self.log[-1] if self.log else -1
            result: Outcome | OncelogError
            if header.generation != self.generation:
                result = ProducerFenced(current=self.generation)
            elif header.last <= mark:
                result = (Part(PartKind.DUPLICATE, header.count, None, 0),)
            elif header.first != mark + 1 and self.mode is SequenceMode.CONTIGUOUS:
                result = SequenceGap(expected=mark + 1)
            elif self.random.random() < 0.1:
                result = SessionEnded("a write failed")
            else:
                assert header.first > mark, "a batch changed its boundaries"
                self.log += range(header.first, header.last + 1)
                result = stored(header.count)
            answers.append((request, result))
            if isinstance(result, OncelogError):
                self.live.remove(message.session)
                break
        self.random.shuffle(answers)
        self.to_client.append(answered(message.session, *answers, epoch=self.epoch))

    def lose_stream(self) -> None:
        self.to_owner.clear()
        self.to_client.clear()
        self.live.clear()
        self.feed(StreamLost(self.producer.opening.attempt))

    def take_over(self) -> None:
        """A new owner; the old one's sessions end, with or without the client hearing of it."""
        self.epoch += 1
        for session in self.live:
            self.to_client.append(SessionEndedEvent(SessionNumber(session), SessionEnded(), OwnerEpoch(self.epoch)))
        self.live.clear()

    def step(self, *, faults: bool) -> bool:
        """One thing happens; False when nothing can."""
        chance = self.random.random()
        if faults and chance < 0.03:
            self.lose_stream()
        elif faults and chance < 0.06:
            self.take_over()
        elif self.to_owner and (chance < 0.5 or not self.to_client):
            self.owner_step()
        elif self.to_client:
            self.feed(self.to_client.popleft())
        elif self.timers:
            self.feed(TimerFired(self.timers.pop(0)))
        else:
            return False
        return True
