"""Fields of protobuf, byte by byte: written into metadata that no client wrote, and found in metadata that one did.

    [tag][number]          tag = field number << 3
    [tag][size][bytes]     tag = field number << 3 | 2

Tags, numbers and sizes are varints. Other kinds are passed over. So metadata of a client can be copied with some of its
fields changed, while all others stay as they are, also unknown ones.
"""

from collections.abc import Iterator
from typing import NamedTuple

from oncelog.core.errors import InvalidBatch
from oncelog_doors.core.shared.varints import varint

_NUMBER, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_FIXED = {_FIXED_64: 8, _FIXED_32: 4}
_VARINT_BYTES_MAX = 10
_U64 = 2**64


def number_field(field: int, number: int) -> bytes:
    """A negative number is written as its complement to 2**64, as protobuf writes signed ones."""
    return varint(field << 3) + varint(number % _U64)


def bytes_field(field: int, content: bytes) -> bytes:
    """Also of a text, in UTF-8, and of a message."""
    return varint(field << 3 | _BYTES) + varint(len(content)) + content


class FoundField(NamedTuple):
    """A field at data[start:end]. number: its value, of kinds that are numbers, else the size. content_at: of bytes."""

    field: int
    number: int
    start: int
    content_at: int
    end: int


def fields_of(data: bytes) -> Iterator[FoundField]:
    """All fields, in their order. Raises InvalidBatch when the bytes are no fields."""
    at = 0
    while at < len(data):
        start = at
        tag, at = _varint_at(data, at)
        kind = tag & 7
        if kind == _NUMBER:
            number, at = _varint_at(data, at)
            yield FoundField(tag >> 3, number, start, at, at)
            continue
        if kind == _BYTES:
            number, at = _varint_at(data, at)
        elif kind in _FIXED:
            number = _FIXED[kind]
        else:
            raise InvalidBatch(f"a field of metadata has the kind {kind}, which is not used", field="metadata")
        if number > len(data) - at:
            message = f"field {tag >> 3} of metadata claims {number} bytes"
            raise InvalidBatch(message, field="metadata", limit=len(data) - at)
        yield FoundField(tag >> 3, number, start, at, at + number)
        at += number


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    """(number, where it ends)."""
    value = shift = 0
    for i in range(at, min(at + _VARINT_BYTES_MAX, len(data))):
        byte = data[i]
        value |= (byte & 127) << shift
        if byte < 128:
            return value % _U64, i + 1
        shift += 7
    raise InvalidBatch("a number in metadata is cut off, or too long", field="metadata", limit=_VARINT_BYTES_MAX)
