"""What clients of Pulsar send, byte by byte: written here without the code that reads it."""

import struct
from collections.abc import Iterator
from random import Random

from crc32c import crc32c

#: Numbers of types that clients send, as Pulsar's protocol has them.
CONNECT, SUBSCRIBE, PRODUCER, SEND, ACK, FLOW = 2, 4, 5, 6, 10, 11
CLOSE_PRODUCER, PING, REDELIVER, LOOKUP = 15, 18, 20, 23


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, value: int | bytes) -> bytes:
    """One field of a message of protobuf."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value % 2**64)
    return varint(number << 3 | 2) + varint(len(value)) + value


def body(*fields: tuple[int, int | bytes]) -> bytes:
    return b"".join(field(number, value) for number, value in fields)


def command(kind: int, *fields: tuple[int, int | bytes]) -> bytes:
    return body((1, kind), (kind, body(*fields)))


def frame(data: bytes, entry: bytes = b"") -> bytes:
    return struct.pack(">II", len(data) + len(entry) + 4, len(data)) + data + entry


def entry(metadata: bytes, payload: bytes) -> bytes:
    checked = struct.pack(">I", len(metadata)) + metadata + payload
    return struct.pack(">HI", 0x0E01, crc32c(checked)) + checked


def connect(version: bytes = b"Pulsar-CPP-v4.2.0") -> bytes:
    return frame(command(CONNECT, (1, version), (3, b"a.b.c"), (4, 20), (5, b"token"), (10, body((1, 1), (2, 1)))))


def send(producer_id: int, sequence_id: int, metadata: bytes, payload: bytes) -> bytes:
    return frame(command(SEND, (1, producer_id), (2, sequence_id), (3, 1)), entry(metadata, payload))


ORDINARY = {
    "connect": connect(),
    "ping": frame(command(PING)),
    "lookup": frame(command(LOOKUP, (1, b"persistent://public/default/orders"), (2, 7))),
    "producer": frame(
        command(
            PRODUCER, (1, b"persistent://public/default/orders"), (2, 1), (3, 8), (4, b"importer"), (8, 2), (11, 2**62)
        )
    ),
    "send": send(1, 2**40, body((1, b"importer"), (2, 2**40), (3, 1_700_000_000_000)), b"x" * 300),
    "flow": frame(command(FLOW, (1, 1), (2, 1000))),
    "ack": frame(command(ACK, (1, 1), (2, 0), (3, body((1, 5), (2, 6), (5, -1), (5, 3))))),
    "redeliver": frame(command(REDELIVER, (1, 1), (2, body((1, 5), (2, 6))), (2, body((1, 5), (2, 7))))),
    "close_producer": frame(command(CLOSE_PRODUCER, (1, 1), (2, 9))),
}  # fmt: skip


def pieces(data: bytes, random: Random) -> Iterator[bytes]:
    """The bytes as a network delivers them."""
    at = 0
    while at < len(data):
        end = at + random.choice((1, 2, 3, 7, 64, 1000, len(data)))
        yield data[at:end]
        at = end


def checksum_matches(entry: bytes | bytearray) -> bool:
    """Whether the checksum of an entry is that of its bytes, as clients compare it."""
    return int.from_bytes(entry[2:6], "big") == crc32c(entry[6:])
