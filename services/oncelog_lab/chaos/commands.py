"""`oncelog chaos …`: inject faults into a cluster under load, by a schedule that a seed repeats, and check the log.

On Kubernetes it works with kubectl and the current context: it kills and pauses pods of the release, and the load runs
in a pod next to them. With --standalone it starts a cluster of processes on this machine. The exit code is 1 if a
message was lost, duplicated or reordered, or if a planned fault could not be injected.
"""

import asyncio
import json
import shlex
import signal
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from oncelog.cli.options import Output, OutputOption
from oncelog_lab.chaos.schedule import QUIET_S
from oncelog_lab.faults.kinds import Component, FaultKind
from oncelog_lab.running import failed, quiet_grpc, run_lab

app = typer.Typer(no_args_is_help=True, help=__doc__)

Seed = Annotated[int, typer.Option(help="Seed of the schedule. The same seed and options repeat it.")]
Seconds = Annotated[float, typer.Option(min=1, max=86_400, help="Approximate duration of the faults, in seconds.")]
Kinds = Annotated[
    str | None,
    typer.Option(
        help=f"Comma-separated list of: {', '.join(FaultKind)}. By default all kinds that the cluster survives, "
        "without control-pod-kill, storage-loss and bit-rot."
    ),
]


def _command_line(text: str | None) -> str | None:
    """Refuse a malformed command line before the run, and not when its fault is due."""
    try:
        if text is not None and not shlex.split(text):
            raise typer.BadParameter("the command line is empty")
    except ValueError as error:
        raise typer.BadParameter(f"invalid command line {text!r}: {error}") from error
    return text


def _node_option(what: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        help=f"Command that {what} a node; {{node}} is replaced by its name.", callback=_command_line
    )
    return option


NodeCut = Annotated[str | None, _node_option("disconnects the network of")]
NodeRecover = Annotated[str | None, _node_option("reconnects the network of")]
NodeKill = Annotated[str | None, _node_option("cuts the power of")]
NodeStart = Annotated[str | None, _node_option("starts")]


@app.command()
def plan(
    seed: Seed = 1,
    seconds: Seconds = 1200.0,
    kinds: Kinds = None,
    owners: Annotated[int, typer.Option(min=0, help="Number of topic owners.")] = 3,
    storage_nodes: Annotated[int, typer.Option(min=0, help="Number of storage nodes.")] = 3,
    metadata: Annotated[int, typer.Option(min=0, help="Number of metadata services.")] = 2,
    zookeeper: Annotated[int, typer.Option(min=0, help="Number of ZooKeeper servers in the release.")] = 3,
    redis: Annotated[int, typer.Option(min=0, max=1, help="1 if the release has a Redis, else 0.")] = 1,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the schedule of a seed for a cluster of this size. Injects no faults."""
    from oncelog.core.errors import OncelogError
    from oncelog_lab.chaos.report import schedule_json, show_schedule
    from oncelog_lab.chaos.session import ChaosSettings, steps_of

    sizes = (owners, storage_nodes, metadata, zookeeper, redis)
    components = (Component.OWNER, Component.STORAGE, Component.METADATA, Component.ZOOKEEPER, Component.REDIS)
    settings = ChaosSettings(seed, seconds, _parse_kinds(kinds))
    try:
        steps = steps_of(settings, dict(zip(components, sizes, strict=True)), {}, lambda _: None)
    except OncelogError as error:
        raise failed(error) from error
    if output is Output.JSON:
        print(json.dumps(schedule_json(seed, steps)))
    else:
        show_schedule(steps, Console(highlight=False))


@app.command()
def run(
    seed: Seed = 1,
    seconds: Seconds = 1200.0,
    kinds: Kinds = None,
    namespace: Annotated[str, typer.Option(help="Kubernetes namespace of the release.")] = "default",
    release: Annotated[str, typer.Option(help="Name of the release.")] = "oncelog",
    node_cut_command: NodeCut = None,
    node_recover_command: NodeRecover = None,
    node_kill_command: NodeKill = None,
    node_start_command: NodeStart = None,
    rollout_command: Annotated[
        str | None,
        typer.Option(
            help="Command that rolls the whole release, such as helm upgrade. By default one component is restarted.",
            callback=_command_line,
        ),
    ] = None,
    standalone: Annotated[
        bool, typer.Option("--standalone", help="Start a cluster of processes on this machine and use that.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option("--data", help="Directory of the standalone cluster. Default: a temporary one.")
    ] = None,
    pace: Annotated[
        float, typer.Option(min=0, max=10, help="Factor for the pauses and for the time that faults last.")
    ] = 1.0,
    quiet: Annotated[
        float, typer.Option(min=1, max=3600, help="Seconds of load before the first fault; 60 or more for p99.9.")
    ] = QUIET_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Inject faults into the release of the current kube context, or into a standalone cluster, and check the log.

    Do not run this against a production cluster.
    """
    quiet_grpc()
    from oncelog_lab.chaos.report import ChaosReport, show_report
    from oncelog_lab.chaos.session import ChaosSettings, Timeline, kubernetes_run, run_chaos, standalone_run
    from oncelog_lab.faults.kubernetes_injector import NodeCommands

    settings = ChaosSettings(seed, seconds, _parse_kinds(kinds), pace, quiet)
    console = Console(stderr=output is Output.JSON, highlight=False)
    timeline = Timeline(lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True))
    commands = NodeCommands(
        node_cut_command, node_recover_command, node_kill_command, node_start_command, rollout_command
    )

    async def main() -> ChaosReport:
        place = standalone_run(data, seed) if standalone else kubernetes_run(namespace, release, seed, commands)
        async with place as (injector, start):
            return await run_chaos(settings, injector, start, timeline)

    report = run_lab(main)
    if output is Output.JSON:
        print(json.dumps(report.to_json()), flush=True)
    else:
        show_report(report, Console(highlight=False))
    raise typer.Exit(0 if report.perfect else 1)


