"""The consumers of one subscription: they attach, come back, are granted, and go.

    ConsumerOpening --refused--> answered with an error
         | exclusive, and the client of a gateway has it: waits until it is known whether that one is there (`wanted`)
         | exclusive, and the holder of the grant may still return after a takeover: waits, RETURN_WAIT_MS at most
         |      the holder returns: refused            it does not: as a new request
         | shared, key_shared, failover beside a better consumer, or the holder that returns
         |--> answered, attached
         | exclusive, or the best of failover: ConsumerActivated in flight
         |--durable--> answered, active          --dropped--> answered with a retriable error, not attached
    attached --ConsumerDetached, lost--> away (AWAY_MS): what it holds waits for its return; then it is given back
    attached --ConsumerDetached, closed--> gone: what it holds is given back
    away | attached --ConsumerOpening of the same instance--> attached; it keeps what it presents, the rest goes back

After a takeover, what was not acknowledged may be out with consumers of the former owner. For RETURN_WAIT_MS it is not
delivered, so that consumers can present what they hold and keep it (hazard delivered-while-held): in a shared
subscription all of it, in an exclusive or failover subscription until the holder is back. key_shared delivers nothing
in this time.

A subscription has its type while it has consumers; without any, the next consumer chooses, as in Pulsar.
"""

from collections.abc import Callable

from pyroaring import BitMap64

from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.acks.index_ranges import INDEX_END, bits_of, members_in, ranges_of
from oncelog.core.delivery.acknowledging import SHARED_TYPES
from oncelog.core.delivery.activation import Activation, ActivationToken
from oncelog.core.delivery.consumers import Away, ConnectedConsumer
from oncelog.core.delivery.context import Context
from oncelog.core.delivery.dead_letters import DeadLetters
from oncelog.core.delivery.deliverable import LogRange
from oncelog.core.delivery.events import (
    AnswerSubscribe,
    ConsumerActive,
    ConsumerOpening,
    EndConsumer,
    HeldMessages,
    Subscribed,
)
from oncelog.core.delivery.key_shared import KeyShared
from oncelog.core.delivery.outstanding import Outstanding
from oncelog.core.delivery.redelivery import Redeliveries, recall_nothing
from oncelog.core.delivery.store_binding.bound_effects import refuse_store
from oncelog.core.delivery.wanted import WantedConsumer
from oncelog.core.errors import (
    ConsumerBusy,
    ConsumerClosed,
    ConsumerFenced,
    OncelogError,
    ServiceUnavailable,
    SubscriptionTypeMismatch,
    TooManyRequests,
)
from oncelog.core.ids import ConsumerNumber

#: Consumers of one subscription.
CONSUMERS_MAX = 1_000
#: How long what a lost consumer holds waits for its return.
AWAY_MS = 1_000
#: How long what may be out with consumers of the former owner waits after a takeover.
RETURN_WAIT_MS = 1_000


