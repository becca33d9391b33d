"""What a bench asks of one Spark session. Runs in the session's process (`session_process`).

Rows are read into the format "noop", which takes every row and drops it, and written from a DataFrame that Spark keeps
in memory: so a figure is the format's own.
"""

import time
from collections.abc import Callable
from typing import Any

from pyspark import StorageLevel
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from oncelog.lab.spark_bench.turns import busy_s

_STREAM_TIMEOUT_S = 500
_STARTS_MAX = 10
_STARTED_TOO_LATE = "worker failed to connect back"
_NOISE_CHARACTERS = 64
#: Half of a message is noise, as in the other benches.
_VALUE = "rpad(substr(sha2(cast(id as string), 256), 1, {noise}), {size}, 'x')"

Asked = dict[str, Any]


class SparkWork:
    """Each public method is a request: its arguments and its answer are JSON."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._made: DataFrame | None = None

    def perform(self, name: str, arguments: Asked) -> Asked:
        """Raises KeyError for what is no request."""
        requests: dict[str, Callable[..., Asked]] = {
            "count": self.count, "read": self.read, "copy": self.copy, "make": self.make, "write": self.write,
            "stream": self.stream,
        }  # fmt: skip
        return requests[name](**arguments)

    def count(self, source: Asked) -> Asked:
        """How many rows there are to read."""
        return {"rows": self._load(source).count()}

    def read(self, source: Asked) -> Asked:
        """Read all of it."""
        return _timed(lambda: self._load(source).write.format("noop").mode("overwrite").save())

    def copy(self, source: Asked, sink_format: str, path: str, columns: list[str]) -> Asked:
        """Keep it as files of another format, one for each task."""
        rows = self._load(source)
        wanted = rows.selectExpr(*columns) if columns else rows
        return _timed(lambda: wanted.write.format(sink_format).mode("overwrite").save(path))

    def make(self, rows: int, parts: int, message_bytes: int) -> Asked:
        """Keep rows to write in memory: a value, and a producer for each part, with ids that ascend."""
        value = _VALUE.format(noise=min(_NOISE_CHARACTERS, max(1, message_bytes // 2)), size=message_bytes)
        each = -(-rows // parts)
        self._made = (
            self._session.range(0, rows, 1, parts)
            .selectExpr(
                f"cast({value} as binary) value", f"concat('maker-', id div {each}) producer_name", "id sequence_id"
            )
            .persist(StorageLevel.MEMORY_ONLY)
        )
        return {"rows": self._made.count()}

    def write(self, sink: Asked) -> Asked:
        """Write what was made."""
        assert self._made is not None
        writer = self._made.write.format(sink["format"]).options(**sink["options"]).mode(sink["mode"])
        return _timed(lambda: writer.save(sink["path"]))

    def stream(self, source: Asked, sink: Asked, checkpoint: str) -> Asked:
        """Read all that is there in micro-batches; {"batches": [[rows, seconds], …], "busy_cores": …}."""
        reader = self._session.readStream.format(source["format"]).options(**source["options"])
        writer = (
            reader.load(source["path"])
            .writeStream.format(sink["format"])
            .options(**sink["options"], checkpointLocation=checkpoint)
            .trigger(availableNow=True)
        )
        busy, began = busy_s(), time.perf_counter()
        query = _run_through(writer.start)
        told = [(each["numInputRows"], each["durationMs"]["triggerExecution"] / 1000) for each in query.recentProgress]
        busy_cores = (busy_s() - busy) / (time.perf_counter() - began)
        return {"batches": [each for each in told if each[0]], "busy_cores": busy_cores}

    def _load(self, source: Asked) -> DataFrame:
        reader = self._session.read.format(source["format"]).options(**source["options"])
        return reader.load(source["path"])


def _run_through(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """The query that has ended well. Spark gives the Python of its planning ten seconds to start, however busy the
    machine is; a query that ended for that, before its first batch, is started again."""
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
    raise TimeoutError(f"a stream was not done after {_STREAM_TIMEOUT_S} s")


def _timed(action: Callable[[], None]) -> Asked:
    busy, began = busy_s(), time.perf_counter()
    action()
    took = time.perf_counter() - began
    return {"seconds": took, "busy_cores": (busy_s() - busy) / took}
