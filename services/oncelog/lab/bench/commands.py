"""`oncelog bench …`: what this machine and this cluster do, as ratios to the limits run of the same invocation.

Each command starts what it needs, the bare path's processes and a standalone cluster in a temporary directory, and ends
it. The figures belong to the machine as it is meanwhile: run them on a quiet one.
"""

from typing import TYPE_CHECKING

import typer

from oncelog.lab.bench.limits import SMALL_BATCH_BYTES, SMALL_WINDOW
from oncelog.lab.bench.options import (
    AdminUrl,
    BatchKib,
    Data,
    Freezes,
    Kills,
    LargeMessageBytes,
    MessageBytes,
    Messages,
    Output,
    Pairs,
    Producers,
    Rate,
    ReplayEntries,
    Replays,
    Restarts,
    Runs,
    Seconds,
    SmallBatchKib,
    SmallWindow,
    StorageKills,
    Url,
    Window,
)
from oncelog.lab.bench.running import Stack, run_bench
from oncelog.lab.spark_bench.command import spark

if TYPE_CHECKING:
    from oncelog.lab.bench.figures import Row
    from oncelog.lab.bench.publish import Tell
    from oncelog.lab.bench.settings import BenchSettings, TakeoverSettings

app = typer.Typer(no_args_is_help=True, help=__doc__)


@app.command()
def limits(
    message_bytes: MessageBytes = 100,
    batch_kib: BatchKib = 256,
    window: Window = 32,
    seconds: Seconds = 2.0,
    runs: Runs = 3,
    data: Data = None,
    output: Output = "table",
) -> None:
    """The bare path: the same processes and streams, and no work."""
    from oncelog.lab.bench.settings import BenchSettings, Shape

    large = Shape(batch_kib * 1024, window)
    settings = BenchSettings(runs=runs, seconds=seconds, message_bytes=message_bytes, large=large)
    run_bench(lambda stack, _: _limits(stack, settings), data, None, "", output)


@app.command()
def publish(
    message_bytes: MessageBytes = 100,
    large_message_bytes: LargeMessageBytes = 1024,
    batch_kib: BatchKib = 256,
    window: Window = 32,
    small_batch_kib: SmallBatchKib = SMALL_BATCH_BYTES // 1024,
    small_window: SmallWindow = SMALL_WINDOW,
    producers: Producers = 16,
    seconds: Seconds = 2.0,
    runs: Runs = 3,
    url: Url = None,
    data: Data = None,
    output: Output = "table",
) -> None:
    """Acknowledged messages a second: lists, single futures, larger messages, many producers."""
    from oncelog.lab.bench.settings import BenchSettings, Shape

    settings = BenchSettings(
        runs=runs,
        seconds=seconds,
        message_bytes=message_bytes,
        large_message_bytes=large_message_bytes,
        large=Shape(batch_kib * 1024, window),
        small=Shape(small_batch_kib * 1024, small_window),
        producers=producers,
    )
    run_bench(lambda stack, tell: _publish(stack, settings, tell), data, url, "", output)


@app.command()
def latency(
    rate: Rate = 200.0,
    message_bytes: MessageBytes = 100,
    seconds: Seconds = 3.0,
    runs: Runs = 3,
    url: Url = None,
    data: Data = None,
    output: Output = "table",
) -> None:
    """p50 and p99 of single messages at a fixed rate."""
    from oncelog.lab.bench.settings import BenchSettings

    settings = BenchSettings(runs=runs, message_bytes=message_bytes, latency_rate=rate, latency_seconds=seconds)
    run_bench(lambda stack, tell: _latency(stack, settings, tell), data, url, "", output)


@app.command("dedup-overhead")
def dedup_overhead(
    pairs: Pairs = 10,
    message_bytes: MessageBytes = 100,
    seconds: Seconds = 1.0,
    url: Url = None,
    admin_url: AdminUrl = "http://127.0.0.1:8080",
    data: Data = None,
    output: Output = "table",
) -> None:
    """Deduplication on against off, in pairs."""
    from oncelog.lab.bench.settings import BenchSettings

    settings = BenchSettings(pairs=pairs, message_bytes=message_bytes, pair_seconds=seconds)
    run_bench(lambda stack, tell: _dedup(stack, settings, tell), data, url, admin_url, output)


