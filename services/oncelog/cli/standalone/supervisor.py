"""Starts, supervises and drains all processes of a standalone cluster.

All processes start together, because each waits for what it needs: ZooKeeper, the cluster's record, storage nodes.
Their ports are reserved before. The metadata services create the cluster in ZooKeeper as everywhere else, once every
storage node has answered that its directory is empty; only if the directory has no data of any storage node. If storage
nodes have data and ZooKeeper has none, or is older, the processes wait until an operator restores it.
Stop order: the door first, so that its clients get their answers; owners, because closing a topic needs storage nodes
and ZooKeeper; then metadata services, storage nodes and ZooKeeper. Each step has a deadline. If the supervisor is
killed, its processes stop, too (`orphan_guard`).
"""

import asyncio
import contextlib
import errno
import os
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from oncelog.cli.standalone import cluster_plan as plans
from oncelog.cli.standalone.cluster_plan import ClusterPlan, ProcessPlan, Role
from oncelog.cli.standalone.fork_server import ForkServer
from oncelog.cli.standalone.process_start import ProcessStarter
from oncelog.cli.standalone.status import ClusterStatus, ProcessStatus, write_status
from oncelog.cli.standalone.supervised_process import ProcessState, SupervisedProcess
from oncelog.cli.standalone.zookeeper_process import ZooKeeperProcess
from oncelog.core.errors import Fatal, InvalidArgument
from oncelog.runtime.descriptors import sentence_of
from oncelog.runtime.port_claim import claim_port, port_of
from oncelog.runtime.settings import variable
from oncelog.runtime.whole_file import overwrite_file

START_DEADLINE_S = 90.0
#: A process that exits this often before it is ready will not become ready.
EARLY_EXITS_MAX = 3
DRAIN_DEADLINE_S = (plans.STABILITY_TIMEOUT_MS + plans.DRAIN_TIMEOUT_MS) / 1000 + 3.0
_LOOK_EVERY_S = 0.02
#: Between two questions to storage nodes why they do not serve.
_ASK_EVERY_S = 0.5
#: A start that takes longer says what it waits for, and again when that changes.
_SAY_EVERY_S = 2.0
_HEALTH_TIMEOUT_S = 5.0
#: A proxy of the user's environment does not reach these processes.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
#: How a storage node says that ZooKeeper has no record of its cluster (`log_storage.open_node`), or an older state than
#: its data (`node_registration`, `core.node.era`) or its notes (`note_copying`), or that a restore has not ended
#: (`core.node.era`, `joining`); and what is told of it.
MISSING_RECORD = "cluster record missing"
OLDER_ZOOKEEPER = "ZooKeeper is older than the"
UNENDED_RESTORE = "goes on with it"
_LOSSES = {
    MISSING_RECORD: (
        "{storage} has data of a cluster, but {zookeeper} had none: ZooKeeper's data was lost. No cluster is created, "
        "and nothing is served"
    ),
    OLDER_ZOOKEEPER: (
        "{storage} knows of newer changes than {zookeeper} has: an older copy of ZooKeeper's data was put back. "
        "Nothing is served from it"
    ),
    UNENDED_RESTORE: "a restore of {zookeeper} from {storage} and others has not ended. Nothing is served until it has",
}

#: Callback for messages about the cluster.
Tell = Callable[[str], None]


class StandaloneFailed(Fatal):
    """The cluster did not start; the message has the process and the end of its log."""


class StartStopped(Fatal):
    """A shutdown was requested before all processes served."""