@app.command()
def workload(
    url: Annotated[str, typer.Option("--url", envvar="ONCELOG_URL", help="URL of the metadata services.")],
    admin_url: Annotated[str, typer.Option("--admin-url", envvar="ONCELOG_ADMIN_URL", help="URL of REST.")],
    token_file: Annotated[
        Path | None, typer.Option(envvar="ONCELOG_TOKEN_FILE", exists=True, help="File with the bearer token.")
    ] = None,
    tls_ca_file: Annotated[
        Path | None, typer.Option(envvar="ONCELOG_TLS_CA_FILE", exists=True, help="CA certificate of the cluster, PEM.")
    ] = None,
    seed: Seed = 1,
    run_name: Annotated[str | None, typer.Option("--run", help="Prefix for the names of its topics.")] = None,
    topics: Annotated[int, typer.Option(min=1, max=100, help="Number of topics.")] = 2,
    topic_namespace: Annotated[str, typer.Option(help="Namespace of its topics.")] = "public/chaos",
    history: Annotated[Path | None, typer.Option(help="Write every send and answer here, as JSON lines.")] = None,
) -> None:
    """Run only the load until SIGTERM, then read the log back and check it. Prints JSON lines, the verdict last."""
    quiet_grpc()
    from oncelog_lab.access import ClusterAccess
    from oncelog_lab.workload.workload import Workload, WorkloadSettings

    name = run_name or f"chaos-{int(time.time()):x}"
    access = ClusterAccess(url, admin_url, token_file, tls_ca_file)
    settings = WorkloadSettings(access, name, seed, topic_namespace, topics, history)

    async def main() -> bool:
        load = Workload(settings)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, load.end.set)
        return (await load.run()).perfect

    raise typer.Exit(0 if run_lab(main) else 1)


@app.command("stop-container", hidden=True)
def stop_container(
    container: Annotated[str, typer.Option(help="Id of the container.")],
    seconds: Annotated[float, typer.Option(min=0.1, max=3600, help="Duration in seconds.")],
) -> None:
    """Send SIGSTOP to every process of a container, and SIGCONT at the end. Needs the process namespace of the node."""
    from oncelog.core.errors import OncelogError
    from oncelog_lab.faults.container_pause import stop_for

    try:
        stop_for(container, seconds)
    except OncelogError as error:
        raise failed(error) from error


def _parse_kinds(text: str | None) -> tuple[FaultKind, ...] | None:
    if text is None:
        return None
    known = {str(kind): kind for kind in FaultKind}
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise typer.BadParameter(f"--kinds: unknown kind {', '.join(unknown)}; the kinds are {', '.join(known)}")
    return tuple(known[name] for name in names)