@app.command()
def consume(
    messages: Messages = 2_000_000,
    message_bytes: MessageBytes = 100,
    runs: Runs = 3,
    url: Url = None,
    data: Data = None,
    output: Output = "table",
) -> None:
    """A whole topic read from its start, by batches and by objects, against the rate of publishing it."""
    from oncelog.lab.bench.settings import BenchSettings

    settings = BenchSettings(runs=runs, message_bytes=message_bytes, consume_messages=messages)
    run_bench(lambda stack, tell: _consume(stack, settings, tell), data, url, "", output)


@app.command()
def takeover(
    kills: Kills = 20,
    freezes: Freezes = 1,
    storage_kills: StorageKills = 3,
    replays: Replays = 3,
    replay_entries: ReplayEntries = 1000,
    restarts: Restarts = 50,
    rate: Rate = 1000.0,
    message_bytes: MessageBytes = 100,
    data: Data = None,
    output: Output = "table",
) -> None:
    """Gaps between acknowledgements when owners and storage nodes die; always on a cluster of its own."""
    from oncelog.lab.bench.settings import TakeoverSettings

    settings = TakeoverSettings(
        kills=kills,
        freezes=freezes,
        storage_kills=storage_kills,
        replays=replays,
        replay_entries=replay_entries,
        restarts=restarts,
        rate=rate,
        message_bytes=message_bytes,
    )
    run_bench(lambda stack, tell: _takeover(stack, settings, tell), data, None, "", output)


@app.command("all")
def everything(
    runs: Runs = 3,
    kills: Kills = 20,
    data: Data = None,
    output: Output = "table",
) -> None:
    """Every row, in about six minutes; writes some ten gigabytes, which are gone at the end."""
    from oncelog.lab.bench.settings import BenchSettings, TakeoverSettings

    settings = BenchSettings(runs=runs)

    async def rows(stack: Stack, tell: "Tell") -> "list[Row]":
        found = await _limits(stack, settings)
        for part in (_publish, _latency, _dedup, _consume):
            found += await part(stack, settings, tell)
        return found

    async def both(stack: Stack, tell: "Tell") -> "list[Row]":
        found = await rows(stack, tell)
        await stack.end()
        return found + await _takeover(stack, TakeoverSettings(kills=kills), tell)

    run_bench(both, data, None, "", output)


app.command("spark")(spark)


async def _limits(stack: Stack, settings: "BenchSettings") -> "list[Row]":
    from oncelog.lab.bench.limits import measure_limits

    return await measure_limits(
        await stack.path(),
        batch_bytes=settings.large.batch_bytes,
        window=settings.large.window,
        message_bytes=settings.message_bytes,
        seconds=settings.seconds,
        runs=settings.runs,
    )


async def _publish(stack: Stack, settings: "BenchSettings", tell: "Tell") -> "list[Row]":
    from oncelog.lab.bench.publish import Publish

    return await Publish(await stack.cluster(), await stack.path(), settings, tell).rows()


async def _latency(stack: Stack, settings: "BenchSettings", tell: "Tell") -> "list[Row]":
    from oncelog.lab.bench.latency import latency_rows

    return await latency_rows(await stack.cluster(), await stack.path(), settings, tell)


async def _dedup(stack: Stack, settings: "BenchSettings", tell: "Tell") -> "list[Row]":
    from oncelog.lab.bench.dedup_overhead import dedup_rows

    return await dedup_rows(await stack.cluster(), settings, tell)


async def _consume(stack: Stack, settings: "BenchSettings", tell: "Tell") -> "list[Row]":
    from oncelog.lab.bench.consume import consume_rows

    return await consume_rows(await stack.cluster(), settings, tell)


async def _takeover(stack: Stack, settings: "TakeoverSettings", tell: "Tell") -> "list[Row]":
    from oncelog.lab.bench.takeover import OWNERS, takeover_rows

    return await takeover_rows(await stack.cluster(owners=OWNERS), settings, tell)
