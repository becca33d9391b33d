"""Whether records that follow each other have one shape: one length, and the same lengths of everything in them.

Programs often write such records. Then a few comparisons in C find out what Python would for each record: byte n of all
of them is one slice. `plain_records` and `plain_messages` read the first records of a run, and say which of their bytes
must be what.
"""

from typing import NamedTuple

from oncelog.core.formats.packed_fields import packed_number

#: Fewer records are read one by one.
RUN_MIN = 4
#: How many records are compared at first; after each run that was one, so many times as many.
REACH, REACH_GROWTH = 64, 4
#: Records that are read one by one behind a comparison that failed.
READ_BETWEEN = 16
_BELOW_128 = bytes(range(128))
#: The bytes of a number of variable length, but its last one.
_CONTINUED = bytes(range(128, 256))
_BYTE_1, _BYTE_2 = 1 << 7, 1 << 14


class Counter(NamedTuple):
    """Numbers that ascend by one step, one for each record, as varints of one length. Those bytes of a number that come
    behind its first two are the same for all.

    firsts, seconds: a byte of each number; no seconds: numbers have one byte. rest: of all.
    """

    firsts: bytes
    seconds: bytes
    rest: bytes

    @property
    def width(self) -> int:
        """Bytes of a number."""
        return (2 if self.seconds else 1) + len(self.rest)


class Shape(NamedTuple):
    """Of a record that has been read. Places are counted from its first byte.

    fixed: bytes that all records of a run have alike. number: bytes of a number that may differ, and has no other
    length; empty: there is none. counter: where the one of the record begins.
    """

    stride: int
    fixed: tuple[int, ...]
    number: range
    counter: int


def counted(first: int, end: int, step: int) -> Counter:
    """The numbers from `first` on, below `end`, as far as one counter has them. first: a multiple of the step."""
    if first < _BYTE_1:
        return Counter(_BELOW_128[first:end:step], b"", b"")
    end = min(end, (first // _BYTE_2 + 1) * _BYTE_2)
    count, skipped, groups = end - first, first % _BYTE_1, range(first // _BYTE_1, -(-end // _BYTE_1))
    firsts = _CONTINUED * len(groups)
    of_group = _CONTINUED if first >= _BYTE_2 else _BELOW_128
    seconds = b"".join([of_group[group % _BYTE_1 : group % _BYTE_1 + 1] * _BYTE_1 for group in groups])
    return Counter(
        firsts[skipped : skipped + count : step],
        seconds[skipped : skipped + count : step],
        packed_number(first // _BYTE_2) if first >= _BYTE_2 else b"",
    )


def repeats(raw: bytes, at: int, shape: Shape, firsts: bytes, seconds: bytes) -> bool:
    """Whether behind the record at `at`, which has this shape, other records have it, one for each of `firsts`. firsts,
    seconds: of their counters."""
    count, stride = len(firsts), shape.stride
    begins = at + stride
    ends = begins + count * stride
    if ends > len(raw):
        return False
    if any(raw[begins + place : ends : stride] != raw[at + place : at + place + 1] * count for place in shape.fixed):
        return False
    if raw[begins + shape.counter : ends : stride] != firsts:
        return False
    if seconds and raw[begins + shape.counter + 1 : ends : stride] != seconds:
        return False
    if not shape.number:
        return True
    if any(raw[begins + place : ends : stride].translate(None, _CONTINUED) for place in shape.number[:-1]):
        return False
    return raw[begins + shape.number[-1] : ends : stride].isascii()
