"""Ranges of message indexes on the wire; consumer.proto describes them."""

from collections.abc import Iterable, Iterator, Sequence

from oncelog.core.acks.changes import IndexRange
from oncelog.core.errors import InvalidArgument

#: Message indexes are below this number.
INDEX_MAX = 1 << 62


def pack_ranges(ranges: Iterable[IndexRange]) -> Iterator[int]:
    """ranges: ascending, disjoint."""
    after = 0
    for first, last in ranges:
        yield first - after
        yield last - first
        after = last + 1


def unpack_ranges(numbers: Sequence[int], *, field: str) -> tuple[IndexRange, ...]:
    """Whatever the numbers are, the ranges ascend and are disjoint. Raises InvalidArgument."""
    if len(numbers) % 2:
        raise InvalidArgument("ranges are pairs of numbers", field=field)
    ranges, after = [], 0
    for gap, beyond in zip(numbers[::2], numbers[1::2], strict=True):
        first = after + gap
        after = first + beyond + 1
        if after > INDEX_MAX:
            raise InvalidArgument(f"a message index is below {INDEX_MAX}", field=field, limit=INDEX_MAX)
        ranges.append(IndexRange(first, after - 1))
    return tuple(ranges)
