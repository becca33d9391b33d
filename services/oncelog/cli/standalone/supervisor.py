"""Starts, supervises and drains all processes of a standalone cluster.

Start order: ZooKeeper; a command that creates the cluster, only if the directory has no data of any storage node; the
metadata services; then storage nodes and owners together. Stop order: owners first, because closing a topic needs
storage nodes and ZooKeeper; then metadata services, storage nodes and ZooKeeper. Each step has a deadline. If the
supervisor is killed, its processes stop, too (`orphan_guard`).
"""

import asyncio
import contextlib
import os
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable, Sequence

from oncelog.cli.standalone import cluster_plan as plans
from oncelog.cli.standalone.cluster_plan import ClusterPlan, ProcessPlan, Role
from oncelog.cli.standalone.status import ClusterStatus, ProcessStatus, write_status
from oncelog.cli.standalone.supervised_process import ProcessState, SupervisedProcess
from oncelog.cli.standalone.zookeeper_process import ZooKeeperProcess
from oncelog.core.errors import Fatal
from oncelog.runtime.orphan_guard import guarded
from oncelog.runtime.port_claim import claim_port, port_of
from oncelog.runtime.settings import variable

START_DEADLINE_S = 90.0
#: A process that exits this often before it is ready will not become ready.
EARLY_EXITS_MAX = 3
DRAIN_DEADLINE_S = (plans.STABILITY_TIMEOUT_MS + plans.DRAIN_TIMEOUT_MS) / 1000 + 3.0
_LOOK_EVERY_S = 0.02

#: Callback for messages about the cluster.
Tell = Callable[[str], None]


class StandaloneFailed(Fatal):
    """The cluster did not start; the message has the process and the end of its log."""


class Supervisor:
    """Runs the processes of one plan. The cluster runs inside the `running()` block."""

    def __init__(self, plan: ClusterPlan, tell: Tell) -> None:
        self.plan = plan
        self._tell = tell
        self._processes: list[SupervisedProcess] = []
        self._zookeeper = ZooKeeperProcess(plan.zookeeper_data, self._zookeeper_changed)
        self._ready = False
        #: claims of the ports that processes keep over restarts
        self._claims = contextlib.ExitStack()
        self._environment = plans.process_environment(os.environ, redis_url=plan.redis_url)

    @contextlib.asynccontextmanager
    async def running(
        self, *, roles: "Sequence[Callable[[ClusterPlan, str], list[ProcessPlan]]] | None" = None
    ) -> AsyncIterator[ClusterStatus]:
        """Start all processes, yield the status when all are ready, and drain at the end of the block.

        roles: what to start, each item after the previous one is ready; by default the whole cluster.
        Raises StandaloneFailed, EmbeddedZooKeeperMissing, EmbeddedZooKeeperFailed.
        """
        steps = (plans.metadata_processes, _storage_and_owners) if roles is None else roles
        used = self.plan.storage_directories
        if used and not self._zookeeper.has_data:
            raise StandaloneFailed(
                f"{used[0]} has data of a cluster, but {self.plan.zookeeper_data} has none: ZooKeeper's data was lost. "
                f"No cluster is created: keep {self.plan.data}, and restore {self.plan.zookeeper_data}"
            )
        await self._zookeeper.start()
        try:
            if not used:
                await self._create_cluster()
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

    async def _create_cluster(self) -> None:
        """Raises StandaloneFailed."""
        command = plans.creation(self._zookeeper.address)
        creating = await asyncio.create_subprocess_exec(
            *guarded(command), stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, env=self._environment, start_new_session=True
        )
        try:
            _, log = await creating.communicate()
        except BaseException:
            creating.kill()
            await creating.wait()
            raise
        if creating.returncode != 0:
            raise StandaloneFailed(f"the cluster could not be created: {log.decode(errors='replace')}")

    def status(self) -> ClusterStatus:
        server = self._zookeeper
        processes = [
            ProcessStatus(server.name, server.role, server.pid, server.state, server.restarts, server.serving),
            *(
                ProcessStatus(child.name, child.plan.role, child.pid, child.state, child.restarts, child.serving)
                for child in self._processes
            ),
        ]
        tls = bool(self._environment.get(variable("tls_certificate_file")))
        return ClusterStatus(os.getpid(), str(self.plan.data), self._ready, processes, tls)

    async def _start(self, wanted: Sequence[ProcessPlan], tasks: asyncio.TaskGroup) -> None:
        """Start the processes, and return when all are ready."""
        lasting = {Role.METADATA, Role.STORAGE}
        kept = [plans.with_ports(child, self._take_port) if child.role in lasting else child for child in wanted]
        children = [
            SupervisedProcess(child, self.plan.log_path(child.name), self._environment, self._process_changed)
            for child in kept
        ]
        self._processes += children
        for child in children:
            tasks.create_task(child.keep(), name=child.name)
        try:
            async with asyncio.timeout(START_DEADLINE_S):
                while waited := [child for child in children if child.state is not ProcessState.SERVING]:
                    for child in waited:
                        if child.failures >= EARLY_EXITS_MAX:
                            raise StandaloneFailed(f"{child.name} does not start; end of its log:\n{child.log_tail()}")
                    await asyncio.sleep(_LOOK_EVERY_S)
        except TimeoutError as error:
            tails = "\n".join(
                f"{child.name}: {child.log_tail()}" for child in children if child.state is not ProcessState.SERVING
            )
            raise StandaloneFailed(f"not ready after {START_DEADLINE_S:.0f} s:\n{tails}") from error

    def _take_port(self) -> int:
        claim = claim_port(plans.HOST)
        self._claims.callback(claim.close)
        return port_of(claim)

    async def _drain(self) -> None:
        for role in (Role.OWNER, Role.METADATA, Role.STORAGE):
            ending = [child.stop(DRAIN_DEADLINE_S) for child in self._processes if child.plan.role is role]
            await asyncio.gather(*ending)

    def _process_changed(self, child: SupervisedProcess, sentence: str) -> None:
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
