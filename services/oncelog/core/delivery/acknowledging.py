"""Acknowledgements of one subscription, in two layers (hazard failed-ack-write).

    judged -> in flight (hides its messages) -> durable (folded: its messages leave the consumers, and it is answered)
                                             -> dropped (its messages are as before; the answer asks to send it again)

Refused are an index that the log does not have durably, another seek_epoch (hazard late-ack-after-seek), and a
cumulative one of a lower generation (hazard former-consumer-acks) or on a shared subscription. Whether this owner
delivered the message is not checked, because a former owner may have delivered it (hazard ack-before-delivery). Single
ones count from any consumer of the subscription.
"""

from dataclasses import dataclass

from pyroaring import BitMap64

from oncelog.core.acks.changes import Acked, AckedBelow, EvictionReason, IndexRange, SubscriptionType
from oncelog.core.acks.index_ranges import bits_of, ranges_of
from oncelog.core.delivery.consumers import ConnectedConsumer
from oncelog.core.delivery.context import Context, stale_seek_epoch
from oncelog.core.delivery.deliverable import LogRange
from oncelog.core.delivery.events import AckRequested, AnswerAck, NackRequested
from oncelog.core.errors import (
    ConsumerFenced,
    InvalidArgument,
    NotOwner,
    OncelogError,
    ServiceUnavailable,
    TooManyRequests,
)
from oncelog.core.ids import Generation, SeekEpoch

#: Messages of one subscription that may be acknowledged in memory only; a bitmap of them takes a few megabytes.
IN_MEMORY_MAX = 1_000_000
SHARED_TYPES = (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)


@dataclass(slots=True, eq=False)
class AckToken:
    """An acknowledgement in flight. consumer None: an administrator's, or an eviction."""

    ranges: tuple[IndexRange, ...]
    consumer: ConnectedConsumer | None = None
    request: int = 0
    #: of a SkipRequested
    call: int | None = None
    #: it was answered before, as not durable
    of_memory: bool = False
    #: of an eviction
    reason: EvictionReason | None = None


def refuse_epoch(context: Context, seek_epoch: SeekEpoch) -> OncelogError | None:
    """Why a request of this seek_epoch is void; None: it is not."""
    current = context.state.seek_epoch
    if seek_epoch > current:
        return NotOwner("the subscription was sought by a newer owner of the topic: look the topic up again")
    return stale_seek_epoch(current) if seek_epoch < current else None


def refuse_generation(context: Context, generation: Generation) -> OncelogError | None:
    """Why a request of the active consumer of this generation is void; None: it is not."""
    current = context.state.generation
    if generation < current:
        return ConsumerFenced(f"another consumer is active since: generation {generation} is below {current}")
    if generation > current:
        return NotOwner("a newer owner of the topic has granted another consumer: look the topic up again")
    return None


