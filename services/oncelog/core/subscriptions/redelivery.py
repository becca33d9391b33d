"""Messages that are to be delivered again, and how often each was delivered (hazard 36).

    negative acknowledgement, time-out   each message counts one delivery
    a consumer is lost or closed         what it reported as begun counts one delivery, at most the COUNTED_MAX oldest
                                         messages; if it was lost and had begun nothing, its oldest message does; the
                                         rest is given back as it was

A count is written before its message is delivered again, because a takeover must not forget it. Until then the message
stays with a consumer that is there, or waits. A count that was dropped is written again; a negative acknowledgement
that was dropped is answered with an error, and its message stays outstanding.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyroaring import BitMap64

from oncelog.core.errors import InvalidArgument, OncelogError, ServiceUnavailable
from oncelog.core.ids import SeekEpoch
from oncelog.core.subscriptions.changes import Redelivered, Redelivery
from oncelog.core.subscriptions.consumers import Away, ConnectedConsumer
from oncelog.core.subscriptions.context import Context, stale_seek_epoch
from oncelog.core.subscriptions.dead_letters import DeadLetters
from oncelog.core.subscriptions.events import COUNTED_MAX, AnswerAck, NackRequested, RecallMessages
from oncelog.core.subscriptions.index_ranges import members_in, ranges_of
from oncelog.core.subscriptions.outstanding import PAUSED_ACK_TIMEOUT_MS

#: Delays of negative acknowledgements that name none: doubled with each delivery, as Pulsar's back-off does.
NACK_DELAY_MIN_MS = 1_000
NACK_DELAY_MAX_MS = 60_000


def nack_delay_ms(deliveries: int) -> int:
    """How long a message waits that was delivered so often."""
    return int(min(NACK_DELAY_MAX_MS, NACK_DELAY_MIN_MS << min(deliveries - 1, 16)))


def recall_nothing(_consumer: ConnectedConsumer, _bits: BitMap64) -> None:
    """Only key_shared recalls messages."""


@dataclass(slots=True, eq=False)
class CountToken:
    """Counts in flight. consumer: has the messages until then; None: none has, they wait. request: the negative
    acknowledgement to answer, None: none."""

    seek_epoch: SeekEpoch
    messages: tuple[Redelivery, ...]
    bits: BitMap64
    consumer: ConnectedConsumer | None = None
    request: int | None = None


class Redeliveries:
    """Counts, delays and time-outs of one subscription."""

    def __init__(self, context: Context, dead_letters: DeadLetters) -> None:
        self._context = context
        self._dead_letters = dead_letters
        #: messages with a durable delivery count
        self.counted = BitMap64(sorted(context.state.redeliveries))
        #: messages whose count is in flight
        self.counting = BitMap64()
        #: since when new messages are withheld (PIP-299); None: they are not
        self.paused_since_ms: int | None = None
        #: of the deliveries that are counted. A durable seek is in the state before it takes effect here.
        self._seek_epoch = context.state.seek_epoch
        #: called with messages of a consumer that are on their way back
        self.recall: Callable[[ConnectedConsumer, BitMap64], None] = recall_nothing

    @property
    def releasing(self) -> bool:
        """Whether counts of a lost consumer are in flight: delivery in order waits for them."""
        return bool(self.counting) and bool(self.counting & self._context.deliverable.waiting)

    def deliveries(self, index: int) -> int:
        """How often the message was delivered, as far as that counts."""
        redelivery = self._context.state.redeliveries.get(index)
        return 0 if redelivery is None else redelivery.deliveries

    # --- why messages come back ---------------------------------------------------------------------------------------

    def nack(self, consumer: ConnectedConsumer, event: NackRequested) -> None:
        """The seek_epoch is current. Messages that are not with the consumer are ignored."""
        context = self._context
        asked = members_in(consumer.out.bits, event.ranges)
        if len(asked) > COUNTED_MAX:
            error = InvalidArgument(
                f"a negative acknowledgement of {len(asked)} messages: at most {COUNTED_MAX} in one request",
                field="ranges",
                limit=COUNTED_MAX,
            )
            context.step.emit(AnswerAck(consumer.number, event.request, error))
            return
        bits = asked - context.deliverable.hidden - self.counting
        if not bits and not asked & self.counting:
            context.step.emit(AnswerAck(consumer.number, event.request))
            return
        self._append(bits, consumer=consumer, request=event.request, delay_ms=event.delay_ms, delayed=True)

    def time_out(self, consumer: ConnectedConsumer) -> None:
        """Messages whose ack time-out is over go to other consumers, or again to this one."""
        context, timeout_ms = self._context, consumer.opening.ack_timeout_ms
        now_ms, paused_ms = context.step.now_ms, self.paused_since_ms
        expired = BitMap64()
        if timeout_ms:
            expired = consumer.out.expired(before_ms=now_ms - timeout_ms)
        elif paused_ms is not None and now_ms - paused_ms >= PAUSED_ACK_TIMEOUT_MS:
            expired = consumer.out.expired(before_ms=now_ms - PAUSED_ACK_TIMEOUT_MS)
            others = expired.copy()
            others.remove_range(0, context.deliverable.new_end)
            consumer.out.restart(others, now_ms)
            expired -= others
        expired -= context.deliverable.hidden
        expired -= self.counting
        if expired:
            now = expired[:COUNTED_MAX]
            consumer.out.expire_later(expired - now, now_ms - (timeout_ms or PAUSED_ACK_TIMEOUT_MS))
            self._append(now, consumer=consumer)

    def release(self, holder: ConnectedConsumer | Away, *, lost: bool) -> None:
        """A consumer is gone: what it had begun counts, the rest is given back as it was."""
        deliverable = self._context.deliverable
        bits = holder.out.clear() if isinstance(holder, ConnectedConsumer) else holder.bits
        bits = bits - self.counting
        counted = (bits & holder.begun) - deliverable.hidden
        if len(counted) > COUNTED_MAX:
            counted = counted[:COUNTED_MAX]
        if not counted and lost and bits:
            counted = BitMap64([bits.min()]) - deliverable.hidden
        deliverable.give_back(bits - counted)
        if counted:
            deliverable.wait(counted)
            self._append(counted)

    def _append(
        self,
        bits: BitMap64,
        *,
        consumer: ConnectedConsumer | None = None,
        request: int | None = None,
        delay_ms: int | None = None,
        delayed: bool = False,
    ) -> None:
        context, messages = self._context, []
        if context.state.seek_epoch != self._seek_epoch:
            return  # `sought` follows in this step: these deliveries do not count at the new place
        for index in bits:
            deliveries = self.deliveries(index) + 1
            wait_ms = 0
            if delayed:
                wait_ms = nack_delay_ms(deliveries) if delay_ms is None else delay_ms
            messages.append(Redelivery(index, deliveries, context.step.now_ms + wait_ms if wait_ms else 0))
        if consumer is not None:
            self.recall(consumer, bits)
        self.counting |= bits
        state = context.state
        token = CountToken(state.seek_epoch, tuple(messages), bits, consumer, request)
        context.append(Redelivered(state.number, state.seek_epoch, token.messages), token)

    # --- the ack chain's answers --------------------------------------------------------------------------------------

    def settled(self, token: CountToken) -> None:
        """The counts are durable: their messages are delivered again, or become dead letters."""
        context, consumer = self._context, token.consumer
        if token.seek_epoch != context.state.seek_epoch:
            self._answer(token, stale_seek_epoch(context.state.seek_epoch))
            return
        self.counting -= token.bits
        context.deliverable.touch(token.bits)
        self.counted |= token.bits
        if token.bits:
            context.deliverable.counted_end = max(context.deliverable.counted_end, token.bits.max() + 1)
        if consumer is not None:
            bits = token.bits & consumer.out.bits
            consumer.out.remove(bits)
            away = context.consumers.away.get(consumer.instance_id)
            if away is not None:
                away.bits -= token.bits
            if bits and token.request is None and context.consumers.connected(consumer):
                context.step.emit(RecallMessages(consumer.number, tuple(ranges_of(bits))))
        self._answer(token, None)
        self._give_back(token, context.state.acks.unacked(token.bits - self._held() - context.deliverable.dead))

    def _answer(self, token: CountToken, error: OncelogError | None) -> None:
        consumer = token.consumer
        if token.request is not None and consumer is not None and self._context.consumers.connected(consumer):
            self._context.step.emit(AnswerAck(consumer.number, token.request, error))

    def _held(self) -> BitMap64:
        """What connected consumers hold, and those that were lost a moment ago."""
        held = BitMap64()
        for consumer in self._context.consumers.by_number.values():
            held |= consumer.out.bits
        for away in self._context.consumers.away.values():
            held |= away.bits
        return held

    def _give_back(self, token: CountToken, free: BitMap64) -> None:
        deliverable, now_ms = self._context.deliverable, self._context.step.now_ms
        ready = BitMap64()
        for index, deliveries, not_before_ms in token.messages:
            if index not in free:
                continue
            if self._dead_letters.takes(deliveries):
                self._dead_letters.decide(index)
            elif not_before_ms > now_ms and self.paused_since_ms is None:
                deliverable.delay(index, not_before_ms)
            else:
                ready.add(index)
        deliverable.give_back(ready)

    def dropped(self, token: CountToken) -> None:
        """The counts were not written."""
        context, consumer = self._context, token.consumer
        if token.seek_epoch != context.state.seek_epoch:
            self._answer(token, stale_seek_epoch(context.state.seek_epoch))
            return
        self.counting -= token.bits
        context.deliverable.touch(token.bits)
        self._answer(token, ServiceUnavailable("the negative acknowledgement was not written: send it again"))
        if consumer is not None and token.request is None and context.consumers.connected(consumer):
            consumer.out.restart(token.bits, context.step.now_ms)
        orphans = context.state.acks.unacked(token.bits - self._held() - context.deliverable.dead)
        if orphans and not context.closing:
            context.deliverable.wait(orphans)
            self._append(orphans)

    # --- pause --------------------------------------------------------------------------------------------------------

    def pause(self, *, paused: bool) -> None:
        """New messages are withheld, or not any more. While they are, holes get a time-out and delays end (39)."""
        self.paused_since_ms = self._context.step.now_ms if paused else None
        self._context.deliverable.paused = paused
        self.delays_over()

    # --- time and places ----------------------------------------------------------------------------------------------

    def delays_over(self) -> None:
        """Messages whose delay is over can be delivered; while dispatch is paused, no delay counts."""
        deliverable = self._context.deliverable
        over = deliverable.delays_over(self._context.step.now_ms if self.paused_since_ms is None else None)
        if over:
            deliverable.give_back(over)

    def sought(self) -> None:
        """No count of the former seek_epoch is kept."""
        self.counted, self.counting = BitMap64(), BitMap64()
        self._seek_epoch = self._context.state.seek_epoch
