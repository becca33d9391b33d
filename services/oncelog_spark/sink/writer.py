"""Writing to a topic from Spark, effectively once: `df.write` and `df.writeStream` with format "oncelog".

Two modes give a row an identity that is the same at every replay. `position`: its position in the source is its
sequence id, and tasks publish it themselves. `batch`: tasks stage rows, and the driver's commit publishes the rows of
the attempts that count. Spark makes a writer anew for each batch, and pickles it to tasks: a writer holds options, and
no connections.

Spark starts an interpreter to plan each batch and another one to commit it. So modules that only tasks or commits need
are imported there: importing them takes longer than a small batch.

abort undoes nothing: Spark also calls it after a commit that failed, when rows are published already.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from oncelog.core.errors import Conflict, InvalidArgument, InvariantViolated
from oncelog_spark.sink.journal_records import RangeBatch, StagedAttempt
from oncelog_spark.sink.names import stage_number, stage_slot, stage_topic
from oncelog_spark.sink.options import Mode, SinkOptions, check_columns, sink_options
from oncelog_spark.worker import tune_worker

if TYPE_CHECKING:
    from oncelog_spark.sink.log import SinkLog

#: Local properties that Spark sets for the tasks of a micro-batch. Its own `foreach` reads the first; neither is
#: documented, so a task without one of them fails.
BATCH_PROPERTY = "streaming.sql.batchId"
QUERY_PROPERTY = "sql.streaming.queryId"
_JOB_BATCH = 0


@dataclass(frozen=True)
class TaskResult(WriterCommitMessage):
    """The result of a task. attempt: what it staged, in mode batch. counts: {producer: rows}, in mode position."""

    batch: RangeBatch
    partition: int
    attempt: StagedAttempt | None = None
    counts: dict[str, int] = field(default_factory=dict)


def new_writer(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> "OncelogWriter":
    """For a batch write. Raises InvalidArgument."""
    _refuse_overwriting(overwrite, "topics are append-only: use mode append")
    return OncelogWriter(_checked(given, schema, streaming=False))


def new_stream_writer(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> "OncelogStreamWriter":
    """For a stream. Raises InvalidArgument."""
    _refuse_overwriting(
        overwrite,
        "topics are append-only: use outputMode append, the only one that Spark supports for sinks in Python",
    )
    return OncelogStreamWriter(_checked(given, schema, streaming=True))


class OncelogStreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> TaskResult:
        """In a task. The task's local properties name the query and the batch."""
        context = _task()
        return _write(self._options, query_batch(context), context, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """At the driver, once every task has ended well."""
        _commit(self._options, messages, batch_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Nothing is undone: published rows count, and rows that are only staged are never read."""


class OncelogWriter(DataSourceArrowWriter):
    """One batch write, identified by its jobId."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> TaskResult:
        """In a task."""
        return _write(self._options, RangeBatch(f"job {self._options.job_id}", _JOB_BATCH), _task(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """At the driver, once every task has ended well."""
        _commit(self._options, messages, _JOB_BATCH)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing is undone, as in OncelogStreamWriter."""


def _checked(given: Mapping[str, str], schema: StructType, *, streaming: bool) -> SinkOptions:
    options = sink_options(given, os.environ, streaming=streaming)
    columns = {each.name: each.dataType.simpleString() for each in schema.fields}
    check_columns(columns, options.mode, by_columns=options.by_columns, by_row=options.by_row)
    return options


def _refuse_overwriting(overwrite: bool, what: str) -> None:
    if overwrite:
        raise InvalidArgument(what, field="mode")


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise InvariantViolated("rows can only be written in a task of Spark")
    return context


def query_batch(context: TaskContext) -> RangeBatch:
    """The micro-batch that a task belongs to. Raises InvariantViolated where Spark does not set its properties."""
    query_id, batch_id = (context.getLocalProperty(name) for name in (QUERY_PROPERTY, BATCH_PROPERTY))
    if not query_id or batch_id is None or not batch_id.isdigit():
        raise InvariantViolated(
            f"this version of Spark does not set {QUERY_PROPERTY} ({query_id!r}) or {BATCH_PROPERTY} ({batch_id!r}) "
            "for tasks: a replay could not be distinguished from new rows, so nothing is written"
        )
    return RangeBatch(f"query {query_id}", int(batch_id))


def _write(options: SinkOptions, batch: RangeBatch, context: TaskContext, iterator: Iterator[Any]) -> TaskResult:
    from oncelog_spark.sink.log import SinkLog, connected

    tune_worker()
    with connected(options) as client:
        task = context.partitionId(), context.attemptNumber()
        return write_rows(SinkLog(client, options), options, batch, task, iterator)


def write_rows(
    log: "SinkLog", options: SinkOptions, batch: RangeBatch, task: tuple[int, int], iterator: Iterator[Any]
) -> TaskResult:
    """Write all rows of a task, by the mode. task: its partition and attempt."""
    from oncelog_spark.sink.batch_staging import stage_rows
    from oncelog_spark.sink.position_writer import publish_by_position
    from oncelog_spark.sink.rows import rows_of

    partition, attempt = task
    if options.mode is Mode.POSITION:
        return TaskResult(batch, partition, counts=publish_by_position(log, options, batch, iterator))
    number, slot = stage_number(batch.batch_id), stage_slot(partition)
    topic = stage_topic(options.topic, options.scope, batch.run_id, number, slot)
    pieces = (rows_of(each, by_columns=options.by_columns, by_row=options.by_row) for each in iterator)
    return TaskResult(batch, partition, attempt=stage_rows(log, topic, partition, attempt, pieces))


def _commit(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
    """Raises OncelogError; Spark then fails the batch, and commits its replay here."""
    written = results_of(messages, batch_id)
    if written and options.mode is Mode.BATCH:
        from oncelog_spark.sink.batch_publisher import commit_batch

        commit_batch(options, written[0].batch, tuple(each.attempt for each in written if each.attempt is not None))


def results_of(messages: Sequence[WriterCommitMessage | None], batch_id: int) -> list[TaskResult]:
    """The results of the tasks of a batch, checked to be of this batch, and of one task for each producer.

    Raises InvariantViolated, and Conflict for a name that two tasks published under; claims refuse it earlier.
    """
    written = [each for each in messages if isinstance(each, TaskResult)]
    if len(written) != len(messages):
        raise InvariantViolated(f"{len(messages) - len(written)} of {len(messages)} tasks have no result")
    batches = sorted({str(each.batch) for each in written})
    if len(batches) > 1 or any(each.batch.batch_id != batch_id for each in written):
        raise InvariantViolated(f"tasks belong to other batches than {batch_id}: {batches}")
    names = [name for each in written for name in each.counts]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise Conflict(f"several tasks of {batches[0]} published under {', '.join(twice)}")
    return written
