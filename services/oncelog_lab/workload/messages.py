"""The messages of the workload: a value contains the client's name, the message's number and a checksum."""

import zlib
from bisect import bisect_right

from oncelog.verify.violation import Violation

_KEYS = 8
_FILLER = b"effectively once "


def message_value(client: str, number: int, seed: int) -> bytes:
    """The value of the client's message with this number, from 0. Lengths differ."""
    head = f"{client} {number} ".encode()
    body = head + _FILLER * (1 + (number * 7 + seed) % 5)
    return body + b"%08x" % zlib.crc32(body, seed & 0xFFFFFFFF)


def message_key(client: str, number: int) -> bytes:
    """The key of this message: of few, so that each one has many messages, and the same whenever it is sent again."""
    return b"%s-%d" % (client.encode(), number % _KEYS)


def parse_value(value: bytes, seed: int) -> tuple[str, int]:
    """(client, number). Raises Violation if no client of this workload sent the value."""
    parts = value.split(b" ", 2)
    client = parts[0].decode(errors="replace")
    if len(parts) != 3 or not parts[1].isdigit() or value != message_value(client, int(parts[1]), seed):
        raise Violation("unexpected", f"{value[:60]!r} was never sent")
    return client, int(parts[1])


class GeneratedFile:
    """An endless file of lines. The sequence id of a line is the offset of its first byte."""

    def __init__(self, client: str, seed: int) -> None:
        self.client = client
        self._seed = seed
        self._offsets = [0]

    def line(self, number: int) -> tuple[int, bytes]:
        """(offset, value) of a line, from 0."""
        while len(self._offsets) <= number + 1:
            size = len(message_value(self.client, len(self._offsets) - 1, self._seed)) + 1
            self._offsets.append(self._offsets[-1] + size)
        return self._offsets[number], message_value(self.client, number, self._seed)

    def after(self, offset: int) -> int:
        """Number of the first line that begins after `offset`."""
        while self._offsets[-1] <= offset:
            self.line(len(self._offsets))
        return bisect_right(self._offsets, offset)
