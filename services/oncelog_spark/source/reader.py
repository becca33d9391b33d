"""Spark's readers of topics: thin; `offsets`, `positions`, `pushed_filters` and `arrow_columns` decide.

Spark calls the planning methods in processes of its own on the driver, and `read` in forked workers on the executors.
Each call makes the connections that it needs, and leaves none behind.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from oncelog.core.errors import CorruptEntry, InvalidArgument
from oncelog.core.names import parse_topic
from oncelog_spark.cluster import ClusterConnection, process_loop, run_connected
from oncelog_spark.source.arrow_columns import (
    BatchJoiner,
    EntrySlice,
    FoundEntry,
    RecordBatch,
    RowOrigin,
    entry_slice,
    needs_payload,
)
from oncelog_spark.source.batch_limits import admitted
from oncelog_spark.source.offsets import (
    MessageLoss,
    Span,
    TaskRange,
    TopicOffset,
    TopicOffsets,
    TopicState,
    ahead_of_end,
    decode_offset,
    encode_offset,
    gone_between,
    kept_of,
    lag_between,
    ledgers_of,
    not_before,
    offsets_after,
    offsets_at_end,
    refuse_loss,
    spans_between,
    split,
    up_to_given_up,
)
from oncelog_spark.source.options import ENDING, ON_CORRUPT, STARTING, SourceOptions, follows, source_options
from oncelog_spark.source.positions import topic_of
from oncelog_spark.source.pushed_filters import EVERYTHING, Bounds, bounds_of
from oncelog_spark.source.topic_catalog import TopicCatalog
from oncelog_spark.worker import tune_worker

SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("topic_id", StringType()),
        StructField("ledger_id", LongType()),
        StructField("entry_id", LongType()),
        StructField("batch_index", IntegerType()),
        StructField("index", LongType()),
        StructField("publish_time", TimestampType()),
        StructField("event_time", TimestampType()),
        StructField("producer_name", StringType()),
        StructField("sequence_id", LongType()),
        StructField("properties", MapType(StringType(), StringType())),
        StructField("producer_id", LongType()),
    ]
)

logger = logging.getLogger(__name__)


def new_reader(given: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Of a batch. Raises InvalidArgument."""
    options = source_options(given, os.environ, streaming=False)
    _check_schema(schema, options.columns)
    return TopicReader(options)