class Supervisor:
    """Runs the processes of one plan. The cluster runs inside the `running()` block."""

    def __init__(self, plan: ClusterPlan, tell: Tell, forks: ForkServer | None = None) -> None:
        """forks: has imported the modules of `cluster_plan.MODULES`, or does so; None: processes import them."""
        self.plan = plan
        self._tell = tell
        self._starter = ProcessStarter(forks, tell)
        self._processes: list[SupervisedProcess] = []
        self._zookeeper = ZooKeeperProcess(plan.zookeeper_data, self._zookeeper_changed)
        self._ready = False
        self._rest = ""
        #: whether the status file lacks the newest change
        self._outdated = False
        #: claims of the ports that processes keep over restarts
        self._claims = contextlib.ExitStack()
        self._claimed: set[int] = set()
        self.environment: Mapping[str, str] = plans.process_environment(
            os.environ, redis_url=plan.redis_url, light=plan.light
        )

    @contextlib.asynccontextmanager
    async def running(
        self,
        *,
        processes: Callable[[ClusterPlan, str], list[ProcessPlan]] = plans.service_processes,
        stopping: Callable[[], bool] = lambda: False,
    ) -> AsyncIterator[ClusterStatus]:
        """Start all processes, yield the status when all are ready, and drain at the end of the block.

        processes: returns the services, for the plan and ZooKeeper's address. stopping: whether a shutdown was
        requested, which ends the start, too.
        Raises StartStopped, InvalidArgument for a port that cannot be used, StandaloneFailed, EmbeddedZooKeeperMissing,
        EmbeddedZooKeeperFailed.
        """
        used = self.plan.storage_directories
        mark = self.plan.lost_path
        lost = bool(used) and (mark.exists() or not self._zookeeper.has_data)
        if lost:
            # ZooKeeper's directory has data once it was started, and these say nothing of the cluster.
            mark.touch()
        with self._claims:
            self._zookeeper.port = self._take_port(0)
            children = self._children(processes(self.plan, self._zookeeper.address))
            if any(self.plan.doors):
                ports = plans.DoorPorts(*(port and self._take_port(port) for port in self.plan.doors))
                children.append(plans.door_process(children, ports, tls=self._tls))
            self._name_storage_nodes(children)
            self._rest = plans.rest_address(children)
            try:
                async with asyncio.TaskGroup() as tasks:
                    keeper = tasks.create_task(self._zookeeper.keep(), name=self._zookeeper.name)
                    try:
                        await self._start(children, tasks, stopping, lost=lost)
                        mark.unlink(missing_ok=True)
                        self._ready = True
                        self._write()
                        yield self.status()
                    finally:
                        await self._drain()
                        keeper.cancel()
            finally:
                await self._zookeeper.stop()

    def _children(self, wanted: Sequence[ProcessPlan]) -> list[ProcessPlan]:
        """The same, with reserved ports where a process keeps them. Raises InvalidArgument."""
        lasting = {Role.METADATA, Role.STORAGE}
        return [plans.with_ports(child, self._take_port) if child.role in lasting else child for child in wanted]

    def _name_storage_nodes(self, children: Sequence[ProcessPlan]) -> None:
        """Let the metadata services create the cluster once all storage nodes prove that it is new, or restore it from
        what these nodes have."""
        nodes = "".join(f"{node}\n" for node in plans.health_addresses(children))
        try:
            overwrite_file(self.plan.nodes_path, nodes.encode())
        except OSError as error:
            self._tell(
                f"cannot write {self.plan.nodes_path}: {sentence_of(error)}; a lost ZooKeeper could not be restored now"
            )
            return
        self.environment = {**self.environment, variable("new_cluster_nodes_file"): str(self.plan.nodes_path)}

    def status(self) -> ClusterStatus:
        server = self._zookeeper
        processes = [
            ProcessStatus(server.name, server.role, server.pid, server.state, server.restarts, server.serving),
            *(
                ProcessStatus(child.name, child.plan.role, child.pid, child.state, child.restarts, child.serving)
                for child in self._processes
            ),
        ]
        return ClusterStatus(
            os.getpid(), str(self.plan.data), self._ready, processes, self._tls, self.plan.light, self._rest
        )

    @property
    def _tls(self) -> bool:
        return bool(self.environment.get(variable("tls_certificate_file")))

    async def _start(
        self, wanted: Sequence[ProcessPlan], tasks: asyncio.TaskGroup, stopping: Callable[[], bool], *, lost: bool
    ) -> None:
        """Start the processes, and return when all and ZooKeeper are ready. Raises StandaloneFailed, StartStopped.

        lost: all wait until an operator restores ZooKeeper's data. So there is no deadline, and processes end meanwhile
        and start again. So it is, too, once a storage node says that it waits for a restore.
        """
        self._processes = children = [
            SupervisedProcess(
                child, self.plan.log_path(child.name), self.environment, self._process_changed, self._starter
            )
            for child in wanted
        ]
        for child in children:
            tasks.create_task(child.keep(), name=child.name)
        told = False
        loop = asyncio.get_running_loop()
        ask_at_s = loop.time() + (0 if lost else _ASK_EVERY_S)
        said, say_at_s = "", loop.time() + _SAY_EVERY_S
        try:
            async with asyncio.timeout(None if lost else START_DEADLINE_S) as deadline:
                # ZooKeeper serves the others before it is known to: without it the status would call it starting.
                while self._not_serving(children) or self._zookeeper.state is not ProcessState.SERVING:
                    if stopping():
                        raise StartStopped("stopped before all processes served")
                    if not told and loop.time() >= ask_at_s:
                        ask_at_s = loop.time() + _ASK_EVERY_S
                        addresses = plans.health_addresses([child.plan for child in self._not_serving(children)])
                        if (why := await asyncio.to_thread(loss_told_by, addresses)) is not None:
                            told = lost = True
                            deadline.reschedule(None)
                            self._tell_of_restore(why)
                    if not told and loop.time() >= say_at_s and (waits := self._waits(children)) != said:
                        said, say_at_s = waits, loop.time() + _SAY_EVERY_S
                        self._tell(said)
                    for child in self._not_serving(children):
                        if child.failures >= EARLY_EXITS_MAX and not lost:
                            raise StandaloneFailed(f"{child.name} does not start: {child.last_words()}")
                    await asyncio.sleep(_LOOK_EVERY_S)
        except TimeoutError as error:
            reasons = "\n".join(f"{child.name}: {child.last_words()}" for child in self._not_serving(children))
            raise StandaloneFailed(f"not ready after {START_DEADLINE_S:.0f} s:\n{reasons}") from error

    def _tell_of_restore(self, loss: str) -> None:
        """loss: one of _LOSSES."""
        said = _LOSSES[loss].format(storage=self.plan.storage_directories[0], zookeeper=self.plan.zookeeper_data)
        # The owners of an older ZooKeeper are those of this supervisor, which starts them again.
        words = "oncelog admin backup restore" + (" --take-over" if loss == OLDER_ZOOKEEPER else "")
        self._tell(
            f"{said}. Keep {self.plan.data}. This command in another terminal restores ZooKeeper's records from what "
            f"the storage nodes have:\n  ONCELOG_ADMIN_URL={self.status().admin_url} {words}"
        )

    def _waits(self, children: Sequence[SupervisedProcess]) -> str:
        """What the start waits for: all services need ZooKeeper first."""
        if self._zookeeper.state is not ProcessState.SERVING:
            return f"waits for ZooKeeper, which starts on the data in {self.plan.zookeeper_data}"
        names = ", ".join(child.name for child in self._not_serving(children))
        return f"waits for {names}; the logs are in {self.plan.data / 'logs'}"

    @staticmethod
    def _not_serving(children: Sequence[SupervisedProcess]) -> list[SupervisedProcess]:
        return [child for child in children if child.state is not ProcessState.SERVING]

    def _take_port(self, port: int) -> int:
        """Reserve the port, or a free one for 0. Raises InvalidArgument."""
        try:
            if port in self._claimed:
                raise OSError(errno.EADDRINUSE, "another process of this cluster needs it, too")
            claim = claim_port(plans.HOST, port)
        except (OSError, OverflowError) as error:
            reason = "it is above 65535" if isinstance(error, OverflowError) else _port_fault(error)
            raise InvalidArgument(
                f"port {port} of {plans.HOST} cannot be used, {reason}: name another one with --port (gRPC), "
                "--http-port (REST), --pulsar-port, --pulsar-rest-port or --kafka-port; the first two may be 0, for "
                "any free port",
                field="port",
                port=port,
            ) from error
        self._claims.callback(claim.close)
        self._claimed.add(port_of(claim))
        return port_of(claim)

    async def _drain(self) -> None:
        for role in (Role.DOOR, Role.OWNER, Role.METADATA, Role.STORAGE):
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
        """The cluster goes on without the file, as on a full disk: it serves others, who free space."""
        try:
            write_status(self.plan.status_path, self.status())
            self._outdated = False
        except OSError as error:
            if not self._outdated:
                self._outdated = True
                self._tell(f"cannot write {self.plan.status_path}, it is out of date: {sentence_of(error)}")


def loss_told_by(health_addresses: Sequence[str]) -> str | None:
    """Which of _LOSSES one of these storage nodes waits for; None: none says so. On a thread."""
    for address in health_addresses:
        try:
            with _direct.open(f"http://{address}/readyz", timeout=_HEALTH_TIMEOUT_S):
                continue
        except urllib.error.HTTPError as error:
            with error:
                reason = error.read()
        except OSError:
            continue  # it does not listen yet
        for loss in _LOSSES:
            if loss.encode() in reason:
                return loss
    return None


def _port_fault(error: OSError) -> str:
    in_use = error.errno == errno.EADDRINUSE and error.strerror == os.strerror(errno.EADDRINUSE)
    return "because another program listens on it" if in_use else f"because {error.strerror}"
