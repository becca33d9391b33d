"""`oncelog chaos …`: strike a cluster that carries a load, on a schedule that a seed repeats, and check everything.

In Kubernetes it works with kubectl on its current context: pods of the release are killed and paused, and the load runs
in a pod beside them. With --standalone it starts a cluster of processes on this machine instead. It exits with 1 when
anything was lost, doubled or reordered, or when a planned fault never struck.
"""

import asyncio
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from oncelog.lab.chaos.schedule import BEGIN_QUIET_S, Kind

app = typer.Typer(no_args_is_help=True, help=__doc__)

Seed = Annotated[int, typer.Option(help="The same seed and options repeat the schedule.")]
Seconds = Annotated[float, typer.Option(min=1, max=86_400, help="About how long to strike.")]
Kinds = Annotated[
    str | None,
    typer.Option(help=f"Comma list of: {', '.join(Kind)}. By default all that are possible, without the last."),
]
Output = Annotated[str, typer.Option("-o", "--output", help="table or json.")]
Namespace = Annotated[str, typer.Option(help="The release's namespace in Kubernetes.")]
Release = Annotated[str, typer.Option(help="The release's name.")]
Standalone = Annotated[bool, typer.Option("--standalone", help="Start a cluster of processes here, and strike that.")]


def _command_line(text: str | None) -> str | None:
    """Refuse at the edge what could not be run when its turn comes, in the middle of a run."""
    try:
        if text is not None and not shlex.split(text):
            raise typer.BadParameter("it is empty: give a command line")
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no command line: {error}") from error
    return text


_NODE_HELP = "Command that {} a node; {{node}} is its name."
NodeCut = Annotated[str | None, typer.Option(help=_NODE_HELP.format("cuts off the network of"), callback=_command_line)]
NodeMend = Annotated[
    str | None, typer.Option(help=_NODE_HELP.format("puts back on the network"), callback=_command_line)
]
NodeKill = Annotated[str | None, typer.Option(help=_NODE_HELP.format("cuts the power of"), callback=_command_line)]
NodeStart = Annotated[str | None, typer.Option(help=_NODE_HELP.format("starts again"), callback=_command_line)]

T = TypeVar("T")


@app.command()
def plan(
    seed: Seed = 1,
    seconds: Seconds = 1200.0,
    kinds: Kinds = None,
    owners: Annotated[int, typer.Option(min=0, help="Topic owners of the cluster.")] = 3,
    storage_nodes: Annotated[int, typer.Option(min=0, help="Storage nodes.")] = 3,
    metadata: Annotated[int, typer.Option(min=0, help="Metadata services.")] = 2,
    zookeeper: Annotated[int, typer.Option(min=0, help="ZooKeeper members of the release.")] = 3,
    redis: Annotated[int, typer.Option(min=0, max=1, help="Whether the release has a Redis.")] = 1,
    output: Output = "table",
) -> None:
    """Print the schedule of a seed for a cluster of this size; strikes nothing."""
    from oncelog.core.errors import OncelogError
    from oncelog.lab.chaos.report import schedule_json, show_schedule
    from oncelog.lab.chaos.schedule import Part
    from oncelog.lab.chaos.session import RunSettings, steps_of

    _check_output(output)
    sizes = (owners, storage_nodes, metadata, zookeeper, redis)
    parts = (Part.OWNER, Part.STORAGE, Part.METADATA, Part.ZOOKEEPER, Part.REDIS)
    settings = RunSettings(seed, seconds, _parse_kinds(kinds))
    try:
        steps = steps_of(settings, dict(zip(parts, sizes, strict=True)), {})
    except OncelogError as error:
        raise _failed(error) from error
    if output == "json":
        print(json.dumps(schedule_json(seed, steps)))
    else:
        show_schedule(steps, Console(highlight=False))


