"""Fields of variable length, for bodies with many small numbers.

A number is a varint: seven bits a byte, the lowest first, at most nine bytes, in its shortest form. So each value has
one form only, and what a reader accepts encodes to the same bytes again. Text is its length and UTF-8.
"""

import re
from collections.abc import Sequence
from itertools import accumulate

from oncelog.core.errors import CorruptEntry, InvariantViolated
from oncelog.core.formats.batch import Buffer

NUMBER_MAX = 2**63 - 1
TEXT_BYTES_MAX = 65_535
_NUMBER_BYTES_MAX = 9
_LONGER_NUMBER = re.compile(rb"[\x80-\xff]+[\x00-\x7f]")
ID_BYTES = 16


class FieldWriter:
    """Appends fields to `data`. Values out of range are a bug of the caller: InvariantViolated."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray()

    def number(self, value: int) -> None:
        if not 0 <= value <= NUMBER_MAX:
            raise InvariantViolated(f"{value} does not fit a number of 63 bits")
        append = self.data.append
        while value > 127:
            append(value & 127 | 128)
            value >>= 7
        append(value)

    def numbers(self, values: Sequence[int]) -> None:
        """Their size in bytes, then the numbers."""
        if values and not 0 <= min(values) <= max(values) <= NUMBER_MAX:
            raise InvariantViolated(f"one of the numbers {min(values)} to {max(values)} does not fit 63 bits")
        packed = bytearray()
        append = packed.append
        for value in values:
            rest = value
            while rest > 127:
                append(rest & 127 | 128)
                rest >>= 7
            append(rest)
        self.number(len(packed))
        self.data += packed

    def text(self, value: str) -> None:
        data = value.encode()
        if len(data) > TEXT_BYTES_MAX:
            raise InvariantViolated(f"a text of {len(data)} bytes exceeds the limit of {TEXT_BYTES_MAX}")
        self.number(len(data))
        self.data += data

    def texts(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Pairs of text."""
        self.number(len(pairs))
        for name, value in pairs:
            self.text(name)
            self.text(value)

    def id(self, value: str) -> None:
        """A UUID in hex."""
        data = bytes.fromhex(value)
        if len(data) != ID_BYTES or data.hex() != value:
            raise InvariantViolated(f"{value!r} is not a UUID in hex")
        self.data += data


class FieldReader:
    """Reads fields one after another. Raises CorruptEntry for anything that FieldWriter does not write."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: Buffer) -> None:
        self._data = bytes(data)
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def number(self) -> int:
        data, at = self._data, self._at
        value = shift = 0
        for i in range(at, min(at + _NUMBER_BYTES_MAX, len(data))):
            byte = data[i]
            value |= (byte & 127) << shift
            if byte < 128:
                if byte == 0 and shift:
                    raise CorruptEntry("a number is not in its shortest form")
                self._at = i + 1
                return value
            shift += 7
        raise CorruptEntry("a number is cut off, or has more than 63 bits")

    def count(self, *, bytes_min: int) -> int:
        """The number of parts that follow, of at least `bytes_min` bytes each."""
        count = self.number()
        if count * bytes_min > self.left:
            raise CorruptEntry(f"{count} parts do not fit the {self.left} bytes that are left")
        return count

    def bytes(self, size: int) -> bytes:
        if size > self.left:
            raise CorruptEntry(f"a field of {size} bytes is cut off after {self.left}")
        start = self._at
        self._at += size
        return self._data[start : self._at]

    def numbers(self) -> list[int]:
        data = self.bytes(self.number())
        if data and data[-1] > 127:
            raise CorruptEntry("the last number is cut off")
        # Most numbers have one byte, and those between two longer ones are taken at C speed.
        found: list[int] = []
        at = 0
        for longer in _LONGER_NUMBER.finditer(data):
            found += data[at : longer.start()]
            at = longer.end()
            found.append(FieldReader(longer.group()).whole_number())
        found += data[at:]
        return found

    def whole_number(self) -> int:
        """The only field."""
        value = self.number()
        self.end()
        return value

    def text(self) -> str:
        size = self.number()
        if size > TEXT_BYTES_MAX:
            raise CorruptEntry(f"a text of {size} bytes exceeds the limit of {TEXT_BYTES_MAX}")
        try:
            return self.bytes(size).decode()
        except UnicodeDecodeError as error:
            raise CorruptEntry("a text is not UTF-8") from error

    def texts(self) -> tuple[tuple[str, str], ...]:
        return tuple((self.text(), self.text()) for _ in range(self.count(bytes_min=2)))

    def id(self) -> str:
        return self.bytes(ID_BYTES).hex()

    def end(self) -> None:
        if self.left:
            raise CorruptEntry(f"{self.left} bytes too many")


def gaps_of(ranges: Sequence[tuple[int, int]]) -> list[int]:
    """Ascending, disjoint ranges (first, last) as numbers: the gap before each one, and its length minus one."""
    gaps: list[int] = []
    following = 0
    for first, last in ranges:
        gaps += (first - following, last - first)
        following = last + 1
    return gaps


def ranges_of(gaps: list[int]) -> tuple[list[int], list[int]]:
    """The inverse of `gaps_of`, as two lists. Raises CorruptEntry."""
    if len(gaps) % 2:
        raise CorruptEntry("the last range has no length")
    gaps[2::2] = [gap + 1 for gap in gaps[2::2]]
    ends = list(accumulate(gaps))
    if ends and ends[-1] > NUMBER_MAX:
        raise CorruptEntry("a range ends beyond 63 bits")
    return ends[::2], ends[1::2]
