"""The source's readers as Spark calls them, with topics in memory: offsets, limits, losses and ranges of each batch."""

import json
import logging
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from oncelog.core.errors import InvalidArgument, NotFound
from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog_spark.copy_job import lag_of
from oncelog_spark.data_source import OncelogDataSource
from oncelog_spark.source.arrow_columns import RowOrigin
from oncelog_spark.source.offsets import ClosedLedger, Span, TaskRange, TopicState
from oncelog_spark.source.options import COLUMN_NAMES, SourceOptions, source_options
from oncelog_spark.source.pushed_filters import EVERYTHING, bounds_of
from oncelog_spark.source.reader import (
    NOTHING,
    ROWS_PER_SMALL_TASK,
    SCHEMA,
    TopicReader,
    TopicStreamReader,
    new_reader,
    new_stream_reader,
    origin_of,
    packed,
    planned,
    read_ranges,
)

A, B = "public/default/a", "public/default/b-partition-1"
MEMBER = (Incarnation("c" * 32), "127.0.0.1:1")


def ledger(number: int, first: int, end: int) -> ClosedLedger:
    return ClosedLedger(LedgerId(number), first, end, EntryId(end - first - 1), (MEMBER,))


def state(topic: str, end: int, earliest: int = 0, *closed: ClosedLedger, name: str = "1") -> TopicState:
    return TopicState(topic, TopicId(name * 32), earliest, end, closed)


def options(**given: str) -> SourceOptions:
    return source_options({"topicsPattern": ".*", **given}, {}, streaming=False)


class Stream(TopicStreamReader):
    """Of topics that the test changes."""

    def __init__(self, *states: TopicState, **given: str) -> None:
        super().__init__(source_options({"topicsPattern": ".*", **given}, {}, streaming=True))
        self.states = {each.topic: each for each in states}

        self.asked = 0

    def _states(self) -> dict[str, TopicState]:
        self.asked += 1
        return self.states

    def see(self, *states: TopicState) -> None:
        self.states = {each.topic: each for each in states}


def offset(**ends: int) -> dict[str, Any]:
    names = {"a": A, "b": B}
    topics = {names[name]: {"topic_id": "1" * 32, "next": end} for name, end in ends.items()}
    return {"format": 1, "topics": topics}


def spans(partitions: Any) -> list[tuple[str, int, int]]:
    return [(each.span.topic, each.span.first, each.span.end) for partition in partitions for each in partition.ranges]


def test_a_batch_reaches_the_end_within_its_limit() -> None:
    """Each topic has its share."""
    reader = Stream(state(A, 30), state(B, 10))
    assert reader.latestOffset(offset(a=0, b=0), ReadAllAvailable()) == offset(a=30, b=10)
    assert reader.latestOffset(offset(a=0, b=0), ReadMaxRows(8)) == offset(a=6, b=2)
    assert reader.latestOffset(offset(a=30, b=10), ReadMaxRows(8)) == offset(a=30, b=10)


def test_the_progress_contains_the_lag_behind_a_batch() -> None:
    """As part of the latest offset, which is what Spark takes from a source in Python. As of when the batch was cut:
    the topics are not asked twice for one batch."""
    reader = Stream(state(A, 30), state(B, 10))
    assert reader.reportLatestOffset() == offset(a=30, b=10), "no batch was cut here yet"
    reader.latestOffset(offset(a=0, b=10), ReadMaxRows(8))
    reader.see(state(A, 40), state(B, 10))
    assert reader.reportLatestOffset() == offset(a=30, b=10) | {"lag": {"rows": 22, "topics": {A: 22}}}
    reader.latestOffset(offset(a=8, b=10), ReadAllAvailable())
    assert reader.reportLatestOffset()["lag"] == {"rows": 0, "topics": {}}
    progress = {"sources": [{"latestOffset": json.dumps(reader.reportLatestOffset())}]}
    assert lag_of(progress) == 0
    assert lag_of({"sources": [{"latestOffset": None}]}) is None


