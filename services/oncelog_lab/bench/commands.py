"""`oncelog bench …`: the throughput and latency of this machine and cluster, as ratios to the limits of the machine.

The limits are measured in the same run, by processes that move the same bytes without any work. Each command starts
these processes and a standalone cluster in a temporary directory, and ends them. The figures depend on the load of the
machine: run the benchmarks on an idle machine.
"""

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from oncelog.cli.default_command import RunByDefault
from oncelog.cli.extras import DOORS, EFFECTS_SQL, SPARK, check_installed
from oncelog.cli.options import Output, OutputOption
from oncelog.cli.parameters import option_parameter, parameters_of, sign
from oncelog.core.errors import OncelogError
from oncelog_lab.bench import options as opt
from oncelog_lab.bench.running import BenchStack, Tell, run_bench
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.peer_bench.command import peers
from oncelog_lab.running import failed, quiet_grpc
from oncelog_lab.spark_bench.command import spark

if TYPE_CHECKING:
    from oncelog_lab.bench.figures import BenchRow


@dataclass(frozen=True, slots=True)
class _Benchmark:
    """options: fields of the settings that it reads. Fields of one meaning, such as `latency_seconds`, share an option.
    defaults: where they differ from the settings'. given: what names a running cluster; (): it starts its own. needs:
    parts besides the lab (`oncelog.cli.extras`)."""

    about: str
    options: tuple[str, ...]
    defaults: dict[str, Any] = field(default_factory=dict)
    given: tuple[str, ...] = ("url",)
    needs: tuple[str, ...] = ()


async def _measure(name: str, stack: BenchStack, tell: Tell, **settings: Any) -> "list[BenchRow]":
    from oncelog_lab.bench.measurements import MEASUREMENTS

    measurements = dict(MEASUREMENTS)
    if name == _DOOR:
        from oncelog_lab.bench.door.door import door_rows

        measurements[name] = door_rows
    elif name not in measurements:
        from oncelog_lab.bench.effects.measurements import EFFECTS_MEASUREMENTS

        measurements |= EFFECTS_MEASUREMENTS
    return await measurements[name](stack, BenchSettings(**(_BENCHMARKS[name].defaults | settings)), tell)


