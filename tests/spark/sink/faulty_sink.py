"""The sink with faults, as formats of Spark: a worker process that dies, a commit that fails after it has published.

Each fault is injected once for each directory (option faultDir), which remembers it. The format "unprotected" is
the control: it writes as one would without the sink's rules, under names that the log assigns.
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark import TaskContext, cloudpickle
from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import oncelog
from oncelog_spark.data_source import OncelogDataSource
from oncelog_spark.sink.rows import rows_of
from oncelog_spark.sink.writer import new_stream_writer

FAULT_DIR = "faultDir"
#: Record batches that a task reads before it dies.
BATCHES_BEFORE = 2


class FaultyDataSource(OncelogDataSource):
    """The sink."""

    @classmethod
    def name(cls) -> str:
        return "oncelog_faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  # Spark's name
        given = {name: value for name, value in self.options.items() if name.lower() != FAULT_DIR.lower()}
        writer: DataSourceStreamWriter = FaultyWriter(
            new_stream_writer(given, schema, overwrite=overwrite), self.options[FAULT_DIR]
        )
        return writer


class FaultyWriter(DataSourceStreamArrowWriter):
    """Passes everything on, until its fault is injected."""

    def __init__(self, inner: Any, fault_dir: str) -> None:
        self._inner = inner
        self._faults = Path(fault_dir)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        message: WriterCommitMessage = self._inner.write(self._dying(iterator))
        return message

    def _dying(self, iterator: Iterator[Any]) -> Iterator[Any]:
        for count, batch in enumerate(iterator):
            if count == BATCHES_BEFORE and self._is_due("task"):
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        self._inner.commit(messages, batch_id)
        if self._is_due("commit"):
            raise RuntimeError("the commit is reported as failed, although it succeeded")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        self._inner.abort(messages, batch_id)

    def _is_due(self, fault: str) -> bool:
        """Whether the fault is planned and not injected yet."""
        planned = self._faults / fault
        try:
            planned.rename(self._faults / f"{fault}.done")
        except FileNotFoundError:
            return False
        return True


class UnprotectedDataSource(FaultyDataSource):
    """The control."""

    @classmethod
    def name(cls) -> str:
        return "unprotected"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  # Spark's name
        inner = UnprotectedWriter(self.options["serviceUrl"], self.options["topic"])
        writer: DataSourceStreamWriter = FaultyWriter(inner, self.options[FAULT_DIR])
        return writer


class UnprotectedWriter:
    """Publishes each row under a name that the log assigns to the attempt."""

    def __init__(self, url: str, topic: str) -> None:
        self._url = url
        self._topic = topic

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        assert TaskContext.get() is not None
        with oncelog.Client(self._url) as client, client.create_producer(self._topic) as producer:
            for batch in iterator:
                producer.send_many(rows_of(batch).values)
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Everything is published already."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Nothing can be undone."""


def register(session: Any) -> None:
    """Register the formats. This module is sent to workers by value, because they cannot import tests."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    for source in (FaultyDataSource, UnprotectedDataSource):
        session.dataSource.register(source)


def plan(directory: Path, *faults: str) -> str:
    """The directory, with these faults planned: "task", "commit"."""
    directory.mkdir(parents=True, exist_ok=True)
    for fault in faults:
        (directory / fault).touch()
    return str(directory)


def injected(directory: Path) -> set[str]:
    return {path.stem for path in directory.glob("*.done")}
