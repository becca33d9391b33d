"""The standalone cluster as a whole: what is started in which order, watched, written down, and drained.

Start: ZooKeeper; the metadata services, the first of which makes a new cluster; storage nodes and owners together.
End: owners first, for a topic is closed with its storage nodes and ZooKeeper alive; then metadata, storage nodes and
ZooKeeper. Each step has a deadline. A supervisor that is killed takes its children along (`orphan_guard`).
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence

from oncelog.cli.standalone import cluster_plan as plans
from oncelog.cli.standalone.cluster_plan import ClusterPlan, ProcessPlan, Role
from oncelog.cli.standalone.status import ClusterStatus, ProcessStatus, write_status
from oncelog.cli.standalone.supervised_process import ProcessState, SupervisedProcess
from oncelog.cli.standalone.zookeeper_process import ZooKeeperProcess
from oncelog.core.errors import Fatal
from oncelog.runtime.port_claim import claim_port, port_of
from oncelog.runtime.settings import variable

START_DEADLINE_S = 90.0
#: A process that dies so often before it has ever served will not serve.
EARLY_DEATHS_MAX = 3
DRAIN_DEADLINE_S = (plans.STABILITY_TIMEOUT_MS + plans.DRAIN_TIMEOUT_MS) / 1000 + 3.0
_LOOK_EVERY_S = 0.02

#: Told what happens to the cluster, one sentence at a time.
Tell = Callable[[str], None]


class StandaloneFailed(Fatal):
    """The cluster did not start; the message names the process and quotes its log."""


class Supervisor:
    """Runs the children of one plan. `running()` serves inside its block."""

    def __init__(self, plan: ClusterPlan, tell: Tell) -> None:
        self.plan = plan
        self._tell = tell
        self._children: list[SupervisedProcess] = []
        self._zookeeper = ZooKeeperProcess(plan.zookeeper_data, self._zookeeper_changed)
        self._ready = False
        #: of the ports that children keep from life to life
        self._claims = contextlib.ExitStack()
        self._environment = plans.process_environment(os.environ, redis_url=plan.redis_url)

    @contextlib.asynccontextmanager
    async def running(
        self, *, roles: "Sequence[Callable[[ClusterPlan, str], list[ProcessPlan]]] | None" = None
    ) -> AsyncIterator[ClusterStatus]:
        """Start everything, give its status once all serve, and drain at the end of the block.

        roles: what to start, each item when the one before it serves; by default the whole cluster.
        Raises StandaloneFailed, EmbeddedZooKeeperMissing, EmbeddedZooKeeperFailed.
        """
        steps = (plans.metadata_processes, _storage_and_owners) if roles is None else roles
        await self._zookeeper.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                keeper = tasks.create_task(self._zookeeper.keep())
                try:
                    for step in steps:
                        await self._start(step(self.plan, self._zookeeper.address), tasks)
                    self._ready = True
                    self._write()
                    yield self.status()
                finally:
                    await self._drain()
                    keeper.cancel()
        finally:
            self._claims.close()
            await self._zookeeper.stop()

    def status(self) -> ClusterStatus:
        server = self._zookeeper
        processes = [
            ProcessStatus(server.name, server.role, server.pid, server.state, server.restarts, server.serving),
            *(
                ProcessStatus(child.name, child.plan.role, child.pid, child.state, child.restarts, child.serving)
                for child in self._children
            ),
        ]
        tls = bool(self._environment.get(variable("tls_certificate_file")))
        return ClusterStatus(os.getpid(), str(self.plan.data), self._ready, processes, tls)

    async def _start(self, wanted: Sequence[ProcessPlan], tasks: asyncio.TaskGroup) -> None:
        """Start the children and return when all of them serve."""
        kept = [plans.with_ports(child, self._take_port) if child.role is Role.METADATA else child for child in wanted]
        children = [
            SupervisedProcess(child, self.plan.log_path(child.name), self._environment, self._child_changed)
            for child in kept
        ]
        self._children += children
        for child in children:
            tasks.create_task(child.keep(), name=child.name)
        try:
            async with asyncio.timeout(START_DEADLINE_S):
                while waited := [child for child in children if child.state is not ProcessState.SERVING]:
                    for child in waited:
                        if child.failures >= EARLY_DEATHS_MAX:
                            raise StandaloneFailed(f"{child.name} does not start; its log ends:\n{child.last_words()}")
                    await asyncio.sleep(_LOOK_EVERY_S)
        except TimeoutError as error:
            stories = "\n".join(
                f"{child.name}: {child.last_words()}" for child in children if child.state is not ProcessState.SERVING
            )
            raise StandaloneFailed(f"not serving after {START_DEADLINE_S:.0f} s:\n{stories}") from error

    def _take_port(self) -> int:
        claim = claim_port(plans.HOST)
        self._claims.callback(claim.close)
        return port_of(claim)

    async def _drain(self) -> None:
        for role in (Role.OWNER, Role.METADATA, Role.STORAGE):
            ending = [child.stop(DRAIN_DEADLINE_S) for child in self._children if child.plan.role is role]
            await asyncio.gather(*ending)

    def _child_changed(self, child: SupervisedProcess, sentence: str) -> None:
        if sentence and (self._ready or child.state is ProcessState.WAITING):
            self._tell(sentence)
        self._write()

    def _zookeeper_changed(self, sentence: str) -> None:
        self._tell(sentence)
        self._write()

    def _write(self) -> None:
        write_status(self.plan.status_path, self.status())


def _storage_and_owners(plan: ClusterPlan, zookeeper: str) -> list[ProcessPlan]:
    return [*plans.storage_processes(plan, zookeeper), *plans.owner_processes(plan, zookeeper)]
