"""A place for the topic's owner: takeovers, the ack log's writer, and the streams of consumers."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.acks.changes import Change, SubscriptionType
from oncelog.core.delivery.events import (
    AnswerAdmin,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerDetached,
    ConsumerEffect,
    ConsumerEvent,
    ConsumerOpening,
    ConsumerOpeningAbandoned,
    DeadLetterStored,
    DeadLetterTopicResolved,
    DeleteRequested,
    DeliverMessages,
    MessagesEvicted,
    MessagesRead,
    PublishDeadLetter,
    ReadMessages,
    ResolveDeadLetterTopic,
    SeekRequested,
    Subscribed,
)
from oncelog.core.delivery.limits import NO_LIMITS, AckStateCheck
from oncelog.core.delivery.outstanding import PAUSED_ACK_TIMEOUT_MS
from oncelog.core.delivery.subscriptions import Subscriptions
from oncelog.core.errors import ConsumerBusy, NotOwner
from oncelog.core.ids import ConsumerNumber, OwnerEpoch, SubscriptionNumber, TopicId
from oncelog.core.policies.retention_rules import ClockCheck
from oncelog.core.sdk.consumer.events import OwnerReport, OwnerRequest
from oncelog.verify.violation import Violation
from tests.core.acks.subscription_fold import fold_changes
from tests.oracles.consumption import KeyOrder
from tests.simulation.consuming.chain import DeadLetterTopic, MessageLog, ModelAckLog, TopicRecord
from tests.simulation.consuming.expiry import Expiry
from tests.simulation.consuming.outboxes import ConsumerStream, OwnerStreams
from tests.simulation.network import Network
from tests.simulation.world import Process, World

TICK = 100
#: Consumer numbers of two times of ownership never overlap.
CONSUMERS_PER_OWNERSHIP = 1_000_000
#: between two trims, and from the decision to the record
TRIM_TICKS = (40, 300)
TRIM_WRITE_TICKS = (5, 120)
#: between two looks for expired messages
EXPIRY_TICKS = 150
#: after the last fault: dispatch is paused for less time, because each time-out gives a hole to the next consumer
PAUSED_TICKS_MAX = 5 * PAUSED_ACK_TIMEOUT_MS
#: a deposed owner that writes nothing learns it from its session
SESSION_TICKS = 400


@dataclass(slots=True)
class Rules:
    """The rules of the shells, which a planted bug replaces."""

    fence: Callable[[ModelAckLog, OwnerEpoch], None] = ModelAckLog.fence
    trim_bound: "Callable[[Ownership], int]" = lambda ownership: ownership.trim_bound()
    clock_agrees: Callable[[ClockCheck, int], bool] = ClockCheck.agrees


@dataclass(slots=True)
class Faults:
    """Probabilities and ticks of one run."""

    write_ticks_max: int = 20
    write_fails: float = 0.0
    #: until the rights of a request to attach are known; longer than a client waits for its answer. 0: at once
    check_ticks_max: int = 0
    #: when the last fault was injected; None: they go on
    healed_at: int | None = None


@dataclass(slots=True)
class Parts:
    """What all processes of a run share."""

    world: World
    network: Network
    log: MessageLog
    chain: ModelAckLog
    record: TopicRecord
    dead_letters: DeadLetterTopic
    rules: Rules
    faults: Faults = field(default_factory=Faults)
    ack_limit: AckStateCheck = NO_LIMITS
    #: None: messages are kept as long as a subscription needs them
    expiry: Expiry | None = None
    #: the budget of what waits until consumers read it; None: they read at once
    stream_bytes_max: int | None = None
    #: subscriptions that were created, for their ids
    ids: int = 0

    def new_id(self) -> str:
        self.ids += 1
        return f"{self.ids:032x}"


class Ownership:
    """One time of ownership: the core, on the fold of the ack log."""

    def __init__(self, owner: "OwnerProcess", epoch: OwnerEpoch) -> None:
        self.owner = owner
        self.parts = owner.parts
        self.epoch = epoch
        self.over = False
        self.trimming = False
        self.state = SubscriptionsState()
        for changes in self.parts.chain.entries:
            fold_changes(self.state, changes)
        self.parts.chain.model.compare(self.state, range(self.parts.log.next_index))
        self._effects: list[ConsumerEffect] = []
        #: changes that wait for the entry in flight, with their tokens
        self._waiting: list[tuple[Change, Any]] = []
        self._writing = False
        self._calls = 0
        #: {call: (stream, the client's call)}
        self._asked: dict[int, tuple[ConsumerStream, int]] = {}
        self._streams: dict[ConsumerNumber, ConsumerStream] = {}
        #: {subscription: since when dispatch is paused}
        self._paused_since: dict[SubscriptionNumber, int] = {}
        #: what was attached here, for the oracle of key_shared
        self._numbers: dict[ConsumerNumber, SubscriptionNumber] = {}
        self._orders: dict[tuple[SubscriptionNumber, int], KeyOrder] = {}
        self.core = Subscriptions(
            self, self.state, lambda change, token: self._waiting.append((change, token)),
            first_index=self.parts.log.first_index, next_index=self.parts.log.next_index,
            first_consumer=ConsumerNumber(epoch * CONSUMERS_PER_OWNERSHIP), new_id=self.parts.new_id,
            taken_over=bool(self.state.subscriptions), ack_limit=self.parts.ack_limit,
        )  # fmt: skip
        self.end_step()
        owner.post(TICK, "ticks", self._tick)
        owner.post(owner.world.rng.randint(*TRIM_TICKS), "looks for a trim", self._look_for_trim)
        if self.parts.expiry is not None:
            owner.post(EXPIRY_TICKS, "looks for expired messages", self._look_for_expired)

    # --- the step of the core -----------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return self.owner.world.now

    def emit(self, effect: ConsumerEffect) -> None:
        self._effects.append(effect)

    def handle(self, event: ConsumerEvent) -> None:
        if not self.over:
            self.core.handle(event)
            self.end_step()

    def end_step(self) -> None:
        self.core.end_step()
        self.core.check_invariants()
        effects, self._effects = self._effects, []
        for effect in effects:
            self._perform(effect)
            if self.owner.burn():
                return
        if self.owner.waiting is not None:
            self.owner.waiting.check()
        self._write()

    def _perform(self, effect: ConsumerEffect) -> None:
        parts = self.parts
        match effect:
            case ReadMessages():
                entries = parts.log.read(effect.first_index, 3)
                read = MessagesRead(effect.number, effect.first_index, entries)
                self._later("messages read", lambda: self.handle(read))
            case AnswerSubscribe() | AnswerSeek():
                stream, call = self._asked.pop(effect.call, (None, 0))
                if stream is None:
                    return
                if isinstance(effect, AnswerSubscribe) and isinstance(effect.result, Subscribed):
                    self._attached(stream, effect.result)
                elif isinstance(effect.result, ConsumerBusy):
                    self._check_busy(stream.subscription)
                self._report(stream, type(effect)(call, effect.result))  # type: ignore[arg-type]
            case MessagesEvicted():
                self.owner.world.count("evicted", effect.count)
            case AnswerAdmin():
                self.owner.world.count("deleted" if effect.error is None else "not deleted")
            case ResolveDeadLetterTopic():
                resolved = DeadLetterTopicResolved(effect.number, effect.topic, parts.dead_letters.topic_id)
                self._later("dead-letter topic", lambda: self.handle(resolved))
            case PublishDeadLetter():
                known = self.state.subscriptions.get(effect.number)
                if known is None:
                    return  # deleted in the same step: what is pending of it needs no topic any more
                subscription_id = known.subscription_id
                parts.dead_letters.publish(subscription_id, effect.topic_id, effect.sequence, effect.index)
                stored = DeadLetterStored(effect.number, effect.topic_id, effect.sequence)
                self.owner.world.count("dead letter")
                self._later("dead letter stored", lambda: self.handle(stored))
            case _:
                target = self._streams.get(effect.consumer)
                if isinstance(effect, DeliverMessages):
                    self._check_order(effect)
                    if target is None:
                        effect.outbox.give_back(effect.cost_bytes)
                if target is not None:
                    self._report(target, effect)

    def _attached(self, stream: ConsumerStream, answer: Subscribed) -> None:
        self._streams[answer.consumer] = stream
        stream.consumers.append(answer.consumer)
        self._numbers[answer.consumer] = answer.number
        self._order(answer.number, answer.seek_epoch).kept(answer.consumer, answer.kept)

    def _check_busy(self, name: str) -> None:
        """A subscription is busy with a consumer that is connected, never with one that may return."""
        if not any(each.has_consumers for each in self.core if each.state.name == name):
            raise Violation("consumer_busy", f"no consumer of {name} is connected")

    def _order(self, number: SubscriptionNumber, seek_epoch: int) -> KeyOrder:
        return self._orders.setdefault((number, seek_epoch), KeyOrder(self.parts.log.keys))

    def _check_order(self, effect: DeliverMessages) -> None:
        """The oracle of key_shared: by what this owner sends."""
        number = self._numbers.get(effect.consumer)
        state = None if number is None else self.state.subscriptions.get(number)
        if number is None or state is None or not self._streams[effect.consumer].keyed:
            return
        order = self._order(number, effect.seek_epoch)
        for entry in effect.entries:
            for first, last in entry.ranges:
                for index in range(first, last + 1):
                    order.sent(
                        effect.consumer, index, lambda i: not state.acks.contains(i) and i not in state.dead_letters
                    )

    def _report(self, stream: ConsumerStream, report: OwnerReport) -> None:
        epoch, moment = self.epoch, self.owner.world.steps
        self.owner.world.count(f"report {type(report).__name__}")

        def send() -> None:
            stream.stream.send(self.owner, f"{type(report).__name__}", lambda: stream.reported(epoch, report, moment))

        if self.owner.waiting is None:
            send()
        else:
            self.owner.waiting.report(stream, report, send)

    def _later(self, label: str, do: Callable[[], None]) -> None:
        self.owner.post(self.owner.world.rng.randint(1, 15), label, do)

    # --- consumers ----------------------------------------------------------------------------------------------------

    def request(self, stream: ConsumerStream, request: OwnerRequest) -> None:
        match request:
            case ConsumerDetached(consumer, True) if consumer in self._numbers:
                self.parts.chain.lost(self._numbers[consumer])
            case ConsumerOpening() | SeekRequested():
                self._calls += 1
                self._asked[self._calls] = (stream, request.call)
                request = _with_call(request, self._calls)
                if isinstance(request, ConsumerOpening):
                    stream.call, stream.keyed = self._calls, request.type is SubscriptionType.KEY_SHARED
                    if self.owner.waiting is not None:
                        request = replace(request, outbox=self.owner.waiting.outbox(stream))
                    stream.subscription = request.subscription
                    self._open(stream, request)
                    return
        self.handle(request)

    def _open(self, stream: ConsumerStream, opening: ConsumerOpening) -> None:
        """The rights of each request are looked up on their own, so a repeated one may overtake the first."""
        if not self.parts.faults.check_ticks_max:
            self.handle(opening)
            return

        def checked() -> None:
            if not stream.over:
                self.handle(opening)

        self.owner.post(self.owner.world.rng.randint(1, self.parts.faults.check_ticks_max), "rights are known", checked)

    def stream_broken(self, stream: ConsumerStream) -> None:
        stream.over = True
        self.handle(ConsumerOpeningAbandoned(stream.call))
        for consumer in stream.consumers:
            if self._streams.pop(consumer, None) is not None:
                self.parts.chain.lost(self._numbers[consumer])
            self.handle(ConsumerDetached(consumer, lost=True))

    def delete(self, subscription: str) -> None:
        self._calls += 1
        self.handle(DeleteRequested(self._calls, subscription, force=True))

    # --- the ack log ------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """One entry is in flight; what is appended meanwhile goes into the next one. It may fail after a crash."""
        if self._writing or not self._waiting or self.over:
            return
        world, faults, entry = self.owner.world, self.parts.faults, tuple(self._waiting)
        self._waiting.clear()
        self._writing = True
        life = self.owner.life
        fails = world.chance(faults.write_fails)

        def arrives() -> None:
            if fails:
                world.count("ack entry failed")
                self.owner.post(world.rng.randint(1, 60), "ack ledger failed", lambda: self._failed(entry), life=life)
            elif self.parts.chain.add(self.epoch, tuple(change for change, _ in entry)):
                self.owner.post(world.rng.randint(1, 10), "ack entry durable", lambda: self._durable(entry), life=life)
            else:
                self.owner.post(world.rng.randint(1, 10), "ack log is fenced", self.depose, life=life)

        world.after(world.rng.randint(1, faults.write_ticks_max), f"{self.owner.name} ack entry", arrives)

    def _durable(self, entry: tuple[tuple[Change, Any], ...]) -> None:
        if self.over:
            return
        self._writing = False
        fold_changes(self.state, [change for change, _ in entry])
        self.core.settled([token for _, token in entry])
        self.end_step()

    def _failed(self, entry: tuple[tuple[Change, Any], ...]) -> None:
        """What waits may depend on what was in flight, so both are dropped."""
        if self.over:
            return
        self._writing = False
        dropped = [token for _, token in (*entry, *self._waiting)]
        self._waiting.clear()
        self.core.dropped(dropped)
        self.end_step()

    def depose(self) -> None:
        """Another owner has the topic."""
        if not self.over:
            self.owner.world.count("owner deposed")
            self.core.end(NotOwner("the topic has another owner"))
            self.core.end_step()
            self._waiting.clear()
            effects, self._effects = self._effects, []
            for effect in effects:
                self._perform(effect)
            self.over = True

    # --- the log ------------------------------------------------------------------------------------------------------

    def messages_end(self) -> None:
        if not self.over:
            self.core.messages_end(self.parts.log.next_index)
            self.end_step()

    def _tick(self) -> None:
        if not self.over:
            self.owner.post(TICK, "ticks", self._tick)
            self.core.tick()
            self.end_step()
            self._check_way_out()

    def _check_way_out(self) -> None:
        """Dispatch does not stay paused: messages in the holes get a time-out, and somebody acknowledges them (39)."""
        healed_at, now = self.parts.faults.healed_at, self.owner.world.now
        for subscription in self.core:
            number, reason = subscription.state.number, subscription.pause_reason
            if not reason:
                self._paused_since.pop(number, None)
                continue
            self.owner.world.count("dispatch paused")
            since = self._paused_since.setdefault(number, now)
            if healed_at is not None and now - max(healed_at, since) > PAUSED_TICKS_MAX:
                raise Violation("pause", f"dispatch is paused without an end: {reason}, {subscription.blocked()}")

    def trim_bound(self) -> int:
        """Nothing from here on may go: not acknowledged durably, a dead letter that is not published, a step back."""
        needed = self.state.first_needed
        step_back = self.core.steps_back_to()
        if self.parts.expiry is not None:
            first = self.core.log.first_index
            return self.parts.expiry.trim_below(self.owner.name, first, needed, step_back=step_back is not None)
        bounds = [self.core.log.next_index, needed, step_back]
        return min(bound for bound in bounds if bound is not None)

    def _look_for_expired(self) -> None:
        expiry = self.parts.expiry
        if expiry is not None and not self.over:
            self.owner.post(EXPIRY_TICKS, "looks for expired messages", self._look_for_expired)
            if expiry.evict(self.owner.name, self.state, self.core.evict):
                self.owner.world.count("messages evicted")
            self.end_step()

    def _look_for_trim(self) -> None:
        if self.over:
            return
        rng = self.owner.world.rng
        self.owner.post(rng.randint(*TRIM_TICKS), "looks for a trim", self._look_for_trim)
        below = self.parts.rules.trim_bound(self)
        if self.trimming or below <= self.core.log.first_index or not self.state.subscriptions:
            return
        self.trimming = True
        self.core.trim_began(below)
        life = self.owner.life

        def arrives() -> None:
            if self.parts.record.epoch == self.epoch:
                self.owner.world.count("trimmed")
                if self.parts.expiry is not None:
                    self.owner.world.count("trimmed by retention")
                    self.parts.expiry.check_trim(self.parts.log.first_index, below)
                self.parts.log.first_index = below
                self.parts.chain.check_kept()
                self.owner.post(rng.randint(1, 20), "trimmed", lambda: self._trimmed(below), life=life)
            else:
                self.owner.post(rng.randint(1, 20), "the record changed", self.depose, life=life)

        self.owner.world.after(rng.randint(*TRIM_WRITE_TICKS), f"{self.owner.name} trims", arrives)

    def _trimmed(self, below: int) -> None:
        self.trimming = False
        if not self.over:
            self.core.trim_ended(below)
            self.end_step()


def _with_call(request: ConsumerOpening | SeekRequested, call: int) -> ConsumerOpening | SeekRequested:
    return replace(request, call=call)


class OwnerProcess(Process):
    """One place."""

    def __init__(self, parts: Parts, name: str) -> None:
        super().__init__(parts.world, name)
        self.parts = parts
        self.ownership: Ownership | None = None
        self.streams: list[ConsumerStream] = []
        #: None: what is sent waits nowhere
        self.waiting: OwnerStreams | None = None

    def start(self) -> None:
        super().start()
        if self.parts.stream_bytes_max is not None:
            self.waiting = OwnerStreams(self, self.parts.stream_bytes_max)

    @property
    def process(self) -> Process:
        return self

    def crash(self) -> None:
        streams, self.streams = self.streams, []
        super().crash()
        self.ownership = None
        for each in streams:
            each.stream.sever()

    def assign(self, epoch: OwnerEpoch) -> None:
        """The record names this owner: fence the former one's chain, then replay it."""

        def fences() -> None:
            self.parts.rules.fence(self.parts.chain, epoch)
            self.post(self.world.rng.randint(1, 30), "replays", lambda: self._serve(epoch))

        self.post(self.world.rng.randint(1, 40), "takes the topic over", fences)

    def _serve(self, epoch: OwnerEpoch) -> None:
        if epoch == self.parts.record.epoch:
            self.world.count("takeover")
            if self.ownership is not None:
                self.ownership.depose()
            self.ownership = Ownership(self, epoch)

    def deposed(self) -> None:
        """The record names another owner. This one learns it from its session, if no write told it before."""
        ownership = self.ownership
        if ownership is not None:
            self.post(self.world.rng.randint(1, SESSION_TICKS), "session is over", ownership.depose)

    def request(self, stream: ConsumerStream, request: OwnerRequest) -> None:
        if stream not in self.streams:
            self.streams.append(stream)
        if self.ownership is not None and not self.ownership.over:
            self.ownership.request(stream, request)
        elif isinstance(request, ConsumerOpening):
            refused = AnswerSubscribe(request.call, NotOwner("this process does not serve the topic"))
            stream.stream.send(self, "refused", lambda: stream.reported(OwnerEpoch(0), refused, self.world.steps))

    def stream_broken(self, stream: ConsumerStream) -> None:
        if stream in self.streams:
            self.streams.remove(stream)
            if self.ownership is not None:
                self.ownership.stream_broken(stream)
            if self.waiting is not None:
                self.waiting.close(stream)


DEAD_LETTERS = TopicId("dd" * 16)
