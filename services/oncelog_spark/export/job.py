"""Runs an export in a Spark session: the steps that `run` calls, on a cluster and in a directory.

A task reads at most `rowsPerFile` messages of one partition, and writes a file for each date. Rows are written in the
order of the log, as they arrive. Nothing is sorted, because a task keeps the files of several dates open. Where a task
has more than `DATES_AT_ONCE` dates, Spark sorts its other rows by date, and loses their order if the sort spills. So
that run is written a second time, sorted by number. The date is that of the publish time in UTC, whatever the session's
time zone; null where a producer's clock is outside the years that dates have.

The driver plans the tasks from the states that the run is planned from. Spark's own planning of a source in Python
would start three processes and ask the cluster for the same states again.
"""

import logging
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from oncelog.core.counted import counted
from oncelog.core.errors import TopicNotFound
from oncelog_spark.cluster import ClusterConnection, run_connected
from oncelog_spark.export.clean import Leftover, leftovers
from oncelog_spark.export.manifest import ExportManifest, PartitionRange
from oncelog_spark.export.options import ExportOptions
from oncelog_spark.export.reading import read_back, session_settings
from oncelog_spark.export.run import VerifiedFile, came_first, run_export
from oncelog_spark.export.store import ExportStore, store_of
from oncelog_spark.job_progress import Report, report_progress
from oncelog_spark.source.offsets import Span, TaskRange, TopicState
from oncelog_spark.source.options import SourceOptions, TopicPattern
from oncelog_spark.source.pushed_filters import EVERYTHING
from oncelog_spark.source.reader import SCHEMA, planned, read_ranges
from oncelog_spark.source.topic_catalog import TopicCatalog

logger = logging.getLogger(__name__)

#: Files that a task writes at the same time.
DATES_AT_ONCE = 32
#: The number of its task in the name of a file that Spark writes.
_TASK = re.compile(r"/part-(\d+)-[^/]*$")
_DAY_US = 86_400_000_000
_DAYS = f"(unix_micros(publish_time) - pmod(unix_micros(publish_time), {_DAY_US}L)) div {_DAY_US}L"
#: From 0001-01-01 to 9999-12-31.
_DATE = f"if({_DAYS} between -719162 and 2932896, date_from_unix_date(cast({_DAYS} as int)), null)"


@dataclass(frozen=True, slots=True)
class ExportResult:
    """manifest None: there was nothing new. gone: topics that this run found deleted, and no run before. phases:
    seconds of `planning`, `writing`, `reading_back` and `committing`."""

    manifest: ExportManifest | None
    gone: tuple[str, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)


def export_topics(session: SparkSession, options: ExportOptions, now_ms: int, report: Report) -> ExportResult:
    """Export what is new. Raises OncelogError; then nothing was exported, unless the outcome of the commit is unknown:
    the next run then finds out."""
    exported = ExportStore(store_of(options.directory, session))
    steps = _SparkExport(session, options, exported, report)
    outcome = run_export(steps, new_token(), now_ms, options.covers, loss_allowed=options.loss_allowed)
    return ExportResult(outcome.manifest, outcome.gone, leftovers(exported), steps.phases)


def new_token() -> str:
    """For one run or clean."""
    return uuid.uuid4().hex[:12]


