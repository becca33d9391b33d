"""The requests of a benchmark to one Spark session. Runs in the process of the session (`session_process`).

Rows are read into the format "noop", which discards them, and written from a DataFrame in memory. So a figure is that
of the format itself.
"""

import time
from collections.abc import Callable
from typing import Any

from pyspark import StorageLevel
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from oncelog_lab.spark_bench.alternation import busy_s
from oncelog_spark.export.job import ExportResult, export_topics
from oncelog_spark.export.options import export_options

_STREAM_TIMEOUT_S = 500
_STARTS_MAX = 10
_STARTED_TOO_LATE = "worker failed to connect back"
_NOISE_CHARACTERS = 64
#: Half of a message is random, as in the other benchmarks.
_VALUE = "rpad(substr(sha2(cast(id as string), 256), 1, {noise}), {size}, 'x')"

Request = dict[str, Any]


class SparkWork:
    """Each public method is a request. Its arguments and its answer are JSON."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._made: DataFrame | None = None

    def perform(self, name: str, arguments: Request) -> Request:
        """Raises KeyError for an unknown request."""
        requests: dict[str, Callable[..., Request]] = {
            "count": self.count, "read": self.read, "copy": self.copy, "make": self.make, "write": self.write,
            "stream": self.stream, "export": self.export,
        }  # fmt: skip
        return requests[name](**arguments)

    def count(self, source: Request) -> Request:
        """Count the rows."""
        return {"rows": self._load(source).count()}

    def read(self, source: Request) -> Request:
        """Read all rows."""
        return _timed(lambda: self._load(source).write.format("noop").mode("overwrite").save())

    def copy(self, source: Request, sink_format: str, path: str, columns: list[str]) -> Request:
        """Write the rows to files of another format, one per task."""
        rows = self._load(source)
        wanted = rows.selectExpr(*columns) if columns else rows
        return _timed(lambda: wanted.write.format(sink_format).mode("overwrite").save(path))

    def make(self, rows: int, tasks: int, message_bytes: int) -> Request:
        """Create rows in memory: a value, a producer name per task, and ascending sequence ids."""
        value = _VALUE.format(noise=min(_NOISE_CHARACTERS, max(1, message_bytes // 2)), size=message_bytes)
        each = -(-rows // tasks)
        self._made = (
            self._session.range(0, rows, 1, tasks)
            .selectExpr(
                f"cast({value} as binary) value", f"concat('maker-', id div {each}) producer_name", "id sequence_id"
            )
            .persist(StorageLevel.MEMORY_ONLY)
        )
        return {"rows": self._made.count()}

    def write(self, sink: Request) -> Request:
        """Write the rows of `make`."""
        assert self._made is not None
        writer = self._made.write.format(sink["format"]).options(**sink["options"]).mode(sink["mode"])
        return _timed(lambda: writer.save(sink["path"]))

    def stream(self, source: Request, sink: Request, checkpoint: str) -> Request:
        """Read all rows in micro-batches. Returns {"batches": [[rows, {phase: seconds}], …], "busy_cores": …}; the
        phases are those of Spark's progress."""
        reader = self._session.readStream.format(source["format"]).options(**source["options"])
        writer = (
            reader.load(source["path"])
            .writeStream.format(sink["format"])
            .options(**sink["options"], checkpointLocation=checkpoint)
            .trigger(availableNow=True)
        )
        busy, began = busy_s(), time.perf_counter()
        query = _run_through(writer.start)
        batches = [
            (each["numInputRows"], {phase: took_ms / 1000 for phase, took_ms in each["durationMs"].items()})
            for each in query.recentProgress
        ]
        busy_cores = (busy_s() - busy) / (time.perf_counter() - began)
        return {"batches": [each for each in batches if each[0]], "busy_cores": busy_cores}

    def export(self, url: str, topic: str, directory: str) -> Request:
        """Export a topic to a new directory. Adds {"rows": …, "phases": {phase: seconds}}."""
        options = export_options({"serviceUrl": url, "topic": topic, "directory": directory}, {})
        results: list[ExportResult] = []
        timed = _timed(lambda: results.append(export_topics(self._session, options, 0, lambda _: None)))
        [result] = results
        assert result.manifest is not None, "the directory is new"
        return timed | {"rows": result.manifest.rows, "phases": dict(result.phases)}

    def _load(self, source: Request) -> DataFrame:
        reader = self._session.read.format(source["format"]).options(**source["options"])
        return reader.load(source["path"])


def _run_through(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Return the query after its successful end. Spark allows its Python planner ten seconds to start, which is too
    short on a busy machine; a query that failed for this reason before its first batch is started again."""
    for left in reversed(range(_STARTS_MAX)):
        query = start()
        try:
            if query.awaitTermination(_STREAM_TIMEOUT_S):
                return query
            query.stop()
            break
        except StreamingQueryException as error:
            if not left or _STARTED_TOO_LATE not in str(error) or query.recentProgress:
                raise
    raise TimeoutError(f"a stream did not end within {_STREAM_TIMEOUT_S} s")


def _timed(action: Callable[[], None]) -> Request:
    busy, began = busy_s(), time.perf_counter()
    action()
    took = time.perf_counter() - began
    return {"seconds": took, "busy_cores": (busy_s() - busy) / took}
