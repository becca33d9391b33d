"""Performs an export in a Spark session: what `run` and `clean` ask for, on a cluster and in a directory.

Rows are written sorted as they lie in the log, a file for each topic part, date and at most `rowsPerFile` messages. The
date is that of the publish time in UTC, whatever the session's time zone; null where a producer's clock is beyond the
years that dates have.
"""

import json
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from oncelog.core.errors import InvariantViolated, TopicNotFound
from oncelog.pipeline.cluster_links import ClusterLinks, run_with_links
from oncelog.pipeline.data_source import FORMAT, OncelogDataSource
from oncelog.pipeline.export import clean as cleaning
from oncelog.pipeline.export import run as core
from oncelog.pipeline.export.manifest import Manifest, PartRange
from oncelog.pipeline.export.options import ExportOptions
from oncelog.pipeline.export.reading import read_back, session_settings
from oncelog.pipeline.export.store import Exported, store_of
from oncelog.pipeline.job_progress import Tell, counted, told_progress
from oncelog.pipeline.options import options_of
from oncelog.pipeline.source.offsets import TopicState
from oncelog.pipeline.source.options import Pattern
from oncelog.pipeline.source.topic_catalog import Catalog

logger = logging.getLogger(__name__)

_DAY_US = 86_400_000_000
_DAYS = f"(unix_micros(publish_time) - pmod(unix_micros(publish_time), {_DAY_US}L)) div {_DAY_US}L"
#: From 0001-01-01 to 9999-12-31.
_DATE = f"if({_DAYS} between -719162 and 2932896, date_from_unix_date(cast({_DAYS} as int)), null)"


@dataclass(frozen=True, slots=True)
class Leftover:
    """A run that no manifest names: it died, or is alive."""

    run: str
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """manifest None: there was nothing new. gone: topics that are not there any more, told for the first time."""

    manifest: Manifest | None
    gone: tuple[str, ...] = ()
    leftovers: tuple[Leftover, ...] = field(default=())


def export_topics(session: SparkSession, options: ExportOptions, now_ms: int, tell: Tell) -> Outcome:
    """Export what is new. Raises OncelogError; then nothing of this run counts, unless what became of its commit is
    unknown: the next run then sees whether it does."""
    exported = Exported(store_of(options.directory, session))
    machine = core.ExportRun(uuid.uuid4().hex[:12], now_ms, options.covers, loss_allowed=options.loss_allowed)
    performer = _Export(session, options, exported, tell)
    event: core.Event = core.Begin()
    while True:
        (effect,) = machine.handle(event)
        match effect:
            case core.Finish(manifest, gone):
                return Outcome(manifest, gone, leftovers_of(exported))
            case core.Refuse(error):
                raise error
            case core.ReadLast():
                event = core.LastRead(exported.last())
            case core.Commit(manifest):
                taken = exported.commit(manifest)
                event = core.Committed() if taken is None else core.Taken(taken)
            case core.Remove(run):
                performer.remove(run)
                event = core.Removed()
            case _:
                event = performer.perform(effect, machine.run, machine.number)


def clean_export(exported: Exported, now_ms: int) -> tuple[Leftover, ...]:
    """Remove what dead runs have left; what that was. Raises Conflict where runs come between again and again."""
    machine = cleaning.Clean(uuid.uuid4().hex[:12], now_ms)
    found: dict[str, Leftover] = {}
    event: cleaning.Event = cleaning.Begin()
    while True:
        (effect,) = machine.handle(event)
        match effect:
            case cleaning.List():
                event = cleaning.Listed(exported.runs())
            case cleaning.ReadManifests():
                event = cleaning.ManifestsRead(exported.manifests())
            case cleaning.Fence(manifest):
                taken = exported.commit(manifest)
                event = cleaning.Fenced() if taken is None else cleaning.Taken(taken)
            case cleaning.Remove(runs):
                found = {run: _leftover(exported, run) for run in runs}
                for run in runs:
                    exported.remove(run)
                event = cleaning.Removed()
            case cleaning.Refuse(error):
                raise error
            case cleaning.Finish(runs):
                return tuple(found[run] for run in runs)
            case _:
                raise InvariantViolated(f"{effect} is no step")


