"""Streams on two cores: batches of a size in steady state, and what a micro-batch costs that has hardly a row.

Against Spark's own file source: Parquet files of as many rows, and files of one line, so many a batch. The first batch
of a query, which starts everything, does not count; so no turn is for warming up.
"""

import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from oncelog.client.client import AsyncClient
from oncelog.lab.bench.cluster import Cluster
from oncelog.lab.bench.figures import Row, median
from oncelog.lab.bench.processes import BenchFailed
from oncelog.lab.spark_bench.corpus import filled_topic, new_topic, printable_values
from oncelog.lab.spark_bench.formats import NOOP, Place, file_source, topic_sink, topic_source
from oncelog.lab.spark_bench.sessions import Session
from oncelog.lab.spark_bench.settings import SparkSettings
from oncelog.lab.spark_bench.turns import Sample, Tell, in_turns, rate_row, seconds_row

BATCHES = 5
PARTS = 2
#: Rows of a batch that is all overhead: one of each part.
FEW = 2

SOURCE, PARQUET = "stream, source, 2 parts", "stream, Parquet"
OVERHEADS = {
    "text": "micro-batch, text",
    "source": "micro-batch, source",
    "position": "micro-batch, source to sink, mode=position",
    "batch": "micro-batch, source to sink, mode=batch",
}


class _Query(NamedTuple):
    source: Place
    sink: Place


async def stream_rows(
    cluster: Cluster,
    client: AsyncClient,
    session: Session,
    settings: SparkSettings,
    topic: str,
    directory: Path,
    tell: Tell,
) -> list[Row]:
    """topic: of PARTS parts, with settings.rows messages. Raises BenchFailed."""
    each = settings.rows // BATCHES // PARTS
    parquet = str(directory / "stream.parquet")
    await session.ask(
        "copy",
        source=topic_source(cluster.url, topic, rowsPerPartition=str(each)),
        sink_format="parquet",
        path=parquet,
        columns=[],
    )
    few = await filled_topic(
        cluster, client, rows=FEW * BATCHES, parts=PARTS, values=printable_values(settings.message_bytes), entry_bytes=1
    )

    def from_few() -> Place:
        return topic_source(cluster.url, few, maxRowsPerBatch=str(FEW))

    def to_topic(mode: str) -> Place:
        return topic_sink(cluster.url, new_topic(), mode, "bench")

    queries = {
        SOURCE: lambda: _Query(topic_source(cluster.url, topic, maxRowsPerBatch=str(each * PARTS)), NOOP),
        PARQUET: lambda: _Query(file_source("parquet", parquet, maxFilesPerTrigger=str(PARTS)), NOOP),
        OVERHEADS["text"]: lambda: _Query(
            file_source("text", few_files(directory / "few"), maxFilesPerTrigger=str(FEW)), NOOP
        ),
        OVERHEADS["source"]: lambda: _Query(from_few(), NOOP),
        OVERHEADS["position"]: lambda: _Query(from_few(), to_topic("position")),
        OVERHEADS["batch"]: lambda: _Query(from_few(), to_topic("batch")),
    }

    async def run(what: str) -> Sample:
        query = queries[what]()
        rows = settings.rows // BATCHES * BATCHES if what in {SOURCE, PARQUET} else FEW * BATCHES
        told = await session.ask(
            "stream", source=query.source, sink=query.sink, checkpoint=str(directory / uuid.uuid4().hex)
        )
        steady = steady_batches(told["batches"], rows)
        if what in {SOURCE, PARQUET}:
            return Sample(median([count / seconds for count, seconds in steady]), told["busy_cores"])
        return Sample(median([seconds for _, seconds in steady]), told["busy_cores"])

    contestants = {what: partial(run, what) for what in queries}
    found = await in_turns(contestants, runs=settings.runs, tell=tell, what="stream", warm_up=False)
    return [
        rate_row(PARQUET, found[PARQUET], row_bytes=settings.message_bytes),
        rate_row(SOURCE, found[SOURCE], found[PARQUET], of="Parquet", row_bytes=settings.message_bytes),
        seconds_row(OVERHEADS["text"], found[OVERHEADS["text"]]),
        *(
            seconds_row(OVERHEADS[what], found[OVERHEADS[what]], found[OVERHEADS["text"]], of="text")
            for what in ("source", "position", "batch")
        ),
    ]


def steady_batches(batches: Sequence[tuple[int, float]], rows: int) -> Sequence[tuple[int, float]]:
    """All but the first. batches: (rows, seconds) of each. Raises BenchFailed where they lack rows, or are too few."""
    total = sum(count for count, _ in batches)
    if total != rows or len(batches) < 2:
        raise BenchFailed(
            f"a stream took {total} rows in {len(batches)} batches: {rows} in more than one were expected"
        )
    return batches[1:]


def few_files(directory: Path) -> str:
    """Files of one line, as many as there are rows in the topic of few."""
    directory.mkdir(exist_ok=True)
    for number in range(FEW * BATCHES):
        (directory / f"{number}.txt").write_text(f"{number}\n")
    return str(directory)
