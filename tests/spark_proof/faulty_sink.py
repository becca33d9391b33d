"""The sink with faults: a format of Spark that announces its points, and is killed or waits there as planned.

A fault is a file in a directory of the journey, which outlives drivers. The first process that reaches its point takes
it, by renaming it, so it is injected once:

    name.planned ──> name.reached                        a worker, an executor: killed by the worker itself
                     └── name.waiting ──> name.released  any other victim: killed by the run, while the worker waits

A driver is never released: it is killed while it waits. The format "unprotected" is the control: it publishes without
the sink's rules, under names that the log assigns.
"""

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import oncelog
from oncelog.client.sync import Producer
from oncelog_spark.data_source import OncelogDataSource
from oncelog_spark.sink import batch_publisher as sink_batch
from oncelog_spark.sink.log import send_rows
from oncelog_spark.sink.rows import Rows, rows_of
from oncelog_spark.sink.writer import BATCH_PROPERTY, new_stream_writer
from tests.cluster.until import until_sync
from tests.spark_proof.plan import Point, Victim

FAULTS = "faults"
PLANNED, REACHED, WAITING, RELEASED = ".planned", ".reached", ".waiting", ".released"
COMMITS = "commits.jsonl"
#: Killing an owner takes seconds; before that, waiting until the cluster has recovered may take more.
_RELEASE_S = 300
#: Rows of one send of the copy; otherwise a batch would be copied in one or two sends.
COPIED_ROWS = 100


class InjectingDataSource(OncelogDataSource):
    """The sink."""

    @classmethod
    def name(cls) -> str:
        return "faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  # Spark's name
        given = {name: value for name, value in self.options.items() if name.lower() != FAULTS}
        writer: DataSourceStreamWriter = InjectingWriter(
            new_stream_writer(given, schema, overwrite=overwrite), self.options[FAULTS]
        )
        return writer


class UnprotectedDataSource(InjectingDataSource):
    """The control."""

    @classmethod
    def name(cls) -> str:
        return "unprotected"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  # Spark's name
        inner = UnprotectedWriter(self.options["serviceUrl"], self.options["topic"])
        writer: DataSourceStreamWriter = InjectingWriter(inner, self.options[FAULTS])
        return writer


class InjectingWriter(DataSourceStreamArrowWriter):
    """Passes everything on, with faults at its points."""

    def __init__(self, inner: Any, faults: str) -> None:
        self._inner = inner
        self._planned = PlannedFaults(Path(faults))

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        message: WriterCommitMessage = self._inner.write(self._announced(iterator))
        return message

    def _announced(self, iterator: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        batch_id = int(context.getLocalProperty(BATCH_PROPERTY) or "")
        for count, batch in enumerate(iterator):
            self._planned.reached(Point.TASK, batch_id, count)
            yield batch

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        with (self._planned.directory / COMMITS).open("a") as file:
            file.write(json.dumps({"batch": batch_id, "tasks": len(messages)}) + "\n")
        with self._planned.during_copy(batch_id):
            self._inner.commit(messages, batch_id)
        self._planned.reached(Point.COMMITTED, batch_id, 2)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        self._inner.abort(messages, batch_id)


class PlannedFaults:
    """The faults of one journey that are not injected yet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def reached(self, point: Point, batch_id: int, count: int) -> None:
        """Inject a fault that is planned here. Returns if there is none, or if this process survives it."""
        for path in sorted(self.directory.glob(f"{batch_id}-*-{point}{PLANNED}")):
            try:
                plan = json.loads(path.read_text())
                if count < plan["after"]:
                    continue
                path.rename(path.with_suffix(REACHED))
            except FileNotFoundError:
                continue  # another task was first
            self._inject(Victim(plan["victim"]), path)

    def _inject(self, victim: Victim, path: Path) -> None:
        if victim is Victim.WORKER:
            os.kill(os.getpid(), signal.SIGKILL)
        elif victim is Victim.EXECUTOR:
            os.kill(executor_above(os.getpid()), signal.SIGKILL)
        else:
            path.with_suffix(WAITING).touch()
            until_sync(path.with_suffix(RELEASED).exists, _RELEASE_S, every_s=0.05, waiting_for=str(path))

    @contextmanager
    def during_copy(self, batch_id: int) -> Iterator[None]:
        """Within the block the driver's copy is sent in small pieces, with a point before each."""
        sent = 0

        def announced(producer: Producer, rows: Rows, ids: Sequence[int]) -> None:
            nonlocal sent
            for start in range(0, len(rows), COPIED_ROWS):
                end = min(start + COPIED_ROWS, len(rows))
                self.reached(Point.COPYING, batch_id, sent)
                send_rows(producer, rows.slice(start, end), ids[start:end])
                sent += 1

        sink_batch.send_rows = announced  # type: ignore[assignment, attr-defined]
        try:
            yield
        finally:
            sink_batch.send_rows = send_rows  # type: ignore[attr-defined]


def executor_above(pid: int) -> int:
    """The executor of a Python worker."""
    while pid > 1:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if any(word.endswith(b"CoarseGrainedExecutorBackend") for word in words):
            return pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    raise AssertionError("this worker has no executor of its own: the master must be local-cluster")


class UnprotectedWriter:
    """Publishes each row under a name that the log assigns to the attempt."""

    def __init__(self, url: str, topic: str) -> None:
        self._url = url
        self._topic = topic

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        with oncelog.Client(self._url) as client, client.create_producer(self._topic) as producer:
            for batch in iterator:
                rows = rows_of(batch)
                producer.send_many(rows.values, keys=rows.keys)
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Everything is published already."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Nothing can be undone."""
