"""`oncelog standalone` whose processes a test varies: `sys.exit(standalone(processes))`, in a module that
`Cluster.program` names."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from oncelog.cli.standalone.cluster_plan import MODULES, ClusterPlan, ProcessPlan
from oncelog.cli.standalone.directory import earlier_gone, locked
from oncelog.cli.standalone.fork_server import ForkServer
from oncelog.cli.standalone.supervisor import Supervisor
from oncelog.runtime.logs import set_up_logs
from oncelog.runtime.process import Shutdown, run

_DRAIN_TIMEOUT_MS = 60_000


def tell(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def standalone(processes: Callable[[ClusterPlan, str], list[ProcessPlan]], modules: Sequence[str] = MODULES) -> int:
    """Run the cluster of the command line until SIGTERM; returns the exit code. processes: the services of a plan, for
    the address of ZooKeeper. modules: of those that are forked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    for option in ("--storage-nodes", "--owners", "--metadata", "--port", "--http-port"):
        parser.add_argument(option, type=int, required=True)
    parser.add_argument("-o", dest="output")
    given = parser.parse_args()
    given.data.mkdir(parents=True, exist_ok=True)
    sizes = (given.storage_nodes, given.owners, given.metadata)
    plan = ClusterPlan(given.data, *sizes, given.port, given.http_port)
    set_up_logs("warning")

    async def serve(shutdown: Shutdown) -> None:
        await earlier_gone(plan.status_path, tell)
        async with Supervisor(plan, tell, forks).running(processes=processes) as status:
            print(json.dumps(status.to_json()), flush=True)
            await shutdown.wait()

    with locked(plan.data), ForkServer.running(modules) as forks:
        return run(serve, drain_timeout_ms=_DRAIN_TIMEOUT_MS)
