"""One subscription at the topic's owner: what its consumers hold, what they acknowledge, and its position.

How consumers attach, return and go: see `attachments`.

A message, at this owner:

    deliverable --credit--> outstanding --acknowledged--> hidden --durable--> acknowledged
                    |                                        --dropped--> outstanding
                    |--negative acknowledgement, time-out--> count in flight --durable--> delayed | deliverable | wanted
                    |--consumer gone--> deliverable, or, if it had begun with it: count in flight
    wanted as a dead letter -> see `dead_letters`

Rules: only the durable state answers what is acknowledged; nothing is told before it is durable; what was dropped is as
before.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pyroaring import BitMap64

from oncelog.core.acks.ack_state import SubscriptionState
from oncelog.core.acks.changes import (
    Evicted,
    EvictionReason,
    IndexRange,
    MessagesSkipped,
    PropertiesSet,
    SubscriptionType,
)
from oncelog.core.acks.index_ranges import count_of, members_in
from oncelog.core.delivery.acknowledging import SHARED_TYPES, Acknowledging, AckToken
from oncelog.core.delivery.activation import ActivationToken
from oncelog.core.delivery.attachments import Attachments
from oncelog.core.delivery.consumers import ConnectedConsumer
from oncelog.core.delivery.context import Append, Context, outcome_unknown
from oncelog.core.delivery.dead_letters import DeadLetters, DeadLetterToken, PublishedToken
from oncelog.core.delivery.deliverable import Deliverable, LogRange
from oncelog.core.delivery.delivery import Delivery
from oncelog.core.delivery.events import (
    AckRequested,
    AnswerAck,
    AnswerAdmin,
    FlowReported,
    MessagesEvicted,
    MessagesRead,
    NackRequested,
    PropertiesRequested,
    SkipRequested,
    SubscriptionStep,
)
from oncelog.core.delivery.group_offsets.committing import Committing, OffsetToken
from oncelog.core.delivery.in_flight import PropertiesToken
from oncelog.core.delivery.key_shared import KeyShared
from oncelog.core.delivery.look_ahead import LookAhead
from oncelog.core.delivery.redelivery import CountToken, Redeliveries
from oncelog.core.delivery.seeking import Seeking, SeekToken
from oncelog.core.delivery.store_binding.bound_effects import BindToken, BoundEffects, RebindToken
from oncelog.core.delivery.store_binding.events import (
    BindRequested,
    DeadLetterRequested,
    RebindRequested,
    RewindRequested,
)
from oncelog.core.errors import (
    InvariantViolated,
    OncelogError,
    ServiceUnavailable,
)
from oncelog.core.ids import ConsumerNumber

#: Requests that may wait for a seek or a grant in flight.
DEFERRED_MAX = 100


class Blocked(NamedTuple):
    """Why new messages are withheld, and since when. lowest_hole: the lowest unacknowledged message. holder: the
    consumer that has it; empty: none has."""

    reason: str
    since_ms: int
    lowest_hole: int
    holder: str


class Subscription:
    """Decides what consumers get and what becomes of their acknowledgements."""

    def __init__(
        self,
        step: SubscriptionStep,
        state: SubscriptionState,
        append: Append,
        log: LogRange,
        *,
        partition: int = 0,
        taken_over: bool = False,
        registry: "dict[ConsumerNumber, Subscription]",
    ) -> None:
        """state: the durable fold. log: the messages that the topic has. taken_over: whether a former owner may have
        delivered. registry: where the subscription enters its connected consumers."""
        self._step = step
        self.state = state
        self._log = log
        self._context = context = Context(step, append, state, Deliverable(state, log))
        self._consumers = context.consumers
        self.dead_letters = DeadLetters(context)
        self._redeliveries = redeliveries = Redeliveries(context, self.dead_letters)
        self._look_ahead = look_ahead = LookAhead(step, state.number)
        self._delivery = delivery = Delivery(context, look_ahead, redeliveries, self.dead_letters)
        self._acks = Acknowledging(context, log)
        self.attachments = Attachments(
            context, log, redeliveries, self.dead_letters, partition=partition, taken_over=taken_over,
            attached=lambda number: registry.__setitem__(number, self), gone=registry.__delitem__,
            new_keys=lambda: KeyShared(
                context, look_ahead, redeliveries, delivery, in_memory=lambda: self._acks.in_memory
            ),
        )  # fmt: skip
        self.effects = BoundEffects(context, log)
        self.seeking = Seeking(
            context, log, self._acks, redeliveries, self.dead_letters, self.attachments, over=self._take_deferred
        )
        self.committing = Committing(context, log, self.attachments, self.seeking)
        #: why new messages are withheld; empty: they are not
        self.pause_reason = ""
        self._changing: list[PropertiesToken] = []
        #: requests that wait for a seek or a grant in flight
        self._deferred: list[AckRequested | NackRequested] = []
        self.dead_letters.start()

    # --- consumers ----------------------------------------------------------------------------------------------------

    @property
    def type(self) -> SubscriptionType:
        return self.attachments.type

    @property
    def has_consumers(self) -> bool:
        return bool(len(self._consumers))

    @property
    def is_served(self) -> bool:
        """Whether new messages may matter to a consumer that is connected, or waits to be."""
        return self.has_consumers or self.attachments.any_opening

    @property
    def delivered_counts(self) -> tuple[int, int]:
        """Messages sent to consumers by this owner, and those of them that had been delivered before."""
        return self._context.delivered, self._context.redelivered

    @property
    def consumers(self) -> Iterable[ConnectedConsumer]:
        return self._consumers.by_number.values()

    def flow(self, event: FlowReported) -> None:
        consumer = self._consumers.by_number.get(event.consumer)
        if consumer is not None:
            consumer.credit.report(handed_out=event.handed_out, window=event.window, bytes_max=event.bytes_max)
            if event.seek_epoch in (None, self.state.seek_epoch):  # another one means deliveries of before the seek
                begun = members_in(consumer.out.bits, event.begun) if event.begun else BitMap64()
                consumer.out.begin(begun, self._context.running_ms(), arrived=event.arrived)
            self._credit_changed(consumer)

    def room_returned(self, number: ConsumerNumber) -> None:
        """The stream of this consumer may take messages again."""
        consumer = self._consumers.by_number.get(number)
        if consumer is not None:
            self._credit_changed(consumer)

    def _credit_changed(self, consumer: ConnectedConsumer) -> None:
        self._consumers.credit_changed(consumer)
        if self.attachments.keys is not None:
            self.attachments.keys.credit_changed(consumer)

    # --- acknowledgements ---------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether no further request may wait for a seek or a grant in flight."""
        return len(self._deferred) >= DEFERRED_MAX

    def request(
        self, event: AckRequested | NackRequested | BindRequested | RewindRequested | DeadLetterRequested
    ) -> None:
        """Acknowledge, deliver again, bind the store of the effects, deliver again what it has lost, or make a dead
        letter of what it has given up."""
        consumer = self._consumers.by_number.get(event.consumer)
        if consumer is None:
            return
        if isinstance(event, BindRequested | RewindRequested | DeadLetterRequested):
            self._request_effects(consumer, event)
            return
        cumulative = isinstance(event, AckRequested) and event.below is not None
        if self.seeking.busy or (cumulative and self.attachments.activation.granting is not None):
            self._deferred.append(event)
            return
        error = self._acks.refusal(event, self.type)
        if error is not None:
            self._step.emit(AnswerAck(consumer.number, event.request, error))
        elif isinstance(event, AckRequested):
            self._acks.append(consumer, event)
        else:
            self._redeliveries.nack(consumer, event)

    def _request_effects(
        self, consumer: ConnectedConsumer, event: BindRequested | RewindRequested | DeadLetterRequested
    ) -> None:
        error = self.effects.refusal(consumer, event)
        if error is not None:
            self._step.emit(AnswerAck(consumer.number, event.request, error))
        elif isinstance(event, BindRequested):
            self.effects.bind(consumer, event)
        elif isinstance(event, DeadLetterRequested):
            self.dead_letters.request(consumer, event)
        else:
            self.seeking.request(event)

    def _take_deferred(self) -> None:
        deferred, self._deferred = self._deferred, []
        for event in deferred:
            self.request(event)

    def administer(self, event: PropertiesRequested | SkipRequested | RebindRequested) -> None:
        """A change that an administrator wants."""
        match event:
            case PropertiesRequested():
                self._set_properties(event)
            case SkipRequested():
                self._skip_for_admin(event)
            case RebindRequested():
                self._rebind(event)

    def _skip_for_admin(self, event: SkipRequested) -> None:
        """An administrator acknowledges messages."""
        if self.seeking.busy:
            error = ServiceUnavailable("a seek of the subscription is being written: try again")
            self._step.emit(AnswerAdmin(event.call, error))
            return
        if event.below is not None:
            if not 0 <= event.below <= self._log.next_index:
                self._step.emit(AnswerAdmin(event.call, self.seeking.out_of_range(event.below)))
                return
            below = event.below
        else:
            below = self._acks.after_unacked(event.count or 0, self._log.next_index)
        first = self.state.acks.mark_delete
        # One range, also over acknowledged messages: the change stays small, however many holes it closes.
        self._skip((IndexRange(first, below - 1),) if below > first else (), event.call)

    def skip_below(self, index: int) -> None:
        """Acknowledge what is below an index, unless that is in flight; not while a seek is in flight."""
        first = self.state.acks.mark_delete
        if not self.seeking.busy and not self._acks.covers(first, index - 1):
            self._skip((IndexRange(first, index - 1),), None)

    def _skip(self, ranges: tuple[IndexRange, ...], call: int | None) -> None:
        if not ranges:
            if call is not None:
                self._step.emit(AnswerAdmin(call))
            return
        token = AckToken(ranges, call=call)
        self._acks.hide(token)
        self._context.append(MessagesSkipped(self.state.number, self.state.seek_epoch, ranges), token)

    def evict(self, ranges: tuple[IndexRange, ...], reason: EvictionReason) -> None:
        """Acknowledge messages because of their age or of a backlog quota; not while a seek is in flight."""
        if ranges and not self.seeking.busy:
            token = AckToken(ranges, reason=reason)
            self._acks.hide(token)
            self._context.append(Evicted(self.state.number, self.state.seek_epoch, ranges, reason), token)

    def _rebind(self, event: RebindRequested) -> None:
        """An administrator binds another store of effects."""
        if self.seeking.busy:
            error = ServiceUnavailable("a seek of the subscription is being written: try again")
            self._step.emit(AnswerAdmin(event.call, error))
        else:
            self.effects.rebind(event, used=self.is_served)

    def _set_properties(self, event: PropertiesRequested) -> None:
        token = PropertiesToken(event.call)
        self._changing.append(token)
        self._context.append(PropertiesSet(self.state.number, event.properties), token)

    def _properties_set(self, token: PropertiesToken, error: OncelogError | None) -> None:
        self._changing.remove(token)
        self._step.emit(AnswerAdmin(token.call, error))

    # --- the ack log's answers --------------------------------------------------------------------------------------

    def settled(self, token: object) -> None:
        """A change of this subscription is durable, and the fold has it."""
        match token:
            case AckToken():
                self._acks.settled(token)
                if self.pause_reason and self.attachments.keys is not None:
                    self.attachments.keys.look_again()  # there may be more holes
                if token.call is not None:
                    self._step.emit(AnswerAdmin(token.call))
                if token.reason is not None:
                    self._step.emit(MessagesEvicted(token.reason, count_of(token.ranges), self.state.name))
            case CountToken():
                self._redeliveries.settled(token)
            case ActivationToken():
                self.attachments.granted(token)
                self._take_deferred()
            case SeekToken():
                self.seeking.settled(token)
            case OffsetToken():
                self.committing.settled(token)
            case BindToken():
                self.effects.settled(token)
            case RebindToken():
                self.effects.rebound(token, written=True)
            case PropertiesToken():
                self._properties_set(token, None)
            case DeadLetterToken():
                self.dead_letters.settled(token)
            case PublishedToken():
                for first, last in self.dead_letters.published(token):
                    self._context.leave_all(first, last)

    def all_settled(self) -> None:
        """Everything is settled that became durable together."""
        self._acks.hide_again()

    def dropped(self, tokens: list[object]) -> None:
        """These changes were not written, and nothing that was appended after them was."""
        acks = [token for token in tokens if isinstance(token, AckToken)]
        if acks:
            self._acks.dropped(acks)
        for token in tokens:
            match token:
                case AckToken():
                    if token.call is not None:
                        self._step.emit(AnswerAdmin(token.call, _not_written()))
                case PropertiesToken():
                    self._properties_set(token, _not_written())
                case CountToken():
                    self._redeliveries.dropped(token)
                case ActivationToken():
                    self.attachments.grant_dropped(token)
                case SeekToken():
                    self.seeking.dropped(token)
                case BindToken():
                    self.effects.dropped(token)
                case RebindToken():
                    self.effects.rebound(token, written=False)
        self.committing.dropped([t for t in tokens if isinstance(t, OffsetToken)])
        self.dead_letters.dropped([t for t in tokens if isinstance(t, DeadLetterToken | PublishedToken)])
        if not self._context.closing:
            self.attachments.choose()
            self.set_full(self._acks.full)
        if self.attachments.activation.granting is None and not self.seeking.busy:
            self._take_deferred()

    # --- delivery -----------------------------------------------------------------------------------------------------

    def messages_read(self, event: MessagesRead) -> bool:
        """Entries arrived; returns whether any did."""
        missing = self._look_ahead.arrived(event)
        if missing is None:
            return False
        if missing:
            self._skip(tuple(missing), None)
        return bool(event.entries)

    def deliver(self) -> None:
        """Deliver what can be delivered; called at the end of each step that touched the subscription."""
        self._deliver()
        self._look_ahead.end_step()

    def _deliver(self) -> None:
        if not self._consumers or self.seeking.busy or self._context.closing:
            return
        if self.attachments.keys is not None:
            if self.attachments.returns_until_ms is None:
                self.attachments.keys.run()
            return
        if self.type is SubscriptionType.SHARED:
            self._delivery.run(None)
            return
        grants = self.attachments.activation
        waits = grants.granting is not None or self.attachments.returns_until_ms is not None
        waits = waits or self._redeliveries.releasing or self._acks.skipping
        if grants.active is not None and not waits:
            self._delivery.run(grants.active)

    # --- pause (PIP-299) ----------------------------------------------------------------------------------------------

    def pause(self, reason: str) -> None:
        """Withhold new messages for this reason, of every type of subscription; empty: do not. What is in the holes is
        delivered, so that acknowledgements can lower the state (hazard dispatch-paused-for-ever)."""
        if bool(reason) != bool(self.pause_reason):
            self._redeliveries.pause(paused=bool(reason))
            if self.attachments.keys is not None:
                self.attachments.keys.look_again()
        self.pause_reason = reason

    def set_full(self, full: bool) -> None:
        """The ack state of the topic is at its hard limit, or there is room (hazard ack-state-at-its-limit)."""
        self._acks.full = full
        if self._acks.in_memory and not self.seeking.busy:
            if full:
                self._acks.write_lowest()
            else:
                self._acks.write_memory()

    def held_since_ms(self, consumer: ConnectedConsumer, held: BitMap64) -> int | None:
        """Since when the consumer has had the oldest of these messages, by the clock, at the latest: exact to some
        seconds, or to minutes for a message that stayed while it got many others. None: not known, or it has none."""
        running_ms = consumer.out.held_since_ms(held)
        return None if running_ms is None else self._context.clock_ms(running_ms)

    def blocked(self) -> Blocked | None:
        """Why new messages are withheld, and what would let them go on; None: they are not withheld."""
        since_ms = self._redeliveries.paused_since_ms
        if since_ms is None:
            return None
        hole = self.state.acks.mark_delete
        names = [c.name for c in self._consumers.by_number.values() if hole in c.out.bits]
        return Blocked(self.pause_reason, since_ms, hole, names[0] if names else "")

    # --- time ---------------------------------------------------------------------------------------------------------

    def tick(self) -> bool:
        """What time brings: returns, delays, time-outs, dead letters that wait for their topic. Returns whether there
        may be something to deliver: a read that found nothing is repeated, too."""
        now_ms = self._step.now_ms
        if self.attachments.returns_until_ms is not None and now_ms >= self.attachments.returns_until_ms:
            self.attachments.returns_over()
            self.attachments.choose()
        if self._consumers.away:
            self.attachments.release_away(before_ms=now_ms)
        self.attachments.end_silent()
        self._redeliveries.delays_over()
        self._look_ahead.drop_unused()
        if not self.seeking.busy and not self._context.closing:
            for consumer in self._consumers.by_number.values():
                if consumer.out.bits:
                    self._redeliveries.time_out(consumer, in_order=self.type not in SHARED_TYPES)
        self.dead_letters.work()
        return self.has_consumers and (self.attachments.keys is not None or not self._context.deliverable.at_end)

    @property
    def idle(self) -> bool:
        """Whether time brings nothing before something else happens."""
        context, attachments = self._context, self.attachments
        if attachments.returns_until_ms is not None or self._consumers.away or attachments.wanted.waiting:
            return False
        if context.deliverable.any_delay or self.dead_letters.busy or self._look_ahead.bytes:
            return False
        if not self.has_consumers:
            return True
        if attachments.keys is not None or not context.deliverable.at_end:
            return False
        return not any(consumer.out.bits for consumer in self._consumers.by_number.values())

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Nothing more is delivered or written; what is in flight will be answered."""
        self._context.closing = True
        self._look_ahead.close()

    def end(self, error: OncelogError) -> None:
        """Every consumer's stream ends. The outcome of a seek, or of an administrator's change, that is in flight is
        unknown; consumers repeat their acknowledgements at the next owner."""
        self.close()
        for event in self._deferred:
            if event.consumer in self._consumers.by_number:
                self._step.emit(AnswerAck(event.consumer, event.request, error))
        self._deferred.clear()
        self.seeking.end()
        self.committing.end(error)
        self.effects.end()
        for call in (*self._acks.calls(), *(token.call for token in self._changing)):
            self._step.emit(AnswerAdmin(call, outcome_unknown()))
        self._changing.clear()
        self.attachments.end(error)

    def check_invariants(self) -> None:
        deliverable, consumers = self._context.deliverable, self._context.consumers
        deliverable.check_invariants()
        if self.attachments.keys is not None:
            self.attachments.keys.check_invariants()
        if self._context.closing:
            return
        of_all = [each.out.bits for each in consumers.by_number.values()]
        held = BitMap64().union(*of_all, *(away.bits for away in consumers.away.values()))
        if held - deliverable.outstanding or deliverable.outstanding - held - self._redeliveries.counting:
            raise InvariantViolated(f"{deliverable.outstanding} are outstanding, consumers have {held}")
        if self.attachments.keys is None and self.attachments.returns_until_ms is None:
            deliverable.check_none_forgotten()


def _not_written() -> ServiceUnavailable:
    return ServiceUnavailable("the change was not written: try again")
