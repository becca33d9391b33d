"""Sets of messages of one entry: as clients have them, as the table of a consumer keeps them, and as the log has them.

    words    [0b100]            ack_set of Pulsar: 64 messages of a batch a number, by their batch_index
    bits     0b100              the same set as one number, of any size
    ranges   ((42, 42),)        indexes of the topic, both ends included

Which message a bit is depends on what was sent: `sends`, the ranges of the sent messages in the order of batch_index.
In the words of a client a bit that is set means "not acknowledged". Words at the end that are 0 are often left out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from oncelog.core.acks.changes import IndexRange

Ranges = tuple[IndexRange, ...]

_WORD_BITS = 64
_WORD_END = 2**64
_NEGATIVE = 2**63
#: As many as a batch may have messages; 65,536 (`oncelog.core.formats.pulsar`).
WORDS_MAX = 1024
_RUN = re.compile("1+")


def size_of(ranges: Iterable[IndexRange]) -> int:
    """How many messages."""
    size = 0
    for first, last in ranges:  # twice as fast as a sum
        size += last - first + 1
    return size


def all_bits(count: int) -> int:
    return (1 << count) - 1


def bits_of_words(words: Sequence[int]) -> int | None:
    """words: signed or unsigned, as they are received. None: more than any batch needs."""
    if len(words) > WORDS_MAX:
        return None
    return int.from_bytes(b"".join((word % _WORD_END).to_bytes(8, "little") for word in words), "little")


def words_of_bits(bits: int) -> tuple[int, ...]:
    """Signed, without zeros at the end; one 0 for the empty set: no words would mean that there is no mask."""
    size = max(1, -(-bits.bit_length() // _WORD_BITS))
    words = (bits >> (_WORD_BITS * number) & (_WORD_END - 1) for number in range(size))
    return tuple(word - _WORD_END if word >= _NEGATIVE else word for word in words)


def ranges_of_bits(sends: Ranges, bits: int) -> Ranges:
    """The messages of a set, of those that were sent."""
    if len(sends) == 1:
        first = sends[0].first
        return tuple(IndexRange(first + start, first + end - 1) for start, end in _runs(bits))
    found: list[IndexRange] = []
    at, begins = 0, 0  # the sent range, and the bit of its first message
    for run, end in _runs(bits):
        start = run
        while start < end:
            first, last = sends[at]
            ends = begins + last - first + 1
            if start >= ends:
                at, begins = at + 1, ends
                continue
            stop = min(end, ends)
            found.append(IndexRange(first + start - begins, first + stop - 1 - begins))
            start = stop
    return joined(found)


def bits_of_ranges(sends: Ranges, ranges: Ranges) -> int:
    """Which of the sent messages are in these ranges. Both ascend."""
    if sends == ranges:
        return all_bits(size_of(sends))
    bits = begins = at = 0
    for first, last in sends:
        while at < len(ranges) and ranges[at].last < first:
            at += 1
        behind = at
        while behind < len(ranges) and ranges[behind].first <= last:
            start, end = max(first, ranges[behind].first), min(last, ranges[behind].last)
            bits |= all_bits(end - start + 1) << (begins + start - first)
            behind += 1
        begins += last - first + 1
    return bits


def without(ranges: Ranges, gone: Ranges) -> Ranges:
    """The messages of `ranges` that are not in `gone`. Both ascend."""
    if ranges == gone:
        return ()
    return ranges_of_bits(ranges, all_bits(size_of(ranges)) & ~bits_of_ranges(ranges, gone))


def joined(ranges: Iterable[IndexRange]) -> Ranges:
    """The same messages, ascending, in as few ranges as possible."""
    found: list[IndexRange] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1].last + 1:
            found[-1] = IndexRange(found[-1].first, max(last, found[-1].last))
        else:
            found.append(IndexRange(first, last))
    return tuple(found)


def _runs(bits: int) -> Iterator[tuple[int, int]]:
    """Where ones begin, and end (not included). Linear in the size of the number, however many runs there are."""
    return (match.span() for match in _RUN.finditer(f"{bits:b}"[::-1]))
