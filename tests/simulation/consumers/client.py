"""A consumer's process: one session core after another, and an application that works on messages.

The application acknowledges single messages, ranges, or everything up to a message; late, twice and out of order. It
asks for messages again, seeks now and then, and forgets messages.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from oncelog.core.acks.changes import IndexRange, SubscriptionType
from oncelog.core.acks.index_ranges import count_of
from oncelog.core.delivery.events import DeliverMessages, FlowReported
from oncelog.core.delivery.redelivery import nack_delay_ms
from oncelog.core.errors import ConsumerClosed, ServiceUnavailable
from oncelog.core.ids import Generation, InstanceId, OwnerEpoch, SeekEpoch
from oncelog.core.sdk.consumer.entries import EntrySession
from oncelog.core.sdk.consumer.events import (
    AckEnded,
    AckWanted,
    ClientLives,
    ConsumerEffect,
    ConsumerEvent,
    ConsumerSettings,
    EntryWanted,
    HandOut,
    MessageRange,
    MessagesReady,
    MessagesWanted,
    NackWanted,
    OwnerReport,
    OwnerReported,
    PermitsGiven,
    ReportActive,
    ReportAttached,
    ReportSought,
    ReportTakenBack,
    ReportWanted,
    RestartWanted,
    SeekEnded,
    SeekWanted,
    SendToOwner,
)
from oncelog.core.sdk.consumer.index_set import IndexSet
from oncelog.core.sdk.consumer.session import ConsumerSession, ConsumerSessionState
from oncelog.core.sdk.owner_attempts import (
    FailSession,
    LookUp,
    LookUpFailed,
    OpenWanted,
    OwnerFound,
    SessionTimerFired,
    StartSessionTimer,
    StreamLost,
)
from oncelog.verify.violation import Violation
from tests.oracles.consumption import ConsumptionHistory, Place, Repetition
from tests.simulation.consumers.messages import StoredMessages
from tests.simulation.consumers.streams import ConsumerStream
from tests.simulation.network import Network, Stream
from tests.simulation.world import Process, World

if TYPE_CHECKING:
    from tests.simulation.consumers.owner_end import OwnerGate

WORK_TICKS = (1, 120)
#: An application that has rejected a message so often that the owner's back-off is longer names a delay of its own,
#: because runs do not wait so long for their end.
BACK_OFF_MS_MAX = 16_000
#: How often a client of a gateway wants everything again that it holds.
REDELIVERY = 0.03
_CUMULATIVE = (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)


@dataclass(slots=True)
class Habits:
    """What an application does with a message, as probabilities."""

    nack: float = 0.1
    forget: float = 0.03
    twice: float = 0.1
    cumulative: float = 0.3
    seek: float = 0.0
    #: between two times that it takes messages
    take_ticks: tuple[int, int] = WORK_TICKS


@dataclass(frozen=True, slots=True)
class ConsumerParts:
    """What the consumers of a topic share. owners: the topic at each owner, by the place of its process. route: returns
    the owner that a look-up finds, and its epoch."""

    world: World
    network: Network
    log: StoredMessages
    history: ConsumptionHistory
    owners: "Mapping[str, OwnerGate]"
    route: Callable[[], tuple[str, OwnerEpoch]]
    nack_delays_ms: tuple[int | None, ...] = (None, 0, 50)


@dataclass(frozen=True, slots=True)
class Message:
    """A message that the application has."""

    index: int
    seek_epoch: SeekEpoch
    generation: Generation
    delivery_count: int = 1


class ConsumerClient(Process):
    """One consumer name."""

    def __init__(self, parts: ConsumerParts, name: str, settings: ConsumerSettings, habits: Habits) -> None:
        super().__init__(parts.world, name)
        self.parts = parts
        self.history = parts.history
        self.settings = settings
        self.habits = habits
        self.session: ConsumerSession
        self.stream: ConsumerStream | None = None
        #: the other end of `stream`
        self._owner: OwnerGate | None = None
        #: no further faults: everything is acknowledged
        self.diligent = False
        self._requests = count(1)
        self._instances = count(1)
        self._working: list[Message] = []
        #: {request: place, messages, the lowest message that was asked for again, whether it is a negative one}, not
        #: settled
        self._acking: dict[int, tuple[Place, tuple[IndexRange, ...], int, bool]] = {}
        self._limit = 0
        #: the highest epoch of an owner that this consumer has heard of
        self._epoch_seen = 0
        #: what the application has asked for again and not received since; {message: the newest delivery that it has
        #: received}
        self._unwanted: dict[int, None] = {}
        self._newest: dict[int, int] = {}
        #: what arrived before a rejection of a former delivery was answered; of these, what the application received in
        #: a delivery with the number of the rejected one: no owner can tell the two apart, so it may come once more
        self._crossing: set[int] = set()
        self._twice: set[int] = set()
        #: what the application has acknowledged and not received since: it may still work on a former delivery
        self._acked: set[int] = set()
        self._repetition = Repetition()
        #: of whole entries: messages that it has asked for in all; the negative acknowledgement of everything behind
        #: which everything is to come again in order, 0: none
        self._permitted = self._restarts_after = 0

    @property
    def instance(self) -> str:
        return self.session.instance_id.decode()

    def start(self) -> None:
        super().start()
        self._begin()
        self._later("takes messages", self._take)

    def _begin(self) -> None:
        """A new `subscribe`."""
        instance = f"{self.name}.{next(self._instances)}".encode()
        new = EntrySession if self.settings.whole_entries else ConsumerSession
        self.session = new(self.settings, InstanceId(instance))
        self._permitted, self._restarts_after = 0, 0
        self._working, self._acking, self._unwanted, self._newest, self.stream = [], {}, {}, {}, None
        self._acked, self._crossing, self._twice, self._repetition = set(), set(), set(), Repetition()
        self._epoch_seen = 0
        self._feed(OpenWanted())

    def crash(self) -> None:
        stream, self.stream = self.stream, None
        super().crash()
        if stream is not None:
            stream.stream.sever()

    def _later(self, label: str, do: Callable[[], None], ticks: tuple[int, int] = WORK_TICKS) -> None:
        self.post(self.world.rng.randint(*ticks), label, do)

    # --- the session --------------------------------------------------------------------------------------------------

    def _feed(self, event: ConsumerEvent) -> None:
        session = self.session
        effects = session.handle(event)
        session.check_invariants()
        for effect in effects:
            self._perform(session, effect)
            if self.burn():
                return

    def _perform(self, session: ConsumerSession, effect: ConsumerEffect) -> None:
        match effect:
            case LookUp():
                self._look_up(session, effect)
            case SendToOwner():
                self._send(effect)
            case StartSessionTimer():
                fired = SessionTimerFired(effect.key)
                after = effect.after_ms // 10 if effect.after_ms >= 5_000 else effect.after_ms
                self.post(max(1, after), f"timer {effect.key.kind.value}", lambda: self._of(session, fired))
            case ReportAttached() | ReportActive():
                self.history.active(self._place().subscription_id, effect.generation, self.instance)
            case ReportSought():
                self.world.count("sought")
                self._working.clear()
                self._unwanted.clear()
                self._newest.clear()
                self._acked, self._crossing, self._twice, self._repetition = set(), set(), set(), Repetition()
            case MessagesReady():
                self._later("takes messages", lambda: self._take_now(3), (1, 10))
            case HandOut():
                for run in effect.runs:
                    self._receive(run)
            case AckEnded():
                self._settled(effect)
            case SeekEnded():
                self.world.count("seek answered")
            case ReportWanted():
                if not self.world.chance(0.3):
                    self._later("answers for its client", lambda: self._of(session, ClientLives()))
            case ReportTakenBack():
                self.world.count("taken back")
            case FailSession(error=ConsumerClosed() as error):
                raise Violation("attachment", f"{self.name} was ended by its owner: {error}")
            case FailSession():
                self.world.count(f"consumer failed: {effect.error.code}")
                self._later("subscribes anew", self._begin_anew, (50, 300))

    def _begin_anew(self) -> None:
        if self.session.state is ConsumerSessionState.CLOSED:
            self._begin()

    def _of(self, session: ConsumerSession, event: ConsumerEvent) -> None:
        if session is self.session:
            self._feed(event)

    def _look_up(self, session: ConsumerSession, effect: LookUp) -> None:
        name, epoch = self.parts.route()
        owner = self.parts.owners.get(name)

        def found() -> None:
            if session is not self.session or not session.opening.looks_up(effect.attempt):
                return
            if owner is None or not owner.process.alive or self.parts.network.cut(self.name, owner.process.name):
                self._feed(LookUpFailed(effect.attempt, ServiceUnavailable("no route to the owner")))
                return
            self._epoch_seen = max(self._epoch_seen, epoch)
            self._connect(session, owner, effect.attempt)
            self._feed(OwnerFound(effect.attempt, epoch))

        self.post(self.world.rng.randint(1, 20), "looked up", found)

    def _connect(self, session: ConsumerSession, owner: "OwnerGate", attempt: int) -> None:
        if self.stream is not None:
            self.stream.stream.sever()
        self._owner, stream = owner, Stream(self.parts.network, self, owner.process)

        def reported(epoch: OwnerEpoch, report: OwnerReport, sent: int) -> None:
            if session is self.session:
                self._reported(OwnerReported(attempt, epoch, report), sent)

        mine = self.stream = ConsumerStream(stream, reported, self.settings.subscription)
        stream.on_broken[self.name] = lambda: self._of(session, StreamLost(attempt))
        stream.on_broken[owner.process.name] = lambda: owner.stream_broken(mine)
        self._limit = 0

    def _send(self, effect: SendToOwner) -> None:
        stream, owner, request = self.stream, self._owner, effect.request
        if stream is None or owner is None or effect.attempt != self.session.opening.attempt:
            return
        if isinstance(request, FlowReported):
            self._limit = max(self._limit, request.handed_out + request.window)
        stream.stream.send(self, type(request).__name__, lambda: owner.request(stream, request))

    def _reported(self, event: OwnerReported, sent: int) -> None:
        before = self.session.messages.received
        self._epoch_seen = max(self._epoch_seen, event.owner_epoch)
        self._feed(event)
        messages = self.session.messages
        if isinstance(event.report, DeliverMessages) and messages.received > before:
            last = count_of(event.report.entries[-1].ranges) - 1 if self.settings.whole_entries else 0
            if messages.received - last > self._limit:
                raise Violation("credit", f"{messages.received} messages were sent, {self._limit} were allowed")
            delivered = [part for entry in event.report.entries for part in entry.ranges]
            taken = [part for first, last in delivered for part in messages.waiting.overlap(first, last)]
            place = Place(self._place().subscription_id, event.report.seek_epoch)
            self._crossing.update(i for first, last in taken for i in range(first, last + 1) if self._rejecting(i))
            self.history.delivered(
                place, taken, event.report.delivery_counts, sent,
                owner_epoch=event.owner_epoch, epoch_seen=self._epoch_seen,
            )  # fmt: skip

    def _place(self) -> Place:
        known = self.session.attachment
        assert known is not None
        return Place(known.subscription_id, known.seek_epoch)

    # --- the application ----------------------------------------------------------------------------------------------

    def _take(self) -> None:
        self._later("takes messages", self._take, WORK_TICKS if self.diligent else self.habits.take_ticks)
        if self.session.attachment is None or self.session.state is ConsumerSessionState.CLOSED:
            return
        self._take_now(self.world.rng.randint(1, 6))
        if not self.diligent and self.world.chance(self.habits.seek):
            log = self.parts.log
            self._feed(SeekWanted(next(self._requests), self.world.rng.randint(log.first_index, log.next_index)))

        if self.settings.whole_entries and not self.diligent and self.world.chance(REDELIVERY):
            self._redeliver()

    def _take_now(self, count_max: int) -> None:
        if self.session.attachment is None or self._restarts_after:
            return
        if not self.settings.whole_entries:
            self._feed(MessagesWanted(count_max))
            return
        if len(self._working) < self.settings.receive_window:
            self._permitted += count_max
            self._feed(PermitsGiven(self._permitted))
        self._feed(EntryWanted())

    def _redeliver(self) -> None:
        """As `EntryConsumer.redeliver`."""
        counts = {each.index: each.delivery_count for each in self._working if each.delivery_count > 1}
        ranges = tuple(IndexSet(IndexRange(each.index, each.index) for each in self._working))
        if not ranges or self._restarts_after:
            return
        self.world.count("redelivery of everything")
        self._working.clear()
        request = next(self._requests)
        if self.settings.is_ordered:
            self._restarts_after = request
        self._ask(NackWanted(request, SeekEpoch(self._place().seek_epoch), ranges, 0, counts), ranges)

    def _restart(self, *, done: bool) -> None:
        self._restarts_after = 0
        if done:
            self._feed(RestartWanted())

    def _receive(self, run: MessageRange) -> None:
        place = Place(self._place().subscription_id, run.seek_epoch)
        keyed, ordered = self.settings.type is SubscriptionType.KEY_SHARED, self.settings.type in _CUMULATIVE
        for index in range(run.first, run.last + 1):
            key = self.parts.log.keys[index] if keyed else b"" if ordered else None
            self.world.count("message received")
            self.history.received(place, index, key)
            if ordered:
                asked = self._acked | self._twice | self.history.asked_by_others(place, self.instance)
                over = self.history.at(place).over | asked
                working = (each.index for each in self._working if each.index not in over)
                asked_again = index in self._unwanted or index in self._twice
                self._repetition.received(index, working, asked_again=asked_again)
            message = Message(index, run.seek_epoch, run.generation, run.delivery_counts.get(index, 1))
            self._twice.discard(index)
            crossing, same = index in self._crossing, message.delivery_count <= self._newest.get(index, 0)
            if crossing and same and index in self._unwanted:
                self._twice.add(index)
            self._crossing.discard(index)
            self._working.append(message)
            self._unwanted.pop(index, None)
            self._acked.discard(index)
            self._newest[index] = max(message.delivery_count, self._newest.get(index, 0))
            self._later(f"works on {index}", partial(self._work, self.session, message))

    def _rejecting(self, index: int) -> bool:
        """Whether a negative acknowledgement of a message is not answered."""
        asked = (ranges for _, ranges, _, negative in self._acking.values() if negative)
        return any(first <= index <= last for ranges in asked for first, last in ranges)

    def _work(self, session: ConsumerSession, message: Message) -> None:
        if session is not self.session or message not in self._working:
            return
        rng, habits, index = self.world.rng, self.habits, message.index
        draw = rng.random()
        ranges = (IndexRange(index, index),)
        if not self.diligent and draw < habits.forget:
            self.world.count("message forgotten")
            self._later("remembers", lambda: self._work(session, message), (300, 2_000))
            return
        self._working.remove(message)
        if not self.diligent and draw < habits.forget + habits.nack:
            delay_ms, counts = rng.choice(self.parts.nack_delays_ms), dict.fromkeys([index], message.delivery_count)
            if delay_ms is None and nack_delay_ms(message.delivery_count) > BACK_OFF_MS_MAX:
                delay_ms = 0
            self._ask(NackWanted(next(self._requests), message.seek_epoch, ranges, delay_ms, counts), ranges)
        elif self.settings.type in _CUMULATIVE and not self.diligent and rng.random() < habits.cumulative:
            self._ack_below(message)
        else:
            for _ in range(2 if not self.diligent and rng.random() < habits.twice else 1):
                self._ask(AckWanted(next(self._requests), message.seek_epoch, ranges), ranges)

    def _ack_below(self, message: Message) -> None:
        """Everything up to this message. The application has worked on all of it, except what it asked for again."""
        below = message.index + 1
        if any(other.index < below for other in self._working):
            self._ask(
                AckWanted(next(self._requests), message.seek_epoch, (IndexRange(message.index, message.index),)),
                (IndexRange(message.index, message.index),),
            )
            return
        self.world.count("cumulative acknowledgement")
        self._ask(
            AckWanted(next(self._requests), message.seek_epoch, (), below, message.generation),
            (IndexRange(0, below - 1),),
        )

    def _ask(self, request: AckWanted | NackWanted, ranges: tuple[IndexRange, ...]) -> None:
        place = Place(self._place().subscription_id, request.seek_epoch)
        asked = [i for first, last in ranges for i in range(first, last + 1)]
        if isinstance(request, NackWanted):
            # A word about a former delivery is void: about the newest one that it has received, it has yet to speak.
            counts, waiting = request.delivery_counts, self.session.messages.waiting
            self._crossing.update(i for i in asked if waiting.overlap(i, i))
            self._unwanted.update(dict.fromkeys(i for i in asked if counts.get(i, 1) >= self._newest.get(i, 1)))
        else:
            wanted = [i for i in asked if request.below is None or i not in self._unwanted]
            self.history.asked(place, wanted, self.instance)
            self._acked.update(wanted)
        end = min(self._unwanted, default=0)
        self._acking[request.request] = (place, ranges, end, isinstance(request, NackWanted))
        self._feed(request)

    def _settled(self, effect: AckEnded) -> None:
        place, ranges, end, negative = self._acking.pop(effect.request)
        if effect.request == self._restarts_after:
            session, done = self.session, effect.error is None
            self.post(1, "restarts", lambda: self._restart(done=done) if session is self.session else None)
        if not negative and (effect.error is not None or not effect.complete):
            self._acked.difference_update(
                i for first, last in ranges for i in range(max(first, end if effect.error is None else 0), last + 1)
            )
        if effect.error is None:
            self.world.count("nack durable" if negative else "ack durable" if effect.durable else "ack in memory")
            settled = ranges if effect.complete else (IndexRange(0, end - 1),) if end else ()
            if effect.durable and not negative:
                self.history.acknowledged(place, settled, self.world.steps, self.session.opening.owner_epoch)
            if not effect.complete and place == self._place():
                self.world.count("cumulative acknowledgement ends early")
                last = (IndexRange(ranges[-1].last, ranges[-1].last),)  # the application has worked on it
                self._ask(AckWanted(next(self._requests), SeekEpoch(place.seek_epoch), last), last)
            return
        self.world.count(f"ack refused: {effect.error.code}")
