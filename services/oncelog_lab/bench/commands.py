"""`oncelog bench …`: the throughput and latency of this machine and cluster, as ratios to the limits of the machine.

The limits are measured in the same run, by processes that move the same bytes without any work. Each command starts
these processes and a standalone cluster in a temporary directory, and ends them. The figures depend on what else the
machine does: run the benchmarks on an idle machine.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncelog.cli.extras import EFFECTS_SQL, SPARK, check_installed
from oncelog.cli.options import Output, OutputOption
from oncelog.cli.parameters import option_parameter, parameters_of, sign
from oncelog.core.errors import OncelogError
from oncelog_lab.bench import options as opt
from oncelog_lab.bench.running import BenchStack, Tell, run_bench
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.running import failed, quiet_grpc
from oncelog_lab.spark_bench.command import spark

if TYPE_CHECKING:
    from oncelog_lab.bench.figures import BenchRow

app = typer.Typer(no_args_is_help=True, help=__doc__)


@dataclass(frozen=True, slots=True)
class _Benchmark:
    """options: fields of the settings, in the order of the help. defaults:
    where they differ from the settings'. given: what names a running cluster to measure; (): it starts its own. needs:
    parts besides the lab (`oncelog.cli.extras`)."""

    about: str
    options: tuple[str, ...]
    defaults: dict[str, Any] = field(default_factory=dict)
    given: tuple[str, ...] = ("url",)
    needs: tuple[str, ...] = ()


async def _measure(name: str, stack: BenchStack, tell: Tell, **settings: Any) -> "list[BenchRow]":
    from oncelog_lab.bench.measurements import MEASUREMENTS

    measurements = dict(MEASUREMENTS)
    if name not in measurements:
        from oncelog_lab.bench.effects.measurements import EFFECTS_MEASUREMENTS

        measurements |= EFFECTS_MEASUREMENTS
    return await measurements[name](stack, BenchSettings(**(_BENCHMARKS[name].defaults | settings)), tell)


#: {command: the benchmark}
_BENCHMARKS = {
    "limits": _Benchmark(
        "Measure what this machine can move at most: the same processes and streams, which do nothing with the data.",
        ("message_bytes", "batch_kib", "window", "seconds", "runs"),
        given=(),
    ),
    "publish": _Benchmark(
        "Measure acknowledged messages per second: lists, single futures, larger messages, many producers.",
        (
            "message_bytes", "large_message_bytes", "batch_kib", "window", "small_batch_kib", "small_window",
            "producers", "seconds", "runs",
        ),
    ),
    "latency": _Benchmark(
        "Measure p50 and p99 of the latency of single messages at a fixed rate.",
        ("rate", "message_bytes", "latency_seconds", "runs"),
    ),
    "small": _Benchmark(
        "Measure messages that are given one by one or a few at a time: their rates and their CPU.",
        ("message_bytes", "seconds", "runs"),
    ),
    "tail": _Benchmark(
        "Measure the latency of single messages under half load, while snapshots, rolls and takeovers happen.",
        ("message_bytes", "rate", "latency_seconds", "runs"),
        {"latency_seconds": 10.0},
        given=(),
    ),
    "scale": _Benchmark(
        "Measure the CPU of a message with 1 to 6 owners, and with twice as many storage nodes.",
        ("message_bytes", "seconds", "runs"),
        {"seconds": 3.0, "runs": 2},
        given=(),
    ),
    "dedup-overhead": _Benchmark(
        "Compare publishing with and without deduplication, in pairs of runs.",
        ("pairs", "message_bytes", "pair_seconds"),
        {"pair_seconds": 1.0},
        given=("url", "admin_url"),
    ),
    "consume": _Benchmark(
        "Measure reading a whole topic, by batches and by objects, against the rate of publishing it.",
        ("messages", "message_bytes", "runs"),
    ),
    "subscribe": _Benchmark(
        "Measure an exclusive consumer that acknowledges each batch, against reading the same topic.",
        ("messages", "message_bytes", "runs"),
        {"messages": 1_000_000},
    ),
    "ack": _Benchmark(
        "Measure durable acknowledgements: of four consumers that share a subscription, and of one message.",
        ("messages", "message_bytes", "rate", "seconds", "runs"),
        {"messages": 500_000},
    ),
    "end-to-end": _Benchmark(
        "Measure the time from sending a message until its consumer has it, against the latency of publishing.",
        ("rate", "message_bytes", "latency_seconds", "runs"),
    ),
    "effects": _Benchmark(
        "Measure effects in a database, in Redis and in a topic, against the same writes without a mark.",
        ("messages", "message_bytes", "database", "runs"),
        {"messages": 100_000, "runs": 5},
        needs=(EFFECTS_SQL,),
    ),
    "relay": _Benchmark(
        "Measure the outbox relay: its rate against DELETE … RETURNING and send_many, and its latency.",
        ("messages", "message_bytes", "database", "latency_seconds", "runs"),
        {"messages": 20_000, "message_bytes": 200, "latency_seconds": 5.0, "runs": 5},
        needs=(EFFECTS_SQL,),
    ),
    "mirror": _Benchmark(
        "Measure the copy of a topic into a second cluster, against read_batch and send_many.",
        ("messages", "message_bytes", "runs"),
        {"messages": 50_000, "message_bytes": 1024, "runs": 5},
        needs=(EFFECTS_SQL,),
    ),
    "takeover": _Benchmark(
        "Measure the pauses of acknowledgements when owners and storage nodes die, on a standalone cluster.",
        (
            "kills", "freezes", "storage_kills", "replays", "replay_entries", "restarts", "rate", "message_bytes",
        ),
        {"rate": 1000.0},
        given=(),
    ),
    "topics": _Benchmark(
        "Measure many topics: creating them, what idle ones cost, and all of them after an owner's death.",
        ("topics", "idle_seconds"),
        given=(),
    ),
    "producers": _Benchmark(
        "Measure many producers of one topic: their memory, a takeover with all of them, and snapshots of them.",
        ("producer_count",),
        given=(),
    ),
}  # fmt: skip
#: Those of `bench all`. The takeovers come last: they need a cluster with two owners.
_ALL = ("limits", "publish", "latency", "dedup-overhead", "consume", "takeover")
_SETTINGS = parameters_of(BenchSettings)
_PLACE = {
    "url": option_parameter("url", opt.Url, None),
    "admin_url": option_parameter("admin_url", opt.AdminUrl, "http://127.0.0.1:8080"),
    "data": option_parameter("data", opt.Data, None),
    "output": option_parameter("output", OutputOption, Output.TABLE),
}


def _add(name: str, benchmark: _Benchmark) -> None:
    known = {each.name: each.replace(default=benchmark.defaults.get(each.name, each.default)) for each in _SETTINGS}

    def command(data: Path | None, output: Output, url: str | None = None, admin_url: str = "", **own: object) -> None:
        quiet_grpc()
        try:
            check_installed(*benchmark.needs)
        except OncelogError as error:
            raise failed(error) from error
        run_bench(lambda stack, tell: _measure(name, stack, tell, **own), data, output, url, admin_url)

    command.__doc__ = benchmark.about
    options = [known[each] for each in benchmark.options]
    sign(command, options + [_PLACE[each] for each in (*benchmark.given, "data", "output")])
    app.command(name)(command)


for _name, _benchmark in _BENCHMARKS.items():
    _add(_name, _benchmark)


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
        check_installed(SPARK)
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

    async def all_rows(stack: BenchStack, tell: Tell) -> "list[BenchRow]":
        found: list[BenchRow] = []
        for name in _ALL:
            if name == _ALL[-1]:
                await stack.end()
            found += await _measure(name, stack, tell, runs=runs, kills=kills, pair_seconds=2.0)
        return found

    run_bench(all_rows, data, output)


app.command("spark")(spark)
