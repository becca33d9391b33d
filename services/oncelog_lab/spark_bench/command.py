"""`oncelog bench spark`: runs loads in two Spark sessions, with one core and with two, in alternation."""

from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.cli.extras import LAB, SPARK, check_installed
from oncelog.cli.options import Output, OutputOption
from oncelog.core.errors import Fatal
from oncelog_lab.bench.options import DEFAULT_ADMIN_URL, AdminUrl, Data, MessageBytes, Runs, Url
from oncelog_lab.bench.running import BenchStack, Tell, run_bench
from oncelog_lab.running import failed
from oncelog_lab.spark_bench.settings import SparkLoad, SparkSettings

if TYPE_CHECKING:
    from oncelog_lab.bench.figures import BenchRow

Rows = Annotated[
    int, typer.Option(min=10_000, max=20_000_000, help="Rows that each run reads. Half as many are written.")
]
Only = Annotated[list[SparkLoad] | None, typer.Option("--only", help="Measure only this. May be repeated.")]


def spark(
    rows: Rows = 1_000_000,
    message_bytes: MessageBytes = 100,
    runs: Runs = 3,
    only: Only = None,
    url: Url = None,
    admin_url: AdminUrl = None,
    data: Data = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure Spark's source, sink and export against its own Parquet and text, in ten minutes or more."""
    try:
        check_installed(LAB, SPARK)
    except Fatal as error:
        raise failed(error) from error
    settings = SparkSettings(rows, message_bytes, runs, tuple(only or SparkLoad))
    run_bench(
        lambda stack, tell: spark_rows(stack, settings, data, tell), data, output, url, admin_url or DEFAULT_ADMIN_URL
    )


async def spark_rows(stack: BenchStack, settings: SparkSettings, data: Path | None, tell: Tell) -> "list[BenchRow]":
    """The rows of the chosen loads. Raises LabFailed."""
    from oncelog_lab.spark_bench.corpus import copied_files, filled_topic, printable_values
    from oncelog_lab.spark_bench.export_rows import export_rows
    from oncelog_lab.spark_bench.sessions import open_sessions
    from oncelog_lab.spark_bench.sink_rows import sink_rows
    from oncelog_lab.spark_bench.source_rows import PARTITIONS, source_rows
    from oncelog_lab.spark_bench.stream_rows import stream_rows

    async with AsyncExitStack() as opened:
        directory = Path(opened.enter_context(TemporaryDirectory(prefix="oncelog-spark-", dir=data)))
        tell("starting a cluster and two Spark sessions")
        cluster = await stack.cluster()
        client = await opened.enter_async_context(await cluster.connect())
        one, two = await opened.enter_async_context(open_sessions(("local[1]", "local[2]"), directory))
        sessions = (one, two)
        found: list[BenchRow] = []
        topics: dict[int, str] = {}
        if set(settings.loads) - {SparkLoad.SINK}:
            tell(f"publishing {settings.rows:,} messages to topics of {PARTITIONS} partitions")
            values = printable_values(settings.message_bytes)
            for partitions in PARTITIONS:
                topics[partitions] = await filled_topic(
                    cluster, client, rows=settings.rows, partitions=partitions, values=values
                )
        if {SparkLoad.SOURCE, SparkLoad.EXPORT} & set(settings.loads):
            files = await copied_files(sessions[1], cluster, topics[2], directory)
            if SparkLoad.SOURCE in settings.loads:
                found += await source_rows(cluster, client, sessions, settings, topics, files, tell)
            if SparkLoad.EXPORT in settings.loads:
                found += await export_rows(cluster, two, settings, topics[2], files, directory, tell)
        if SparkLoad.SINK in settings.loads:
            found += await sink_rows(cluster, client, sessions, settings, directory, tell)
        if SparkLoad.STREAM in settings.loads:
            found += await stream_rows(cluster, client, sessions[1], settings, topics[2], directory, tell)
        return found