#: Needs the doors, which are a distribution of their own.
_DOOR = "door"
#: {measurement: the benchmark}
_BENCHMARKS = {
    "limits": _Benchmark(
        "what this machine can move at most; our share of it",
        ("message_bytes", "batch_kib", "window", "seconds", "runs", "large_message_bytes"),
        given=(),
    ),
    "publish": _Benchmark(
        "acknowledged messages a second, in four loads",
        (
            "message_bytes", "large_message_bytes", "batch_kib", "window", "small_batch_kib", "small_window",
            "producers", "seconds", "runs", "return_memory",
        ),
    ),
    "latency": _Benchmark(
        "p50 and p99 of single messages at a fixed rate",
        ("rate", "message_bytes", "latency_seconds", "runs"),
    ),
    "small": _Benchmark(
        "messages given one by one or a few at a time; their CPU",
        ("message_bytes", "seconds", "runs", "return_memory"),
    ),
    "tail": _Benchmark(
        "latency during snapshots, rolls and takeovers",
        ("message_bytes", "rate", "latency_seconds", "runs"),
        {"latency_seconds": 10.0},
        given=(),
    ),
    "scale": _Benchmark(
        "CPU of a message with 1 to 6 owners, and more nodes",
        ("message_bytes", "seconds", "runs"),
        {"seconds": 3.0, "runs": 2},
        given=(),
    ),
    "dedup-overhead": _Benchmark(
        "publishing with and without deduplication, in pairs",
        ("pairs", "message_bytes", "pair_seconds"),
        {"pair_seconds": 1.0},
        given=("url", "admin_url"),
    ),
    "consume": _Benchmark(
        "reading a whole topic, by batches and by objects",
        ("messages", "message_bytes", "runs", "return_memory"),
    ),
    "subscribe": _Benchmark(
        "a consumer that acknowledges, against reading",
        ("messages", "message_bytes", "runs"),
        {"messages": 1_000_000},
    ),
    "ack": _Benchmark(
        "durable acknowledgements: of four consumers, and of one",
        ("messages", "message_bytes", "rate", "seconds", "runs"),
        {"messages": 500_000},
    ),
    "end-to-end": _Benchmark(
        "from sending a message until its consumer has it",
        ("rate", "message_bytes", "latency_seconds", "runs"),
    ),
    _DOOR: _Benchmark(
        "clients of Pulsar and Kafka before a door, against the SDK",
        ("messages", "message_bytes", "large_message_bytes", "seconds", "idle_seconds", "runs"),
        {"messages": 1_000_000},
        given=(),
        needs=(DOORS,),
    ),
    "effects": _Benchmark(
        "effects in a database, in Redis and in a topic",
        ("messages", "message_bytes", "database", "runs"),
        {"messages": 100_000, "runs": 5},
        needs=(EFFECTS_SQL,),
    ),
    "relay": _Benchmark(
        "the outbox relay against DELETE … RETURNING",
        ("messages", "message_bytes", "database", "latency_seconds", "runs"),
        {"messages": 20_000, "message_bytes": 200, "latency_seconds": 5.0, "runs": 5},
        needs=(EFFECTS_SQL,),
    ),
    "mirror": _Benchmark(
        "the copy of a topic into a second cluster",
        ("messages", "message_bytes", "runs"),
        {"messages": 50_000, "message_bytes": 1024, "runs": 5},
        needs=(EFFECTS_SQL,),
    ),
    "takeover": _Benchmark(
        "pauses when owners and storage nodes die",
        (
            "kills", "freezes", "storage_kills", "replays", "replay_entries", "restarts", "rate", "message_bytes",
        ),
        {"rate": 1000.0},
        given=(),
    ),
    "topics": _Benchmark(
        "creating many topics, idle ones, all after a death",
        ("topics", "idle_seconds"),
        given=(),
    ),
    "producers": _Benchmark(
        "many producers of one topic: memory, takeover, snapshots",
        ("producer_count",),
        given=(),
    ),
}  # fmt: skip
_ALL = "all"
#: Those of `all`. The takeovers come last: they need a cluster with two owners.
_PARTS_OF_ALL = ("limits", "publish", "latency", "dedup-overhead", "consume", "takeover")
_BENCHMARKS[_ALL] = _Benchmark(
    "all but Spark and peers, in seven minutes; writes 10 GB",
    ("runs", "kills"),
    {"pair_seconds": 2.0},
    given=(),
)
_HELP = f"""{__doc__}

    oncelog bench all

    oncelog bench takeover --kills 50 -o json

The default command is `run`: `oncelog bench run --help` shows its options. The measurements:

\b
{chr(10).join(f"  {name:<15} {each.about}" for name, each in _BENCHMARKS.items())}"""
_RUN_HELP = """Measure, and print each figure with the limit of this machine that the same run has measured.

`oncelog bench --help` lists the measurements. A measurement takes some of the options, and says which."""

app = typer.Typer(cls=RunByDefault, no_args_is_help=True, help=_HELP)


class _Setting:
    """A field of the settings as typer reads it."""

    def __init__(self, parameter: inspect.Parameter) -> None:
        kind, option = get_args(parameter.annotation)
        self.kind: type = kind
        self.option: typer.models.OptionInfo = option
        self.default: object = parameter.default
        # In Annotated, what looks like the default is the first name.
        named = isinstance(option.default, str) and option.default.startswith("--")
        #: as it is typed
        self.flag: str = option.default if named else f"--{parameter.name.replace('_', '-')}"

    def check(self, value: Any) -> None:
        """Fields that share an option have limits of their own. Raises BadParameter."""
        lowest, highest = self.option.min, self.option.max
        if (lowest is not None and value < lowest) or (highest is not None and value > highest):
            raise typer.BadParameter(f"{value} is not in {lowest:g} to {highest:g}", param_hint=self.flag)


_SETTINGS = {each.name: _Setting(each) for each in parameters_of(BenchSettings)}


