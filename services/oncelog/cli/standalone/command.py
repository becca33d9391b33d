"""`oncelog standalone`: start a cluster, say where it is, keep it until Ctrl-C or SIGTERM."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from oncelog.cli.failures import explain
from oncelog.cli.options import Output, OutputOption
from oncelog.cli.standalone.cluster_plan import ClusterPlan
from oncelog.cli.standalone.directory import DirectoryInUse, earlier_gone, locked
from oncelog.cli.standalone.status import ClusterStatus
from oncelog.cli.standalone.supervisor import DRAIN_DEADLINE_S, Supervisor
from oncelog.core.errors import OncelogError
from oncelog.runtime.logs import set_up_logs
from oncelog.runtime.process import ExitCode, Shutdown, run

#: Owners, metadata and storage nodes after each other, then ZooKeeper.
_DRAIN_TIMEOUT_MS = int(3 * DRAIN_DEADLINE_S * 1000) + 10_000
_WELCOME = """\
oncelog is running: ZooKeeper, {storage} storage node(s), {owners} topic owner(s), {metadata} metadata service(s)
  clients      {url}
  REST         {admin_url}/admin/v2/
  ZooKeeper    {zookeeper}
  data, logs   {data}{note}
Begin in another terminal:{environment}
  echo hello | oncelog produce greetings --stdin
  oncelog read greetings --from earliest
  oncelog admin topics stats greetings
Ctrl-C drains and ends it."""


def standalone(
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Keep the cluster in this directory; by default a temporary one, gone at the end."),
    ] = None,
    storage_nodes: Annotated[
        int, typer.Option(min=1, help="Storage nodes. 3 or more: 3 copies of each entry, 2 durable before an ack.")
    ] = 3,
    owners: Annotated[int, typer.Option(min=1, help="Topic owners.")] = 2,
    metadata: Annotated[int, typer.Option(min=1, help="Metadata services.")] = 1,
    port: Annotated[int, typer.Option(min=0, max=65535, help="gRPC port for clients, 0: a free one.")] = 6650,
    http_port: Annotated[int, typer.Option(min=0, max=65535, help="REST port, 0: a free one.")] = 8080,
    redis: Annotated[
        str, typer.Option(help="Address of a running Redis, redis://host:port/number, for idempotency keys over HTTP.")
    ] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a whole cluster on this machine: real ZooKeeper, storage nodes, topic owners and metadata.

    Everything listens on 127.0.0.1. A process that dies is started again, and that is said. With --data the cluster is
    there again after the next start. DIR/standalone.json always tells the addresses and process ids; DIR/logs holds the
    logs. With -o json one object with the same is printed when all serve.

        oncelog standalone

        oncelog standalone --data ./data --storage-nodes 1 --owners 1
    """
    set_up_logs("warning")
    with _directory(data) as directory:
        plan = ClusterPlan(directory, storage_nodes, owners, metadata, port, http_port, redis)
        code = _run(plan, output, temporary=data is None)
    raise typer.Exit(code)


def _run(plan: ClusterPlan, output: Output, *, temporary: bool) -> int:
    errors = Console(stderr=True, highlight=False)
    failed: list[int] = []

    def tell(sentence: str) -> None:
        errors.print(sentence, markup=False, soft_wrap=True)

    async def main(shutdown: Shutdown) -> None:
        if output is Output.TABLE:
            tell("starting …")
        try:
            await earlier_gone(plan.status_path, tell)
            async with Supervisor(plan, tell).running() as status:
                _announce(status, plan, output, temporary=temporary)
                await shutdown.wait()
                tell(f"{shutdown.reason}: draining …")
        except (OncelogError, ExceptionGroup) as error:
            failed.append(explain(error, errors))

    try:
        with locked(plan.data):
            code = run(main, drain_timeout_ms=_DRAIN_TIMEOUT_MS)
    except DirectoryInUse as error:
        return explain(error, errors)
    return failed[0] if failed and code is ExitCode.OK else code


def _announce(status: ClusterStatus, plan: ClusterPlan, output: Output, *, temporary: bool) -> None:
    if output is Output.JSON:
        print(json.dumps(status.to_json()), flush=True)
        return
    typed = ""
    if status.url != "oncelog://127.0.0.1:6650" or status.admin_url != "http://127.0.0.1:8080":
        typed = f"\n  export ONCELOG_URL={status.url} ONCELOG_ADMIN_URL={status.admin_url}"
    text = _WELCOME.format(
        storage=plan.storage_node_count,
        owners=plan.owner_count,
        metadata=plan.metadata_count,
        url=status.url,
        admin_url=status.admin_url,
        zookeeper=status.zookeeper,
        data=plan.data,
        note=" (removed at the end)" if temporary else "",
        environment=typed,
    )
    print(text, file=sys.stdout, flush=True)


@contextmanager
def _directory(data: Path | None) -> Iterator[Path]:
    if data is not None:
        data.mkdir(parents=True, exist_ok=True)
        yield data.resolve()
        return
    temporary = Path(tempfile.mkdtemp(prefix="oncelog-"))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