def test_a_batch_has_at_most_the_bytes_that_were_allowed() -> None:
    """With the limit by rows, the narrower one; a trigger without limits gets everything."""
    heavy = ledger(1, 0, 10)._replace(length_bytes=10_000)
    reader = Stream(state(A, 20, 0, heavy), maxBytesPerBatch="4000")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(4000)
    assert reader.latestOffset(offset(a=0), ReadMaxBytes(4000)) == offset(a=4)
    assert reader.latestOffset(offset(a=0), ReadAllAvailable()) == offset(a=20)
    both = Stream(state(A, 20, 0, heavy), maxBytesPerBatch="4000", maxRowsPerBatch="3")
    assert both.getDefaultReadLimit() == ReadMaxRows(3)
    assert both.latestOffset(offset(a=0), ReadMaxRows(3)) == offset(a=3)
    assert both.latestOffset(offset(a=0), ReadMaxRows(300)) == offset(a=4)


def test_columns_that_are_not_wanted_are_not_in_the_schema() -> None:
    """Spark does not tell sources in Python which columns a query uses, so there is an option."""
    source = OncelogDataSource({"topic": "a", "columns": "value,topic_id"})
    assert source.schema().names == ["value", "topic_id"]
    assert OncelogDataSource({"topic": "a"}).schema() == SCHEMA
    assert isinstance(source.reader(source.schema()), TopicReader)
    assert isinstance(source.streamReader(source.schema()), TopicStreamReader)
    with pytest.raises(InvalidArgument, match="do not set a schema"):
        source.reader(SCHEMA)
    assert tuple(SCHEMA.names) == COLUMN_NAMES


def test_an_available_now_query_ends_at_the_end_of_its_start() -> None:
    """Messages and topics that come later are for the next run."""
    reader = Stream(state(A, 20))
    reader.prepareForTriggerAvailableNow()
    reader.see(state(A, 50), state(B, 5))
    assert reader.latestOffset(offset(a=0), ReadMaxRows(15)) == offset(a=15)
    assert reader.latestOffset(offset(a=15), ReadMaxRows(15)) == offset(a=20)
    assert reader.latestOffset(offset(a=20), ReadMaxRows(15)) == offset(a=20)
    assert reader.reportLatestOffset()["topics"] == offset(a=50, b=5)["topics"]


def test_planning_a_batch_needs_no_further_calls_after_cutting_it() -> None:
    """One round of calls for each batch; another one only for a batch that this process did not cut."""
    reader = Stream(state(A, 20), state(B, 12))
    end = reader.latestOffset(offset(a=5, b=0), ReadAllAvailable())
    assert spans(reader.partitions(offset(a=5, b=0), end)) == [(A, 5, 20), (B, 0, 12)]
    assert reader.asked == 1
    restarted = Stream(state(A, 20), state(B, 12))
    assert spans(restarted.partitions(offset(a=5, b=0), end)) == [(A, 5, 20), (B, 0, 12)]
    assert restarted.asked == 1
    assert restarted.partitions(end, end) == []
    assert restarted.asked == 1
    anew = state(A, 30, name="2")
    restarted.see(anew, state(B, 12))
    restarted.latestOffset(offset(b=12), ReadAllAvailable())
    with pytest.raises(NotFound, match="messages 5 to 19 of public/default/a are gone"):
        restarted.partitions(offset(a=5, b=12), offset(a=20, b=12))


