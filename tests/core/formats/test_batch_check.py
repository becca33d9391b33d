"""A batch is stored only when every reader will be able to decode it."""

import random
import zlib
from collections.abc import Callable

import pytest

from oncelog.core.errors import InvalidBatch, MessageTooLarge
from oncelog.core.formats.batch import PayloadFormat, decode_batch, encode_batch, encode_deltas, payload_of
from oncelog.core.formats.batch_check import BatchLimits, check_batch
from oncelog.core.formats.chunks import ChunkName, ChunkNames, encode_chunk_names
from oncelog.core.formats.columns import (
    Column,
    encode_column,
    encode_event_times,
    encode_keys,
    encode_properties,
    encode_values,
)
from oncelog.core.formats.compression import Compression
from oncelog.core.formats.payload import read_columns
from oncelog.core.formats.wire.pulsar_metadata_pb2 import EntryMetadata
from oncelog.core.ids import EntryId, Generation, LedgerId, ProducerId
from tests.core.builders import checksum

LIMITS = BatchLimits(100_000)
ROWS = [b"one", b"", b"three"]
FULL = b"".join(
    (
        encode_values(ROWS), encode_keys([b"k", None, b""]), encode_event_times([None, 5, -1]),
        encode_properties([{"a": "é", "b": ""}, None, {"c": "x" * 200}]),
    )
)  # fmt: skip


def batch(payload: bytes, count: int, *, packed: bytes | None = None, raw_bytes: int | None = None) -> bytes:
    """packed: the bytes stored in place of the payload, which then counts as compressed."""
    return encode_batch(
        payload if packed is None else packed,
        producer_id=ProducerId(1), generation=Generation(1), first=0, last=count - 1, count=count, publish_time_ms=0,
        checksum=checksum, compression=Compression.NONE if packed is None else Compression.ZLIB,
        payload_raw_bytes=raw_bytes if raw_bytes is not None else len(payload),
    )  # fmt: skip


def test_valid_batches_are_accepted() -> None:
    """With one column or all columns, compressed or not, with holes between ids."""
    for payload in (encode_values(ROWS), FULL):
        assert check_batch(batch(payload, 3), checksum, LIMITS).count == 3
        assert check_batch(batch(payload, 3, packed=zlib.compress(payload)), checksum, LIMITS).count == 3
    holes = encode_batch(
        FULL, producer_id=ProducerId(1), generation=Generation(1), first=0, last=9, count=3, publish_time_ms=0,
        checksum=checksum, deltas=encode_deltas([0, 4, 9]),
    )  # fmt: skip
    assert check_batch(holes, checksum, LIMITS).last == 9


def test_a_million_messages_in_broken_zlib_are_refused() -> None:
    """Found by a trial: a batch of 71 bytes was acknowledged, the numbering of the log jumped by a million, and each
    reader stopped at that entry for ever."""
    data = batch(b"", 1_000_000, packed=b"\x78\x9cbroken"[:7], raw_bytes=64_000_000)
    assert len(data) == 71
    with pytest.raises(InvalidBatch):
        check_batch(data, checksum, BatchLimits(1 << 30))


LIES: list[tuple[str, Callable[[], bytes]]] = [
    ("fewer values than the count", lambda: batch(encode_values(ROWS), 4)),
    ("more values than the count", lambda: batch(encode_values(ROWS), 2)),
    ("lengths above the bytes", lambda: batch(encode_values(ROWS).replace(b"\x05\0\0\0", b"\x06\0\0\0"), 3)),
    ("lengths below the bytes", lambda: batch(encode_values(ROWS).replace(b"\x05\0\0\0", b"\x04\0\0\0"), 3)),
    ("no values", lambda: batch(encode_keys([b"k"]), 1)),
    ("values twice", lambda: batch(encode_values([b"a"]) * 2, 1)),
    ("a column cut off", lambda: batch(FULL[:-1], 3)),
    ("keys of another count", lambda: batch(encode_values(ROWS) + encode_keys([b"k"]), 3)),
    ("times of another count", lambda: batch(encode_values(ROWS) + encode_event_times([1]), 3)),
    ("properties of another count", lambda: batch(encode_values(ROWS) + encode_properties([{"a": "b"}]), 3)),
    (
        "properties that are not UTF-8",
        lambda: batch(encode_values([b""]) + encode_properties([{"a": "é"}]).replace(b"\xc3\xa9", b"\xff\xff"), 1),
    ),
    (
        "a property longer than its message's",
        lambda: batch(encode_values([b""]) + encode_properties([{"a": "b"}]).replace(b"\0\0\0b", b"\0\0\1b"), 1),
    ),
    ("nothing of zlib", lambda: batch(FULL, 3, packed=b"nothing of zlib")),
    ("zlib cut off", lambda: batch(FULL, 3, packed=zlib.compress(FULL)[:-1])),
    ("zlib and more", lambda: batch(FULL, 3, packed=zlib.compress(FULL) + b"x")),
    ("decompressed above what is declared", lambda: batch(FULL + b"x", 3, packed=zlib.compress(FULL))),
    ("decompressed below what is declared", lambda: batch(FULL[:-1], 3, packed=zlib.compress(FULL))),
    ("two sizes of what is not compressed", lambda: batch(FULL, 3, raw_bytes=len(FULL) + 1)),
    ("a sound size, and columns that lie", lambda: batch(FULL, 4, packed=zlib.compress(FULL))),
]  # fmt: skip


