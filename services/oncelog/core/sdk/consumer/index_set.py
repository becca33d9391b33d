"""A set of message indexes as ascending ranges: what a consumer holds is nearly always a few of them."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from oncelog.core.acks.changes import IndexRange
from oncelog.core.errors import InvariantViolated


class IndexSet:
    """Adding and removing a range costs the logarithm of the number of ranges, and a copy of the list at worst."""

    def __init__(self, ranges: Iterable[IndexRange] = ()) -> None:
        #: ascending, disjoint, never adjacent; parallel
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        #: how many indexes the set has
        self.count = 0
        for first, last in ranges:
            self.add(first, last)

    def __iter__(self) -> Iterator[IndexRange]:
        return map(IndexRange, self._firsts, self._lasts)

    def __contains__(self, index: int) -> bool:
        at = bisect_left(self._lasts, index)
        return at < len(self._firsts) and self._firsts[at] <= index

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, first: int, last: int) -> None:
        if self._lasts and first == self._lasts[-1] + 1:  # nearly always: a consumer receives in order
            self._lasts[-1] = last
            self.count += last - first + 1
            return
        start, end = bisect_left(self._lasts, first - 1), bisect_right(self._firsts, last + 1)
        if start < end:
            first, last = min(first, self._firsts[start]), max(last, self._lasts[end - 1])
        self._replace(start, end, [(first, last)])

    def remove(self, first: int, last: int) -> None:
        if not self._firsts or last < self._firsts[0]:
            return
        if first <= self._firsts[0] and last < self._lasts[0]:  # the lowest ones, nearly always
            self.count -= last + 1 - self._firsts[0]
            self._firsts[0] = last + 1
            return
        start, end = bisect_left(self._lasts, first), bisect_right(self._firsts, last)
        if start >= end:
            return
        rest = [(self._firsts[start], first - 1), (last + 1, self._lasts[end - 1])]
        self._replace(start, end, [part for part in rest if part[0] <= part[1]])

    def _replace(self, start: int, end: int, parts: list[tuple[int, int]]) -> None:
        former = zip(self._firsts[start:end], self._lasts[start:end], strict=True)
        self.count += sum(last - first + 1 for first, last in parts) - sum(last - first + 1 for first, last in former)
        self._firsts[start:end] = [first for first, _ in parts]
        self._lasts[start:end] = [last for _, last in parts]

    def overlap(self, first: int, last: int) -> list[IndexRange]:
        """The members between first and last."""
        start, end = bisect_left(self._lasts, first), bisect_right(self._firsts, last)
        return [IndexRange(max(first, self._firsts[at]), min(last, self._lasts[at])) for at in range(start, end)]

    def gaps(self, first: int, last: int) -> list[IndexRange]:
        """What the set lacks between first and last."""
        gaps, begin = [], first
        for taken in self.overlap(first, last):
            if begin < taken.first:
                gaps.append(IndexRange(begin, taken.first - 1))
            begin = taken.last + 1
        return [*gaps, IndexRange(begin, last)] if begin <= last else gaps

    def parts(self, count_max: int) -> Iterator[tuple[IndexRange, ...]]:
        """The set as ascending sets of at most count_max indexes."""
        part, room = list[IndexRange](), count_max
        for first, last in self:
            begin = first
            while begin <= last:
                end = min(last, begin + room - 1)
                part.append(IndexRange(begin, end))
                room -= end - begin + 1
                begin = end + 1
                if not room:
                    yield tuple(part)
                    part, room = [], count_max
        if part:
            yield tuple(part)

    def keep_only(self, ranges: Iterable[IndexRange]) -> None:
        kept = [part for first, last in ranges for part in self.overlap(first, last)]
        self.clear()
        for first, last in kept:
            self.add(first, last)

    def clear(self) -> None:
        self._firsts.clear()
        self._lasts.clear()
        self.count = 0

    def check_invariants(self) -> None:
        firsts, lasts = self._firsts, self._lasts
        if self.count != sum(lasts) - sum(firsts) + len(firsts):
            raise InvariantViolated(f"the set counts {self.count} indexes and holds {list(self)}")
        if any(first <= last + 1 for first, last in zip(firsts[1:], lasts, strict=False)):
            raise InvariantViolated(f"ranges overlap, or could be one: {list(self)}")