def test_trimmed_messages_are_reported_before_they_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    """When the batch is cut, and when it is planned; if allowed, they count towards no limit."""
    trimmed = state(A, 30, 10)
    with pytest.raises(NotFound, match=r"messages 4 to 9 of public/default/a were trimmed.*failOnDataLoss"):
        Stream(trimmed).latestOffset(offset(a=4), ReadAllAvailable())
    with pytest.raises(NotFound, match="messages 4 to 9"):
        Stream(trimmed).partitions(offset(a=4), offset(a=20))
    allowing = Stream(trimmed, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert allowing.latestOffset(offset(a=4), ReadMaxRows(7)) == offset(a=17)
        assert spans(allowing.partitions(offset(a=4), offset(a=17))) == [(A, 10, 17)]
    assert caplog.text.count("messages 4 to 9 of public/default/a were trimmed") == 2


def test_a_batch_is_one_range_for_each_partition_unless_it_is_split() -> None:
    """An empty batch makes no calls, and has no partition."""
    reader = Stream(state(A, 30), state(B, 10))
    assert spans(reader.partitions(offset(a=5, b=0), offset(a=30, b=10))) == [(A, 5, 30), (B, 0, 10)]
    assert reader.partitions(offset(a=30), offset(a=30)) == []
    cut = Stream(state(A, 30), rowsPerPartition="10")
    assert spans(cut.partitions(offset(a=5), offset(a=30))) == [(A, 5, 13), (A, 13, 21), (A, 21, 30)]


def test_ranges_have_their_closed_ledgers() -> None:
    """For storage nodes; none where the owner is to be used."""
    ledgers = (ledger(1, 0, 10), ledger(2, 10, 20), ledger(3, 20, 25))
    known = {A: state(A, 40, 0, *ledgers)}
    span = Span(A, TopicId("1" * 32), 12, 40)
    assert planned([span], known, options(), EVERYTHING) == [TaskRange(span, ledgers[1:])]
    assert planned([span], known, options(closedLedgers="owner"), EVERYTHING) == [TaskRange(span, ())]
    assert planned([span], known, options(rowsPerPartition="10"), EVERYTHING) == [
        TaskRange(span._replace(end=21), ledgers[1:]),
        TaskRange(span._replace(first=21, end=30), ledgers[2:]),
        TaskRange(span._replace(first=30), ()),
    ]


def test_small_ranges_of_a_stream_share_tasks() -> None:
    """In order, and never more than eight; a range that is large has a task of its own, and so has each one where the
    query sets the rows of a task."""

    def tasks(*rows: int, **given: str) -> list[list[int]]:
        ranges = [TaskRange(Span(A, TopicId("1" * 32), 0, each)) for each in rows]
        return [[each.span.rows for each in task] for task in packed(ranges, options(**given))]

    large = ROWS_PER_SMALL_TASK + 1
    assert tasks(1, 2, 3, large, 4, 5) == [[1, 2, 3], [large], [4, 5]]
    assert tasks(*[1] * 10) == [[1] * 8, [1] * 2]
    assert tasks(ROWS_PER_SMALL_TASK - 1, 1, 1) == [[ROWS_PER_SMALL_TASK - 1, 1], [1]]
    assert tasks(1, 2, rowsPerPartition="5") == [[1], [2]]
    assert tasks() == []


def test_filters_on_ledgers_cut_the_ranges() -> None:
    """Only ranges that may have wanted rows are planned, in pieces of the requested size."""
    ledgers = (ledger(1, 0, 10), ledger(2, 10, 20), ledger(3, 20, 30))
    known = {A: state(A, 30, 0, *ledgers)}
    bounds = bounds_of([EqualTo(("ledger_id",), 2)])
    span = Span(A, TopicId("1" * 32), 0, 30)
    [whole] = planned([span], known, options(), bounds)
    assert (whole.span.first, whole.span.end, whole.closed) == (10, 20, ledgers[1:2])
    halves = planned([span], known, options(rowsPerPartition="5"), bounds)
    assert [(each.span.first, each.span.end) for each in halves] == [(10, 15), (15, 20)]


def test_filters_are_kept_for_spark_as_well() -> None:
    """The source excludes rows only for speed: Spark evaluates every row."""
    reader = new_reader({"topic": "a"}, SCHEMA)
    assert isinstance(reader, TopicReader)
    filters = [GreaterThanOrEqual(("index",), 5), LessThan(("index",), 9)]
    assert reader.pushFilters(list(filters)) == filters
    assert reader.bounds.cut(Span(A, TopicId("1" * 32), 0, 100))[2:] == (5, 9)


def test_rows_name_their_topic_without_its_partition() -> None:
    """The partition has a column of its own."""
    assert origin_of(A) == RowOrigin(A, -1)
    assert origin_of(B) == RowOrigin("public/default/b", 1)


def test_an_empty_range_makes_no_calls() -> None:
    """Spark makes an empty plan one partition, whose task has no topic."""
    nothing = Span(A, TopicId("1" * 32), 5, 5)
    unreachable = options(serviceUrl="oncelog://127.0.0.1:1")
    assert list(read_ranges((TaskRange(nothing),), unreachable, EVERYTHING)) == []
    assert list(read_ranges(NOTHING.ranges, unreachable, EVERYTHING)) == []


def test_a_user_defined_schema_is_refused() -> None:
    """For batches and streams."""
    for new in (new_reader, new_stream_reader):
        with pytest.raises(InvalidArgument, match="do not set a schema"):
            new({"topic": "a"}, StructType(SCHEMA.fields[:3]))


def test_the_limit_of_a_batch_is_the_option() -> None:
    """Without it a batch has everything."""
    assert Stream(state(A, 1), maxRowsPerBatch="70").getDefaultReadLimit() == ReadMaxRows(70)
    assert Stream(state(A, 1)).getDefaultReadLimit() == ReadAllAvailable()


def test_a_recreated_topic_is_read_from_its_first_message() -> None:
    """It has the same name and another id: the old offset does not apply. Whether the old topic was read to its end is
    not known, so this is a loss."""
    anew = replace(state(A, 7), topic_id=TopicId("2" * 32))
    with pytest.raises(
        NotFound, match=r"public/default/a was deleted and created anew: .* from number 25.*failOnDataLoss"
    ):
        Stream(anew).latestOffset(offset(a=25), ReadAllAvailable())
    reader = Stream(anew, failOnDataLoss="false")
    end = reader.latestOffset(offset(a=25), ReadAllAvailable())
    assert end["topics"][A] == {"topic_id": "2" * 32, "next": 7}
    assert spans(reader.partitions(offset(a=25), end)) == [(A, 0, 7)]
    with pytest.raises(NotFound, match="was deleted and created anew"):
        Stream(anew).partitions(offset(a=25), end)


@pytest.mark.hazard("position-of-a-lost-part")
def test_an_offset_above_the_end_of_its_log_is_a_loss(caplog: pytest.LogCaptureFixture) -> None:
    """It is not waited for: new messages would get the numbers that the query has read, and be missed. If losses are
    allowed, the query goes on at the end of the log."""
    with pytest.raises(NotFound, match=r"messages 10 to 24 of public/default/a were read before.*failOnDataLoss"):
        Stream(state(A, 10)).latestOffset(offset(a=25), ReadAllAvailable())
    allowing = Stream(state(A, 10), state(B, 7), failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        end = allowing.latestOffset(offset(a=25, b=3), ReadAllAvailable())
    assert end == offset(a=10, b=7)
    assert "it ends at 10" in caplog.text
    assert spans(allowing.partitions(offset(a=25, b=3), end)) == [(B, 3, 7)]
    later = Stream(state(A, 12)).latestOffset(offset(a=10), ReadAllAvailable())
    assert later == offset(a=12)


def test_a_topic_of_a_pattern_that_is_deleted_is_a_loss(caplog: pytest.LogCaptureFixture) -> None:
    """It may have had unread messages, also such that no batch was planned with."""
    with pytest.raises(NotFound, match=r"public/default/a was deleted: .* from number 20 on.*failOnDataLoss"):
        Stream(state(B, 10)).latestOffset(offset(a=20, b=0), ReadAllAvailable())
    allowing = Stream(state(B, 10), failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        end = allowing.latestOffset(offset(a=20, b=0), ReadAllAvailable())
    assert end == offset(b=10)
    assert "public/default/a was deleted" in caplog.text
    Stream(state(B, 10)).latestOffset(end, ReadAllAvailable())


def test_a_topic_that_the_query_no_longer_names_is_no_loss() -> None:
    """Its options were changed between two runs."""
    reader = Stream(state(B, 10), topicsPattern="b.*")
    assert reader.latestOffset(offset(a=20, b=10), ReadAllAvailable()) == offset(b=10)


def test_what_a_worker_has_before_its_first_task_is_exempt_from_collection() -> None:
    """Spark collects garbage after each task, and would go through all modules each time."""
    program = """if True:
        import gc
        from oncelog_spark.worker import tune_worker
        tune_worker()
        frozen, kept = gc.get_freeze_count(), [[] for _ in range(1000)]
        tune_worker()
        print(frozen > 10_000, gc.get_freeze_count() <= frozen)"""
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ended.stdout == "True True\n"
