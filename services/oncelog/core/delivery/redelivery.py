"""Messages that are to be delivered again, and how often each was delivered (hazard wrong-delivery-count).

    negative acknowledgement, time-out   each message counts one delivery. A time-out runs from the moment when the
                                         application has the message (hazard timeout-in-the-window). Exclusive and
                                         failover: everything behind it comes again, too, and counts if the application
                                         has received it
    a consumer is lost or closed         what it reported as begun counts one delivery, at most the COUNTED_MAX oldest
                                         messages; if it was lost and had begun nothing, its oldest message does; the
                                         rest is given back as it was

A count is written before its message is delivered again, because a takeover must not forget it. Until then the message
stays with a consumer that is there, or waits. A count that was dropped is written again; a negative acknowledgement
that was dropped is answered with an error, and its message stays outstanding.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyroaring import BitMap64

from oncelog.core.acks.changes import Redelivered, Redelivery
from oncelog.core.acks.index_ranges import INDEX_END, members_in, ranges_of
from oncelog.core.delivery.consumers import Away, ConnectedConsumer
from oncelog.core.delivery.context import Context, stale_seek_epoch
from oncelog.core.delivery.dead_letters import DeadLetters
from oncelog.core.delivery.events import COUNTED_MAX, AnswerAck, NackRequested, RecallMessages
from oncelog.core.delivery.outstanding import PAUSED_ACK_TIMEOUT_MS
from oncelog.core.errors import InvalidArgument, OncelogError, ServiceUnavailable
from oncelog.core.ids import SeekEpoch

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
    counted_before: BitMap64
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
        bits -= self._answered_before(consumer, bits, event.delivery_counts)
        # The answer comes behind an acknowledgement or a count of them that is in flight. If that is not written, the
        # consumer asks again: it still has them, and forgets them with the answer (hazard failed-ack-write).
        if not bits and not asked & (context.deliverable.hidden | self.counting):
            context.step.emit(AnswerAck(consumer.number, event.request))
            return
        counted = consumer.out.counted
        self._append(bits, counted, consumer=consumer, request=event.request, delay_ms=event.delay_ms, delayed=True)

    def _answered_before(
        self, consumer: ConnectedConsumer, bits: BitMap64, counts: Mapping[int, int] | None
    ) -> BitMap64:
        """Those of a negative acknowledgement that mean a former delivery: it counts already (hazard
        nack-counted-twice). What a consumer kept from before its stream is the delivery that it presented, whatever
        counts since: a loss of the consumer may have counted, too, and nobody else gets what it keeps."""
        if counts is None:
            return BitMap64()
        resume, counted = consumer.opening.resume, consumer.out.counted
        presented = (resume.delivery_counts if resume is not None else None) or {}

        def newest(index: int) -> int:
            return presented.get(index, 1) if index in counted else self.deliveries(index) + 1

        return BitMap64([index for index in bits & self.counted if counts.get(index, 1) < newest(index)])

    def counted_before(self, kept: BitMap64, counts: Mapping[int, int] | None) -> BitMap64:
        """Of what a consumer keeps, the messages whose delivery to it counts already: its former stream was lost after
        a negative acknowledgement or a time-out. counts: as it presents them."""
        if counts is None:
            return BitMap64()
        return BitMap64([i for i in kept & self.counted if counts.get(i, 1) <= self.deliveries(i)])

    def time_out(self, consumer: ConnectedConsumer, *, in_order: bool) -> None:
        """Messages that the application has had for the ack time-out go to other consumers, or again to this one.

        in_order: exclusive and failover; then everything from the first of them on comes again.
        """
        now_ms, timeout_ms = self._context.running_ms(), consumer.opening.ack_timeout_ms
        paused_ms = self.paused_since_ms
        holes = paused_ms is not None and self._context.step.now_ms - paused_ms >= PAUSED_ACK_TIMEOUT_MS
        if timeout_ms or holes:
            expired = self._expired(consumer, now_ms, timeout_ms)
            if expired and in_order:
                self._from_there_on(consumer, expired)
            elif expired:
                self._append(expired, consumer.out.counted, consumer=consumer)
        if holes and not in_order:
            self._recall_holes(consumer, now_ms)

    def _expired(self, consumer: ConnectedConsumer, now_ms: int, timeout_ms: int) -> BitMap64:
        """At most COUNTED_MAX messages. timeout_ms 0: only holes have a time-out."""
        deliverable, before_ms = self._context.deliverable, now_ms - (timeout_ms or PAUSED_ACK_TIMEOUT_MS)
        expired = consumer.out.expired(before_ms=before_ms)
        if not timeout_ms:
            others = expired.copy()
            others.remove_range(0, deliverable.new_end)
            consumer.out.restart(others, now_ms)
            expired -= others
        now = (expired - deliverable.hidden - self.counting)[:COUNTED_MAX]
        consumer.out.expire_later(expired - now, before_ms)  # what is in flight may be dropped
        return now

    def _from_there_on(self, consumer: ConnectedConsumer, expired: BitMap64) -> None:
        """The consumer gets everything again from the first expired message on. What its application has received
        counts, at most the COUNTED_MAX lowest; nothing is delivered before these counts are durable."""
        deliverable = self._context.deliverable
        behind = consumer.out.bits - deliverable.hidden - self.counting
        behind.remove_range(0, expired.min())
        counted, counted_before = (behind & (consumer.out.begun | expired))[:COUNTED_MAX], consumer.out.counted & behind
        self._take(consumer, behind)
        deliverable.give_back(behind - counted)
        deliverable.wait(counted)
        self._append(counted, counted_before)

    def _recall_holes(self, consumer: ConnectedConsumer, now_ms: int) -> None:
        """Holes that wait in the window of a consumer that takes nothing go to others. No application has received
        them, so nothing is counted."""
        deliverable = self._context.deliverable
        waiting = consumer.out.waiting(before_ms=now_ms - PAUSED_ACK_TIMEOUT_MS)
        holes = waiting - deliverable.hidden - self.counting
        holes.remove_range(deliverable.new_end, INDEX_END)
        consumer.out.restart_waiting(waiting - holes, now_ms)
        if holes:
            self.recall(consumer, holes)
            self._take(consumer, holes)
            deliverable.give_back(holes)

    def _take(self, consumer: ConnectedConsumer, bits: BitMap64) -> None:
        """The consumer does not have these messages any more."""
        consumer.out.remove(bits)
        self._context.step.emit(RecallMessages(consumer.number, tuple(ranges_of(bits))))

    def release(self, holder: ConnectedConsumer | Away, *, lost: bool) -> None:
        """A consumer is gone: what it had begun counts, the rest is given back as it was."""
        deliverable = self._context.deliverable
        if isinstance(holder, ConnectedConsumer):
            begun, counted_before = holder.out.begun, holder.out.counted
            bits = holder.out.clear() - self.counting
        else:
            begun, counted_before, bits = holder.begun, holder.counted, holder.bits - self.counting
        counted = (bits & begun) - deliverable.hidden
        if len(counted) > COUNTED_MAX:
            counted = counted[:COUNTED_MAX]
        if not counted and lost and bits:
            counted = BitMap64([bits.min()]) - deliverable.hidden
        deliverable.give_back(bits - counted)
        if counted:
            deliverable.wait(counted)
            self._append(counted, counted_before)

    def _append(
        self,
        bits: BitMap64,
        counted_before: BitMap64,
        *,
        consumer: ConnectedConsumer | None = None,
        request: int | None = None,
        delay_ms: int | None = None,
        delayed: bool = False,
    ) -> None:
        """counted_before: whose delivery counts already."""
        context, messages = self._context, []
        if context.state.seek_epoch != self._seek_epoch:
            return  # `sought` follows in this step: these deliveries do not count at the new place
        for index in bits:
            deliveries = self.deliveries(index) + (index not in counted_before)
            wait_ms = 0
            if delayed:
                wait_ms = nack_delay_ms(deliveries) if delay_ms is None else delay_ms
            messages.append(Redelivery(index, deliveries, context.step.now_ms + wait_ms if wait_ms else 0))
        if consumer is not None:
            self.recall(consumer, bits)
        self.counting |= bits
        state = context.state
        token = CountToken(state.seek_epoch, tuple(messages), bits, counted_before & bits, consumer, request)
        context.append(Redelivered(state.number, state.seek_epoch, token.messages), token)

    # --- the ack log's answers --------------------------------------------------------------------------------------

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
            consumer.out.restart(token.bits, context.running_ms())
        orphans = context.state.acks.unacked(token.bits - self._held() - context.deliverable.dead)
        if orphans and not context.closing:
            context.deliverable.wait(orphans)
            self._append(orphans, token.counted_before)

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
