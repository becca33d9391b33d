"""Rows that go to partitions of a topic, or to topics of their own: each once, after any crash, in the partition of its
key."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from oncelog.core.errors import Conflict, InvalidArgument, LogHole
from oncelog.core.sdk.producer.routing import partition_of
from oncelog_spark.sink.batch_publisher import commit_to
from oncelog_spark.sink.batch_replay import Replay
from oncelog_spark.sink.journal_records import BatchRecord, RangeBatch, StagedAttempt
from oncelog_spark.sink.options import Mode, check_columns, sink_options
from oncelog_spark.sink.routing import spread
from oncelog_spark.sink.rows import rows_of
from oncelog_spark.sink.writer import write_rows
from tests.spark.memory_log import MemoryLog, after_each_death, batch, calls_of

OUT = "public/default/out"
PARTS = 3
KEYS = [f"k{number}" for number in range(12)]


def table(numbers: list[int], **more: Any) -> Any:
    """Row n has key n modulo 12, and value n."""
    columns = {
        "value": [str(number) for number in numbers],
        "key": [KEYS[number % len(KEYS)] for number in numbers],
        "producer_name": ["p"] * len(numbers),
        "sequence_id": numbers,
    }
    return pa.RecordBatch.from_pydict(columns | more)


def parted(**given: Any) -> MemoryLog:
    return MemoryLog(partitions={OUT: PARTS}, **given)


def write(log: MemoryLog, number: int, tables: list[Any], partition: int = 0, **given: str) -> StagedAttempt | None:
    """One task."""
    sink_log, options = log.sink_log(**{"rowsPerClaim": "4", **given})
    return write_rows(sink_log, options, batch(number), (partition, 0), iter(tables)).attempt


def write_batch(log: MemoryLog, number: int, tasks: list[list[Any]], **given: str) -> BatchRecord | None:
    """Tasks and the driver's commit, in mode batch."""
    found = [write(log, number, tables, at, mode="batch", **given) for at, tables in enumerate(tasks)]
    attempts = tuple(each for each in found if each is not None)
    sink_log, options = log.sink_log(mode="batch", **given)
    return commit_to(sink_log, options, batch(number), Replay(attempts)).record


def part(number: int) -> str:
    return f"{OUT}-partition-{number}"


def by_key(numbers: list[int], parts: int = PARTS) -> dict[int, list[bytes]]:
    """The values of each part."""
    found: dict[int, list[bytes]] = {each: [] for each in range(parts)}
    for number in numbers:
        found[partition_of(KEYS[number % len(KEYS)].encode(), parts)].append(b"%d" % number)
    return found


def values(log: MemoryLog, parts: int = PARTS) -> dict[int, list[bytes]]:
    return {number: [value for _, _, value in log.rows(part(number))] for number in range(parts)}


def test_positions_go_to_the_partition_of_their_key() -> None:
    """In order, under one name in each partition, and nothing goes to the topic itself."""
    log = parted()
    write(log, 0, [table(list(range(10))), table(list(range(10, 30)))])
    assert values(log) == by_key(list(range(30)))
    assert OUT not in log.topics
    for number in range(PARTS):
        ids = [sequence_id for _, sequence_id, _ in log.rows(part(number))]
        assert ids == sorted(set(ids))


def test_task_killed_at_any_call_is_completed_in_each_partition() -> None:
    """With pieces of another size in the next attempt."""

    def work(log: MemoryLog) -> None:
        log.partitions = {OUT: PARTS}
        write(log, 0, [table(list(range(14)))])

    for log in after_each_death(work, calls_of(work)):
        write(log, 0, [table([n]) for n in range(14)], rowsPerClaim="9")
        write(log, 1, [table(list(range(14, 20)))])
        assert values(log) == by_key(list(range(20)))