@pytest.mark.parametrize("lie", [make for _, make in LIES], ids=[name for name, _ in LIES])
def test_a_payload_that_contradicts_its_header_is_refused(lie: Callable[[], bytes]) -> None:
    """No reader could decode it, so the owner does not store it."""
    with pytest.raises(InvalidBatch):
        check_batch(lie(), checksum, LIMITS)


def test_a_zip_bomb_is_refused_before_it_is_decompressed() -> None:
    """The declared size is checked first; then no byte above it is produced."""
    bomb = zlib.compress(bytes(10_000_000))
    with pytest.raises(MessageTooLarge):
        check_batch(batch(b"", 1, packed=bomb, raw_bytes=10_000_000), checksum, LIMITS)
    with pytest.raises(InvalidBatch):
        check_batch(batch(b"", 1, packed=bomb, raw_bytes=90_000), checksum, LIMITS)


def test_check_accepts_exactly_the_batches_that_readers_can_decode() -> None:
    """The check and the reader agree on every damaged payload."""
    rng = random.Random(7)
    verdicts = {True: 0, False: 0}
    for _ in range(4_000):
        damaged = bytearray(FULL)
        for _ in range(rng.randint(1, 2)):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 2, 5, 127, 128, 255, rng.randrange(256)))
        data = batch(bytes(damaged), 3)
        try:
            check_batch(data, checksum, LIMITS)
            passes = True
        except InvalidBatch:
            passes = False
        header = decode_batch(data, checksum)
        try:
            read_columns(header, payload_of(header, data))
            reads = True
        except InvalidBatch:
            reads = False
        assert passes == reads, bytes(damaged)
        verdicts[passes] += 1
    assert min(verdicts.values()) > 100, verdicts


# --- messages in chunks of clients of Pulsar --------------------------------------------------------------------------


def named(metadata: bytes) -> bytes:
    """A message in chunks, with id 7, that a client of Pulsar has sent."""
    payload = encode_values([b""]) + encode_column(Column.PULSAR, [metadata])
    payload += encode_chunk_names(ChunkNames(LedgerId(1), 5, (ChunkName(EntryId(1), 2),)))
    return encode_batch(
        payload, producer_id=ProducerId(1), generation=Generation(1), first=7, last=7, count=1, publish_time_ms=5,
        checksum=checksum, payload_format=PayloadFormat.CHUNKED,
    )  # fmt: skip


def metadata_of(**fields: object) -> bytes:
    known: dict[str, object] = {"producer_name": "shop", "sequence_id": 7, "publish_time": 5} | fields
    return EntryMetadata(**known).SerializeToString()  # type: ignore[arg-type]


def test_metadata_of_a_client_is_taken() -> None:
    assert check_batch(named(metadata_of()), checksum, LIMITS, producer_name="shop").first == 7


@pytest.mark.hazard("entry-of-another-producer")
@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        (metadata_of(producer_name="other"), "producer_name"),
        (metadata_of(sequence_id=8), "sequence_id"),
        (metadata_of(chunks=3), "chunks"),
        (metadata_of(encryption_keys=[{"name": "k", "key": b"v"}]), "sequence_id"),
        (b"\xff\xff", "metadata"),
    ],
)
def test_metadata_of_another_message_is_refused(metadata: bytes, field: str) -> None:
    """Clients of Pulsar get it as it is."""
    with pytest.raises(InvalidBatch) as refused:
        check_batch(named(metadata), checksum, LIMITS, producer_name="shop")
    assert refused.value.details["field"] == field
