"""The input of the sink: options, columns, values. Errors name what is wrong, and what is allowed."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from oncelog.core.errors import InvalidArgument, InvalidSequenceId, MessageTooLarge
from oncelog_spark.sink.batch_publisher import stages_done_with
from oncelog_spark.sink.journal_records import RangeBatch
from oncelog_spark.sink.names import journal_topic, producer_name, source_partition, stage_topic, stage_topics
from oncelog_spark.sink.options import Mode, sink_options
from oncelog_spark.sink.rows import CALL_BYTES_MAX, Rows, check_ascending, gathered, joined, names_and_ids, rows_of
from oncelog_spark.sink.writer import new_stream_writer, new_writer

GIVEN = {"topic": "flights", "producerPrefix": "copy", "mode": "batch"}
VALUE = {"value": StringType()}


def schema(columns: dict[str, Any]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"topic": None}, "topic", "option topic is required"),
        ({"topic": "a/b"}, "topic", "tenant/namespace/name"),
        ({"producerPrefix": None}, "producerPrefix", "option producerPrefix is required"),
        ({"producerPrefix": "x" * 101}, "producerPrefix", "limit of 100"),
        ({"producerPrefix": "a\nb"}, "producerPrefix", "control"),
        ({"mode": "batches"}, "mode", "position, batch"),
        ({"producerPrefx": "x"}, "producerPrefx", "most similar option is producerPrefix"),
        ({"onNewCheckpoint": "go"}, "onNewCheckpoint", "error, continue"),
        ({"sendTimeoutSeconds": "0"}, "sendTimeoutSeconds", "1 to 86400"),
        ({"rowsPerClaim": "many"}, "rowsPerClaim", "1 to 100000"),
        ({"jobId": "j"}, "jobId", "for batch writes"),
        ({"serviceUrl": "http://x"}, "url", "oncelog"),
    ],
)
def test_wrong_option_is_named(change: dict[str, str | None], field: str, said: str) -> None:
    """Before anything is read or written."""
    given = {name: value for name, value in (GIVEN | change).items() if value is not None}
    with pytest.raises(InvalidArgument, match=said):
        sink_options(given, {}, streaming=True)


def test_batch_write_requires_a_job_id() -> None:
    """A repeated job is identified by its jobId; onNewCheckpoint is for streams only."""
    with pytest.raises(InvalidArgument, match="option jobId is required"):
        sink_options(GIVEN, {}, streaming=False)
    with pytest.raises(InvalidArgument, match="for streams"):
        sink_options(GIVEN | {"jobId": "j", "onNewCheckpoint": "error"}, {}, streaming=False)


def test_sparks_own_options_are_accepted() -> None:
    """Spark passes them on; names are case-insensitive."""
    found = sink_options(GIVEN | {"checkpointlocation": "/x", "QUERYNAME": "q"}, {}, streaming=True)
    assert (found.mode, found.topic, found.continues) == (Mode.BATCH, "public/default/flights", False)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"colour": StringType()}, "unknown column colour; the most similar column is"),
        ({"Key": StringType()}, "unknown column Key; the most similar column is key"),
        ({"value": LongType()}, "column value must be binary or string or varchar or char, not bigint"),
        ({"event_time": TimestampNTZType()}, "column event_time must be timestamp, not timestamp_ntz"),
        ({"properties": MapType(StringType(), IntegerType())}, "column properties must be map<string,string>, not"),
        ({"index": StringType()}, "column index must be bigint"),
    ],
)
def test_wrong_column_is_named(columns: dict[str, Any], said: str) -> None:
    """While planning, before a task runs."""
    with pytest.raises(InvalidArgument, match=said):
        new_stream_writer(GIVEN, schema(VALUE | columns), overwrite=False)


def test_rows_need_a_value_and_in_mode_position_an_identity() -> None:
    """A row without a position cannot be distinguished from its replay."""
    with pytest.raises(InvalidArgument, match="a column value"):
        new_stream_writer(GIVEN, schema({"key": StringType()}), overwrite=False)
    position = GIVEN | {"mode": "position"}
    lacking = ({"topic": StringType()}, {"sequence_id": LongType()}, {"topic": StringType(), "index": LongType()})
    for columns in (VALUE, *(VALUE | each for each in lacking)):
        with pytest.raises(InvalidArgument, match="mode=position requires the columns"):
            new_stream_writer(position, schema(columns), overwrite=False)
    new_stream_writer(
        position,
        schema(VALUE | {"topic": StringType(), "topic_id": StringType(), "index": LongType()}),
        overwrite=False,
    )


def test_nothing_is_overwritten() -> None:
    """mode overwrite, outputMode complete."""
    with pytest.raises(InvalidArgument, match="mode append"):
        new_writer(GIVEN | {"jobId": "j"}, schema(VALUE), overwrite=True)
    with pytest.raises(InvalidArgument, match="use outputMode append"):
        new_stream_writer(GIVEN, schema(VALUE), overwrite=True)


def test_null_and_large_values_are_named() -> None:
    """With the limit; keys count, and the sum of all columns."""
    with pytest.raises(InvalidArgument, match="column value is null"):
        rows_of(pa.record_batch({"value": pa.array([b"x", None])}))
    with pytest.raises(MessageTooLarge, match="column value has 5300000 bytes"):
        rows_of(pa.record_batch({"value": ["x" * 5_300_000]}))
    with pytest.raises(MessageTooLarge, match="column key has"):
        rows_of(pa.record_batch({"value": ["x"], "key": ["x" * 5_300_000]}))
    with pytest.raises(MessageTooLarge, match="value, key and properties"):
        rows_of(pa.record_batch({"value": ["x" * 3_000_000], "key": ["x" * 3_000_000]}))
    empty = pa.array([[("a", None)]], pa.map_(pa.string(), pa.string()))
    with pytest.raises(InvalidArgument, match="'a' is null"):
        rows_of(pa.record_batch({"value": ["x"], "properties": empty}))


@pytest.mark.parametrize(
    ("last", "ids", "said"),
    [
        (-1, [3, 2], "id 2 comes after 3"),
        (5, [5], "id 5 comes after 5"),
        (9, [4, 5], "id 4 comes after 9"),
        (-1, [-7], "id -7 comes after -1"),
    ],
)
def test_ids_that_do_not_ascend_are_both_named(last: int, ids: list[int], said: str) -> None:
    """Within an Arrow batch, and from one to the next."""
    with pytest.raises(InvalidSequenceId, match=said):
        check_ascending("copy/flights", last, ids)
    check_ascending("copy/flights", 3, [4, 9])


def test_rows_are_split_by_their_source() -> None:
    """By position where there is one; the index is the sequence id, so it continues across ledgers."""
    rows = {"topic": ["t", "t", "u"], "partition": [0, 0, -1], "index": [7, 9, 1], "value": ["a", "b", "c"],
            "topic_id": ["1" * 32, "1" * 32, "2" * 32]}  # fmt: skip
    assert list(names_and_ids(pa.record_batch(rows | {"producer_name": ["p"] * 3, "sequence_id": [1] * 3}), "s")) == [
        ("s/t-partition-0#1111111111111111", 0, [7, 9]),
        ("s/u#2222222222222222", 2, range(1, 2)),
    ]
    own = pa.record_batch({"producer_name": ["p", "q"], "sequence_id": [4, 4]})
    assert list(names_and_ids(own, "s")) == [("s/p", 0, range(4, 5)), ("s/q", 1, range(4, 5))]
    with pytest.raises(InvalidArgument, match="column sequence_id is null"):
        list(names_and_ids(pa.record_batch({"producer_name": ["p"], "sequence_id": pa.array([None], pa.int64())}), "s"))


def test_calls_are_bounded_and_rows_are_joined_whole() -> None:
    """Large keys count, too; a column that one piece lacks is empty there."""
    large = rows_of(pa.record_batch({"value": ["x"] * 4, "key": ["k" * (CALL_BYTES_MAX // 3)] * 4}))
    assert list(large.calls()) == [(0, 2), (2, 4)]
    plain = rows_of(pa.record_batch({"value": ["y"]}))
    rows, ids = joined([(large, [1, 2, 3, 4]), (plain, [5])])
    assert (len(rows), ids, rows.event_times_ms) == (5, range(1, 6), None)
    assert rows.keys is not None
    assert rows.keys[4] is None
    assert joined([(plain, [1]), (plain, [3])])[1] == [1, 3]


@pytest.mark.parametrize("ids", [[0, 0, 2], [0, 2, 1, 3], [3, 3]])
def test_ids_that_do_not_ascend_never_pass_for_a_range(ids: list[int]) -> None:
    """Their ends and their number may be those of a range: then one id would be invented, and another one lost."""
    batch = pa.record_batch({"producer_name": ["p"] * len(ids), "sequence_id": ids})
    assert list(names_and_ids(batch, "s")) == [("s/p", 0, ids)]


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from([-1, 0, 1]), st.sampled_from("xy"), st.integers(0, 3)),
        min_size=1,
        max_size=12,
    )
)
def test_producers_rows_equal_those_of_a_loop_over_the_rows(given_: list[tuple[str, int, str, int]]) -> None:
    """Topic, partition and ids are compared as columns; a row that went to another producer would be lost or
    doubled."""
    walked: list[tuple[str, int, list[int]]] = []
    for at, (topic, part, topic_id, index) in enumerate(given_):
        name = f"s/{source_partition(topic, part)}#{topic_id}"
        if walked and walked[-1][0] == name:
            walked[-1][2].append(index)
        else:
            walked.append((name, at, [index]))
    topics, parts, topic_ids, indexes = zip(*given_, strict=True)
    columns = {"topic": pa.array(topics, pa.string()), "partition": pa.array(parts, pa.int32()),
               "topic_id": pa.array(topic_ids, pa.string()), "index": pa.array(indexes, pa.int64())}  # fmt: skip
    batch = pa.record_batch(columns)
    assert [(name, start, list(ids)) for name, start, ids in names_and_ids(batch, "s")] == walked


@given(st.lists(st.integers(0, CALL_BYTES_MAX), max_size=12))
def test_pieces_are_gathered_into_calls_and_none_is_lost(sizes: list[int]) -> None:
    """In order; each call but the last has at least half the bound, because each call waits for its answer."""
    pieces = [Rows([b"%d" % at], None, None, None, np.array([size])) for at, size in enumerate(sizes)]
    found = list(gathered(pieces))
    assert [value for rows in found for value in rows.values] == [b"%d" % at for at in range(len(sizes))]
    assert all(rows.size_bytes >= CALL_BYTES_MAX // 2 for rows in found[:-1])
    assert [size for rows in found for size in rows.sizes] == sizes


def test_names_differ_where_they_must() -> None:
    """A journal for each producer of each target; hidden topics beside the target."""
    assert source_partition("t", None) == source_partition("t", -1) == "t"
    assert journal_topic("a/b/c", "p") != journal_topic("a/b/c", "q")
    assert journal_topic("a/b/c", "p").startswith("a/b/__sink.c.")
    assert stage_topic("a/b/c", "p", "r", 0) != stage_topic("a/b/c", "p", "r", 1)
    with pytest.raises(InvalidArgument, match="shorter producerPrefix"):
        producer_name("x" * 100, "y" * 200)


def test_staging_topics_are_deleted_when_their_batches_are_published() -> None:
    """Those of a job with the job; those of a query when the first batch of the next one is published; never one that
    may still be copied."""
    stream = sink_options(GIVEN, {}, streaming=True)
    gone = [stages_done_with(stream, RangeBatch("q", batch_id)) for batch_id in range(130)]
    names = [stage_topic(stream.topic, stream.scope, "q", number) for number in (0, 1)]
    assert [(at, found[0]) for at, found in enumerate(gone) if found] == [(64, names[0]), (128, names[1])]
    job = sink_options(GIVEN | {"jobId": "j"}, {}, streaming=False)
    assert stages_done_with(job, RangeBatch("r", 0)) == stage_topics(job.topic, "copy/j", "r", 0)