class Attachments:
    """The connected consumers of one subscription, its type, and its active consumer."""

    def __init__(
        self,
        context: Context,
        log: LogRange,
        redeliveries: Redeliveries,
        dead_letters: DeadLetters,
        *,
        partition: int,
        taken_over: bool,
        attached: Callable[[ConsumerNumber], None],
        gone: Callable[[ConsumerNumber], None],
        new_keys: Callable[[], KeyShared],
    ) -> None:
        """taken_over: whether a former owner may have delivered. attached, gone: called for each consumer. new_keys:
        makes the queues of a key_shared subscription."""
        self._context = context
        self._step = context.step
        self._state = context.state
        self._consumers = context.consumers
        self._log = log
        self._redeliveries = redeliveries
        self._dead_letters = dead_letters
        self._attached = attached
        self._gone = gone
        self._new_keys = new_keys
        self.activation = Activation(context, partition=partition, deposed=self._deposed)
        self.type = context.state.type
        #: only while the type is key_shared
        self.keys: KeyShared | None = None
        #: until when messages that may be out elsewhere wait; None: none are
        self.returns_until_ms: int | None = None
        #: requests that wait for the holder of the grant to return or not, in order, with their consumers' numbers
        self._behind_holder: list[tuple[ConsumerOpening, ConsumerNumber]] = []
        self.wanted = WantedConsumer(context)
        if taken_over and self._state.acks.mark_delete < log.next_index:
            self.returns_until_ms = self._step.now_ms + RETURN_WAIT_MS
            if self.type is SubscriptionType.SHARED:
                context.deliverable.frontier = log.next_index

    def open(self, opening: ConsumerOpening, number: ConsumerNumber) -> OncelogError | None:
        """A request to attach; returns why it is refused. None: it is answered now, or when its grant is durable, or
        when it has waited for the holder."""
        former = self._consumers.of_instance(opening.instance_id)
        error = self._refusal(opening, former)
        if error is not None:
            return error
        if self._waits_for_holder(opening):
            self._behind_holder.append((opening, number))
            return None
        holder = self._holder_of_all(opening, former)
        if holder is not None:
            return None if self.wanted.waits(opening, number, holder) else _busy()
        consumer = ConnectedConsumer(number, opening, Outstanding(opening.ack_timeout_ms), self._step.now_ms)
        away = self._take_former(former, opening.instance_id)
        returns = opening.type not in SHARED_TYPES and self.activation.is_holder(opening)
        if not len(self._consumers):
            self._set_type(opening.type)
        self._consumers.add(consumer)
        self._attached(number)
        self._dead_letters.set_policy(opening)
        shared = self.type in SHARED_TYPES
        if opening.resume is not None and (shared or returns):
            consumer.kept = self._kept(opening.resume, away)
            now_ms = self._context.running_ms()
            consumer.out.add(ranges_of(consumer.kept), now_ms)
            consumer.out.begin(members_in(consumer.kept, opening.resume.begun), now_ms)
            consumer.out.counted = self._redeliveries.counted_before(consumer.kept, opening.resume.delivery_counts)
            self._context.deliverable.hold(consumer.kept)
        if self.keys is not None:
            self.keys.consumers_changed()
        self._context.deliverable.give_back(away - consumer.kept - self._redeliveries.counting)
        if shared:
            self._answer(consumer)
            return None
        if returns:
            self.activation.resume(consumer)
            self.returns_over()
            self._answer(consumer)
        elif self.returns_until_ms is None:
            self.choose()
        if not consumer.answered and self.type is SubscriptionType.FAILOVER and not self._is_granting(consumer):
            self._answer(consumer)
        self._try_wanted()
        return None

    def _holder_of_all(self, opening: ConsumerOpening, former: ConnectedConsumer | None) -> ConnectedConsumer | None:
        """The other consumer that has the exclusive subscription."""
        if opening.type is not SubscriptionType.EXCLUSIVE:
            return None
        return next((each for each in self._consumers.by_number.values() if each is not former), None)

    def holder_lives(self) -> None:
        """The gateway says that the client of the consumer that has the exclusive subscription is there."""
        for opening, _ in self.wanted.take():
            self._step.emit(AnswerSubscribe(opening.call, _busy()))

    def _try_wanted(self) -> None:
        """What waits for a consumer that is gone is tried again."""
        if self.wanted.is_over and not self._context.closing:  # then `end` answers them
            self._decide(self.wanted.take())

    def end_silent(self) -> None:
        """A gateway has not answered in time: its client has lost the subscription."""
        silent = self.wanted.silent()
        if silent is not None:
            error = ConsumerFenced("another consumer has attached, because this one's gateway did not answer")
            self._step.emit(EndConsumer(silent.number, error))
            self._remove(silent, lost=False)

    def _set_type(self, type_: SubscriptionType) -> None:
        """The first consumer chooses the type."""
        if type_ is not self.type:
            self.type, self.keys = type_, None
            self._redeliveries.recall = recall_nothing
            if self.returns_until_ms is None or type_ is not SubscriptionType.SHARED:
                self._context.deliverable.restart(self._state.acks.mark_delete)
            else:
                self._context.deliverable.restart(self._log.next_index)
        self._begin_keys()

    def _begin_keys(self) -> None:
        if self.type is SubscriptionType.KEY_SHARED and self.keys is None:
            self.keys = self._new_keys()
            self._redeliveries.recall = self.keys.recall

    def _refusal(self, opening: ConsumerOpening, former: ConnectedConsumer | None) -> OncelogError | None:
        if former is not None and former.opening.call > opening.call:
            return ServiceUnavailable("a later request of this consumer has overtaken this one")
        mismatch = refuse_store(self._context, opening)
        if mismatch is not None:
            return mismatch
        others = len(self._consumers) - (former is not None)
        if others + len(self._behind_holder) + len(self.wanted.waiting) >= CONSUMERS_MAX:
            message = f"the subscription has {CONSUMERS_MAX} consumers, the maximum: close one"
            return TooManyRequests(message, field="consumer_name", limit=CONSUMERS_MAX)
        if others and opening.type is not self.type:
            return SubscriptionTypeMismatch(
                f"the subscription has consumers of type {self.type.name.lower()}", type=self.type.name.lower()
            )
        named = self._consumers.named(opening.consumer_name)
        if named is not None and named is not former:
            return ConsumerBusy(f"a consumer named {opening.consumer_name} is connected: choose another name, or wait")
        return None

    def _waits_for_holder(self, opening: ConsumerOpening) -> bool:
        """Whether the request has to wait. Refusing it would be wrong: the holder may have closed before the takeover,
        of which no record is kept."""
        held = opening.type is SubscriptionType.EXCLUSIVE and self._state.generation > 0
        return held and self.returns_until_ms is not None and not self.activation.is_holder(opening)

    def _decide_waiting(self) -> None:
        """The wait for the holder is over."""
        waiting, self._behind_holder = self._behind_holder, []
        self._decide(waiting)

    def _decide(self, waiting: list[tuple[ConsumerOpening, ConsumerNumber]]) -> None:
        for opening, number in waiting:
            error = self.open(opening, number)
            if error is not None:
                self._step.emit(AnswerSubscribe(opening.call, error))

    def _take_former(self, former: ConnectedConsumer | None, instance_id: bytes) -> BitMap64:
        """End the former stream of the same instance; returns what it held."""
        if former is not None:
            self._forget(former)
            self.activation.gone(former)
            if former.answered:
                error = ConsumerClosed("the consumer has connected again")
                self._step.emit(EndConsumer(former.number, error))
            return former.out.clear()
        away = self._consumers.away.pop(instance_id, None)
        return BitMap64() if away is None else away.bits

    def _kept(self, held: HeldMessages, own: BitMap64) -> BitMap64:
        """Of what a reconnecting consumer presents, what stays with it. own: what it held at this owner."""
        if held.seek_epoch != self._state.seek_epoch:
            return BitMap64()
        end = self._log.next_index - 1
        bits = bits_of((first, min(last, end)) for first, last in held.ranges if 0 <= first <= min(last, end))
        deliverable, presented = self._context.deliverable, bits.copy()
        delayed = bits & deliverable.delayed
        if held.delivery_counts is not None:  # the others were delivered since they were delayed
            delayed = self._redeliveries.counted_before(delayed, held.delivery_counts)
        # What it held stays with it while an eviction of it is in flight: if the eviction is not written, the message
        # would come again, behind later ones that the consumer keeps (hazard failed-ack-write).
        for taken in (deliverable.outstanding - own, deliverable.hidden - own, deliverable.waiting, delayed):
            bits -= taken
        bits = self._state.acks.unacked(bits - deliverable.dead - self._redeliveries.counting)
        returning = self._redeliveries.counting & deliverable.waiting
        if returning and self.type not in SHARED_TYPES:  # in order: what is behind these comes after them
            bits.remove_range(returning.min(), INDEX_END)
        if self.keys is None:
            return bits
        lost = self._state.acks.unacked(presented) - deliverable.dead - bits
        return self.keys.may_keep(bits - own, lost) | (bits & own)

    def _answer(self, consumer: ConnectedConsumer) -> None:
        state = self._state
        consumer.answered = True
        subscribed = Subscribed(
            consumer.number, state.number, state.subscription_id, state.seek_epoch, consumer.generation,
            tuple(ranges_of(consumer.kept)), consumer.opening.is_creator, consumer.opening.whole_entries,
        )  # fmt: skip
        self._step.emit(AnswerSubscribe(consumer.opening.call, subscribed))

    @property
    def any_opening(self) -> bool:
        """Whether a request waits, whose consumer is not connected yet."""
        return bool(self._behind_holder or self.wanted.waiting)

    def abandon(self, call: int) -> None:
        """The client withdrew a request that is not answered yet."""
        self._behind_holder = [waiting for waiting in self._behind_holder if waiting[0].call != call]
        self.wanted.abandon(call)
        for consumer in list(self._consumers.by_number.values()):
            if consumer.opening.call == call and not consumer.answered:
                self._remove(consumer, lost=False)

    def detach(self, number: ConsumerNumber, *, lost: bool) -> None:
        """The consumer's stream ended."""
        consumer = self._consumers.by_number.get(number)
        if consumer is not None:
            self._remove(consumer, lost=lost)

    def _forget(self, consumer: ConnectedConsumer) -> None:
        self._consumers.remove(consumer)
        self._gone(consumer.number)
        if self.keys is not None:
            self.keys.consumers_changed()

    def _remove(self, consumer: ConnectedConsumer, *, lost: bool) -> None:
        self._forget(consumer)
        self.activation.gone(consumer)
        if lost and consumer.instance_id and consumer.out.bits:
            until_ms, begun, counted = self._step.now_ms + AWAY_MS, consumer.out.begun, consumer.out.counted
            self._consumers.away[consumer.instance_id] = Away(consumer.out.clear(), begun, counted, until_ms)
        else:
            self._redeliveries.release(consumer, lost=lost)
        self.choose()
        self._try_wanted()

    def release_away(self, *, before_ms: int | None) -> None:
        """Give back what lost consumers held; before_ms None: of all of them."""
        for instance_id, away in list(self._consumers.away.items()):
            if before_ms is None or away.until_ms <= before_ms:
                del self._consumers.away[instance_id]
                self._redeliveries.release(away, lost=True)

    def _is_granting(self, consumer: ConnectedConsumer) -> bool:
        return self.activation.granting is not None and self.activation.granting.consumer is consumer

    def choose(self) -> None:
        if self.type not in SHARED_TYPES and self.returns_until_ms is None:
            self.activation.choose()

    def _deposed(self, consumer: ConnectedConsumer) -> None:
        self._redeliveries.release(consumer, lost=False)

    def granted(self, token: ActivationToken) -> None:
        consumer = self.activation.settled(token)
        self.release_away(before_ms=None)
        if consumer is not None:
            if consumer.answered:
                self._step.emit(ConsumerActive(consumer.number, consumer.generation))
            else:
                self._answer(consumer)
        self.choose()

    def grant_dropped(self, token: ActivationToken) -> None:
        self.activation.dropped(token)
        consumer = token.consumer
        if self._consumers.connected(consumer) and not consumer.answered:
            self._forget(consumer)
            error = ServiceUnavailable("the grant was not written: subscribe again")
            self._step.emit(AnswerSubscribe(consumer.opening.call, error))

    def returns_over(self) -> None:
        """Nothing waits any more for consumers of the former owner."""
        if self.returns_until_ms is not None:
            self.returns_until_ms = None
            self._context.deliverable.restart(self._state.acks.mark_delete)
            if not self._context.closing:  # then `end` answers them
                self._decide_waiting()

    def end(self, error: OncelogError) -> None:
        """Every consumer's stream ends."""
        for opening, _ in (*self._behind_holder, *self.wanted.take()):
            self._step.emit(AnswerSubscribe(opening.call, error))
        self._behind_holder.clear()
        for consumer in list(self._consumers.by_number.values()):
            self._consumers.remove(consumer)
            self._gone(consumer.number)
            if consumer.answered:
                self._step.emit(EndConsumer(consumer.number, error))
            else:
                self._step.emit(AnswerSubscribe(consumer.opening.call, error))


def _busy() -> ConsumerBusy:
    return ConsumerBusy("the subscription is exclusive, and another consumer is connected")
