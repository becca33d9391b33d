"""Chunks of clients, checked before they are stored, and the message that is made of the last one."""

import struct
from typing import Any

import pytest
from crc32c import crc32c

from oncelog.core.formats.batch import PayloadFormat
from oncelog.core.formats.chunks import CHUNKED_BYTES_MAX, CHUNKS_MAX, ChunkName, ChunkNames, decode_chunk
from oncelog.core.formats.chunks import decode_chunk_names as names_in
from oncelog.core.formats.columns import Column, decode_columns, split_columns
from oncelog.core.ids import EntryId, LedgerId
from oncelog_doors.core.pulsar.verdicts import Ids, Rejected
from oncelog_doors.log_client.client_chunks import PreparedChunk, prepared_chunk
from tests.doors.pulsar.bytes_of_clients import body, entry, field

LIMIT = 1 << 20
IDS = Ids(7)
FRONT = body((1, b"shop"), (2, 7), (3, 5000), (6, b"key"), (4, body((1, b"a"), (2, b"b"))), (12, 77))
#: Schema version, and a field that is not known here.
MORE = field(16, b"\x00\x09") + b"\x82\x02\x03abc"


def placed(number: int = 1, *, count: int = 3, total: int = 25, uuid: bytes = b"shop-7") -> bytes:
    return body((26, uuid), (27, count), (28, total), (29, number))


def prepared(metadata: bytes, data: bytes = b"0123456789", ids: Ids = IDS, **options: Any) -> PreparedChunk:
    found = prepared_chunk(entry(metadata, data), ids, 1, producer_name="shop", bytes_max=LIMIT, **options)
    assert not isinstance(found, Rejected), found.sentence
    return found


def refused(metadata: bytes, data: bytes = b"0123456789", ids: Ids = IDS, count: int = 1) -> str:
    found = prepared_chunk(entry(metadata, data), ids, count, producer_name="shop", bytes_max=LIMIT)
    assert isinstance(found, Rejected)
    return found.sentence


def test_chunk_is_one_of_the_log() -> None:
    packed = prepared(FRONT + placed()).packed(10)
    assert packed.payload_format == PayloadFormat.CHUNK
    assert (packed.ids[:2], packed.count, packed.publish_time_ms) == ((7, 7), 1, 5000)
    offset, data = decode_chunk(packed.payload)
    assert (offset, bytes(data)) == (10, b"0123456789")


def test_message_has_columns_for_everyone_and_the_metadata_as_it_came() -> None:
    """Without what it says of its chunks: that is not the same for every client that gets it."""
    names = ChunkNames(LedgerId(4), 25, tuple(ChunkName(EntryId(n), n) for n in range(3)))
    message = prepared(FRONT + placed(2) + MORE).message(names)
    assert message.payload_format == PayloadFormat.CHUNKED
    columns = decode_columns(message.payload, 1)
    assert (columns.keys, columns.properties, columns.event_times_ms) == ([b"key"], [{"a": "b"}], [77])
    assert names_in(message.payload) == names
    assert bytes(split_columns(message.payload, 1)[Column.PULSAR]) == FRONT + MORE


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (FRONT + placed() + field(8, 1), "without compression"),
        (FRONT + placed() + field(13, body((1, b"k"), (2, b"v"))), "without encryption"),
        (FRONT + placed() + field(18, b"o"), "ordering key"),
        (FRONT + placed() + field(25, 1), "null value"),
        (FRONT + placed() + field(11, 1), "a batch is not sent in chunks"),
        (FRONT + placed() + field(19, 1), "delivered later"),
        (FRONT + placed() + field(22, 1), "transaction"),
        (FRONT + body((27, 3), (28, 25), (29, 1)), "no uuid"),
        (FRONT + body((26, b"u"), (28, 25), (29, 1)), "no num_chunks_from_msg"),
        (FRONT + body((26, b"u"), (27, 3), (28, 25)), "no chunk_id"),
        (FRONT, "no uuid"),
        (FRONT + placed(0, count=1), "num_chunks_from_msg is 1"),
        (FRONT + placed(count=CHUNKS_MAX + 1, total=10_000), f"at most {CHUNKS_MAX} chunks"),
        (FRONT + placed(3), "chunk_id 3 is not below num_chunks_from_msg, 3"),
        (FRONT + placed(-1), "is not below num_chunks_from_msg"),
        (FRONT + placed(total=2), "total_chunk_msg_size is 2, at least 3"),
        (FRONT + placed(total=CHUNKED_BYTES_MAX + 1), f"at most {CHUNKED_BYTES_MAX}"),
        (FRONT + placed(uuid=b"u" * 40_000), "uuid has 40000 bytes"),
        (body((1, b"other"), (2, 7), (3, 5000)) + placed(), "names the producer 'other'"),
        (body((1, b"shop"), (2, 8), (3, 5000)) + placed(), "has the sequence id 8"),
        (body((2, 7), (3, 5000)) + placed(), "has no producer_name"),
        (b"\xff\xff\xff", "metadata"),
    ],
)
def test_chunk_that_is_not_stored_is_refused_with_a_sentence(metadata: bytes, said: str) -> None:
    sentence = refused(metadata)
    assert sentence.startswith("sequence id 7: ")
    assert said in sentence


@pytest.mark.parametrize("value", [0, 1], ids=["none", "without"])
def test_fields_that_say_nothing_are_taken(value: int) -> None:
    """Go names the compression NONE."""
    metadata = FRONT + placed() + (field(8, 0) + field(25, 0) if not value else b"")
    assert prepared(metadata).place.number == 1


def test_command_must_say_the_same() -> None:
    assert "sequence id 7" in refused(FRONT + placed(), count=2)
    assert "has the sequence id 7" in refused(FRONT + placed(), ids=Ids(7, 9))
    assert "has no bytes" in refused(FRONT + placed(), b"")
    assert "exceeds the limit" in refused(FRONT + placed(), bytes(LIMIT))


def test_damaged_chunk_is_refused() -> None:
    damaged = bytearray(entry(FRONT + placed(), b"0123456789"))
    damaged[-1] ^= 1
    found = prepared_chunk(bytes(damaged), Ids(7), 1, producer_name="shop", bytes_max=LIMIT)
    assert isinstance(found, Rejected)
    assert "checksum" in found.sentence
    mark, checksum, _size = struct.unpack_from(">HII", damaged)
    assert (mark, checksum != crc32c(damaged[6:])) == (0x0E01, True)