@app.command()
def run(
    seed: Seed = 1,
    seconds: Seconds = 1200.0,
    kinds: Kinds = None,
    namespace: Namespace = "default",
    release: Release = "oncelog",
    node_cut_command: NodeCut = None,
    node_mend_command: NodeMend = None,
    node_kill_command: NodeKill = None,
    node_start_command: NodeStart = None,
    rollout_command: Annotated[
        str | None,
        typer.Option(
            help="Rolls the whole release, such as a helm upgrade; by default a part at a time is restarted.",
            callback=_command_line,
        ),
    ] = None,
    standalone: Standalone = False,
    data: Annotated[
        Path | None, typer.Option("--data", help="Directory for the standalone cluster; a temporary one by default.")
    ] = None,
    pace: Annotated[float, typer.Option(min=0, max=10, help="Multiplies the pauses and what is held.")] = 1.0,
    quiet: Annotated[
        float, typer.Option(min=1, max=3600, help="Seconds of load before the first fault; p99.9 wants a minute of it.")
    ] = BEGIN_QUIET_S,
    output: Output = "table",
) -> None:
    """Strike the cluster of the current kube context, or a standalone one, and give the verdict."""
    _check_output(output)
    _quiet_grpc()
    from oncelog.lab.chaos.kubernetes_target import Commands
    from oncelog.lab.chaos.report import Report, show
    from oncelog.lab.chaos.session import RunSettings, Timeline, run_chaos
    from oncelog.lab.chaos.settings import KubernetesSettings, kubernetes_run, standalone_run

    settings = RunSettings(seed, seconds, _parse_kinds(kinds), pace, quiet)
    errors = Console(stderr=True, highlight=False)
    told = errors if output == "json" else Console(highlight=False)
    timeline = Timeline(lambda line: told.print(line, markup=False, highlight=False, soft_wrap=True))
    commands = (node_cut_command, node_mend_command, node_kill_command, node_start_command, rollout_command)

    async def main() -> Report:
        setting = (
            standalone_run(data, seed)
            if standalone
            else kubernetes_run(KubernetesSettings(namespace, release, seed, Commands(*commands)))
        )
        async with setting as (target, start):
            return await run_chaos(settings, target, start, timeline)

    report = _finish(main)
    if output == "json":
        print(json.dumps(report.to_json()), flush=True)
    else:
        show(report, Console(highlight=False))
    raise typer.Exit(0 if report.perfect else 1)


@app.command()
def workload(
    url: Annotated[str, typer.Option("--url", envvar="ONCELOG_URL", help="Metadata services.")],
    admin_url: Annotated[str, typer.Option("--admin-url", envvar="ONCELOG_ADMIN_URL", help="REST.")],
    token_file: Annotated[
        Path | None, typer.Option(envvar="ONCELOG_TOKEN_FILE", exists=True, help="File with the token to show.")
    ] = None,
    tls_ca_file: Annotated[
        Path | None, typer.Option(envvar="ONCELOG_TLS_CA_FILE", exists=True, help="The cluster's own CA, PEM.")
    ] = None,
    seed: Seed = 1,
    run_name: Annotated[str | None, typer.Option("--run", help="Begins the names of its topics.")] = None,
    topics: Annotated[int, typer.Option(min=1, max=100, help="How many topics.")] = 2,
    topic_namespace: Annotated[str, typer.Option(help="Where its topics are.")] = "public/chaos",
    history: Annotated[Path | None, typer.Option(help="Write every invocation and answer here, as JSON lines.")] = None,
) -> None:
    """The load alone, until SIGTERM; then everything is read back and judged. JSON lines; the last is the verdict."""
    _quiet_grpc()
    from oncelog.lab.chaos.access import Access
    from oncelog.lab.chaos.workload import Workload, WorkloadSettings

    name = run_name or f"chaos-{int(time.time()):x}"
    access = Access(url, admin_url, token_file, tls_ca_file)
    settings = WorkloadSettings(access, name, seed, topic_namespace, topics, history)

    async def main() -> bool:
        load = Workload(settings)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, load.end.set)
        return (await load.run()).perfect

    raise typer.Exit(0 if _finish(main) else 1)


@app.command("stop-container", hidden=True)
def stop_container(
    container: Annotated[str, typer.Option(help="Id of the container.")],
    seconds: Annotated[float, typer.Option(min=0.1, max=3600, help="For how long.")],
) -> None:
    """SIGSTOP every process of a container, and SIGCONT after a while; for a pod that sees the node's processes."""
    from oncelog.core.errors import OncelogError
    from oncelog.lab.chaos.container_pause import stop_for

    try:
        stop_for(container, seconds)
    except OncelogError as error:
        raise _failed(error) from error


def _finish(main: Callable[[], Awaitable[T]]) -> T:
    """Run it on an event loop of its own; an error is said, and exits."""
    import uvloop

    from oncelog.core.errors import OncelogError

    async def whole() -> T:
        return await main()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(whole())
    except OncelogError as error:
        raise _failed(error) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(130) from error


def _failed(error: BaseException) -> typer.Exit:
    print(f"error: {error}", file=sys.stderr, flush=True)
    return typer.Exit(1)


def _parse_kinds(text: str | None) -> tuple[Kind, ...] | None:
    if text is None:
        return None
    known = {str(kind): kind for kind in Kind}
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise typer.BadParameter(f"--kinds: {', '.join(unknown)}: there is only {', '.join(known)}")
    return tuple(known[name] for name in names)


def _check_output(output: str) -> None:
    if output not in {"table", "json"}:
        raise typer.BadParameter("--output is table or json")


def _quiet_grpc() -> None:
    """Before gRPC is loaded: it reports every connection that ends, and here they are meant to."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
