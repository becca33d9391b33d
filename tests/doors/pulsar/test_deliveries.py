"""Entries as clients of Pulsar get them, read by protobuf and by the reader of the clients' own entries: neither is the
code that writes them."""

import struct
from itertools import pairwise
from random import Random

import pytest
from crc32c import crc32c
from google.protobuf.message import Message

from oncelog.core.errors import InvalidBatch, MessageTooLarge
from oncelog.core.formats.compression import Compression
from oncelog.core.formats.pulsar import open_entry
from oncelog.core.formats.wire.pulsar_metadata_pb2 import EncryptionKey, EntryMetadata
from oncelog_doors.core.pulsar.deliveries import RawBatch, delivery_of, last_id_of
from oncelog_doors.core.pulsar.protobuf_fields import fields_of
from oncelog_doors.pulsar.frames import build_entry
from tests.doors.core.pulsar.stored_batches import APPENDED_MS, PUBLISHED_MS, columns, of_client, stored
from tests.doors.pulsar.bytes_of_clients import checksum_matches
from tests.doors.pulsar.entries_at_clients import Got, client_entry, read

BYTES_MAX = 5 * 1024 * 1024


def bytes_of(raw: RawBatch, bytes_max: int = BYTES_MAX) -> bytes:
    """All that is sent behind the command."""
    made = delivery_of(raw, bytes_max)
    return bytes(build_entry(made.metadata, made.payload) if made.whole is None else made.whole)


# --- batches of columns -----------------------------------------------------------------------------------------------


@pytest.mark.hazard("wrong-bytes-of-ours")
def test_batch_of_the_sdk_becomes_a_batch() -> None:
    """Each column at its message; keys that are no text in base64; ids with holes; times before 1970."""
    data = columns(
        [b"one", b"", b"three"],
        [7, 9, 2**40],
        keys=[b"k\xc3\xa4", None, b"\xff\x00"],
        times_ms=[1_700_000_000_000, None, -5],
        properties=[{"a": "b", "ü": "\n" * 200}, {}, {"": ""}],
    )
    metadata, messages = read(bytes_of(stored(data)))
    assert messages == [
        Got(7, b"one", "kä".encode(), event_time=1_700_000_000_000, properties={"a": "b", "ü": "\n" * 200}),
        Got(9, b""),
        Got(2**40, b"three", b"/wA=", key_in_base64=True, event_time=2**64 - 5, properties={"": ""}),
    ]
    assert (metadata.producer_name, metadata.sequence_id, metadata.highest_sequence_id) == ("importer", 7, 2**40)
    assert (metadata.publish_time, metadata.count, metadata.codec) == (PUBLISHED_MS, 3, 0)


@pytest.mark.hazard("wrong-bytes-of-ours")
def test_batch_of_one_message_becomes_a_single_message() -> None:
    """What a message has stands in the metadata of the entry, and there is no count."""
    data = columns([b"one"], [5], keys=[b"\xfe"], times_ms=[77], properties=[{"a": "b"}])
    metadata, messages = read(bytes_of(stored(data)))
    assert messages == [Got(5, b"one", b"/g==", key_in_base64=True, event_time=77, properties={"a": "b"})]
    assert not metadata.HasField("count")


@pytest.mark.hazard("wrong-bytes-of-ours")
def test_any_batch_is_read_by_the_reader_of_clients_entries() -> None:
    """Which checks every size and id; with and without each column."""
    random = Random(1)
    for _ in range(200):
        count = random.choice((1, 2, 3, 40))
        ids = sorted(random.sample(range(2 ** random.randint(7, 62)), count))
        values = [random.randbytes(random.choice((0, 1, 127, 128, 300))) for _ in range(count)]
        keys = [random.choice((None, b"", b"k", random.randbytes(3))) for _ in range(count)]
        times: list[int | None] = [random.choice((None, 1, 2**40)) for _ in range(count)]
        properties = [{str(n): "v" * n for n in range(random.randint(0, 3))} for _ in range(count)]
        data = columns(
            values,
            ids,
            keys=random.choice((None, keys)),
            times_ms=random.choice((None, times)),
            properties=random.choice((None, properties)),
            compression=random.choice((Compression.NONE, Compression.ZLIB)),
        )
        skip = random.randint(0, count - 1)
        entry = bytes_of(stored(data, skip_first=skip))
        found = open_entry(entry, checksum=crc32c)
        assert (list(found.values), list(found.ids or ())) == (values[skip:], ids[skip:])
        assert found.count == count - skip == len(read(entry)[1])


def test_what_is_not_in_the_bytes_is_told_beside_them() -> None:
    """The id of the entry, how many messages the client counts, the index of the last one, and the time of the log."""
    made = delivery_of(stored(columns([b"x", b"y", b"z"]), skip_first=1, base_index=40, entry_id=8), BYTES_MAX)
    assert (made.id.position, made.id.batch_index) == ((5, 8), -1)
    assert (made.messages, made.last_index, made.append_time_ms) == (2, 41, APPENDED_MS + 8)


def test_message_whose_producer_is_not_known_has_an_empty_name() -> None:
    """Clients refuse metadata without one."""
    metadata, _ = read(bytes_of(stored(columns([b"x"]), producer_name=None)))
    assert metadata.HasField("producer_name")
    assert metadata.producer_name == ""


