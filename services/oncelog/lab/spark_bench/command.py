"""`oncelog bench spark`: starts a cluster and two Spark sessions, of one core and of two, and lets them take turns."""

from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.lab.bench.options import AdminUrl, Data, MessageBytes, Output, Runs, Url
from oncelog.lab.bench.running import Stack, run_bench
from oncelog.lab.spark_bench.settings import Part, SparkSettings

if TYPE_CHECKING:
    from oncelog.lab.bench.figures import Row
    from oncelog.lab.bench.publish import Tell

Rows = Annotated[int, typer.Option(min=10_000, max=20_000_000, help="Rows read by each run; half as many are written.")]
Only = Annotated[list[Part] | None, typer.Option("--only", help="Measure this alone; may be given twice.")]


def spark(
    rows: Rows = 1_000_000,
    message_bytes: MessageBytes = 100,
    runs: Runs = 3,
    only: Only = None,
    url: Url = None,
    admin_url: AdminUrl = "http://127.0.0.1:8080",
    data: Data = None,
    output: Output = "table",
) -> None:
    """Spark's source and sink against its own Parquet and text, with one core and with two, in ten minutes or more."""
    settings = SparkSettings(rows, message_bytes, runs, tuple(only or Part))
    run_bench(lambda stack, tell: spark_rows(stack, settings, data, tell), data, url, admin_url, output)


async def spark_rows(stack: Stack, settings: SparkSettings, data: Path | None, tell: "Tell") -> "list[Row]":
    """All rows that were asked for. Raises BenchFailed."""
    from oncelog.lab.spark_bench.corpus import copied_files, filled_topic, printable_values
    from oncelog.lab.spark_bench.sessions import open_sessions
    from oncelog.lab.spark_bench.sink_rows import sink_rows
    from oncelog.lab.spark_bench.source_rows import PARTS, source_rows
    from oncelog.lab.spark_bench.stream_rows import stream_rows

    async with AsyncExitStack() as opened:
        directory = Path(opened.enter_context(TemporaryDirectory(prefix="oncelog-spark-", dir=data)))
        tell("starting a cluster and two Spark sessions")
        cluster = await stack.cluster()
        client = await opened.enter_async_context(await cluster.connect())
        one, two = await opened.enter_async_context(open_sessions(("local[1]", "local[2]"), directory))
        sessions = (one, two)
        found: list[Row] = []
        topics: dict[int, str] = {}
        if {Part.SOURCE, Part.STREAM} & set(settings.parts):
            tell(f"publishing {settings.rows:,} messages to topics of {PARTS} parts")
            values = printable_values(settings.message_bytes)
            for parts in PARTS:
                topics[parts] = await filled_topic(cluster, client, rows=settings.rows, parts=parts, values=values)
        if Part.SOURCE in settings.parts:
            files = await copied_files(sessions[1], cluster, topics[2], directory)
            found += await source_rows(cluster, client, sessions, settings, topics, files, tell)
        if Part.SINK in settings.parts:
            found += await sink_rows(cluster, client, sessions, settings, directory, tell)
        if Part.STREAM in settings.parts:
            found += await stream_rows(cluster, client, sessions[1], settings, topics[2], directory, tell)
        return found
