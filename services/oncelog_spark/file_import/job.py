"""Runs an import in a Spark session: tasks check and publish files, the driver keeps records of them in a hidden topic
beside the target (`records`)."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from oncelog.client.sync import Client
from oncelog.core.counted import counted
from oncelog.core.errors import Conflict, InvalidArgument, LogHole, MessageTooLarge, NotFound, ProducerFenced
from oncelog.core.ids import TopicId
from oncelog_spark.cluster import ClusterConnection, run_connected
from oncelog_spark.file_import.files import list_files
from oncelog_spark.file_import.options import ImportOptions
from oncelog_spark.file_import.records import (
    FileRecord,
    SourceFile,
    compare_read,
    encode_begun,
    encode_done,
    known_files,
    plan_import,
)
from oncelog_spark.file_import.tasks import check_file, import_file
from oncelog_spark.job_progress import Report, report_progress
from oncelog_spark.sink.log import SinkJournal, SinkLog, connected
from oncelog_spark.sink.names import journal_topic
from oncelog_spark.source.topic_catalog import TopicCatalog

#: Files that are checked, recorded and published together.
FILES_AT_ONCE = 500
_TASKS_PER_PROCESSOR = 4
#: In an error.
_REFUSED_SHOWN = 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ImportResult:
    """found: files that exist now. done: those among them that were published before. rows: published now; size_bytes:
    of the new files."""

    topic: str
    found: int
    done: int
    new: int
    resumed: int
    rows: int
    size_bytes: int
    #: (path, rows) of those that are new or resumed
    files: tuple[tuple[str, int], ...] = ()


def import_files(session: SparkSession, options: ImportOptions, report: Report) -> ImportResult:
    """Publish what is new. A file that cannot be imported does not stop the others: they are published first.

    Raises InvalidArgument, which names such files, and OncelogError. Rows that were published by then stay, and the
    next try continues behind them.
    """
    refused: list[str] = []
    found = list_files(options.source, options.glob, refused.append)
    if not found and not refused:
        raise NotFound(f"no file below {options.source} matches {options.glob}", field="glob")
    with connected(options.sink) as client:
        kept = ImportJournal(client, options)
        known = kept.open()
        todo = plan_import(known, found, options.mapped.text, checksum=options.checksum)
        groups = _pieces(todo.check, FILES_AT_ONCE) or [()]
        new = resumed = rows = size_bytes = 0
        published: list[tuple[str, int]] = []
        for number, group in enumerate(groups):
            what = f"reading {counted(len(group), 'file')}"
            read = _in_tasks(session, what, report, partial(_check, options), [each._asdict() for each in group])
            refused += [each["refused"] for each in read if "refused" in each]
            fresh, rest = compare_read(known, [FileRecord(**each) for each in read if "refused" not in each])
            if number == 0:
                rest += todo.rest
            if fresh:
                kept.append(encode_begun(kept.target_id, fresh))
            what = f"publishing {counted(len(fresh) + len(rest), 'file')}"
            files = [*fresh, *rest]
            counts = _in_tasks(session, what, report, partial(_import, options), [asdict(each) for each in files])
            if files:
                kept.append(encode_done(each.path for each in files))
            new, resumed, rows = new + len(fresh), resumed + len(rest), rows + sum(counts)
            size_bytes += sum(each.size for each in fresh)
            published += [(each.path, each.rows) for each in files]
        if refused:
            raise _refusal(refused, counted(new + resumed, "file"), rows)
        done = len(found) - new - resumed
        return ImportResult(options.topic, len(found), done, new, resumed, rows, size_bytes, tuple(published))


def _refusal(refused: Sequence[str], published: str, rows: int) -> InvalidArgument:
    shown = "\n".join(f"  {each}" for each in refused[:_REFUSED_SHOWN])
    more = f"\n  and {len(refused) - _REFUSED_SHOWN} more" if len(refused) > _REFUSED_SHOWN else ""
    return InvalidArgument(
        f"{counted(len(refused), 'file')} cannot be imported; {published} with {counted(rows, 'row')} "
        f"{'was' if published.startswith('1 ') else 'were'} published now:\n{shown}{more}",
        field="source",
    )


class ImportJournal:
    """The hidden topic with the records of the files. Opening it fences another import of the same name, which then
    fails."""

    def __init__(self, client: Client, options: ImportOptions) -> None:
        self._log = SinkLog(client, options.sink)
        self._options = options
        # No producer has such a name, so the sink never has a journal of this name.
        self._journal = SinkJournal(self._log, journal_topic(options.topic, f"import\n{options.name}"))
        self._number = -1
        self.target_id = TopicId("")

    def open(self) -> dict[str, FileRecord]:
        """Returns {path: its record}. Creates the target where topics are created automatically. Raises Conflict,
        CorruptEntry."""
        self._log.producer(self._options.topic, self._options.name, "contiguous").close()
        self.target_id = _topic_id(self._options)
        self._number, last = self._journal.open()
        return known_files([] if last is None else self._records(), self.target_id)

    def _records(self) -> list[bytes]:
        """All records: record n is message n."""
        found: list[bytes] = []
        with self._log.client.create_reader(self._journal.topic) as reader:
            while len(found) <= self._number:
                message = reader.read_next(timeout=self._log.timeout_s)
                if message.sequence_id != len(found):
                    raise LogHole(
                        f"{self._journal.topic} lacks record {len(found)} of this import: it was probably trimmed"
                    )
                found.append(message.value)
        return found

    def append(self, record: bytes) -> None:
        self._number += 1
        try:
            self._journal.append(self._number, record)
        except ProducerFenced as error:
            message = f"another import of the name {self._options.name} has begun; it continues the work"
            raise Conflict(message, field="name") from error


def _topic_id(options: ImportOptions) -> TopicId:
    async def ask(cluster: ClusterConnection) -> TopicId:
        return (await TopicCatalog(cluster, (options.topic,)).states())[options.topic].topic_id

    return run_connected(options.connection, ask)


# --- in tasks ---------------------------------------------------------------------------------------------------------


def _check(options: ImportOptions, fields: dict[str, Any]) -> Any:
    try:
        return asdict(check_file(options, SourceFile(**fields)))
    except (InvalidArgument, MessageTooLarge) as error:
        return {"refused": error.message}


def _import(options: ImportOptions, fields: dict[str, Any]) -> Any:
    return import_file(options, FileRecord(**fields))


def _in_tasks(
    session: SparkSession, what: str, report: Report, work: Callable[[Any], Any], given: Sequence[dict[str, Any]]
) -> list[Any]:
    """`work` of each item, in tasks of Spark; results in order. Items and results are converted to JSON."""
    if not given:
        return []
    context = session.sparkContext
    count = min(len(given), _TASKS_PER_PROCESSOR * context.defaultParallelism)
    numbers = session.range(0, len(given), 1, count)
    with report_progress(context, what, report):
        rows = numbers.mapInArrow(partial(_work, work, list(given)), "number long, answer string").collect()
    return [json.loads(row["answer"]) for row in sorted(rows, key=lambda row: row["number"])]


def _work(work: Callable[[Any], Any], given: Sequence[Any], batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        numbers = batch.column(0).to_pylist()
        answers = [json.dumps(work(given[number])) for number in numbers]
        yield pa.RecordBatch.from_pydict({"number": pa.array(numbers, pa.int64()), "answer": answers})


def _pieces(items: Sequence[T], count: int) -> list[Sequence[T]]:
    return [items[at : at + count] for at in range(0, len(items), count)]
