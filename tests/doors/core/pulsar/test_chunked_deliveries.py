"""What clients of Pulsar are sent of a message in chunks, read with protobuf."""

import pytest

from oncelog.core.errors import MessageTooLarge
from oncelog.core.formats.wire.pulsar_metadata_pb2 import EntryMetadata, Property
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog_doors.core.pulsar.chunked_deliveries import ChunkedDelivery, is_in_chunks
from oncelog_doors.core.pulsar.deliveries import Delivery, last_id_of
from oncelog_doors.core.pulsar.message_ids import FromEntry, chunk_place, names_chunk, start_at_id
from oncelog_doors.core.pulsar.protobuf_fields import fields_of
from tests.doors.core.pulsar.stored_batches import PUBLISHED_MS, columns, in_chunks, stored

CHUNKS = [b"a" * 10, b"b" * 10, b"c" * 3]
PLACE = Position(LedgerId(5), EntryId(3))
UUID, CHUNK_COUNT, TOTAL, NUMBER = 26, 27, 28, 29
LIMIT = 1000


def sent(data: bytes, tag: str = "x") -> list[Delivery]:
    message = ChunkedDelivery(stored(data), tag)
    assert message.count == len(CHUNKS)
    return [message.chunk(number, chunk, LIMIT) for number, chunk in enumerate(CHUNKS)]


def of_chunk(made: Delivery) -> dict[int, object]:
    return {
        each.field: made.metadata[each.content_at : each.end] if each.field == UUID else each.number
        for each in fields_of(made.metadata)
        if each.field in (UUID, CHUNK_COUNT, TOTAL, NUMBER)
    }


def test_each_chunk_says_which_one_it_is() -> None:
    made = sent(in_chunks(CHUNKS))
    assert [each.payload for each in made] == CHUNKS
    assert [of_chunk(each) for each in made] == [
        {UUID: b"5:3-x", CHUNK_COUNT: 3, TOTAL: 23, NUMBER: number} for number in range(3)
    ]
    assert [each.messages for each in made] == [1, 1, 1]
    assert {each.last_index for each in made} == {100}


@pytest.mark.hazard("chunk-acknowledged-for-its-message", "last-id-of-no-message")
def test_only_the_last_chunk_has_the_id_of_the_message() -> None:
    """The others have one that is above all ids of the ledger, and begins a reader with the message."""
    made = sent(in_chunks(CHUNKS))
    early, last = made[:-1], made[-1]
    assert last.id == last_id_of(stored(in_chunks(CHUNKS)))
    assert last.id.position == PLACE
    for each in early:
        ledger_id, entry_id = each.id.position
        assert (ledger_id, names_chunk(entry_id)) == (5, True)
        assert entry_id > 2**61
        assert start_at_id(ledger_id, entry_id) == FromEntry(PLACE)
    assert not names_chunk(PLACE.entry_id)
    assert not names_chunk(2**64 - 1), "as clients write -1"
    assert chunk_place(PLACE) != chunk_place(Position(LedgerId(5), EntryId(4)))


@pytest.mark.hazard("chunks-begin-again")
def test_each_delivery_has_a_uuid_of_its_own() -> None:
    first, again = sent(in_chunks(CHUNKS), "x"), sent(in_chunks(CHUNKS), "y")
    assert of_chunk(first[0])[UUID] == of_chunk(first[1])[UUID]
    assert of_chunk(first[0])[UUID] != of_chunk(again[0])[UUID]


def test_message_of_the_sdk_has_its_metadata_in_each_chunk() -> None:
    for made in sent(in_chunks(CHUNKS, 7, key=b"k")):
        found = EntryMetadata.FromString(made.metadata)
        assert (found.producer_name, found.sequence_id, found.publish_time) == ("importer", 7, PUBLISHED_MS)
        assert (found.key, found.raw_bytes, found.HasField("count")) == (b"k", 23, False)


def test_metadata_of_a_client_comes_back_as_it_was_sent() -> None:
    """Also fields that are not known here."""
    own = EntryMetadata(
        producer_name="importer", sequence_id=7, publish_time=5, schema_version=b"\x00\x09", key=b"k",
        properties=[Property(name="a", value="b")],
    )  # fmt: skip
    metadata = own.SerializeToString() + b"\x82\x02\x03abc"
    for made in sent(in_chunks(CHUNKS, 7, metadata=metadata, key=b"k")):
        assert made.metadata.startswith(metadata)


def test_chunk_that_no_client_takes_is_refused() -> None:
    """But for what clients leave no room for: uuid, count, size and number."""
    message = ChunkedDelivery(stored(in_chunks(CHUNKS)), "x")
    message.chunk(0, b"a" * 10, 50)
    with pytest.raises(MessageTooLarge, match="at most 50"):
        message.chunk(0, b"a" * 300, 50)


def test_other_entries_are_not_in_chunks() -> None:
    assert is_in_chunks(stored(in_chunks(CHUNKS)))
    assert not is_in_chunks(stored(columns([b"a"])))
