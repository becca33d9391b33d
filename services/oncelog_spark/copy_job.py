"""The job `copy`: publish the messages of one or several topics to another topic, each once, as long as the job runs.

A stream without a shuffle: a row keeps its position in the source as its identity (mode=position of the sink). So
whatever is killed, restarted or run twice at once, the target holds each message once. Rows are filtered and changed by
SQL over the source's columns. The SQL must give the same result for the same row at every replay; `rand()` and `now()`
do not.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

from oncelog.core.errors import InvalidArgument
from oncelog_spark.data_source import FORMAT
from oncelog_spark.sink.options import sink_options
from oncelog_spark.source.options import source_options

#: Between two progress messages.
REPORT_PERIOD_S = 60


@dataclass(frozen=True, slots=True)
class CopyJob:
    """What to copy. trigger_s: minimum time from batch to batch; None: copy what is stored now, then end.
    where, value: SQL, or None. reading, writing: options of source and sink, by name."""

    checkpoint: str
    trigger_s: float | None
    where: str | None = None
    value: str | None = None
    reading: Mapping[str, str] = field(default_factory=dict)
    writing: Mapping[str, str] = field(default_factory=dict)


def run_copy(session: SparkSession, job: CopyJob, report: Callable[[str], None]) -> None:
    """Copy until what is stored now is copied; with a trigger, until the query ends. Raises what ended the query."""
    query = start_copy(session, job)
    while not query.awaitTermination(REPORT_PERIOD_S):
        report(progress_of(query))
    report(progress_of(query))


def start_copy(session: SparkSession, job: CopyJob) -> StreamingQuery:
    """Start the query. It runs until it fails or is stopped; without a trigger, until it has copied what is stored now.

    Raises InvalidArgument for wrong options, before Spark does anything.
    """
    source_options(job.reading, os.environ, streaming=True)
    sink_options(job.writing, os.environ, streaming=True)
    if not job.checkpoint.strip():
        raise InvalidArgument("the checkpoint must not be empty: name its directory", field="checkpoint")
    rows = chosen(session.readStream.format(FORMAT).options(**job.reading).load(), job)
    writer = rows.writeStream.format(FORMAT).options(**job.writing).option("checkpointLocation", job.checkpoint)
    if job.trigger_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(job.trigger_s * 1000)} milliseconds").start()


def chosen(rows: DataFrame, job: CopyJob) -> DataFrame:
    """The rows to copy, with their new values. Identity, key, properties and event time stay."""
    if job.where is not None:
        rows = rows.where(job.where)
    return rows if job.value is None else rows.withColumn("value", expr(job.value))


def progress_of(query: StreamingQuery) -> str:
    """How far the query is, as a sentence."""
    last = query.lastProgress
    if last is None:
        return "no batch has ended yet"
    text = f"batch {last['batchId']}: {last['numInputRows']} rows, {last['processedRowsPerSecond'] or 0:.0f} a second"
    lag = lag_of(last)
    return text if lag is None else f"{text}, {lag} rows behind"


def lag_of(progress: Mapping[str, Any]) -> int | None:
    """Messages that were stored behind the batch, from a query's progress; None: the source has not reported it."""
    for source in progress["sources"]:
        latest = source["latestOffset"]
        offset = json.loads(latest) if isinstance(latest, str) else latest
        if isinstance(offset, Mapping) and "lag" in offset:
            return int(offset["lag"]["rows"])
    return None
