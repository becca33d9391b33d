"""`oncelog standalone`: starts a cluster, prints its addresses, and runs it until Ctrl-C or SIGTERM."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from oncelog.cli.failures import explain
from oncelog.cli.options import Output, OutputOption
from oncelog.cli.standalone.cluster_plan import MODULES, ClusterPlan, DoorPorts, quorums
from oncelog.cli.standalone.directory import DirectoryInUse, earlier_gone, locked
from oncelog.cli.standalone.fork_server import ForkServer
from oncelog.cli.standalone.start_checks import check_start
from oncelog.cli.standalone.status import ClusterStatus
from oncelog.cli.standalone.supervisor import DRAIN_DEADLINE_S, StartStopped, Supervisor
from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.runtime.descriptors import announce
from oncelog.runtime.exception_groups import leaves_of
from oncelog.runtime.logs import set_up_logs
from oncelog.runtime.process import ExitCode, Shutdown, run

#: A door, owners, metadata services and storage nodes drain one after the other, then ZooKeeper.
_DRAIN_TIMEOUT_MS = int(4 * DRAIN_DEADLINE_S * 1000) + 10_000
STORAGE_NODES, OWNERS = 3, 2
_WELCOME = """\
oncelog is running: ZooKeeper, {storage} storage node(s), {owners} topic owner(s), {metadata} metadata service(s)
  clients      {url}
  console      {console}
  REST         {admin_url}/admin/v2/{doors}
  ZooKeeper    {zookeeper}
  data, logs   {data}{note}
  copies       {copies}
To try it, run in another terminal:{environment}
  echo hello | oncelog produce greetings --stdin
  oncelog read greetings --from earliest
  oncelog admin topics stats greetings
Press Ctrl-C to drain and stop the cluster."""


def standalone(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="Directory for data and logs. By default a temporary directory, which is deleted at the end."
        ),
    ] = None,
    light: Annotated[
        bool,
        typer.Option(
            "--light",
            help="For tests: one storage node and one topic owner. Each message has ONE copy, and small files on disk.",
        ),
    ] = False,
    storage_nodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of storage nodes, 3 by default. With 3 or more, each entry has 3 copies, 2 of them durable "
            "before an ack; with fewer, one on each.",
            show_default=False,
        ),
    ] = None,
    owners: Annotated[
        int | None, typer.Option(min=1, help="Number of topic owners, 2 by default.", show_default=False)
    ] = None,
    metadata: Annotated[int, typer.Option(min=1, help="Number of metadata services.")] = 1,
    port: Annotated[int, typer.Option(min=0, max=65535, help="gRPC port for clients; 0: any free port.")] = 6650,
    http_port: Annotated[int, typer.Option(min=0, max=65535, help="REST port; 0: any free port.")] = 8080,
    pulsar_port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="Port for clients of Pulsar; 0: none. It needs the distribution oncelog_doors."
        ),
    ] = 0,
    pulsar_rest_port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="Port for pulsar-admin, with --pulsar-port; 0: none."),
    ] = 0,
    kafka_port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="Port for clients of Kafka; 0: none. It needs the distribution oncelog_doors."
        ),
    ] = 0,
    redis: Annotated[
        str,
        typer.Option(help="Address of a running Redis, redis://HOST:PORT/DB, for idempotency keys of HTTP publishers."),
    ] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a whole cluster on this machine: ZooKeeper, storage nodes, topic owners and metadata services.

    All processes listen on 127.0.0.1. A process that exits is restarted, and the restart is reported. With --data, the
    next start resumes the same cluster. DIR/standalone.json has the current addresses and process ids, DIR/logs the
    logs. With -o json the addresses and process ids are printed as one object when all processes are ready. Open the
    console's address in a browser to see topics, producers and storage nodes.

        oncelog standalone

        oncelog standalone --data ./data

        oncelog standalone --light --port 0 --http-port 0 -o json
    """
    set_up_logs("warning")
    try:
        if pulsar_rest_port and not pulsar_port:
            raise InvalidArgument("--pulsar-rest-port is a port of the door for clients of Pulsar: add --pulsar-port")
        if light and (storage_nodes or owners):
            raise InvalidArgument("--light has one storage node and one owner: leave out --storage-nodes and --owners")
        if data is not None:
            _create(data)
        else:
            _check_temporary()
    except (InvalidArgument, OSError) as error:
        raise typer.Exit(explain(error, Console(stderr=True, highlight=False))) from error
    with _directory(data) as directory:
        sizes = (1, 1) if light else (storage_nodes or STORAGE_NODES, owners or OWNERS)
        doors = DoorPorts(pulsar_port, pulsar_rest_port, kafka_port)
        plan = ClusterPlan(directory, *sizes, metadata, port, http_port, redis, light, doors)
        code = _run(plan, output, temporary=data is None)
    raise typer.Exit(code)


