"""The sink: rows that Spark holds in memory, written in two tasks, against its own Parquet writer and the plain client.

The client publishes as many messages of the same size from one process, without Spark, in the same turns. In mode batch
a row is stored on the staging topic, read back by the driver, and stored again.
"""

import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from oncelog.client.client import AsyncClient
from oncelog.lab.bench.cluster import Cluster
from oncelog.lab.bench.consume import fill
from oncelog.lab.bench.figures import Row
from oncelog.lab.spark_bench.corpus import new_topic, printable_values
from oncelog.lab.spark_bench.formats import NOOP, Place, file_sink, topic_sink
from oncelog.lab.spark_bench.sessions import Session
from oncelog.lab.spark_bench.settings import SparkSettings
from oncelog.lab.spark_bench.turns import Sample, Tell, busy_s, in_turns, rate_row

_TASKS = 2
_LIST_ROWS = 10_000
CLIENT = "publish, plain client"
MODES = ("position", "batch")


async def sink_rows(
    cluster: Cluster,
    client: AsyncClient,
    sessions: tuple[Session, Session],
    settings: SparkSettings,
    directory: Path,
    tell: Tell,
) -> list[Row]:
    """Rows a second of each mode, by one core and by two. Raises BenchFailed."""
    rows = settings.rows_written
    for session in sessions:
        await session.ask("make", rows=rows, parts=_TASKS, message_bytes=settings.message_bytes)
    contestants: dict[str, Callable[[], Awaitable[Sample]]] = {
        CLIENT: partial(_publish, client, rows, settings.message_bytes)
    }
    contestants |= {
        _name(what, session): partial(_write, session, rows, place)
        for what, place in _places(cluster, directory).items()
        for session in sessions
    }
    samples = await in_turns(contestants, runs=settings.runs, tell=tell, what="sink")
    return _shown(samples, sessions, settings.message_bytes)


def _places(cluster: Cluster, directory: Path) -> dict[str, Callable[[], Place]]:
    """Each write has a topic of its own."""

    def topic(mode: str) -> Place:
        return topic_sink(cluster.url, new_topic(), mode, "bench", jobId=uuid.uuid4().hex, adminUrl=cluster.admin_url)

    return {
        "sink, mode=position": lambda: topic("position"),
        "sink, mode=batch": lambda: topic("batch"),
        "Parquet, written": lambda: file_sink("parquet", str(directory / "written.parquet")),
        "no sink at all": lambda: NOOP,
    }


async def _write(session: Session, rows: int, place: Callable[[], Place]) -> Sample:
    return await session.rate(rows, "write", sink=place())


async def _publish(client: AsyncClient, rows: int, message_bytes: int) -> Sample:
    values = printable_values(message_bytes)
    listed = [values[index % len(values)] for index in range(_LIST_ROWS)]
    busy, began = busy_s(), time.perf_counter()
    async with await client.create_producer(new_topic(), producer_name="plain") as producer:
        rate = await fill(producer, listed, rows)
    return Sample(rate, (busy_s() - busy) / (time.perf_counter() - began))


def _shown(samples: dict[str, list[Sample]], sessions: tuple[Session, Session], size: int) -> list[Row]:
    one, two = sessions
    found = [rate_row(CLIENT, samples[CLIENT], row_bytes=size)]
    for session in sessions:
        parquet = samples[_name("Parquet, written", session)]
        found += [
            rate_row(_name("Parquet, written", session), parquet, row_bytes=size),
            rate_row(_name("no sink at all", session), samples[_name("no sink at all", session)], row_bytes=size),
        ]
        for mode in MODES:
            name = _name(f"sink, mode={mode}", session)
            found += [
                rate_row(f"{name}, to Parquet", samples[name], parquet, of="Parquet", row_bytes=size),
                rate_row(f"{name}, to the client", samples[name], samples[CLIENT], of="the client", row_bytes=size),
            ]
    for what in ("sink, mode=position", "sink, mode=batch", "Parquet, written"):
        found.append(
            rate_row(f"{what}: 2 cores to 1", samples[_name(what, two)], samples[_name(what, one)], of=one.master)
        )
    return found


def _name(what: str, session: Session) -> str:
    return f"{what}, {session.master}"
