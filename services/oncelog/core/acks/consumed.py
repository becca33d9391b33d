"""The messages of a bound subscription that its consumers have acknowledged: the store should have their effects.

The store is the truth about its effects. The log keeps these messages to notice that a store has forgotten some: after
a restore from a backup, or a failover to a replica that was behind. What the store lacks of them is lost, and is
delivered again (`changes.Rewound`).

Rules
- Only what consumers acknowledged is here. What an operator skipped, what was evicted, and dead letters were never
  applied, so a store that lacks them has lost nothing (hazard skipped-message-rewound).
- Only what was not acknowledged before joins: the acknowledgement of a message that an operator has skipped meanwhile
  says nothing about its effect (hazard skipped-message-counted-as-consumed).
- A redo takes what lies before its place for consumed as before: a store that is restored to a backup of before the
  redo lacks that, too (hazard redo-hides-what-is-before-it).
- Of messages below `known_from` it is not known whether they were consumed. If that was known once and is forgotten, a
  store that lacks messages below `forgotten_below` is too old to be compared.
"""

import sys
from collections.abc import Iterable, Sequence

from oncelog.core.acks.ack_set import AckSet
from oncelog.core.acks.changes import IndexRange


class Consumed:
    """The consumed messages of one subscription."""

    __slots__ = ("forgotten_below", "known_from", "set")

    def __init__(self, known_from: int, *, forgotten_below: int = 0) -> None:
        self.known_from = known_from
        self.forgotten_below = forgotten_below
        #: its mark_delete: every index from known_from up to it was consumed
        self.set = AckSet(known_from)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Consumed):
            return NotImplemented
        mine, theirs = (self.known_from, self.forgotten_below), (other.known_from, other.forgotten_below)
        return mine == theirs and self.set == other.set

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Consumed(known_from={self.known_from}, forgotten_below={self.forgotten_below}, {self.set})"

    @property
    def count(self) -> int:
        """How many messages are known to be consumed."""
        return self.set.mark_delete - self.known_from + self.set.acked_count

    def add(self, ranges: Iterable[IndexRange]) -> None:
        """These messages were acknowledged by consumers, and not before."""
        known = [IndexRange(max(first, self.known_from), last) for first, last in ranges if last >= self.known_from]
        if known:
            self.set.add(known)

    def forget(self, below: int) -> None:
        """Of messages below it is not known any more whether they were consumed."""
        if below > self.known_from:
            self.known_from = self.forgotten_below = below
            self.set.add_below(below)

    def remove(self, ranges: Iterable[IndexRange]) -> None:
        """These consumed messages are to be consumed again."""
        self.set = self.set.without(ranges)

    def redo(self, index: int) -> None:
        """The messages from this index on are to be consumed again."""
        kept = [IndexRange(first, min(last, index - 1)) for first, last in self.ranges() if first < index]
        self.known_from = min(self.known_from, index)
        self.forgotten_below = min(self.forgotten_below, index)
        self.set = AckSet(self.known_from)
        self.set.add(kept)

    def ranges(self, start: int = 0, max_ranges: int = sys.maxsize) -> list[IndexRange]:
        """The consumed ranges with indexes from `start` on, cut there; the lowest `max_ranges` of them."""
        found: list[IndexRange] = []
        first: int | None = max(start, self.known_from)
        if first is not None and first < self.set.mark_delete:
            found.append(IndexRange(first, self.set.mark_delete - 1))
        first = self.set.next_acked(max(start, self.set.mark_delete))
        while first is not None and len(found) < max_ranges:
            end = self.set.next_unacked(first)
            found.append(IndexRange(first, end - 1))
            first = self.set.next_acked(end)
        return found

    def within(self, ranges: Sequence[IndexRange]) -> list[IndexRange]:
        """The consumed parts of ascending, disjoint ranges."""
        found: list[IndexRange] = []
        for first, last in ranges:
            low = max(first, self.known_from)
            if low < self.set.mark_delete and low <= last:
                found.append(IndexRange(low, min(last, self.set.mark_delete - 1)))
            start = self.set.next_acked(max(first, self.set.mark_delete))
            while start is not None and start <= last:
                end = self.set.next_unacked(start)
                found.append(IndexRange(start, min(last, end - 1)))
                start = self.set.next_acked(end)
        return found