class Acknowledging:
    """Judges acknowledgements and keeps those in flight, and those that are only in memory.

    While the ack state is at its hard limit (`full`), an acknowledgement that adds a range to it is kept in memory: it
    hides its messages and is answered as not durable. Nothing else counts it: no mark moves, no dead letter rests on
    it. When there is room, it is written before anything else (hazard ack-state-at-its-limit).
    """

    def __init__(self, context: Context, log: LogRange) -> None:
        self._context = context
        self._log = log
        #: in flight, in order
        self._in_flight: dict[AckToken, None] = {}
        #: of these, evictions and those of administrators
        self._skips: dict[AckToken, None] = {}
        #: whether two in flight may hide the same message
        self._overlapping = False
        #: whether the ack state is at its hard limit
        self.full = False
        #: acknowledged in memory only
        self.in_memory = BitMap64()

    @property
    def skipping(self) -> bool:
        """Whether messages that no consumer has acknowledged are hidden by a change in flight: if it is dropped, they
        are delivered after all, so delivery in order waits for it."""
        return bool(self._skips)

    def refusal(self, event: AckRequested | NackRequested, type_: SubscriptionType) -> OncelogError | None:
        """Why the request is void; None: it is not."""
        next_index = self._log.next_index
        error = refuse_epoch(self._context, event.seek_epoch)
        if error is not None:
            return error
        highest = max((each.last for each in event.ranges), default=-1)
        if isinstance(event, AckRequested) and event.below is not None:
            if type_ in SHARED_TYPES:
                return InvalidArgument(
                    "a cumulative acknowledgement needs an exclusive or failover subscription: acknowledge messages "
                    "one by one",
                    field="below",
                )
            error = refuse_generation(self._context, event.generation)
            if error is not None:
                return error
            highest = max(highest, event.below - 1)
        if highest >= next_index or any(first < 0 or last < first for first, last in event.ranges):
            return InvalidArgument(
                f"the topic has messages up to {next_index - 1}, not {highest}", field="index", limit=next_index - 1
            )
        return None

    def append(self, consumer: ConnectedConsumer, event: AckRequested) -> None:
        """Write an acknowledgement that was not refused."""
        state = self._context.state
        token = AckToken(event.ranges, consumer, event.request)
        if event.below is not None:
            token.ranges = (*event.ranges, IndexRange(0, event.below - 1)) if event.below > 0 else event.ranges
        if not any(last >= state.acks.mark_delete for _, last in token.ranges):
            self._answer(consumer, event.request)
            return
        if self.full and self._adds_ranges(event):
            self._keep_in_memory(consumer, event)
            return
        self.hide(token)
        if event.below is not None and event.below > 0:
            change = AckedBelow(state.number, state.seek_epoch, event.below, event.generation)
            if event.ranges:
                self._context.append(Acked(state.number, state.seek_epoch, event.ranges), None)
            self._context.append(change, token)
        else:
            self._context.append(Acked(state.number, state.seek_epoch, event.ranges), token)

    def _adds_ranges(self, event: AckRequested) -> bool:
        """Whether a range of the request touches no acknowledged message, so that the state grows by it."""
        acks = self._context.state.acks
        return event.below is None and not all(
            acks.contains(first - 1) or acks.contains(last + 1) for first, last in event.ranges
        )

    def _keep_in_memory(self, consumer: ConnectedConsumer, event: AckRequested) -> None:
        bits = bits_of(event.ranges)
        if len(self.in_memory) + len(bits) > IN_MEMORY_MAX:
            error = TooManyRequests("the ack state is full: acknowledge older messages first", limit=IN_MEMORY_MAX)
            self._context.step.emit(AnswerAck(consumer.number, event.request, error))
            return
        self.in_memory |= bits
        for first, last in event.ranges:
            self._context.deliverable.hide(first, last)
        self._overlapping = True
        self._context.step.emit(AnswerAck(consumer.number, event.request, durable=False))

    def write_memory(self) -> None:
        """There is room in the ack state: write what is in memory only."""
        state = self._context.state
        bits, self.in_memory = state.acks.unacked(self.in_memory), BitMap64()
        if bits:
            token = AckToken(tuple(ranges_of(bits)), of_memory=True)
            self.hide(token)
            self._context.append(Acked(state.number, state.seek_epoch, token.ranges), token)

    def write_lowest(self) -> None:
        """Write the lowest unacknowledged messages if they are in memory only, also while the state is full: it does
        not grow by them. Otherwise a state whose holes are all in memory would stay full for ever (hazard
        dispatch-paused-for-ever)."""
        state, first = self._context.state, self._context.state.acks.mark_delete
        if first not in self.in_memory:
            return
        last = first
        while last + 1 in self.in_memory:
            last += 1
        self.in_memory.remove_range(first, last + 1)
        token = AckToken((IndexRange(first, last),), of_memory=True)
        self.hide(token)
        self._context.append(Acked(state.number, state.seek_epoch, token.ranges), token)

    def hide(self, token: AckToken) -> None:
        """The messages of the token are in flight."""
        deliverable, mark_delete = self._context.deliverable, self._context.state.acks.mark_delete
        self._in_flight[token] = None
        if token.consumer is None and not token.of_memory:
            self._skips[token] = None
        for lowest, last in token.ranges:
            first = max(lowest, mark_delete)
            if last >= first:
                if not self._overlapping and deliverable.hidden:
                    self._overlapping = bool(deliverable.hidden.range_cardinality(first, last + 1))
                deliverable.hide(first, last)

    def settled(self, token: AckToken) -> None:
        """The acknowledgement is durable and folded."""
        if token not in self._in_flight:
            return
        context, consumer = self._context, token.consumer
        del self._in_flight[token]
        self._skips.pop(token, None)
        hidden = context.deliverable.hidden
        for first, last in token.ranges:
            hidden.remove_range(first, last + 1)
            if consumer is None:
                context.leave_all(first, last)
            else:
                context.leave(consumer, first, last)
        if consumer is not None and context.consumers.connected(consumer):
            self._answer(consumer, token.request)

    def _answer(self, consumer: ConnectedConsumer, request: int) -> None:
        """The acknowledgement is durable."""
        acked_below = self._context.state.acks.mark_delete
        self._context.step.emit(AnswerAck(consumer.number, request, acked_below=acked_below))

    def hide_again(self) -> None:
        """Acknowledgements have settled: those in flight hide what one of these, which overlaps, has shown."""
        if not self._overlapping:
            return
        self._overlapping = bool(self._in_flight) or bool(self.in_memory)
        context = self._context
        for token in self._in_flight:
            context.deliverable.hidden |= context.state.acks.unacked(bits_of(token.ranges))
        context.deliverable.hidden |= self.in_memory

    def dropped(self, tokens: list[AckToken]) -> None:
        """These were not written: their messages are outstanding again, their timers run on."""
        context = self._context
        shown = [each for token in tokens if token in self._in_flight for each in token.ranges]
        error = ServiceUnavailable("the acknowledgement was not written: send it again")
        for token in tokens:
            consumer = token.consumer
            self._skips.pop(token, None)
            if self._in_flight.pop(token, False) is None and consumer and context.consumers.connected(consumer):
                context.step.emit(AnswerAck(consumer.number, token.request, error))
            if token.of_memory:
                self.in_memory |= bits_of(token.ranges)
        hidden = bits_of(each for token in self._in_flight for each in token.ranges) | self.in_memory
        self._overlapping = bool(self._in_flight) or bool(self.in_memory)
        context.deliverable.shown(shown, context.state.acks.unacked(hidden))

    def covers(self, first: int, last: int) -> bool:
        """Whether one of the acknowledgements in flight names all of first..last."""
        return any(each.first <= first and each.last >= last for token in self._in_flight for each in token.ranges)

    def after_unacked(self, count: int, next_index: int) -> int:
        """The index after the lowest `count` messages that are not acknowledged. What is in flight counts as
        acknowledged: a change that is appended now becomes durable after it, or is dropped with it."""
        acks = self._context.state.acks
        in_flight = acks.unacked(bits_of(each for token in self._in_flight for each in token.ranges))
        return acks.after_unacked(count, next_index, but=in_flight)

    def calls(self) -> list[int]:
        """The administrators' requests in flight."""
        return [token.call for token in self._in_flight if token.call is not None]

    def sought(self) -> None:
        """Everything that was in flight at the former seek_epoch is settled."""
        self._in_flight.clear()
        self._skips.clear()
        self._overlapping = False
        self.in_memory = BitMap64()
