"""Record batches of Kafka's clients as Arrow columns: their messages as readers of the SDK get them."""

import pytest
from crc32c import crc32c

from oncelog.client.values.messages import StoredBatch, open_entry
from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.entry import EntryHeader, EntryKind, encode_header
from oncelog.core.ids import EntryId, LedgerId, OwnerEpoch, TopicId
from oncelog_spark.source.arrow_columns import ARROW_SCHEMA, FoundEntry, RowOrigin, entry_slice, record_batch
from tests.core.kafka_batches import TIME_MS, Sent, as_batch, batched, framed, numbered, records

ORIGIN = RowOrigin("public/default/flights", -1, "ab" * 16)
MESSAGES = [
    Sent(b"first", b"key", [(b"a", b"1"), (b"a", b"2"), (b"raw", b"\xff")]),
    Sent(None, b"\xff\x00", timestamp=-1),
    Sent(b""),
]


def stored(entry: bytes, count: int, *, skip_first: int = 0) -> StoredBatch:
    body = as_batch(entry, range(100, 100 + count), by=crc32c)
    header = EntryHeader(
        EntryKind.MESSAGES, LedgerId(3), EntryId(4), EntryId(-1), 0, OwnerEpoch(1), 0, 40, skip_first,
        count - skip_first, len(body), TopicId("ab" * 16),
    )  # fmt: skip
    return open_entry(encode_header(header, body, crc32c) + body, crc32c)


def columns(batch: StoredBatch, *names: str) -> list[tuple[object, ...]]:
    piece = entry_slice(FoundEntry(batch, "importer"), first=0, end=1000, check=True)
    assert piece is not None
    made = record_batch([piece], ORIGIN, names)
    made.validate(full=True)
    return [tuple(row[name] for name in names) for row in made.to_pylist()]


@pytest.mark.parametrize("codec", range(5))
def test_rows_have_what_producers_gave_them(codec: int) -> None:
    """A null value is null, and an empty one is empty. Headers that are text are properties."""
    batch = stored(batched(MESSAGES, codec=codec), 3)
    assert columns(batch, "value", "key", "sequence_id", "index") == [
        (b"first", b"key", 100, 40), (None, b"\xff\x00", 101, 41), (b"", None, 102, 42),
    ]  # fmt: skip
    assert [row[0] for row in columns(batch, "properties")] == [[("a", "2")], [], []]
    times = [row[0] for row in columns(batch, "event_time")]
    assert [None if time is None else round(time.timestamp() * 1000) for time in times] == [  # type: ignore[attr-defined]
        TIME_MS, None, TIME_MS,
    ]  # fmt: skip
    piece = entry_slice(FoundEntry(batch, "importer"), first=0, end=1000)
    assert piece is not None
    assert record_batch([piece], ORIGIN).schema.equals(ARROW_SCHEMA)


def test_a_known_prefix_is_left_out() -> None:
    assert columns(stored(batched(numbered(4)), 4, skip_first=3), "value", "index") == [(b"value 3", 40)]


def test_a_batch_that_cannot_be_read_is_damage() -> None:
    batch = stored(framed(records(numbered(4)), 5), 5)
    with pytest.raises(CorruptEntry, match="counts 5 records"):
        entry_slice(FoundEntry(batch, "importer"), first=0, end=1000)
