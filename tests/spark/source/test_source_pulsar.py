"""Entries of Pulsar's clients as Arrow columns: their messages as readers of the SDK get them, and never ciphertext."""

import pytest
from crc32c import crc32c

from oncelog.client.values.messages import StoredBatch, open_entry
from oncelog.core.format_errors import MessageEncrypted
from oncelog.core.formats.entry import EntryHeader, EntryKind, encode_header
from oncelog.core.formats.pulsar import open_entry as open_pulsar
from oncelog.core.ids import EntryId, Generation, LedgerId, OwnerEpoch, ProducerId, TopicId
from oncelog_spark.source.arrow_columns import ARROW_SCHEMA, FoundEntry, RowOrigin, entry_slice, record_batch
from tests.core.pulsar_entries import Sent, batched, encrypted, numbered, of_one_key, pack_pulsar, summed

ORIGIN = RowOrigin("public/default/flights", -1, "ab" * 16)
MESSAGES = [
    Sent(3, b"first", b"key", {"a": "1"}, 1_500),
    Sent(5, None, b"\xff\x00"),
    Sent(9, b""),
]


def stored(entry: bytes, *, skip_first: int = 0) -> StoredBatch:
    entry = summed(entry, crc32c)
    messages = open_pulsar(entry)
    body = pack_pulsar(entry, messages, producer_id=ProducerId(7), generation=Generation(1), checksum=crc32c)
    header = EntryHeader(
        EntryKind.MESSAGES, LedgerId(3), EntryId(4), EntryId(-1), 0, OwnerEpoch(1), 0, 40, skip_first,
        messages.count - skip_first, len(body), TopicId("ab" * 16),
    )  # fmt: skip
    return open_entry(encode_header(header, body, crc32c) + body, crc32c)


def columns(
    batch: StoredBatch, *names: str, unpack: bool = True, passes_encrypted: bool = False
) -> list[tuple[object, ...]]:
    piece = entry_slice(
        FoundEntry(batch, "importer"), first=0, end=1000, check=True, unpack=unpack, passes_encrypted=passes_encrypted
    )
    assert piece is not None
    made = record_batch([piece], ORIGIN, names)
    made.validate(full=True)
    return [tuple(row[name] for name in names) for row in made.to_pylist()]


def test_rows_have_what_producers_gave_them() -> None:
    """A null value is null, and an empty one is empty."""
    batch = stored(batched(MESSAGES, codec=3))
    assert columns(batch, "value", "key", "sequence_id", "index") == [
        (b"first", b"key", 3, 40), (None, b"\xff\x00", 5, 41), (b"", None, 9, 42),
    ]  # fmt: skip
    assert [row[0] for row in columns(batch, "properties")] == [[("a", "1")], [], []]
    piece = entry_slice(FoundEntry(batch, "importer"), first=0, end=1000)
    assert piece is not None
    assert record_batch([piece], ORIGIN).schema.equals(ARROW_SCHEMA)


def test_ids_of_a_batch_of_one_key_are_those_of_its_messages() -> None:
    """Also if no column of the payload is wanted, so that it was not read yet. A known prefix is left out."""
    batch = stored(of_one_key([Sent(number, b"%d" % number, b"k") for number in (2, 4, 7)]))
    assert columns(batch, "sequence_id", unpack=False) == [(2,), (4,), (7,)]
    assert columns(stored(batched(numbered(range(4))), skip_first=3), "value", "index") == [(b"value 3", 40)]


def test_encrypted_messages_are_an_error() -> None:
    """It says where they are, and how to go on."""
    with pytest.raises(MessageEncrypted, match=r"3:4 \(messages 40 to 43\) .* 'importer'.*onEncrypted=pass"):
        columns(stored(encrypted(1, 4, count=4)), "value")
    assert columns(stored(encrypted(1, 4, count=4)), "index", unpack=False) == [(40,), (41,), (42,), (43,)]


@pytest.mark.parametrize("count", [None, 2])
def test_encrypted_messages_that_are_passed_on_have_no_value(count: int | None) -> None:
    """Their property tells them from null values. The key is one that the entry shows."""
    batch = stored(encrypted(1, None if count is None else 2, count=count, key=b"k"))
    rows = columns(batch, "value", "key", "properties", "index", passes_encrypted=True)
    marked = [("oncelog.encrypted", "our-key")]
    assert rows == [(None, b"k", marked, 40 + number) for number in range(count or 1)]


def test_messages_that_are_not_encrypted_are_as_before_if_others_are_passed_on() -> None:
    batch = stored(batched(MESSAGES, codec=3))
    names = ("value", "key", "properties", "sequence_id")
    assert columns(batch, *names, passes_encrypted=True) == columns(batch, *names)