def test_topic_that_gets_partitions_within_a_batch_keeps_its_routes() -> None:
    """Claimed rows keep their destination, after each crash; later rows use the new partitions."""

    def work(log: MemoryLog) -> None:
        log.partitions = {OUT: PARTS}
        write(log, 0, [table(list(range(12)))], rowsPerClaim="12")

    for log in after_each_death(work, calls_of(work)):
        claimed = bool(log.hidden("journal")) and bool(log.rows(log.hidden("journal")[0]))
        log.partitions = {OUT: 5}
        write(log, 0, [table(list(range(12)))], rowsPerClaim="12")
        write(log, 1, [table([12, 13])])
        found = Counter(value for rows in values(log, 5).values() for value in rows)
        assert found == Counter(b"%d" % number for number in range(14)), "each once, whatever its part"
        assert values(log, 5)[partition_of(b"k0", 5)][-2:].count(b"12") == 1
        if claimed:
            before = by_key(list(range(12)))
            assert all(values(log, 5)[each][: len(before[each])] == before[each] for each in range(PARTS))


def test_forgotten_rows_are_searched_in_their_partition() -> None:
    """And a row that is in no partition is an error."""
    log = parted()
    numbers = [n for n in range(20) if n != 7]
    write(log, 0, [table(numbers)])
    log.forgets = True
    before = values(log)
    write(log, 0, [table(numbers)])
    assert values(log) == before
    sink_log, options = log.sink_log(onNewCheckpoint="continue")
    with pytest.raises(Conflict, match=r"1 rows of copy/p .*\(7\)"):
        write_rows(sink_log, options, RangeBatch("query new", 0), (0, 0), iter([table(list(range(20)))]))
    assert values(log) == before


def test_partition_with_messages_but_without_a_journal_is_refused() -> None:
    """As for a target without partitions."""
    log = parted()
    sink_log, _ = log.sink_log()
    sink_log.producer(part(partition_of(b"k0", PARTS)), "copy/p", "monotonic").send(b"old", sequence_id=50)
    with pytest.raises(LogHole, match="there is no journal for them"):
        write(log, 0, [table([0])])


def test_batches_go_to_the_partition_of_their_key_with_dense_ids_in_each() -> None:
    """A contiguous producer in each partition."""
    log = parted()
    write_batch(log, 0, [[table(list(range(7)))], [table(list(range(7, 20)))]])
    write_batch(log, 1, [[table([0, 12])]])
    write_batch(log, 2, [[table(list(range(20, 26)))]])
    expected = by_key([*range(20), 0, 12, *range(20, 26)])
    assert values(log) == expected
    for number in range(PARTS):
        assert [sequence_id for _, sequence_id, _ in log.rows(part(number))] == list(range(len(expected[number])))


def test_driver_killed_at_any_call_is_completed_in_all_partitions() -> None:
    """By a replay that is split differently, after the topic got more partitions: the record's routes count."""

    def work(log: MemoryLog) -> None:
        log.partitions = {OUT: PARTS}
        write_batch(log, 0, [[table([0, 1, 2])]])
        write_batch(log, 1, [[table(list(range(3, 9)))], [table(list(range(9, 15)))]])

    for log in after_each_death(work, calls_of(work)):
        records = len(log.rows(log.hidden("journal")[0])) if log.hidden("journal") else 0
        if records < 2:
            write_batch(log, 0, [[table([2, 1, 0])]])
        log.partitions = {OUT: 4}
        write_batch(log, 1, [[table(list(range(3, 15)))]])
        write_batch(log, 2, [[table([15])]])
        found = Counter(value for rows in values(log, 4).values() for value in rows)
        assert found == Counter(b"%d" % number for number in range(16))
        for number in range(4):
            ids = [sequence_id for _, sequence_id, _ in log.rows(part(number))]
            assert ids == list(range(len(ids)))