def test_prefix_of_a_batch_of_columns_is_not_sent() -> None:
    """Also if one message is left: its id counts from 0, and the entry stays a batch for every client."""
    raw = stored(columns([b"x", b"y", b"z"], [3, 4, 9]), skip_first=2)
    metadata, messages = read(bytes_of(raw))
    assert (metadata.sequence_id, metadata.highest_sequence_id, metadata.count) == (9, 9, 1)
    assert messages == [Got(9, b"z")]
    assert last_id_of(raw).batch_index == 0


# --- the limit of clients ---------------------------------------------------------------------------------------------


def test_entry_above_the_limit_of_clients_is_compressed() -> None:
    """A batch that was compressed in the log, or of very small messages, grows above what a client reads."""
    values = [b"value %05d " % number * 10 for number in range(1000)]
    raw = stored(columns(values, compression=Compression.ZLIB))
    assert len(bytes_of(raw)) > 100_000
    small = bytes_of(raw, 100_000)
    assert len(small) <= 100_000 + 10
    metadata, messages = read(small)
    assert metadata.codec == 2
    assert [message.value for message in messages] == values


def test_entry_that_no_client_reads_is_refused_and_not_left_out() -> None:
    """Its place and the limit are in the error."""
    with pytest.raises(MessageTooLarge, match="5:3") as refused:
        bytes_of(stored(columns([Random(1).randbytes(50_000)])), 40_000)
    assert refused.value.details["limit"] == 40_000


# --- entries of clients -----------------------------------------------------------------------------------------------


def test_entry_of_a_client_goes_out_as_it_came() -> None:
    """Every byte, compressed or not."""
    for codec in (0, 2):
        entry = client_entry([3, 4, 5], codec=codec)
        made = delivery_of(stored(of_client(entry, [3, 4, 5])), 10)
        assert made.whole is not None
        assert bytes(made.whole) == entry
        assert made.messages == 3


@pytest.mark.hazard("wrong-bytes-of-ours")
@pytest.mark.parametrize("codec", [0, 2])
@pytest.mark.parametrize("with_ids", [True, False])
@pytest.mark.parametrize("skip", [1, 2, 3])
def test_known_prefix_of_a_clients_entry_is_cut(codec: int, skip: int, *, with_ids: bool) -> None:
    """The others stay as they are, also fields that are not known here; the batch stays a batch."""
    ids = [6, 7, 8, 9]
    whole = client_entry(ids, codec=codec, with_ids=with_ids)
    raw = stored(of_client(whole, ids), skip_first=skip)
    entry = bytes_of(raw)
    assert checksum_matches(entry)
    metadata, messages = read(entry)
    _, all_messages = read(whole)
    assert messages == all_messages[skip:]
    assert (metadata.sequence_id, metadata.highest_sequence_id) == (ids[skip], 9)
    assert (metadata.count, metadata.codec) == (4 - skip, 0)
    assert metadata.schema_version == b"\x00\x07"
    size = struct.unpack_from(">I", entry, 6)[0]
    assert b"\x82\x02\x03abc" in entry[10 : 10 + size]
    assert open_entry(entry, checksum=crc32c).count == 4 - skip
    assert last_id_of(raw).batch_index == 3 - skip


def test_entry_that_cannot_be_cut_is_an_error() -> None:
    """Encrypted ones are never stored with a prefix, and lies never at all: nothing is guessed."""
    secret = client_entry([1, 2], encryption_keys=[EncryptionKey(name="k", key=b"k")])
    cut = client_entry([1, 2])[:-12]
    other = client_entry([1, 2, 3])
    no_codec = client_entry([1, 2], codec=9)
    for entry in (secret, cut, other, no_codec, b"\x0e\x01\0\0", b"\x0e\x02" + client_entry([1, 2])[2:]):
        with pytest.raises(InvalidBatch):
            delivery_of(stored(of_client(entry, [1, 2]), skip_first=1), BYTES_MAX)


# --- fields of protobuf -----------------------------------------------------------------------------------------------


def test_fields_of_metadata_are_found_as_protobuf_wrote_them() -> None:
    """Without a gap between them, whatever their kinds."""
    message: Message = EntryMetadata(
        producer_name="p" * 300, sequence_id=2**63 - 1, publish_time=0, null_value=True, schema_version=bytes(200)
    )
    data = message.SerializeToString() + b"\xd9\x05" + bytes(8) + b"\xdd\x05" + bytes(4)
    found = list(fields_of(data))
    assert [each.field for each in found] == [1, 2, 3, 16, 25, 91, 91]
    assert found[0].start == 0
    assert found[-1].end == len(data)
    assert all(one.end == other.start for one, other in pairwise(found))
    assert found[1].number == 2**63 - 1


@pytest.mark.parametrize("data", [b"\x0a\x05abcd", b"\x10" + b"\xff" * 10, b"\x10", b"\x0b\x0c", b"\xd9\x05\0"])
def test_bytes_that_are_no_fields_are_an_error(data: bytes) -> None:
    """Cut off, too long, or of a kind that is not used."""
    with pytest.raises(InvalidBatch):
        list(fields_of(data))
