"""The sink: rows in Spark's memory are written in two tasks, against its own Parquet writer and the SDK alone.

The SDK publishes as many messages of the same size from one process without Spark, in the same rounds. In mode batch a
row is stored in the staging topic, read back by the driver, and stored again.
"""

import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from oncelog.client.client import AsyncClient
from oncelog_lab.bench.consume import fill
from oncelog_lab.bench.figures import BenchRow
from oncelog_lab.bench.running import Tell
from oncelog_lab.cluster import LabCluster
from oncelog_lab.spark_bench.alternation import SparkSample, alternate, busy_s, rate_row
from oncelog_lab.spark_bench.corpus import new_topic, printable_values
from oncelog_lab.spark_bench.formats import NOOP, Dataset, file_sink, topic_sink
from oncelog_lab.spark_bench.sessions import BenchSession
from oncelog_lab.spark_bench.settings import SparkSettings

_TASKS = 2
_LIST_ROWS = 10_000
CLIENT = "publish, plain client"
MODES = ("position", "batch")


async def sink_rows(
    cluster: LabCluster,
    client: AsyncClient,
    sessions: tuple[BenchSession, BenchSession],
    settings: SparkSettings,
    directory: Path,
    tell: Tell,
) -> list[BenchRow]:
    """Rows per second of each mode, with one core and with two. Raises LabFailed."""
    rows = settings.rows_written
    for session in sessions:
        await session.request("make", rows=rows, tasks=_TASKS, message_bytes=settings.message_bytes)
    loads: dict[str, Callable[[], Awaitable[SparkSample]]] = {
        CLIENT: partial(_publish, client, rows, settings.message_bytes)
    }
    loads |= {
        session.named(what): partial(_write, session, rows, place)
        for what, place in _places(cluster, directory).items()
        for session in sessions
    }
    samples = await alternate(loads, runs=settings.runs, tell=tell, what="sink")
    return _shown(samples, sessions, settings.message_bytes)


def _places(cluster: LabCluster, directory: Path) -> dict[str, Callable[[], Dataset]]:
    """Each write uses a new topic."""

    def topic(mode: str) -> Dataset:
        return topic_sink(cluster.url, new_topic(), mode, "bench", jobId=uuid.uuid4().hex, adminUrl=cluster.admin_url)

    return {
        "sink, mode=position": lambda: topic("position"),
        "sink, mode=batch": lambda: topic("batch"),
        "Parquet, written": lambda: file_sink("parquet", str(directory / "written.parquet")),
        "no sink at all": lambda: NOOP,
    }


async def _write(session: BenchSession, rows: int, place: Callable[[], Dataset]) -> SparkSample:
    return await session.rate(rows, "write", sink=place())


async def _publish(client: AsyncClient, rows: int, message_bytes: int) -> SparkSample:
    values = printable_values(message_bytes)
    listed = [values[index % len(values)] for index in range(_LIST_ROWS)]
    busy, began = busy_s(), time.perf_counter()
    async with await client.create_producer(new_topic(), producer_name="plain") as producer:
        rate = await fill(producer, listed, rows)
    return SparkSample(rate, (busy_s() - busy) / (time.perf_counter() - began))


def _shown(
    samples: dict[str, list[SparkSample]], sessions: tuple[BenchSession, BenchSession], size: int
) -> list[BenchRow]:
    one, two = sessions
    found = [rate_row(CLIENT, samples[CLIENT], row_bytes=size)]
    for session in sessions:
        parquet = samples[session.named("Parquet, written")]
        found += [
            rate_row(session.named("Parquet, written"), parquet, row_bytes=size),
            rate_row(session.named("no sink at all"), samples[session.named("no sink at all")], row_bytes=size),
        ]
        for mode in MODES:
            name = session.named(f"sink, mode={mode}")
            found += [
                rate_row(f"{name}, to Parquet", samples[name], parquet, of="Parquet", row_bytes=size),
                rate_row(f"{name}, to the client", samples[name], samples[CLIENT], of="the client", row_bytes=size),
            ]
    for what in ("sink, mode=position", "sink, mode=batch", "Parquet, written"):
        found.append(
            rate_row(f"{what}: 2 cores to 1", samples[two.named(what)], samples[one.named(what)], of=one.master)
        )
    return found
