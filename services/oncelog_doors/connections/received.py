"""Bytes that were received on a connection, and not handled yet."""

from struct import Struct
from typing import Any

Buffer = bytes | bytearray | memoryview

#: Bytes that were handled are dropped from the buffer when there are so many.
_READ_BYTES_KEPT = 64 * 1024


class ReceivedBytes:
    """Of one direction of a connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0

    def feed(self, data: Buffer) -> None:
        """Append what was received."""
        if self._at == len(self._buffer):
            self._buffer.clear()
            self._at = 0
        elif self._at >= _READ_BYTES_KEPT:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def __len__(self) -> int:
        return len(self._buffer) - self._at

    def peek(self, kind: Struct) -> tuple[Any, ...]:
        """The numbers that are next."""
        return kind.unpack_from(self._buffer, self._at)

    def drop(self, count: int) -> None:
        """They were handled."""
        self._at += count

    def take(self, count: int) -> bytes:
        """A copy of what is next."""
        with memoryview(self._buffer) as view:
            taken = bytes(view[self._at : self._at + count])
        self._at += count
        return taken
