"""Streams on two cores: large batches in steady state, and the fixed cost of a micro-batch with very few rows, of few
partitions and of many.

They are compared with Spark's own file source: Parquet files with the same rows per batch, and files of one line. The
first batch of a query includes its start and does not count, so there is no warm-up round.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from oncelog.client.client import AsyncClient
from oncelog_lab.bench.figures import BenchRow, median
from oncelog_lab.bench.running import Tell
from oncelog_lab.cluster import LabCluster
from oncelog_lab.failures import LabFailed
from oncelog_lab.spark_bench.alternation import SparkSample, alternate, rate_row, seconds_row
from oncelog_lab.spark_bench.corpus import filled_topic, new_topic, printable_values
from oncelog_lab.spark_bench.formats import NOOP, Dataset, file_source, topic_sink, topic_source
from oncelog_lab.spark_bench.sessions import BenchSession
from oncelog_lab.spark_bench.settings import SparkSettings

BATCHES = 5
PARTITIONS = 2
#: Rows of a batch that is mostly overhead: one per partition.
FEW = 2
MANY_PARTITIONS = 32

SOURCE, PARQUET = "stream, source, 2 partitions", "stream, Parquet"
OVERHEADS = {
    "text": "micro-batch, text",
    "source": "micro-batch, source",
    "many": f"micro-batch, source, {MANY_PARTITIONS} partitions",
    "position": "micro-batch, source to sink, mode=position",
    "batch": "micro-batch, source to sink, mode=batch",
}
#: {what a micro-batch spends its time on: the phases of Spark's progress}. Spark's log is in the checkpoint.
_PARTS = {
    "plan": ("latestOffset", "getBatch", "queryPlanning"),
    "read and write": ("addBatch",),
    "Spark's log": ("walCommit", "commitOffsets"),
}
Batch = tuple[int, Mapping[str, float]]


class _StreamQuery(NamedTuple):
    source: Dataset
    sink: Dataset


async def stream_rows(
    cluster: LabCluster,
    client: AsyncClient,
    session: BenchSession,
    settings: SparkSettings,
    topic: str,
    directory: Path,
    tell: Tell,
) -> list[BenchRow]:
    """topic: with PARTITIONS partitions and settings.rows messages. Raises LabFailed."""
    each = settings.rows // BATCHES // PARTITIONS
    parquet = str(directory / "stream.parquet")
    await session.request(
        "copy",
        source=topic_source(cluster.url, topic, rowsPerPartition=str(each)),
        sink_format="parquet",
        path=parquet,
        columns=[],
    )
    few, many = [
        await filled_topic(
            cluster,
            client,
            rows=count * BATCHES,
            partitions=count,
            values=printable_values(settings.message_bytes),
            entry_bytes=1,
        )
        for count in (FEW, MANY_PARTITIONS)
    ]

    def from_few() -> Dataset:
        return topic_source(cluster.url, few, maxRowsPerBatch=str(FEW))

    def to_topic(mode: str) -> Dataset:
        return topic_sink(cluster.url, new_topic(), mode, "bench")

    queries = {
        SOURCE: lambda: _StreamQuery(topic_source(cluster.url, topic, maxRowsPerBatch=str(each * PARTITIONS)), NOOP),
        PARQUET: lambda: _StreamQuery(file_source("parquet", parquet, maxFilesPerTrigger=str(PARTITIONS)), NOOP),
        OVERHEADS["text"]: lambda: _StreamQuery(
            file_source("text", few_files(directory / "few"), maxFilesPerTrigger=str(FEW)), NOOP
        ),
        OVERHEADS["source"]: lambda: _StreamQuery(from_few(), NOOP),
        OVERHEADS["many"]: lambda: _StreamQuery(
            topic_source(cluster.url, many, maxRowsPerBatch=str(MANY_PARTITIONS)), NOOP
        ),
        OVERHEADS["position"]: lambda: _StreamQuery(from_few(), to_topic("position")),
        OVERHEADS["batch"]: lambda: _StreamQuery(from_few(), to_topic("batch")),
    }

    parts: dict[str, list[str]] = {what: [] for what in queries}

    async def run(what: str) -> SparkSample:
        query = queries[what]()
        each_time = {SOURCE: settings.rows // BATCHES, PARQUET: settings.rows // BATCHES}
        rows = BATCHES * (each_time | {OVERHEADS["many"]: MANY_PARTITIONS}).get(what, FEW)
        answer = await session.request(
            "stream", source=query.source, sink=query.sink, checkpoint=str(directory / uuid.uuid4().hex)
        )
        steady = steady_batches(answer["batches"], rows)
        parts[what].append(parts_of(steady))
        took = [(count, phases["triggerExecution"]) for count, phases in steady]
        if what in {SOURCE, PARQUET}:
            return SparkSample(median([count / seconds for count, seconds in took]), answer["busy_cores"])
        return SparkSample(median([seconds for _, seconds in took]), answer["busy_cores"])

    loads = {what: partial(run, what) for what in queries}
    found = await alternate(loads, runs=settings.runs, tell=tell, what="stream", warm_up=False)
    return [
        rate_row(PARQUET, found[PARQUET], row_bytes=settings.message_bytes),
        rate_row(SOURCE, found[SOURCE], found[PARQUET], of="Parquet", row_bytes=settings.message_bytes),
        *(
            replace(
                seconds_row(row, found[row], found[OVERHEADS["text"]], of="text")
                if row != OVERHEADS["text"]
                else seconds_row(row, found[row]),
                note=parts[row][-1],
            )
            for row in OVERHEADS.values()
        ),
    ]


def steady_batches(batches: Sequence[Batch], rows: int) -> Sequence[Batch]:
    """All batches but the first. batches: (rows, {phase: seconds}) of each. Raises LabFailed if rows or batches are
    missing."""
    total = sum(count for count, _ in batches)
    if total != rows or len(batches) < 2:
        raise LabFailed(f"a stream processed {total} rows in {len(batches)} batches, expected {rows} in at least 2")
    return batches[1:]


def parts_of(batches: Sequence[Batch]) -> str:
    """What the batches spend their time on, in medians."""
    return ", ".join(
        f"{part} {median([sum(phases.get(name, 0) for name in names) for _, phases in batches]):.2f} s"
        for part, names in _PARTS.items()
    )


def few_files(directory: Path) -> str:
    """RowFiles of one line, as many as there are rows in the topic of few."""
    directory.mkdir(exist_ok=True)
    for number in range(FEW * BATCHES):
        (directory / f"{number}.txt").write_text(f"{number}\n")
    return str(directory)
