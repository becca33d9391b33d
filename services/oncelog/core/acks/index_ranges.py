"""Sets of message indexes as ranges and as compressed bitmaps."""

from collections.abc import Iterable, Sequence

from pyroaring import BitMap64

from oncelog.core.acks.changes import IndexRange

#: Above every index of a message.
INDEX_END = 1 << 63


def bits_of(ranges: Iterable[tuple[int, int]]) -> BitMap64:
    """The indexes of the ranges, both ends included."""
    bits = BitMap64()
    for first, last in ranges:
        bits.add_range(first, last + 1)
    return bits


def members_in(bits: BitMap64, ranges: Iterable[tuple[int, int]]) -> BitMap64:
    """The members of a set that lie in ascending, disjoint ranges. A range costs the same however long it is: clients
    name any ranges they like, and a bitmap of an absurd one would take all memory."""
    members = bits.copy()
    after = 0
    for first, last in ranges:
        members.remove_range(after, first)
        after = last + 1
    members.remove_range(after, INDEX_END)
    return members


def bits_between(bits: BitMap64, first: int, end: int) -> BitMap64:
    """The members first .. end - 1, as a set of their own."""
    window = BitMap64()
    window.add_range(first, end)
    window &= bits
    return window


def count_between(bits: BitMap64, first: int, end: int) -> int:
    """How many members there are of first .. end - 1."""
    return bits.rank(end - 1) - (bits.rank(first - 1) if first else 0) if first < end else 0


def ranges_of(bits: BitMap64) -> list[IndexRange]:
    """The ranges of a set, ascending and disjoint. The cost depends on the number of ranges, not of members."""
    if not bits:
        return []
    first, last = bits.min(), bits.max()
    if len(bits) == last - first + 1:
        return [IndexRange(first, last)]
    absent = bits.flip(first, last + 1)
    ranges: list[IndexRange] = []
    while True:
        if first > absent.max():
            ranges.append(IndexRange(first, last))
            return ranges
        hole = absent.next_set_bit(first)
        ranges.append(IndexRange(first, hole - 1))
        first = bits.next_set_bit(hole)


def count_of(ranges: Iterable[tuple[int, int]]) -> int:
    """How many messages disjoint ranges hold."""
    return sum(last - first + 1 for first, last in ranges)


def first_of(ranges: Sequence[IndexRange], count: int) -> list[IndexRange]:
    """The lowest `count` messages of ascending, disjoint ranges."""
    taken: list[IndexRange] = []
    for first, last in ranges:
        if count <= 0:
            break
        end = min(last, first + count - 1)
        taken.append(IndexRange(first, end))
        count -= end - first + 1
    return taken
