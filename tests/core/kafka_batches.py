"""Record batches as clients of Kafka write them, made by hand: nothing here is the code that reads them."""

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack

import cramjam
import lz4.frame
import zstandard

from oncelog.core.formats.batch import Buffer, Checksum, PayloadFormat, encode_batch, encode_deltas
from oncelog.core.ids import Generation
from tests.core.builders import PID, checksum

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
TIME_MS = 1_764_000_000_000
Pairs = Sequence[tuple[bytes, bytes | None]]


@dataclass(frozen=True)
class Sent:
    """One record that an application sends. value None: null."""

    value: bytes | None = b""
    key: bytes | None = None
    headers: Pairs = ()
    timestamp: int = TIME_MS


def numbered(count: int) -> list[Sent]:
    return [Sent(b"value %d" % number) for number in range(count)]


def varint(number: int) -> bytes:
    """Zigzag, of 64 bits."""
    rest = (number << 1 ^ number >> 63) & (2**64 - 1)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    return bytes((*out, rest))


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(sent: Sent, index: int, *, base: int = TIME_MS) -> bytes:
    headers = b"".join(sized(key) + sized(value) for key, value in sent.headers)
    head = b"\0" + varint(sent.timestamp - base) + varint(index)
    return sized(head + sized(sent.key) + sized(sent.value) + varint(len(sent.headers)) + headers)


def records(sent: Sequence[Sent]) -> bytes:
    return b"".join(record(each, index) for index, each in enumerate(sent))


def packed(codec: int, raw: bytes) -> bytes:
    match codec:
        case 1:
            return gzip.compress(raw)
        case 2:
            return bytes(cramjam.snappy.compress_raw(raw))
        case 3:
            return bytes(lz4.frame.compress(raw))
        case 4:
            return zstandard.ZstdCompressor().compress(raw)
    return raw


def snappy_java(*blocks: bytes) -> bytes:
    """The framing of Java's library."""
    stored = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    return b"\x82SNAPPY\0" + pack(">ii", 1, 1) + b"".join(pack(">i", len(each)) + each for each in stored)


def framed(
    payload: bytes,
    count: int,
    *,
    attributes: int = NONE,
    last_delta: int | None = None,
    magic: int = 2,
    base_timestamp: int = TIME_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    base_offset: int = 0,
    by: Checksum = checksum,
) -> bytes:
    """A batch of this payload. producer: its id, epoch and base sequence."""
    last = count - 1 if last_delta is None else last_delta
    rest = pack(">hiqqqhii", attributes, last, base_timestamp, base_timestamp, *producer, count) + payload
    return pack(">qiibI", base_offset, len(rest) + 9, -1, magic, by(rest, 0)) + rest


def batched(sent: Sequence[Sent], *, codec: int = NONE, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    return framed(packed(codec, records(sent)), len(sent), attributes=codec, producer=producer)


def as_batch(entry: Buffer, ids: Sequence[int], *, by: Checksum = checksum) -> bytes:
    """As a gateway packs it."""
    return encode_batch(
        entry,
        producer_id=PID,
        generation=Generation(1),
        first=ids[0],
        last=ids[-1],
        count=len(ids),
        publish_time_ms=TIME_MS,
        checksum=by,
        deltas=encode_deltas(ids),
        payload_format=PayloadFormat.KAFKA,
    )