def _variable(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def run(
    measurement: str, data: Path | None, output: Output, url: str | None, admin_url: str | None, **typed: object
) -> None:
    """typed: {variable of an option: value}; None: not given."""
    benchmark = _BENCHMARKS.get(measurement)
    if benchmark is None:
        raise typer.BadParameter(f"{measurement!r} is none of {', '.join(_BENCHMARKS)}", param_hint="MEASUREMENT")
    for flag, place in (("--url", url), ("--admin-url", admin_url)):
        if place is not None and _variable(flag) not in benchmark.given:
            raise typer.BadParameter(f"{measurement} does not take it", param_hint=flag)
    settings = _settings_of(measurement, benchmark, typed)
    quiet_grpc()
    try:
        check_installed(*benchmark.needs)
    except OncelogError as error:
        raise failed(error) from error
    work = _everything if measurement == _ALL else _measure
    place_of_rest = admin_url or opt.DEFAULT_ADMIN_URL
    run_bench(
        lambda stack, tell: work(measurement, stack, tell, **settings), data, output, url, place_of_rest,
        keep_memory=not settings.get("return_memory"),
    )  # fmt: skip


def _settings_of(measurement: str, benchmark: _Benchmark, typed: Mapping[str, object]) -> dict[str, Any]:
    """{field: value} of what was given. Raises BadParameter."""
    own = {_variable(_SETTINGS[name].flag): name for name in benchmark.options}
    settings: dict[str, Any] = {}
    for variable, value in typed.items():
        if value is None:
            continue
        if variable not in own:
            known = ", ".join(_SETTINGS[name].flag for name in benchmark.options)
            raise typer.BadParameter(f"{measurement} does not take --{variable.replace('_', '-')}; it takes {known}")
        _SETTINGS[own[variable]].check(value)
        settings[own[variable]] = value
    return settings


async def _everything(_: str, stack: BenchStack, tell: Tell, **settings: Any) -> "list[BenchRow]":
    found: list[BenchRow] = []
    for name in _PARTS_OF_ALL:
        if name == _PARTS_OF_ALL[-1]:
            await stack.end()
        found += await _measure(name, stack, tell, **_BENCHMARKS[_ALL].defaults | settings)
    return found


def _run_parameters() -> list[inspect.Parameter]:
    """The options of all measurements; with its default, if it is the same in each."""
    uses: dict[str, list[str]] = {}
    defaults: dict[str, set[object]] = {}
    for benchmark in _BENCHMARKS.values():
        for name in benchmark.options:
            flag = _SETTINGS[name].flag
            uses.setdefault(flag, []).append(name)
            defaults.setdefault(flag, set()).add(benchmark.defaults.get(name, _SETTINGS[name].default))
    options = [
        option_parameter(_variable(flag), _annotation(_SETTINGS[names[0]], defaults[flag]), None)
        for flag, names in uses.items()
    ]
    place = (
        option_parameter("data", opt.Data, None),
        option_parameter("output", OutputOption, Output.TABLE),
        option_parameter("url", opt.Url, None),
        option_parameter("admin_url", opt.AdminUrl, None),
    )
    return [option_parameter("measurement", _MEASUREMENT), *options, *place]


def _annotation(setting: _Setting, defaults: set[object]) -> object:
    """Of an option that need not be given."""
    (default,) = defaults if len(defaults) == 1 else ("",)
    told = f" [default: {default}]" if default else ""
    option = typer.Option(setting.flag, metavar=setting.option.metavar, help=f"{setting.option.help}{told}")
    return Annotated[setting.kind | None, option]


def _completed(typed: str) -> list[str]:
    return [name for name in _BENCHMARKS if name.startswith(typed)]


_MEASUREMENT = Annotated[
    str,
    typer.Argument(
        metavar="MEASUREMENT",
        help="A measurement that `oncelog bench --help` lists.",
        autocompletion=_completed,
    ),
]
run.__doc__ = _RUN_HELP
sign(run, _run_parameters())
app.command("run")(run)


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


app.command("spark")(spark)
app.command("peers")(peers)
