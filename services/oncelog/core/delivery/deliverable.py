"""Which messages of one subscription may be delivered now (hazard ack-before-delivery).

    deliverable = (again, and everything from `frontier` to the durable end of the log)
                  without: acknowledged, hidden, outstanding, waiting, delayed, dead

`frontier` is where delivery of new messages goes on. It is a place of this owner alone, no acknowledgement moves it,
and it skips only what one of the sets holds. What returns from one of these sets, wherever it lies, goes to `again`.

    hidden        their acknowledgement is in flight: it hides them and does nothing else (hazard failed-ack-write)
    outstanding   with a consumer, or with one that was lost a moment ago
    waiting       a delivery count or a dead-letter decision of them is being written
    delayed       negatively acknowledged with a delay
    dead          decided to be dead letters, not yet published

Sets are compressed bitmaps: the cost of a step depends on entries and ranges, not on messages.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import combinations

from pyroaring import BitMap64

from oncelog.core.acks.ack_state import SubscriptionState
from oncelog.core.acks.changes import IndexRange
from oncelog.core.acks.index_ranges import bits_between, bits_of, ranges_of
from oncelog.core.errors import InvariantViolated

#: How far one look goes where sets have to be subtracted.
_STRETCH = 65_536
_ANY = 1 << 62


@dataclass(slots=True)
class LogRange:
    """The messages that the topic has: first_index .. next_index - 1, all durable. Shared by all subscriptions."""

    first_index: int
    next_index: int


class Deliverable:
    """The sets of one subscription at its owner."""

    def __init__(self, state: SubscriptionState, log: LogRange) -> None:
        self._state = state
        self._log = log
        #: whether new messages are withheld (PIP-299)
        self.paused = False
        #: above every message with a durable delivery count
        self.counted_end = max(state.redeliveries, default=-1) + 1
        self.frontier = state.acks.mark_delete
        self.again = BitMap64()
        self.hidden = BitMap64()
        self.outstanding = BitMap64()
        self.waiting = BitMap64()
        self.delayed = BitMap64()
        self.dead = BitMap64(sorted(state.dead_letters))
        #: (not before, index) of the delayed ones, a heap; entries that are not in `delayed` any more are ignored
        self._delays: list[tuple[int, int]] = []
        #: no acknowledged message and no member of a set is at or above it, but for what was delivered in order
        self._undisturbed = state.acks.end
        #: messages whose state has changed; only key_shared empties it
        self.changed: BitMap64 | None = None
        if state.dead_letters:
            self._undisturbed = max(self._undisturbed, max(state.dead_letters) + 1)
        for index, redelivery in state.redeliveries.items():
            if redelivery.not_before_ms and index not in state.dead_letters:
                self.delay(index, redelivery.not_before_ms)

    # --- what is next -------------------------------------------------------------------------------------------------

    @property
    def new_end(self) -> int:
        """Where new messages end that may be delivered. While dispatch is paused these are the holes: messages below an
        acknowledged one, or below one with a delivery count. Their acknowledgement is what lowers the state."""
        end = self._log.next_index
        return min(end, max(self._state.acks.end, self.counted_end)) if self.paused else end

    def next(self) -> int | None:
        """The lowest message that may be delivered now."""
        again = self.again - self.hidden if self.hidden else self.again
        lowest = again.min() if again else _ANY
        at, limit, acks = self.frontier, self.new_end, self._state.acks
        while (at := acks.next_unacked(at)) < limit and at < lowest:
            if at >= self._undisturbed:
                self.frontier = at
                return at
            stretch = BitMap64()
            stretch.add_range(at, min(at + _STRETCH, limit, self._undisturbed))
            at += _STRETCH
            free = self._without_taken(stretch)
            if free:
                self.frontier = free.min()
                return min(self.frontier, lowest)
            self.frontier = min(at, limit, self._undisturbed)
            at = self.frontier
        return lowest if lowest < _ANY else None

    @property
    def at_end(self) -> bool:
        """Whether nothing can be delivered before something changes. False: there may be something."""
        return not self.again and self.frontier >= self.new_end

    @property
    def any_delay(self) -> bool:
        """Whether the end of a delay is waited for."""
        return bool(self._delays)

    def withheld(self, index: int) -> bool:
        """Whether the message is a new one while new messages are withheld."""
        return index >= self.new_end and index not in self.again

    def free(self, first: int, last: int) -> list[IndexRange]:
        """The messages of first..last that may be delivered now."""
        end = min(last + 1, self.new_end)
        start = max(first, self.frontier)
        if first >= self._undisturbed and first >= self.frontier and not self.again:
            return [IndexRange(first, end - 1)] if end > first else []
        bits = bits_between(self.again, first, last + 1) if self.again else BitMap64()
        if end > start:
            bits.add_range(start, end)
        return ranges_of(self._without_taken(bits))

    def _without_taken(self, bits: BitMap64) -> BitMap64:
        for taken in (self.outstanding, self.hidden, self.waiting, self.delayed, self.dead):
            if taken and bits:
                bits -= taken
        if bits:
            bits = self._state.acks.unacked(bits)
        return bits

    # --- what happens to messages -------------------------------------------------------------------------------------

    def delivered(self, ranges: list[IndexRange]) -> None:
        """The lowest deliverable messages of an entry go to a consumer."""
        for first, last in ranges:
            if self.again:
                self.again.remove_range(first, last + 1)
            self.outstanding.add_range(first, last + 1)
        last = ranges[-1].last
        if last >= self.new_end:
            self._undisturbed = max(self._undisturbed, last + 1)
        elif last >= self.frontier:
            self.frontier = last + 1

    def hold(self, bits: BitMap64) -> None:
        """These stay with the consumer that presented them."""
        self.again -= bits
        self.delayed -= bits
        self.outstanding |= bits
        self._disturb_by(bits)

    def hide(self, first: int, last: int) -> None:
        self.hidden.add_range(first, last + 1)
        self._disturb(first, last + 1)

    def acknowledged(self, first: int, last: int) -> None:
        """first..last are acknowledged in the durable state."""
        for bits in (self.outstanding, self.again, self.waiting, self.delayed, self.dead):
            if bits:
                bits.remove_range(first, last + 1)
        self._disturb(first, last + 1)

    def wait(self, bits: BitMap64) -> None:
        """Nothing may be delivered of these until `give_back`, `delay` or `bury`."""
        self.again -= bits
        self.outstanding -= bits
        self.waiting |= bits
        self._disturb_by(bits)

    def give_back(self, bits: BitMap64) -> None:
        """These are with no consumer any more: deliver them again."""
        self.outstanding -= bits
        self.waiting -= bits
        self.delayed -= bits
        self.again |= self._state.acks.unacked(bits - self.dead)
        self.touch(bits)

    def delay(self, index: int, not_before_ms: int) -> None:
        self.outstanding.discard(index)
        self.waiting.discard(index)
        self.again.discard(index)
        self.delayed.add(index)
        heappush(self._delays, (not_before_ms, index))
        self._disturb(index, index + 1)

    def bury(self, index: int) -> None:
        """The message is a dead letter: it is not delivered, and stays unacknowledged until it is published."""
        for bits in (self.outstanding, self.waiting, self.again, self.delayed):
            bits.discard(index)
        self.dead.add(index)
        self._disturb(index, index + 1)

    def shown(self, ranges: Iterable[IndexRange], still_hidden: BitMap64) -> None:
        """An acknowledgement of `ranges` was not written; others in flight hide `still_hidden`."""
        bits = bits_of(ranges)
        self.hidden = still_hidden
        self.touch(bits)
        bits -= self.outstanding | self.waiting | self.delayed | self.dead
        self.again |= self._state.acks.unacked(bits)
        self.touch(bits)

    def delays_over(self, now_ms: int | None) -> BitMap64:
        """Messages whose delay is over; None: all delays end."""
        over = BitMap64()
        while self._delays and (now_ms is None or self._delays[0][0] <= now_ms):
            index = heappop(self._delays)[1]
            if index in self.delayed:
                over.add(index)
        self.delayed -= over
        return over

    # --- places -------------------------------------------------------------------------------------------------------

    def restart(self, frontier: int) -> None:
        """Look at everything from `frontier` on again."""
        self.frontier = frontier
        self._undisturbed = max(self._undisturbed, self._log.next_index)

    def sought(self) -> None:
        """The subscription begins again at its mark_delete: no delivery of the former seek_epoch counts."""
        self.counted_end = 0
        self.again, self.hidden, self.outstanding = BitMap64(), BitMap64(), BitMap64()
        self.waiting, self.delayed = BitMap64(), BitMap64()
        self._delays.clear()
        self.dead = BitMap64(sorted(self._state.dead_letters))
        self.restart(self._state.acks.mark_delete)

    def _disturb(self, first: int, end: int) -> None:
        """The state of messages in first .. end - 1 has changed otherwise than by delivery in order."""
        self._undisturbed = max(self._undisturbed, end)
        if self.changed is not None:
            self.changed.add_range(first, end)

    def _disturb_by(self, bits: BitMap64) -> None:
        if bits:
            self._undisturbed = max(self._undisturbed, bits.max() + 1)
            if self.changed is not None:
                self.changed |= bits

    def touch(self, bits: BitMap64) -> None:
        """Something about these has changed that decides on the delivery of others."""
        if self.changed is not None:
            self.changed |= bits

    def check_invariants(self) -> None:
        taken = {"again": self.again, "outstanding": self.outstanding, "delayed": self.delayed, "dead": self.dead}
        some = [name for name, bits in taken.items() if bits]
        for name, other in combinations(some, 2):
            if not taken[name].isdisjoint(taken[other]):
                raise InvariantViolated(f"messages are {name} and {other}: {taken[name] & taken[other]}")
        if not self.waiting.isdisjoint(self.again):
            raise InvariantViolated(f"messages to be delivered wait: {self.waiting & self.again}")

    def check_none_forgotten(self) -> None:
        """Every message that was passed by is acknowledged, or there is a reason why it may come again."""
        passed = BitMap64()
        passed.add_range(self._state.acks.mark_delete, min(self.frontier, self._log.next_index))
        passed = self._state.acks.unacked(passed)
        for bits in (self.again, self.outstanding, self.waiting, self.delayed, self.dead, self.hidden):
            passed -= bits
        if passed:
            raise InvariantViolated(f"messages are neither acknowledged nor to be delivered again: {passed}")
