"""A small owner of one subscription, and a network that loses streams, for the tests of the consumer session.

The owner delivers in order within the consumer's credit, and makes one acknowledgement durable at a time. Each request
and report stays in a queue until it is delivered or its stream is lost.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random

from oncelog.core.acks.changes import IndexRange, SubscriptionType
from oncelog.core.delivery.events import (
    AckRequested,
    AnswerAck,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerDetached,
    ConsumerOpening,
    DeliveredEntry,
    DeliverMessages,
    FlowReported,
    NackRequested,
    SeekRequested,
    StoredEntry,
    Subscribed,
    SubscriptionSought,
)
from oncelog.core.errors import OncelogError, ServiceUnavailable, StaleSeekEpoch
from oncelog.core.ids import (
    ConsumerNumber,
    EntryId,
    Generation,
    InstanceId,
    LedgerId,
    OwnerEpoch,
    Position,
    SeekEpoch,
    SubscriptionNumber,
)
from oncelog.core.sdk.consumer.events import (
    AckEnded,
    AckWanted,
    ConsumerEffect,
    ConsumerEvent,
    ConsumerSettings,
    FlushEnded,
    HandOut,
    MessagesWanted,
    NackWanted,
    OwnerReport,
    OwnerReported,
    OwnerRequest,
    ReportSought,
    SeekEnded,
    SeekWanted,
    SendToOwner,
)
from oncelog.core.sdk.consumer.session import ConsumerSession, ConsumerSessionState
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

INSTANCE = InstanceId(b"instance of test")
SUBSCRIPTION = "ab" * 16
NUMBER = SubscriptionNumber(4)
ENTRY_MESSAGES = 3
WINDOW = 5


def ranges(*pairs: tuple[int, int]) -> tuple[IndexRange, ...]:
    return tuple(IndexRange(first, last) for first, last in pairs)


def entry_of(first: int, count: int = ENTRY_MESSAGES) -> StoredEntry:
    return StoredEntry(Position(LedgerId(1), EntryId(first)), first, count, 0, b"")


def frame(
    first: int,
    last: int,
    *,
    consumer: int = 1,
    epoch: int = 0,
    generation: int = 0,
    counts: dict[int, int] | None = None,
) -> DeliverMessages:
    entry = DeliveredEntry(entry_of(first, last - first + 1), ranges((first, last)))
    return DeliverMessages(ConsumerNumber(consumer), SeekEpoch(epoch), Generation(generation), (entry,), counts or {})


def subscribed(
    *, consumer: int = 1, epoch: int = 0, generation: int = 0, kept: tuple[IndexRange, ...] = (),
    subscription_id: str = SUBSCRIPTION, whole_entries: bool = False,
) -> Subscribed:  # fmt: skip
    return Subscribed(
        ConsumerNumber(consumer), NUMBER, subscription_id, SeekEpoch(epoch), Generation(generation), kept,
        whole_entries=whole_entries,
    )  # fmt: skip


def new_session(kind: SubscriptionType = SubscriptionType.SHARED, **settings: object) -> ConsumerSession:
    return ConsumerSession(
        ConsumerSettings("billing", kind, "worker", first_index=0, receive_window=WINDOW, **settings),  # type: ignore[arg-type]
        INSTANCE,
    )


def reported(session: ConsumerSession, report: OwnerReport, *, epoch: int = 1) -> list[ConsumerEffect]:
    """The owner of the present attempt reports this."""
    effects = session.handle(OwnerReported(session.opening.attempt, OwnerEpoch(epoch), report))
    session.check_invariants()
    return effects


def asked(session: ConsumerSession, *, epoch: int = 1) -> ConsumerOpening:
    """Bring a session that looks up its owner, or waits for a retry, to its next request."""
    if session.opening.phase.value == "waiting":
        session.handle(SessionTimerFired(TimerKey(TimerKind.RETRY, session.opening.attempt)))
    (effect,) = session.handle(OwnerFound(session.opening.attempt, OwnerEpoch(epoch)))
    assert isinstance(effect, SendToOwner)
    assert isinstance(effect.request, ConsumerOpening)
    return effect.request


def attached(
    kind: SubscriptionType = SubscriptionType.SHARED, *, generation: int = 0, **settings: object
) -> ConsumerSession:
    """A session with its first attachment: attempt 1, consumer 1."""
    session = new_session(kind, **settings)
    session.handle(OpenWanted())
    asked(session)
    reported(session, AnswerSubscribe(1, subscribed(generation=generation)))
    assert session.state is ConsumerSessionState.ATTACHED
    return session


def taken(session: ConsumerSession, count: int = 100) -> list[int]:
    """The messages that the application gets now."""
    handed_out = session.handle(MessagesWanted(count))[0]
    session.check_invariants()
    assert isinstance(handed_out, HandOut)
    return [index for run in handed_out.runs for index in range(run.first, run.last + 1)]


def requests(effects: list[ConsumerEffect]) -> list[OwnerRequest]:
    return [effect.request for effect in effects if isinstance(effect, SendToOwner)]


def flow(effects: list[ConsumerEffect]) -> FlowReported:
    """The last report of credit among the effects."""
    return [request for request in requests(effects) if isinstance(request, FlowReported)][-1]


@dataclass
class Owner:
    """The subscription, and the one stream that is attached to it."""

    random: Random
    messages: int
    #: entries of ENTRY_MESSAGES are not cut
    whole_entries: bool = False
    owner_epoch: int = 1
    seek_epoch: int = 0
    consumer: int = 0
    attached: bool = False
    sent: int = 0
    limit: int = 0
    acked: set[int] = field(default_factory=set)
    outstanding: set[int] = field(default_factory=set)
    #: with the application, as the consumer has reported
    begun: set[int] = field(default_factory=set)

    def take_over(self) -> None:
        self.owner_epoch += 1
        self.lose()

    def lose(self) -> None:
        self.attached = False
        self.outstanding.clear()

    def take(self, request: OwnerRequest) -> list[OwnerReport]:
        if isinstance(request, ConsumerOpening):
            return [self._open(request)]
        if not self.attached:
            return []
        match request:
            case ConsumerDetached():
                self.lose()
            case FlowReported():
                self.limit = request.handed_out + request.window
                self.begun = _members(request.begun)
            case AckRequested() | NackRequested():
                return [AnswerAck(request.consumer, request.request, self._settle(request))]
            case SeekRequested():
                self.seek_epoch += 1
                self.acked = set(range(request.index))
                self.outstanding.clear()
                number = ConsumerNumber(self.consumer)
                epoch = SeekEpoch(self.seek_epoch)
                return [SubscriptionSought(number, epoch), AnswerSeek(request.call, epoch)]
        return []

    def _open(self, opening: ConsumerOpening) -> OwnerReport:
        self.consumer += 1
        self.attached, self.sent, self.limit = True, 0, 0
        held = opening.resume
        kept = []
        if held is not None and held.seek_epoch == self.seek_epoch:
            kept = sorted(_members(held.ranges) - self.acked)
        self.outstanding = set(kept)
        self.begun = set() if held is None else _members(held.begun) & self.outstanding
        presented = ranges(*((i, i) for i in kept))
        answer = subscribed(
            consumer=self.consumer, epoch=self.seek_epoch, kept=presented, whole_entries=opening.whole_entries
        )
        return AnswerSubscribe(opening.call, answer)

    def _settle(self, request: AckRequested | NackRequested) -> OncelogError | None:
        if request.seek_epoch < self.seek_epoch:
            return StaleSeekEpoch(seek_epoch=self.seek_epoch)
        if self.random.random() < 0.1:
            return ServiceUnavailable("the ack ledger failed")
        named = _members(request.ranges)
        if isinstance(request, AckRequested):
            self.acked |= named
        self.outstanding -= named
        return None

    def deliver(self) -> OwnerReport | None:
        wanted = [i for i in range(self.messages) if i not in self.acked and i not in self.outstanding]
        if not self.attached or not wanted or self.sent >= self.limit:
            return None
        first = last = wanted[0]
        fits = ENTRY_MESSAGES - first % ENTRY_MESSAGES if self.whole_entries else self.limit - self.sent
        while last + 1 in wanted and last - first + 2 <= min(ENTRY_MESSAGES, fits):
            last += 1
        self.sent += last - first + 1
        self.outstanding |= set(range(first, last + 1))
        return frame(first, last, consumer=self.consumer, epoch=self.seek_epoch)


def _members(given: tuple[IndexRange, ...]) -> set[int]:
    return {i for first, last in given for i in range(first, last + 1)}


class World:
    """One consumer, the owner of its topic, an application, and the messages in between, which can be lost."""

    def __init__(
        self,
        seed: int,
        *,
        messages: int = 20,
        lose_at: int = -1,
        seeks: bool = True,
        session: ConsumerSession | None = None,
    ) -> None:
        """lose_at: the stream is lost after this many steps; -1: only by chance."""
        self.random = Random(seed)
        self.session = session or new_session()
        self.owner = Owner(self.random, messages, whole_entries=self.session.settings.whole_entries)
        self.lose_at = lose_at
        self.seeks = seeks
        self.to_owner: deque[OwnerRequest] = deque()
        self.to_client: deque[ConsumerEvent] = deque()
        self.timers: deque[TimerKey] = deque()
        #: what the application works on: (index, seek_epoch)
        self.working: list[tuple[int, SeekEpoch]] = []
        #: {request: the message}, not settled
        self.acking: dict[int, tuple[int, SeekEpoch]] = {}
        #: durable, at the present epoch
        self.durable: set[int] = set()
        self.requests = self.steps = 0
        self.flushed: list[FlushEnded] = []
        self.feed(OpenWanted())

    def feed(self, event: ConsumerEvent) -> None:
        effects = self.session.handle(event)
        self.session.check_invariants()
        for effect in effects:
            match effect:
                case SendToOwner() if effect.attempt == self.session.opening.attempt:
                    self.to_owner.append(effect.request)
                case LookUp():
                    self.to_client.append(OwnerFound(effect.attempt, OwnerEpoch(self.owner.owner_epoch)))
                case StartSessionTimer():
                    self.timers.append(effect.key)
                case ReportSought():
                    self.durable.clear()
                case HandOut():
                    for run in effect.runs:
                        for index in range(run.first, run.last + 1):
                            assert index not in self.durable, f"{index} was acknowledged and came again"
                            self.working.append((index, run.seek_epoch))
                case AckEnded():
                    acked = self.acking.pop(effect.request, None)
                    if acked is not None and effect.error is None:
                        self.durable.add(acked[0])
                case FlushEnded():
                    self.flushed.append(effect)
                case SeekEnded() | FailSession():
                    assert isinstance(effect, SeekEnded), effect.error

    def work(self) -> None:
        """The application acknowledges a message that it has, or asks for it again."""
        self.requests += 1
        index, epoch = self.working.pop(self.random.randrange(len(self.working)))
        if self.random.random() < 0.8:
            self.acking[self.requests] = (index, epoch)
            self.feed(AckWanted(self.requests, epoch, ranges((index, index))))
        else:
            self.feed(NackWanted(self.requests, epoch, ranges((index, index))))

    def lose_stream(self) -> None:
        self.to_owner.clear()
        self.to_client.clear()
        self.owner.lose()
        self.feed(StreamLost(self.session.opening.attempt))
        if self.session.opening.phase.value == "looking up" and not self.to_client:
            self.to_client.append(OwnerFound(self.session.opening.attempt, OwnerEpoch(self.owner.owner_epoch)))

    def step(self, *, faults: bool) -> bool:
        """Perform one random event. False if none is possible."""
        self.steps += 1
        chance = self.random.random()
        if self.steps == self.lose_at or (faults and chance < 0.04):
            self.lose_stream()
        elif faults and chance < 0.06:
            self.owner.take_over()
            self.lose_stream()
        elif faults and self.seeks and chance < 0.07 and self.session.state is ConsumerSessionState.ATTACHED:
            self.requests += 1
            self.feed(SeekWanted(self.requests, self.random.randrange(self.owner.messages)))
        elif self.to_owner and (chance < 0.4 or not self.to_client):
            for report in self.owner.take(self.to_owner.popleft()):
                self._report(report)
        elif self.to_client:
            self.feed(self.to_client.popleft())
        elif self.working and chance < 0.7:
            self.work()
        elif (delivered := self.owner.deliver()) is not None:
            self._report(delivered)
        elif self.session.messages.waiting and chance < 0.9:
            self.feed(self.wanted())
        elif self.working:
            self.work()
        elif self.timers:
            self.feed(SessionTimerFired(self.timers.popleft()))
        else:
            return False
        return True

    def wanted(self) -> ConsumerEvent:
        """What the application takes."""
        return MessagesWanted(self.random.randint(1, 4))

    def _report(self, report: OwnerReport) -> None:
        attempt, epoch = self.session.opening.attempt, OwnerEpoch(self.owner.owner_epoch)
        self.to_client.append(OwnerReported(attempt, epoch, report))

    def run(self, *, faults: int) -> None:
        """Random steps with faults, then until every message is acknowledged."""
        for _ in range(faults):
            self.step(faults=True)
        for _ in range(3_000):
            if len(self.owner.acked) == self.owner.messages and not self.acking:
                return
            self.step(faults=False)
        raise AssertionError(f"{sorted(set(range(self.owner.messages)) - self.owner.acked)} are not acknowledged")
