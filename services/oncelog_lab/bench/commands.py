"""`oncelog bench …`: the throughput and latency of this machine and cluster, as ratios to the limits of the machine.

The limits are measured in the same run, by processes that move the same bytes without any work. Each command starts
these processes and a standalone cluster in a temporary directory, and ends them. The figures depend on what else the
machine does: run the benchmarks on an idle machine.
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from oncelog.cli.extras import check_installed
from oncelog.cli.options import Output, OutputOption
from oncelog.core.errors import OncelogError
from oncelog_lab.bench import options as opt
from oncelog_lab.bench.running import BenchStack, Tell, run_bench
from oncelog_lab.bench.settings import LARGE, SMALL, BenchSettings, LoadShape, TakeoverSettings, TopicsSettings
from oncelog_lab.running import failed, quiet_grpc
from oncelog_lab.spark_bench.command import spark

app = typer.Typer(no_args_is_help=True, help=__doc__)


@app.command()
def limits(
    message_bytes: opt.MessageBytes = 100,
    batch_kib: opt.BatchKib = LARGE.batch_bytes // 1024,
    window: opt.Window = LARGE.window,
    seconds: opt.Seconds = 2.0,
    runs: opt.Runs = 3,
    data: opt.Data = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure what this machine can move at most: the same processes and streams, which do nothing with the data."""
    large = LoadShape(batch_kib * 1024, window)
    settings = BenchSettings(runs=runs, seconds=seconds, message_bytes=message_bytes, large=large)
    quiet_grpc()
    from oncelog_lab.bench.limits import limits_rows

    run_bench(lambda stack, tell: limits_rows(stack, settings, tell), data, output)