class _SparkExport:
    """The `ExportSteps` of one run in one session."""

    def __init__(self, session: SparkSession, options: ExportOptions, exported: ExportStore, report: Report) -> None:
        self._session = session
        self._options = options
        self._exported = exported
        self._report = report
        #: as of the last request
        self._states: Mapping[str, TopicState] = {}
        #: seconds so far
        self.phases: dict[str, float] = {}

    def last_manifest(self) -> ExportManifest | None:
        return self._exported.last()

    def commit(self, manifest: ExportManifest) -> str | None:
        with self._phase("committing"):
            return self._exported.commit(manifest)

    def remove(self, run: str) -> None:
        """Files that cannot be removed are left over; the next run lists them."""
        try:
            self._exported.remove(run)
        except OSError as error:
            logger.warning("cannot remove %s; remove it later with --clean: %s", run, error)

    def topic_states(self) -> Mapping[str, TopicState]:
        options = self._options

        async def ask(cluster: ClusterConnection) -> dict[str, TopicState]:
            return await TopicCatalog(cluster, options.topics).states()

        with self._phase("planning"):
            states = run_connected(options.connection, ask)
        found = {topic: state for topic, state in states.items() if options.covers(topic)}
        if not found and not isinstance(options.topics, TopicPattern):
            raise TopicNotFound(f"{', '.join(options.topics)}: no message was ever published", topic=options.topics[0])
        self._states = found
        return found

    def write_files(self, number: int, run: str, ranges: Sequence[PartitionRange]) -> Sequence[VerifiedFile]:
        try:
            return self._write(run, ranges)
        except (Py4JError, PySparkException) as error:
            # A clean that stored this number deletes the files while Spark writes them: name that as the reason.
            last = self._exported.last()
            if last is not None and last.number >= number:
                raise came_first(last.run, number) from error
            raise

    def _write(self, run: str, ranges: Sequence[PartitionRange]) -> Sequence[VerifiedFile]:
        rows = sum(each.rows for each in ranges)
        what = f"writing {counted(rows, 'row')} of {counted(len(ranges), 'partition')} to {run}"
        with self._phase("writing"), report_progress(self._session.sparkContext, what, self._report):
            frame = _rows(self._session, self._options, ranges, self._states)
            sizes = write_by_date(self._session, frame, self._exported, self._options.directory.uri, run)
        what = f"reading {counted(len(sizes), 'file')} back"
        with self._phase("reading_back"), report_progress(self._session.sparkContext, what, self._report):
            return read_back(self._session, self._options.directory.uri, sizes)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.monotonic() - began_s


def _rows(
    session: SparkSession, options: ExportOptions, ranges: Sequence[PartitionRange], states: Mapping[str, TopicState]
) -> DataFrame:
    source = SourceOptions(
        options.connection,
        tuple(each.topic for each in ranges),
        rows_per_partition=options.rows_per_file,
        fail_on_data_loss=not options.loss_allowed,
        closed_from_storage=options.closed_from_storage,
        passes_encrypted=options.passes_encrypted,
    )
    spans = [Span(each.topic, each.topic_id, each.kept, each.end) for each in ranges]
    tasks = planned(spans, states, source, EVERYTHING)
    numbers = session.range(0, len(tasks), 1, max(1, len(tasks)))
    return numbers.mapInArrow(partial(_read, tasks, source), SCHEMA)


def write_by_date(
    session: SparkSession, rows: DataFrame, exported: ExportStore, directory: str, run: str
) -> Mapping[str, int]:
    """Write rows of the source's columns to the run's directory: of each task, which has rows of one partition, a file
    for each date, with the rows in the order of their numbers. Returns {path: bytes}."""
    dated = rows.selectExpr("*", f"{_DATE} as date")
    sizes: Mapping[str, int] = {}
    for frame in (dated, dated.sortWithinPartitions("topic", "date", "index")):
        exported.remove(run)
        exported.claim(run)
        with session_settings(session, {"spark.sql.maxConcurrentOutputFileWriters": str(DATES_AT_ONCE)}):
            frame.write.partitionBy("topic", "date").mode("errorifexists").parquet(f"{directory}/{run}")
        sizes = exported.sizes(run)
        tasks = Counter(match[1] for path in sizes if (match := _TASK.search(path)))
        if max(tasks.values(), default=0) <= DATES_AT_ONCE:
            break
    return sizes


def _read(tasks: Sequence[TaskRange], source: SourceOptions, batches: Iterator[Any]) -> Iterator[Any]:
    """In a task: the messages of the ranges with the given numbers, as batches of columns."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from read_ranges((tasks[number],), source, EVERYTHING)