def _run(plan: ClusterPlan, output: Output, *, temporary: bool) -> int:
    errors = Console(stderr=True, highlight=False)
    failed: list[int] = []

    def tell(sentence: str) -> None:
        errors.print(sentence, markup=False, soft_wrap=True)

    async def main(shutdown: Shutdown) -> None:
        try:
            await earlier_gone(plan.status_path, tell)
            supervisor = Supervisor(plan, tell, forks)
            await check_start(plan, os.environ, supervisor.environment, tell)
            if plan.light:
                tell("a light cluster, for tests: it keeps ONE copy of each message")
            if output is Output.TABLE:
                tell("starting ...")
            async with supervisor.running(stopping=lambda: shutdown.requested) as status:
                if why := _announce(status, plan, output, temporary=temporary):
                    tell(f"cannot print the addresses, they are in {plan.status_path}: {why}")
                await shutdown.wait()
                tell(f"{shutdown.reason}: draining ...")
        except (OncelogError, ExceptionGroup) as error:
            if any(isinstance(leaf, StartStopped) for leaf in leaves_of(error)):
                tell(f"{shutdown.reason}: stopped before all processes served")
            else:
                failed.append(explain(error, errors))

    try:
        with locked(plan.data), ForkServer.running(MODULES) as forks:
            code = run(main, drain_timeout_ms=_DRAIN_TIMEOUT_MS)
    except (DirectoryInUse, InvalidArgument) as error:
        return explain(error, errors)
    return failed[0] if failed and code is ExitCode.OK else code


def _doors(status: ClusterStatus) -> str:
    addresses = {"Pulsar": status.pulsar_url, "pulsar-admin": status.pulsar_rest_url, "Kafka": status.kafka_servers}
    return "".join(f"\n  {name:12} {address}" for name, address in addresses.items() if address)


def _announce(status: ClusterStatus, plan: ClusterPlan, output: Output, *, temporary: bool) -> str:
    """Returns why it cannot be written, or ""."""
    if output is Output.JSON:
        return announce(json.dumps(status.to_json()))
    typed = ""
    if status.url != "oncelog://127.0.0.1:6650" or status.admin_url != "http://127.0.0.1:8080":
        typed = f"\n  export ONCELOG_URL={status.url} ONCELOG_ADMIN_URL={status.admin_url}"
    text = _WELCOME.format(
        storage=plan.storage_node_count,
        owners=plan.owner_count,
        metadata=plan.metadata_count,
        url=status.url,
        admin_url=status.admin_url,
        doors=_doors(status),
        console=status.console_url or "off: ONCELOG_CONSOLE is false",
        zookeeper=status.zookeeper,
        data=plan.data,
        copies=_copies(plan),
        note=" (deleted at the end)" if temporary else "",
        environment=typed,
    )
    return announce(text)


def _copies(plan: ClusterPlan) -> str:
    write_quorum, ack_quorum = quorums(plan.storage_node_count)
    if write_quorum == 1:
        return "ONE of each message: one storage node, for tests"
    return f"{write_quorum} of each message, {ack_quorum} of them durable before it is acknowledged"


def _create(data: Path) -> None:
    try:
        data.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InvalidArgument(
            f"{data} cannot be a directory, because a file is in its place: name another one with --data", field="data"
        ) from error


def _check_temporary() -> None:
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        message = "no temporary directory can be written: correct TMPDIR, or name a directory with --data"
        raise InvalidArgument(message, field="data") from error


@contextmanager
def _directory(data: Path | None) -> Iterator[Path]:
    if data is not None:
        yield data.resolve()
        return
    temporary = Path(tempfile.mkdtemp(prefix="oncelog-"))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