def leftovers_of(exported: Exported) -> tuple[Leftover, ...]:
    """What no manifest names. Listed before manifests are read, so that what is committed meanwhile is none."""
    runs = exported.runs()
    return tuple(_leftover(exported, run) for run in cleaning.leftovers(runs, exported.manifests()))


def _leftover(exported: Exported, run: str) -> Leftover:
    size = exported.size_of(run)
    return Leftover(run, size.files, size.size_bytes)


class _Export:
    """One run in one session."""

    def __init__(self, session: SparkSession, options: ExportOptions, exported: Exported, tell: Tell) -> None:
        self._session = session
        self._options = options
        self._exported = exported
        self._tell = tell

    def perform(self, effect: core.Effect, run: str, number: int) -> core.Event:
        """Whatever fails here fails before the commit: what was written is removed."""
        try:
            match effect:
                case core.AskTopics():
                    return core.TopicsTold(self._states())
                case core.WriteFiles(run, ranges):
                    return core.FilesWritten(self._write(run, ranges))
                case _:
                    raise InvariantViolated(f"{effect} is no step")
        except BaseException as error:
            self.remove(run)
            last = self._exported.last() if isinstance(error, Py4JError | PySparkException) else None
            if last is not None and last.number >= number:
                # A clean that took the number deletes the files under the hands of Spark, which can only say that.
                raise core.came_first(last.run, number) from error
            raise

    def remove(self, run: str) -> None:
        """What cannot be removed is left over, and told as such by the next run."""
        try:
            self._exported.remove(run)
        except OSError as error:
            logger.warning("%s was not removed, clean does it later: %s", run, error)

    def _states(self) -> Mapping[str, TopicState]:
        options = self._options

        async def ask(links: ClusterLinks) -> dict[str, TopicState]:
            return await Catalog(links, options.topics).states()

        states = run_with_links(options.connection, ask)
        found = {topic: state for topic, state in states.items() if options.covers(topic)}
        if not found and not isinstance(options.topics, Pattern):
            raise TopicNotFound(f"{', '.join(options.topics)}: nobody has published there yet", topic=options.topics[0])
        return found

    def _write(self, run: str, ranges: tuple[PartRange, ...]) -> list[core.Written]:
        rows = sum(each.rows for each in ranges)
        what = f"writing {counted(rows, 'row')} of {counted(len(ranges), 'topic part')} to {run}"
        with session_settings(self._session):
            with told_progress(self._session.sparkContext, what, self._tell):
                frame = _rows(self._session, self._options, ranges)
                self._exported.claim(run)
                place = f"{self._options.directory.uri}/{run}"
                frame.write.partitionBy("topic", "date").mode("errorifexists").parquet(place)
            sizes = self._exported.sizes(run)
            with told_progress(self._session.sparkContext, f"reading {counted(len(sizes), 'file')} back", self._tell):
                return read_back(self._session, self._options.directory.uri, sizes)


def _rows(session: SparkSession, options: ExportOptions, ranges: tuple[PartRange, ...]) -> DataFrame:
    session.dataSource.register(OncelogDataSource)
    given = options_of(options.connection) | {
        "topics": ",".join(each.topic for each in ranges),
        "startingPosition": json.dumps({each.topic: each.kept for each in ranges}),
        "endingPosition": json.dumps({each.topic: each.end for each in ranges}),
        "rowsPerPartition": str(options.rows_per_file),
        "failOnDataLoss": str(not options.loss_allowed).lower(),
        "closedLedgers": options.closed_ledgers,
    }
    frame = session.read.format(FORMAT).options(**given).load().selectExpr("*", f"{_DATE} as date")
    return frame.sortWithinPartitions("topic", "date", "partition", "index")
