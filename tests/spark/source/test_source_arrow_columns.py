"""Stored batches as Arrow columns: the same messages as from the SDK, with any selection of columns and messages."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from oncelog.cli.read.lines import json_lines
from oncelog.client.values.messages import MessageBatch
from oncelog.client.values.results import TopicPartition
from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.columns import Column, split_columns
from oncelog.core.formats.compression import Compression
from oncelog.core.ids import NOT_DEDUPLICATED
from oncelog.metadata.rest.subscription_values import StoredMessage, message_fields
from oncelog_spark.source.arrow_columns import (
    ARROW_SCHEMA,
    ROWS_TARGET,
    BatchJoiner,
    EntrySlice,
    FoundEntry,
    RowOrigin,
    entry_slice,
    needs_payload,
    record_batch,
)
from oncelog_spark.source.reader import SCHEMA
from tests.spark.stored_entries import TOPIC_ID, opened, stored_entry

ORIGIN = RowOrigin("public/default/flights", 2, "ab" * 16)
ALL = 2**62


def rows(data: bytes, *, first: int = 0, end: int = ALL, name: str | None = "importer") -> list[dict[str, Any]]:
    piece = entry_slice(FoundEntry(opened(data), name), first=first, end=end)
    return [] if piece is None else listed(record_batch([piece], ORIGIN))


def listed(batch: Any) -> list[dict[str, Any]]:
    batch.validate(full=True)
    assert batch.schema.equals(ARROW_SCHEMA)
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def whole(data: bytes, name: str | None = "importer") -> EntrySlice:
    piece = entry_slice(FoundEntry(opened(data), name), first=0, end=ALL)
    assert piece is not None
    return piece


def test_columns_are_those_that_spark_expects() -> None:
    """Spark compares the whole schema, and would refuse anything else."""
    assert to_arrow_schema(SCHEMA, timezone="UTC").equals(ARROW_SCHEMA)


def test_every_column_has_its_value() -> None:
    """One message with everything, one with nothing."""
    data = stored_entry(
        [b"one", b""], base_index=40, ids=[5, 9], keys=[b"k", None], event_times_ms=[1500, None],
        properties=[{"a": "b", "c": "d"}, {}],
    )  # fmt: skip
    time = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    half = time.replace(microsecond=500_000)
    same = {"topic": "public/default/flights", "partition": 2, "topic_id": "ab" * 16, "ledger_id": 3, "entry_id": 4,
            "publish_time": time, "producer_name": "importer", "producer_id": 7}  # fmt: skip
    assert rows(data) == [
        same | {"key": b"k", "value": b"one", "batch_index": 0, "index": 40, "event_time": half,
                "sequence_id": 5, "properties": [("a", "b"), ("c", "d")]},
        same | {"key": None, "value": b"", "batch_index": 1, "index": 41, "event_time": None, "sequence_id": 9,
                "properties": []},
    ]  # fmt: skip


def test_making_columns_does_not_import_pandas() -> None:
    """It takes a worker of Spark longer than all its other imports, and `pa.array` would import it."""
    program = """if True:
        import sys
        from oncelog_spark.source.arrow_columns import FoundEntry, RowOrigin, entry_slice, record_batch
        from tests.spark.stored_entries import opened, stored_entry
        data = stored_entry([b"one", b""], base_index=40, ids=[5, 9], keys=[b"k", None], event_times_ms=[1500, None],
            properties=[{"a": "b"}, {}])
        pieces = [entry_slice(FoundEntry(opened(data), name), first=0, end=99) for name in ("one", None)]
        batch = record_batch(pieces, RowOrigin("public/default/flights", 2, "id"))
        sys.exit("imported" if "pandas" in sys.modules else batch.num_rows)"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (4, "")


def test_columns_that_no_message_uses_are_null() -> None:
    """They are not stored; nor is a producer's name without deduplication."""
    [row] = rows(stored_entry([b"x"], producer_id=NOT_DEDUPLICATED), name=None)
    names = ("key", "event_time", "properties", "producer_name", "producer_id")
    assert [row[name] for name in names] == [None] * len(names)


def test_producer_that_has_expired_is_told_from_none_by_its_id() -> None:
    """A filter by the id finds the same rows of a range whenever it is read."""
    [row] = rows(stored_entry([b"x"], producer_id=9), name=None)
    assert (row["producer_name"], row["producer_id"]) == (None, 9)