@pytest.mark.parametrize("mode", ["position", "batch"])
def test_rows_name_their_topics_and_partitions(mode: str) -> None:
    """Columns topic and partition; a null partition is chosen by the key. Staged rows lose the sink's own
    properties."""
    log = MemoryLog(partitions={OUT: PARTS})
    more = {
        "topic": ["out", "other", OUT, "out"],
        "partition": pa.array([2, None, 0, None], pa.int32()),
        "properties": [{"n": "0"}, None, None, {"n": "3"}],
    }
    rows = table([0, 1, 2, 3], **more)
    if mode == "batch":
        write_batch(log, 0, [[rows]], destination="columns")
        write_batch(log, 0, [[rows]], destination="columns")
    else:
        write(log, 0, [rows], destination="columns")
    chosen = partition_of(b"k3", PARTS)
    expected = {0: [b"2"], 1: [], 2: [b"0"]}
    expected[chosen].append(b"3")
    assert values(log) == expected
    assert [value for _, _, value in log.rows("public/default/other")] == [b"1"]
    told = [each for entry in log.topic(part(2)).entries for each in entry.properties or []]
    assert {"n": "0"} in told
    assert not any(key.startswith("__") for each in told for key in each)


def test_rows_of_one_batch_with_other_destinations_are_another_batch() -> None:
    """The digest covers the destination."""
    log = MemoryLog(partitions={OUT: PARTS})
    write_batch(log, 0, [[table([0], topic=["a"])]], destination="columns")
    with pytest.raises(Conflict, match="was published before with other rows"):
        write_batch(log, 0, [[table([0], topic=["b"])]], destination="columns")


def test_rows_without_a_key_go_by_their_value() -> None:
    """The same partition at each retry, in any task and order."""
    rows = rows_of(pa.RecordBatch.from_pydict({"value": [str(number) for number in range(50)]}))
    found = spread(rows, OUT, {OUT: PARTS})
    for number in range(PARTS):
        assert all(partition_of(str(at).encode(), PARTS) == number for at in found[part(number)])
    assert sum(map(len, found.values())) == 50
    assert spread(rows, OUT, {OUT: 0}) == {OUT: range(50)}


@pytest.mark.parametrize(
    ("topic", "number", "said"),
    [("out", 3, "has 3 partitions"), ("plain", 0, "is not partitioned"), (None, 0, "topic is null")],
)
def test_missing_destination_is_named(topic: str | None, number: int, said: str) -> None:
    """Before anything is published."""
    log = MemoryLog(partitions={OUT: PARTS})
    more = {"topic": pa.array([topic], pa.string()), "partition": pa.array([number], pa.int32())}
    with pytest.raises(InvalidArgument, match=said):
        write(log, 0, [table([0], **more)], destination="columns")
    assert all(not log.rows(name) for name in log.topics)


def test_options_and_columns_of_destinations_are_checked() -> None:
    """A column that is a row's destination cannot be its identity."""
    options = sink_options({"producerPrefix": "p", "destination": "columns"}, {}, streaming=True)
    assert (options.topic, options.target, options.by_row) == ("public/default/__sink.by-row", None, True)
    elsewhere = {"producerPrefix": "p", "destination": "columns", "stateNamespace": "a/b"}
    assert sink_options(elsewhere, {}, streaming=True).topic == "a/b/__sink.by-row"
    fixed = sink_options({"producerPrefix": "p", "destination": "columns", "topic": "t"}, {}, streaming=True)
    assert (fixed.target, fixed.by_columns, fixed.by_row) == ("public/default/t", True, False)
    with pytest.raises(InvalidArgument, match="option topic is required"):
        sink_options({"producerPrefix": "p"}, {}, streaming=True)
    with pytest.raises(InvalidArgument, match="stateNamespace is for rows that name their topics"):
        sink_options({"producerPrefix": "p", "topic": "t", "stateNamespace": "a/b"}, {}, streaming=True)
    source = {"value": "binary", "topic": "string", "topic_id": "string", "index": "bigint"}
    with pytest.raises(InvalidArgument, match="requires the columns producer_name and sequence_id"):
        check_columns(source, Mode.POSITION, by_columns=True, by_row=True)
    with pytest.raises(InvalidArgument, match="requires a column topic"):
        check_columns({"value": "binary"}, Mode.BATCH, by_columns=True, by_row=True)
    check_columns(source, Mode.BATCH, by_columns=True, by_row=True)
