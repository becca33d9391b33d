"""Sets of messages one by one, for tests: written without the code that packs them."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from oncelog.core.acks.changes import IndexRange
from oncelog_doors.core.pulsar.consuming.ack_sets import Ranges


def indexes(parts: Iterable[IndexRange]) -> Iterator[int]:
    for first, last in parts:
        yield from range(first, last + 1)


def ranges(messages: Iterable[int]) -> Ranges:
    found: list[IndexRange] = []
    for index in sorted(messages):
        if found and found[-1].last == index - 1:
            found[-1] = IndexRange(found[-1].first, index)
        else:
            found.append(IndexRange(index, index))
    return tuple(found)


def set_bits(numbers: Sequence[int]) -> list[int]:
    return [64 * at + bit for at, number in enumerate(numbers) for bit in range(64) if number >> bit & 1]


def words(places: Sequence[int], acknowledged: Collection[int]) -> tuple[int, ...]:
    """As Java has it: a bit that is set is a message that is not acknowledged; no zeros at the end."""
    out = [0] * -(-len(places) // 64)
    for place, index in enumerate(places):
        if index not in acknowledged:
            out[place // 64] |= 1 << place % 64
    while out and not out[-1]:
        out.pop()
    return tuple(number - 2**64 if number >= 2**63 else number for number in out)