@pytest.mark.parametrize(("producer_id", "told"), [(NOT_DEDUPLICATED, None), (9, 9)])
def test_message_tells_an_expired_producer_from_none(producer_id: int, told: int | None) -> None:
    """In the SDK, in lines of the command, and over HTTP."""
    stored = opened(stored_entry([b"x"], producer_id=producer_id))
    batch = MessageBatch(stored, TopicPartition(TOPIC_ID, -1), None, first_batch_index=0)
    assert (batch.producer_id, batch[0].producer_id, batch[0].producer_name) == (told, told, None)
    assert json.loads(json_lines(batch, range(len(batch))))["producer_id"] == told
    shown = StoredMessage.model_validate(message_fields(batch[0]))
    assert (shown.producer_id, shown.producer_name) == (told, None)


def test_messages_that_an_entry_repeats_are_left_out() -> None:
    """They are in an earlier entry; new messages have the numbers."""
    found = rows(stored_entry([b"a", b"b", b"c", b"d"], base_index=10, skip_first=2, ids=[1, 2, 4, 8]))
    assert [(r["value"], r["index"], r["batch_index"], r["sequence_id"]) for r in found] == [
        (b"c", 10, 2, 4), (b"d", 11, 3, 8),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "end", "values"),
    [(0, 10, []), (0, 11, [b"b"]), (11, 12, [b"c"]), (12, 99, [b"d"]), (13, 99, []), (10, 13, [b"b", b"c", b"d"])],
)
def test_a_range_may_begin_and_end_inside_an_entry(first: int, end: int, values: list[bytes]) -> None:
    """By message numbers, so that two adjacent ranges share no message."""
    data = stored_entry([b"a", b"b", b"c", b"d"], base_index=10, skip_first=1)
    assert [row["value"] for row in rows(data, first=first, end=end)] == values


messages = st.lists(
    st.tuples(
        st.binary(max_size=6),
        st.none() | st.binary(max_size=3),
        st.none() | st.integers(-(10**12), 10**12),
        st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
        st.integers(1, 300),
    ),
    min_size=1,
    max_size=8,
)