def new_stream_reader(given: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """Raises InvalidArgument."""
    options = source_options(given, os.environ, streaming=True)
    _check_schema(schema, options.columns)
    return TopicStreamReader(options)


#: A task of a stream has several ranges up to these limits: a task costs as much as reading some ten thousand rows.
RANGES_PER_TASK = 8
ROWS_PER_SMALL_TASK = 10_000


@dataclass
class TopicRanges(InputPartition):
    """What one task reads, one range after the other."""

    ranges: tuple[TaskRange, ...]


#: Spark makes an empty list of partitions one partition without a value.
NOTHING = TopicRanges(())


class _FilterPushdown:
    """`pushFilters` of a reader. In a session without filter push-down Spark refuses a reader with this method (it
    compares `__func__`), because filters could be lost. Here none is lost: Spark evaluates all of them again."""

    def __init__(self, reader: "TopicReader") -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        self._reader.bounds = bounds_of(filters)
        return filters


class TopicReader(DataSourceReader):
    """Reads topics once, from one position to another."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        #: limits of what the query wants, from the pushed filters
        self.bounds = EVERYTHING
        self.pushFilters = _FilterPushdown(self)  # type: ignore[method-assign]

    def partitions(self) -> Sequence[InputPartition]:
        ranges = run_connected(self._options.connection, self._plan)
        return [TopicRanges((one,)) for one in ranges] or [NOTHING]

    async def _plan(self, cluster: ClusterConnection) -> list[TaskRange]:
        options = self._options
        catalog = TopicCatalog(cluster, options.topics)
        states = await catalog.states()
        starts = await catalog.numbers_at(STARTING, options.starting, states.values())
        ends = await catalog.numbers_at(ENDING, options.ending, states.values())
        spans = [Span(s.topic, s.topic_id, starts[s.topic], ends[s.topic]) for s in states.values()]
        wanted = [self.bounds.cut(span) for span in spans if self.bounds.may_want_topic(origin_of(span.topic))]
        return planned([span for span in wanted if span.rows > 0], states, options, self.bounds)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        assert isinstance(partition, TopicRanges)
        return read_ranges(partition.ranges, self._options, self.bounds)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics in one batch after the other; Spark keeps the offsets."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        #: where a query ends that reads what is stored now (availableNow)
        self._target: dict[str, TopicOffset] | None = None
        #: as of when the last batch was cut, so that planning the batch needs no further calls
        self._known: dict[str, TopicState] = {}
        #: the end of the last batch that this process has cut
        self._cut: dict[str, TopicOffset] | None = None

    def initialOffset(self) -> dict[str, Any]:
        return encode_offset(run_connected(self._options.connection, self._initial))

    async def _initial(self, cluster: ClusterConnection) -> dict[str, TopicOffset]:
        catalog = TopicCatalog(cluster, self._options.topics)
        states = await catalog.states()
        starts = await catalog.numbers_at(STARTING, self._options.starting, states.values())
        return {state.topic: TopicOffset(state.topic_id, starts[state.topic]) for state in states.values()}

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.rows_max is not None:
            return ReadMaxRows(self._options.rows_max)
        return ReadAllAvailable() if self._options.bytes_max is None else ReadMaxBytes(self._options.bytes_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = offsets_at_end(self._states().values())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = decode_offset(start)
        states = self._known = self._states()
        now = offsets_at_end(states.values())
        self._report_deleted(before, now)
        ahead = ahead_of_end(before, states)
        report_losses(ahead, self._options)
        before |= {loss.topic: now[loss.topic] for loss in ahead}
        latest = not_before(now if self._target is None else self._target, before)
        latest = up_to_given_up(latest, before, states)
        kept, losses = kept_of(spans_between(before, latest), states)
        report_losses(losses, self._options)
        limited = not isinstance(limit, ReadAllAvailable)
        bytes_max = self._options.bytes_max if limited else None
        samples = {} if bytes_max is None else self._samples(kept)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        taken = admitted(kept, states, samples, rows_max=rows_max, bytes_max=bytes_max)
        readable = {span.topic for span in kept}
        self._cut = offsets_after(before, latest, taken, [loss for loss in losses if loss.topic not in readable])
        return encode_offset(self._cut)

    def reportLatestOffset(self) -> dict[str, Any]:
        """The end of each topic when the last batch was cut, for the progress of the query (sources[0].latestOffset),
        and `lag`: the messages behind that batch. Spark asks for it directly after `latestOffset`, so asking the
        cluster again would double the cost of planning. Sources in Python have no metrics of their own (4.3)."""
        states = self._known or self._states()
        latest = offsets_at_end(states.values())
        offset = encode_offset(latest)
        if self._cut is not None:
            offset["lag"] = lag_between(self._cut, latest, states)
            logger.info("%d messages are stored behind this batch", offset["lag"]["rows"])
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, behind = decode_offset(start), decode_offset(end)
        self._report_deleted(before, behind)
        spans = spans_between(before, behind)
        states = self._known if all(covers_span(self._known, span) for span in spans) else self._states()
        return [TopicRanges(each) for each in packed(planned(spans, states, self._options, EVERYTHING), self._options)]

    def _report_deleted(self, before: TopicOffsets, after: TopicOffsets) -> None:
        """Report topics that the query has read from and that were deleted since, with or without unread messages."""
        gone = [loss for loss in gone_between(before, after) if follows(self._options.topics, loss.topic)]
        report_losses(gone, self._options)

    def _states(self) -> dict[str, TopicState]:
        return run_connected(
            self._options.connection, lambda cluster: TopicCatalog(cluster, self._options.topics).states()
        )

    def _samples(self, spans: Sequence[Span]) -> dict[str, float]:
        """Average bytes of a row in topics without a closed ledger."""
        unknown = [span for span in spans if not self._known[span.topic].closed]

        async def ask(cluster: ClusterConnection) -> dict[str, float]:
            catalog = TopicCatalog(cluster, self._options.topics)
            asked = await asyncio.gather(*(catalog.row_bytes(self._known[span.topic], span.first) for span in unknown))
            return {span.topic: each for span, each in zip(unknown, asked, strict=True) if each is not None}

        return run_connected(self._options.connection, ask) if unknown else {}

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        assert isinstance(partition, TopicRanges)
        return read_ranges(partition.ranges, self._options, EVERYTHING)


def planned(
    spans: Sequence[Span], states: Mapping[str, TopicState], options: SourceOptions, bounds: Bounds
) -> list[TaskRange]:
    """The ranges of all tasks. Raises NotFound where messages are gone and that is not allowed."""
    kept, losses = kept_of(spans, states)
    report_losses(losses, options)
    ranges: list[TaskRange] = []
    for span in kept:
        state = states[span.topic]
        for wanted in bounds.cut_ledgers(span, state.closed):
            ranges += [
                TaskRange(piece, ledgers_of(piece, state) if options.closed_from_storage else ())
                for piece in split(wanted, options.rows_per_partition)
            ]
    return ranges


def packed(ranges: Iterable[TaskRange], options: SourceOptions) -> list[tuple[TaskRange, ...]]:
    """The ranges of each task of a stream, in order: small ones share a task, unless the query sets its size."""
    tasks: list[list[TaskRange]] = []
    rows = 0
    for each in ranges:
        rows += each.span.rows
        full = not tasks or len(tasks[-1]) == RANGES_PER_TASK or rows > ROWS_PER_SMALL_TASK
        if full or options.rows_per_partition is not None:
            tasks.append([])
            rows = each.span.rows
        tasks[-1].append(each)
    return [tuple(task) for task in tasks]


def report_losses(losses: Sequence[MessageLoss], options: SourceOptions) -> None:
    """Raises NotFound unless losses are allowed; then they are logged."""
    if options.fail_on_data_loss:
        refuse_loss(losses)
    for loss in losses:
        logger.warning("%s", loss)


def covers_span(states: Mapping[str, TopicState], span: Span) -> bool:
    """Whether the states are new enough to plan the span. The task finds messages that were trimmed since."""
    state = states.get(span.topic)
    return state is not None and state.topic_id == span.topic_id and state.next >= span.end


def origin_of(topic: str, topic_id: str = "") -> RowOrigin:
    """As rows name the topic."""
    partition = parse_topic(topic).partition
    return RowOrigin(topic_of(topic), -1 if partition is None else partition, topic_id)


def read_ranges(ranges: Sequence[TaskRange], options: SourceOptions, bounds: Bounds) -> Iterator[RecordBatch]:
    """The messages of these ranges, in order, as batches of columns."""
    loop = process_loop()
    batches = _batches([each for each in ranges if each.span.rows > 0], options, bounds)
    try:
        while True:
            try:
                yield loop.run_until_complete(anext(batches))
            except StopAsyncIteration:
                return
    finally:
        loop.run_until_complete(batches.aclose())


async def _batches(
    ranges: Sequence[TaskRange], options: SourceOptions, bounds: Bounds
) -> AsyncGenerator[RecordBatch, None]:
    """All ranges begin at the same time, because a small one is mostly waiting: each has a batch at most in memory."""
    if not ranges:
        return
    async with ClusterConnection(options.connection) as cluster:
        readings = [_batches_of(cluster, each, options, bounds) for each in ranges]
        firsts = [asyncio.ensure_future(_next(reading)) for reading in readings]
        try:
            for reading, first in zip(readings, firsts, strict=True):
                batch = await first
                while batch is not None:
                    yield batch
                    batch = await _next(reading)
        finally:
            for first in firsts:
                first.cancel()
            await asyncio.gather(*firsts, return_exceptions=True)
            for reading in readings:
                await reading.aclose()


async def _next(reading: AsyncGenerator[RecordBatch, None]) -> RecordBatch | None:
    return await anext(reading, None)


async def _batches_of(
    cluster: ClusterConnection, range_: TaskRange, options: SourceOptions, bounds: Bounds
) -> AsyncGenerator[RecordBatch, None]:
    from oncelog_spark.source.range_reader import (
        RangeReader,  # tasks alone need it: Spark plans in a process for each read
    )

    tune_worker()
    span = range_.span
    joiner = BatchJoiner(origin_of(span.topic, span.topic_id), options.columns)
    reader = RangeReader(
        cluster, range_, fail_on_data_loss=options.fail_on_data_loss, skip_corrupt=options.skip_corrupt
    )
    async with aclosing(reader.entries()) as entries:
        async for found in entries:
            if bounds.may_want_entry(found):
                piece = _slice_of(found, span, options)
                for ready in () if piece is None else joiner.add(piece):
                    yield ready
    for rest in joiner.rest():
        yield rest


def _slice_of(found: FoundEntry, span: Span, options: SourceOptions) -> EntrySlice | None:
    """None: no message of the entry is wanted, or it cannot be read and is skipped. Raises as `entry_slice`."""
    try:
        return entry_slice(
            found,
            first=span.first,
            end=span.end,
            check=options.skip_corrupt,
            unpack=needs_payload(options.columns),
            passes_encrypted=options.passes_encrypted,
        )
    except CorruptEntry as error:
        if not options.skip_corrupt:
            raise
        logger.warning("%s: skipped an entry (option %s=skip): %s", span.topic, ON_CORRUPT, error.message)
        return None


def schema_of(columns: Sequence[str] | None) -> StructType:
    """The schema of rows with these columns; None: with all."""
    return SCHEMA if columns is None else StructType([SCHEMA[name] for name in columns])


def _check_schema(schema: StructType, columns: Sequence[str] | None) -> None:
    if schema != schema_of(columns):
        message = (
            f"the columns of a topic are {SCHEMA.simpleString()}: do not set a schema; select the columns you need"
        )
        raise InvalidArgument(message, field="schema")