@app.command()
def publish(
    message_bytes: opt.MessageBytes = 100,
    large_message_bytes: opt.LargeMessageBytes = 1024,
    batch_kib: opt.BatchKib = LARGE.batch_bytes // 1024,
    window: opt.Window = LARGE.window,
    small_batch_kib: opt.SmallBatchKib = SMALL.batch_bytes // 1024,
    small_window: opt.SmallWindow = SMALL.window,
    producers: opt.Producers = 16,
    seconds: opt.Seconds = 2.0,
    runs: opt.Runs = 3,
    url: opt.Url = None,
    data: opt.Data = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure acknowledged messages per second: lists, single futures, larger messages, many producers."""
    settings = BenchSettings(
        runs=runs,
        seconds=seconds,
        message_bytes=message_bytes,
        large_message_bytes=large_message_bytes,
        large=LoadShape(batch_kib * 1024, window),
        small=LoadShape(small_batch_kib * 1024, small_window),
        producers=producers,
    )
    quiet_grpc()
    from oncelog_lab.bench.publish import publish_rows

    run_bench(lambda stack, tell: publish_rows(stack, settings, tell), data, output, url)


@app.command()
def latency(
    rate: opt.Rate = 200.0,
    message_bytes: opt.MessageBytes = 100,
    seconds: opt.Seconds = 3.0,
    runs: opt.Runs = 3,
    url: opt.Url = None,
    data: opt.Data = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure p50 and p99 of the latency of single messages at a fixed rate."""
    settings = BenchSettings(runs=runs, message_bytes=message_bytes, latency_rate=rate, latency_seconds=seconds)
    quiet_grpc()
    from oncelog_lab.bench.latency import latency_rows

    run_bench(lambda stack, tell: latency_rows(stack, settings, tell), data, output, url)


@app.command()
def small(
    message_bytes: opt.MessageBytes = 100,
    seconds: opt.Seconds = 2.0,
    runs: opt.Runs = 3,
    url: opt.Url = None,
    data: opt.Data = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure messages that are given one by one or a few at a time: their rates and their CPU."""
    settings = BenchSettings(runs=runs, message_bytes=message_bytes, seconds=seconds, latency_seconds=seconds)
    quiet_grpc()
    from oncelog_lab.bench.small import small_rows

    run_bench(lambda stack, tell: small_rows(stack, settings, tell), data, output, url)


@app.command()
def tail(
    message_bytes: opt.MessageBytes = 100,
    rate: opt.Rate = 200.0,
    seconds: opt.Seconds = 10.0,
    runs: opt.Runs = 3,
    data: opt.Data = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure the latency of single messages under half load, while snapshots, rolls and takeovers happen."""
    settings = BenchSettings(runs=runs, message_bytes=message_bytes, latency_rate=rate, latency_seconds=seconds)
    quiet_grpc()
    from oncelog_lab.bench.tail import tail_rows

    run_bench(lambda stack, tell: tail_rows(stack, settings, tell), data, output)


@app.command()
def scale(
    message_bytes: opt.MessageBytes = 100,
    seconds: opt.Seconds = 3.0,
    runs: opt.Runs = 2,
    data: opt.Data = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure the CPU of a message with 1 to 6 owners, and with twice as many storage nodes."""
    settings = BenchSettings(runs=runs, message_bytes=message_bytes, seconds=seconds)
    quiet_grpc()
    from oncelog_lab.bench.scale import scale_rows

    run_bench(lambda stack, tell: scale_rows(stack, settings, tell), data, output)


@app.command("dedup-overhead")
def dedup_overhead(
    pairs: opt.Pairs = 10,
    message_bytes: opt.MessageBytes = 100,
    seconds: opt.Seconds = 1.0,
    url: opt.Url = None,
    admin_url: opt.AdminUrl = "http://127.0.0.1:8080",
    data: opt.Data = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare publishing with and without deduplication, in pairs of runs."""
    settings = BenchSettings(pairs=pairs, message_bytes=message_bytes, pair_seconds=seconds)
    quiet_grpc()
    from oncelog_lab.bench.dedup_overhead import dedup_rows

    run_bench(lambda stack, tell: dedup_rows(stack, settings, tell), data, output, url, admin_url)


@app.command()
def consume(
    messages: opt.Messages = 2_000_000,
    message_bytes: opt.MessageBytes = 100,
    runs: opt.Runs = 3,
    url: opt.Url = None,
    data: opt.Data = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure reading a whole topic, by batches and by objects, against the rate of publishing it."""
    settings = BenchSettings(runs=runs, message_bytes=message_bytes, consume_messages=messages)
    quiet_grpc()
    from oncelog_lab.bench.consume import consume_rows

    run_bench(lambda stack, tell: consume_rows(stack, settings, tell), data, output, url)


@app.command()
def subscribe(
    messages: opt.Messages = 1_000_000,
    message_bytes: opt.MessageBytes = 100,
    runs: opt.Runs = 3,
    url: opt.Url = None,
    data: opt.Data = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure an exclusive consumer that acknowledges each batch, against reading the same topic."""
    settings = BenchSettings(runs=runs, message_bytes=message_bytes, consume_messages=messages)
    quiet_grpc()
    from oncelog_lab.bench.subscribe import subscribe_rows

    run_bench(lambda stack, tell: subscribe_rows(stack, settings, tell), data, output, url)


@app.command()
def ack(
    messages: opt.Messages = 500_000,
    message_bytes: opt.MessageBytes = 100,
    rate: opt.Rate = 200.0,
    seconds: opt.Seconds = 2.0,
    runs: opt.Runs = 3,
    url: opt.Url = None,
    data: opt.Data = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure durable acknowledgements: of four consumers that share a subscription, and of one message."""
    settings = BenchSettings(
        runs=runs, message_bytes=message_bytes, consume_messages=messages, latency_rate=rate, seconds=seconds,
        latency_seconds=seconds,
    )  # fmt: skip
    quiet_grpc()
    from oncelog_lab.bench.subscribe import ack_rows

    run_bench(lambda stack, tell: ack_rows(stack, settings, tell), data, output, url)


@app.command("end-to-end")
def end_to_end(
    rate: opt.Rate = 200.0,
    message_bytes: opt.MessageBytes = 100,
    seconds: opt.Seconds = 3.0,
    runs: opt.Runs = 3,
    url: opt.Url = None,
    data: opt.Data = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure the time from sending a message until its consumer has it, against the latency of publishing."""
    settings = BenchSettings(runs=runs, message_bytes=message_bytes, latency_rate=rate, latency_seconds=seconds)
    quiet_grpc()
    from oncelog_lab.bench.subscribe import end_to_end_rows

    run_bench(lambda stack, tell: end_to_end_rows(stack, settings, tell), data, output, url)


@app.command()
def takeover(
    kills: opt.Kills = 20,
    freezes: opt.Freezes = 1,
    storage_kills: opt.StorageKills = 3,
    replays: opt.Replays = 3,
    replay_entries: opt.ReplayEntries = 1000,
    restarts: opt.Restarts = 50,
    rate: opt.Rate = 1000.0,
    message_bytes: opt.MessageBytes = 100,
    data: opt.Data = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure the pauses of acknowledgements when owners and storage nodes die, on a standalone cluster."""
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
    quiet_grpc()
    from oncelog_lab.bench.takeover import takeover_rows

    run_bench(lambda stack, tell: takeover_rows(stack, settings, tell), data, output)


@app.command()
def topics(
    count: opt.Topics = 500,
    idle_seconds: opt.Seconds = 20.0,
    data: opt.Data = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure many topics: creating them, what idle ones cost, and all of them after an owner's death."""
    quiet_grpc()
    from oncelog_lab.bench.topics import topics_rows

    settings = TopicsSettings(count, idle_seconds)
    run_bench(lambda stack, tell: topics_rows(stack, settings, tell), data, output)


@app.command()
def producers(
    count: opt.ProducerCount = 10_000,
    data: opt.Data = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure many producers of one topic: their memory, a takeover with all of them, and snapshots of them."""
    quiet_grpc()
    from oncelog_lab.bench.producers import producers_rows

    run_bench(lambda stack, tell: producers_rows(stack, count, tell), data, output)


@app.command()
def plot(
    files: Annotated[list[Path], typer.Argument(help="Output of `oncelog bench topics` and `producers` with -o json.")],
    picture: Annotated[Path, typer.Option(help="The picture to write, an SVG.")] = Path("cost.svg"),
    output: OutputOption = Output.TABLE,
) -> None:
    """Draw what topics and producers cost against their number, from several runs of `topics` and `producers`.

    oncelog bench topics --topics 100 -o json > 100.json

    oncelog bench topics --topics 1000 -o json > 1000.json

    oncelog bench plot 100.json 1000.json --picture cost.svg
    """
    try:
        check_installed("pipeline")
        from oncelog_lab.bench.plot import plot as draw

        curves = draw(files, picture)
    except OncelogError as error:
        raise failed(error) from error
    if output is Output.JSON:
        print(json.dumps({"picture": str(picture), "curves": [curve._asdict() for curve in curves]}))
    else:
        print(f"{picture}: {len(curves)} curves")


@app.command("all")
def everything(
    runs: opt.Runs = 3,
    kills: opt.Kills = 20,
    data: opt.Data = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure everything but Spark, in about six minutes. Writes about 10 GB, which are deleted at the end."""
    quiet_grpc()
    from oncelog_lab.bench.consume import consume_rows
    from oncelog_lab.bench.dedup_overhead import dedup_rows
    from oncelog_lab.bench.figures import BenchRow
    from oncelog_lab.bench.latency import latency_rows
    from oncelog_lab.bench.limits import limits_rows
    from oncelog_lab.bench.publish import publish_rows
    from oncelog_lab.bench.takeover import takeover_rows

    settings = BenchSettings(runs=runs)

    async def all_rows(stack: BenchStack, tell: Tell) -> list[BenchRow]:
        found: list[BenchRow] = []
        for rows in (limits_rows, publish_rows, latency_rows, dedup_rows, consume_rows):
            found += await rows(stack, settings, tell)
        await stack.end()  # the takeovers need a cluster with two owners
        return found + await takeover_rows(stack, TakeoverSettings(kills=kills), tell)

    run_bench(all_rows, data, output)


app.command("spark")(spark)