def ms(time: datetime | None) -> int | None:
    """Since 1970."""
    return None if time is None else (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


@given(messages, st.sampled_from(Compression), st.integers(0, 7))
def test_rows_equal_the_messages_of_the_sdk(given_: list[Any], packed: Compression, skipped: int) -> None:
    """Two readers of one format agree, with and without compression, gaps between the ids, and repeated messages."""
    values, keys, times, properties, steps = (list(column) for column in zip(*given_, strict=True))
    ids = [sum(steps[: n + 1]) for n in range(len(steps))]
    skip_first = min(skipped, len(values) - 1)
    data = stored_entry(
        values, base_index=100, skip_first=skip_first, ids=ids, keys=keys, event_times_ms=times, properties=properties,
        compression=packed,
    )  # fmt: skip
    batch = MessageBatch(opened(data), TopicPartition(TOPIC_ID, -1), "p", first_batch_index=0)
    assert [
        (
            r["value"],
            r["key"],
            ms(r["event_time"]),
            dict(r["properties"]),
            r["sequence_id"],
            r["index"],
            r["batch_index"],
        )
        for r in rows(data)
    ] == [
        (m.value, m.key, m.event_time_ms, m.properties, m.sequence_id, m.index, m.message_id.batch_index) for m in batch
    ]


def test_an_event_time_beyond_sparks_range_is_null() -> None:
    """Its microseconds do not fit 64 bits; one such message must not stop a query for ever."""
    found = rows(stored_entry([b"a", b"b"], event_times_ms=[2**62, 5]))
    assert [row["event_time"] is None for row in found] == [True, False]


def test_values_are_slices_of_what_was_read() -> None:
    """No byte of an uncompressed payload of one entry is copied: the buffer of the column is in the entry."""
    stored = opened(stored_entry([b"x" * 1000] * 10))
    piece = entry_slice(FoundEntry(stored, None), first=0, end=ALL)
    assert piece is not None
    data = record_batch([piece], ORIGIN).column("value").buffers()[2]
    entry = pa.py_buffer(stored.body)
    assert entry.address <= data.address < entry.address + entry.size


@pytest.mark.parametrize("column", [Column.VALUES, Column.KEYS])
@pytest.mark.parametrize("lengths", [b"\xfe\xff\xff\xff", b"\x00\x00\x00\x00"])
def test_lengths_that_do_not_add_up_are_a_corrupt_entry(column: Column, lengths: bytes) -> None:
    """Arrow trusts its offsets: it would read behind the buffer."""
    data = stored_entry([b"abcd"], keys=[b"efgh"])
    stored = opened(data)
    content = split_columns(stored.body[64:], 1)[column]
    forged = bytearray(data)
    at = data.index(bytes(content))
    forged[at : at + 4] = lengths
    broken = stored._replace(body=memoryview(bytes(forged))[96:])
    piece = entry_slice(FoundEntry(broken, None), first=0, end=ALL)
    assert piece is not None
    good = whole(stored_entry([b"good"], keys=[b"good"], place=(3, 9)))
    with pytest.raises(CorruptEntry, match="3:4"):
        record_batch([good, piece, good], ORIGIN)
    with pytest.raises(CorruptEntry, match=r"3:4 \(messages 0 to 0\).*onCorrupt=skip"):
        entry_slice(
            FoundEntry(broken, None), first=0, end=ALL, check=True
        )  # a task that skips must know it before it joins


def test_small_entries_are_joined_and_none_is_lost() -> None:
    """A batch for Spark costs the same with one row as with thousands."""
    joiner = BatchJoiner(ORIGIN)
    small = [whole(stored_entry([b"x"] * 100, base_index=100 * n)) for n in range(1000)]
    ready = [batch for one in small for batch in joiner.add(one)] + joiner.rest()
    assert [batch.num_rows for batch in ready] == [65_600, 100_000 - 65_600]
    assert ready[0].num_rows >= ROWS_TARGET
    assert [n for batch in ready for n in batch.column("index").to_pylist()] == list(range(100_000))
    assert joiner.rest() == []


entries = st.lists(
    st.tuples(messages, st.tuples(*[st.booleans()] * 5), st.integers(0, 7), st.sampled_from([None, "a", "b"])),
    min_size=1,
    max_size=4,
)


@given(entries, st.integers(0, 3), st.integers(0, 3))
def test_joined_entries_have_the_rows_of_each_entry(given_: list[Any], before: int, behind: int) -> None:
    """Columns are made for many entries at once: with and without keys, times, properties, gaps, compression."""
    stored: list[tuple[bytes, str | None]] = []
    base = 100
    for number, (rows_, (keyed, timed, described, holed, packed), skipped, name) in enumerate(given_):
        values, keys, times, properties, steps = (list(column) for column in zip(*rows_, strict=True))
        skip_first = min(skipped, len(values) - 1)
        data = stored_entry(
            values, base_index=base, skip_first=skip_first, place=(3, number), keys=keys if keyed else None,
            ids=[sum(steps[: n + 1]) for n in range(len(steps))] if holed else None,
            event_times_ms=times if timed else None, properties=properties if described else None,
            compression=Compression.ZLIB if packed else Compression.NONE,
        )  # fmt: skip
        base += len(values) - skip_first
        stored.append((data, name))
    first, end = 100 + before, base - behind
    apart = [row for data, name in stored for row in rows(data, first=first, end=end, name=name)]
    pieces = [
        piece for data, name in stored if (piece := entry_slice(FoundEntry(opened(data), name), first=first, end=end))
    ]
    assert (listed(record_batch(pieces, ORIGIN)) if pieces else []) == apart


@pytest.mark.parametrize(
    "columns", [("value",), ("index", "key"), ("sequence_id", "producer_name", "topic_id"), ARROW_SCHEMA.names]
)
def test_selected_columns_equal_those_of_all_columns(columns: tuple[str, ...]) -> None:
    """In the requested order; an entry is not decompressed for columns of its header."""
    data = stored_entry(
        [b"a", b"b", b"c"], base_index=7, ids=[1, 5, 9], keys=[b"k", None, b"l"], compression=Compression.ZLIB
    )
    found = FoundEntry(opened(data), "importer")
    pieces = [entry_slice(found, first=8, end=ALL, unpack=needs_payload(columns))]
    every = entry_slice(found, first=8, end=ALL)
    assert every is not None
    some = record_batch([each for each in pieces if each is not None], ORIGIN, columns)
    assert some.equals(record_batch([every], ORIGIN).select(list(columns)))
    assert needs_payload(columns) is bool({"key", "value"} & set(columns))
