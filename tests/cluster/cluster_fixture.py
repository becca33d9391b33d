"""A cluster of real processes for the tests: started once per module, signalled by process id, queried over REST.

    @pytest.fixture(scope="module")
    def cluster(tmp_path_factory): with Cluster.running(tmp_path_factory.mktemp("cluster")) as own: yield own

    cluster = pytest.fixture(scope="package")(shared_cluster)  # in conftest.py: for all tests of a folder

It is `oncelog standalone` itself, so what dies is started again a moment later; `held()` stops the supervisor, and with
it the restarts, for as long as a test needs something to stay away. At the end of the block everything is killed by its
id, stopped processes too, whatever the tests left behind.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

import httpx
import pytest

from oncelog.core.names import parse_topic
from oncelog.runtime.settings import variable
from oncelog.testing import LocalCluster
from tests.cluster.commands import environment, run_command
from tests.cluster.forked_program import ForkedPopen, of_the_run
from tests.cluster.kills import Once, alive, kill, kill_sync, moment
from tests.cluster.sessions import end_session, session_of
from tests.cluster.until import until, until_sync
from tests.contract.stores.redis_process import RedisProcess

START_S = 180.0
#: Far above the duration of any step on a busy machine, and below the session timeout of the failover tests.
DEADLINE_S = 40.0
REQUEST_S = 10.0
#: Between two questions over REST: each takes 10 ms of CPU, and what is waited for takes seconds.
REST_EVERY_S = 0.1
#: Without balancing, so that topics stay at their owners. An empty directory replaces the former one at once.
_SMALL = {"segment_bytes": 8 << 20, "free_bytes_min": 64 << 20, "balance": False, "replace_delay_ms": 0}


class Cluster(LocalCluster):
    """One standalone cluster on one directory. It may be killed and restarted."""

    #: what runs the cluster
    program: Sequence[str] = ("oncelog.cli", "standalone")

    def __init__(self, data: Path, arguments: list[str], environment: Mapping[str, str]) -> None:
        self.log = data.with_suffix(".log")
        command = [sys.executable, "-m", *self.program, "--data", str(data), *arguments]
        self._set_up(command, environment, log=self.log)
        self._data = data
        #: further options of httpx for each request to REST: headers, verify
        self.rest: dict[str, Any] = {}

    @property
    def data(self) -> Path:
        return self._data

    @classmethod
    @contextmanager
    def running(
        cls,
        directory: Path,
        *,
        storage_nodes: int = 3,
        owners: int = 2,
        metadata: int = 1,
        port: int = 0,
        http_port: int = 0,
        pulsar_port: int = 0,
        pulsar_rest_port: int = 0,
        kafka_port: int = 0,
        **settings: int | str,
    ) -> Iterator[Self]:
        """Serve inside the block. ports: 0 for free ones; pulsar_port, pulsar_rest_port, kafka_port: of a door; 0: not
        served. settings: of the services, by the names of their fields.

        With TLS or authentication the requests of this class need more: `rest`.
        """
        counts = {"--storage-nodes": storage_nodes, "--owners": owners, "--metadata": metadata}
        ports = {"--port": port, "--http-port": http_port}
        doors = {
            "--pulsar-port": pulsar_port, "--pulsar-rest-port": pulsar_rest_port, "--kafka-port": kafka_port,
        }  # fmt: skip
        ports |= {name: given for name, given in doors.items() if given}
        arguments = [f"{name}={value}" for name, value in (counts | ports).items()]
        given = {variable(name): str(value) for name, value in (_SMALL | settings).items()}
        cluster = cls(directory / "data", arguments, environment() | given)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster._end_all()

    def _launched(self, log: IO[bytes]) -> "subprocess.Popen[bytes]":
        module, *words = self._command[2:]
        if module in of_the_run().modules:
            return ForkedPopen(of_the_run(), module, words, self._environment, log)
        return super()._launched(log)

    # --- life ---------------------------------------------------------------------------------------------------------

    async def kill_all(self, *, once: Once) -> None:
        """Kill all processes at once, as a power failure does, as soon as the condition holds. The directory stays."""
        await moment(once)
        self._end_all()

    def _end_all(self) -> None:
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        # A stopped supervisor starts no process that this list would miss.
        supervisor.send_signal(signal.SIGSTOP)
        children = children_of(supervisor.pid)
        for pid in [*children, supervisor.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        supervisor.wait()
        until_sync(lambda: not any(map(alive, children)), DEADLINE_S, waiting_for="the children to be gone")

    def kill_supervisor(self, *, once: Callable[[], object]) -> None:
        """SIGKILL for the supervisor alone, as soon as the condition holds: the other processes end by themselves."""
        assert self._supervisor is not None
        kill_sync(self._supervisor, once=once)

    @property
    def supervisor_id(self) -> int:
        """Process id of the supervisor that uses the directory."""
        return int(self.status()["pid"])

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside the block, processes that end are not restarted."""
        assert self._supervisor is not None
        self._supervisor.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._supervisor.send_signal(signal.SIGCONT)

    # --- processes ----------------------------------------------------------------------------------------------------

    @property
    def supervisor_log(self) -> str:
        """What the supervisor has written."""
        return self.log.read_text()

    @property
    def processes(self) -> dict[str, dict[str, Any]]:
        """{name: the supervisor's record of the process}; inside `held()`, as of its start."""
        return {process["name"]: process for process in self.status()["processes"]}

    def serving(self, name: str, what: str = "address") -> str:
        return str(self.processes[name]["serving"][what])

    def signal(self, name: str, number: signal.Signals) -> int:
        """Send a signal to one process; returns its id."""
        pid = int(self.processes[name]["pid"])
        os.kill(pid, number)
        return pid

    async def has_id(self, name: str) -> None:
        """Return once the process has an id: after it ended by itself, the supervisor needs a moment to restart it."""
        await until(lambda: self.runs(name), DEADLINE_S, waiting_for=f"{name} to be started")

    async def kill(self, name: str, *, once: Once) -> int:
        """SIGKILL as soon as the condition holds, see `tests.cluster.kills`. Returns the process id, of a process that
        has ended. It must run before: inside `held()` it does not if it was killed there."""
        await self.has_id(name)
        pid = int(self.processes[name]["pid"])
        await kill(pid, once=once)
        return pid

    def runs(self, name: str) -> bool:
        """Whether the process runs, as far as its supervisor knows it."""
        pid = self.processes[name]["pid"]
        return pid is not None and alive(pid)

    async def expire(self, name: str) -> None:
        """End the ZooKeeper session of a process that is stopped, or was killed and not started again since.

        Return once ZooKeeper has ended the session: nobody waits for its timeout.
        """
        zookeeper, serving = self.serving("zookeeper"), self.processes[name]["serving"]
        await end_session(zookeeper, await session_of(zookeeper, serving))

    async def kill_and_expire(self, name: str, *, once: Once) -> None:
        """`kill`, and end the process's ZooKeeper session, although the supervisor may have started it again."""
        zookeeper, serving = self.serving("zookeeper"), self.processes[name]["serving"]
        session_id = await session_of(zookeeper, serving)
        await self.kill(name, once=once)
        await end_session(zookeeper, session_id)

    @contextmanager
    def stopped(self, name: str) -> Iterator[int]:
        """SIGSTOP inside the block: the process keeps every connection open and does not respond."""
        pid = self.signal(name, signal.SIGSTOP)
        try:
            yield pid
        finally:
            os.kill(pid, signal.SIGCONT)

    async def healed(self) -> None:
        """Return once every process serves, and each metadata replica sees all owners and storage nodes.

        Each: a replica that never saw an owner's stream waits for its session when that owner dies.
        """

        missing: list[str] = []

        async def whole() -> bool:
            missing[:] = await _missing(self)
            return not missing

        try:
            await until(whole, START_S, every_s=REST_EVERY_S, waiting_for="the cluster to be whole again")
        except AssertionError as error:
            error.add_note(f"missing: {missing}; the supervisor's last words:\n{self.supervisor_log[-4000:]}")
            raise

    def run(self, *words: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        """A command of `oncelog` against this cluster, to its end. given: its standard input."""
        return run_command(self.url, self.admin_url, *words, given=given)

    # --- REST ---------------------------------------------------------------------------------------------------------

    async def request(self, method: str, path: str, *, replica: str = "metadata-1", **kwargs: Any) -> httpx.Response:
        scheme = self.admin_url.partition(":")[0]
        # Without `verify` each client would load the certificates of the world: 30 ms of CPU for each poll.
        async with httpx.AsyncClient(
            **{"timeout": REQUEST_S, "trust_env": False, "verify": False, **self.rest}
        ) as client:
            return await client.request(method, f"{scheme}://{self.serving(replica, 'http')}{path}", **kwargs)

    async def get(self, path: str, **kwargs: Any) -> Any:
        answer = await self.request("GET", path, **kwargs)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def change(self, method: str, path: str, **kwargs: Any) -> None:
        answer = await self.request(method, path, **kwargs)
        assert answer.status_code == 204, answer.text

    async def owner_of(self, topic: str) -> str:
        """Name of the process that serves the topic, once one does."""

        async def named() -> str:
            stats = await self.stats(topic)
            if stats.get("phase") != "serving":
                return ""  # a process that is starting has no incarnation, as such an answer has no owner
            owner = stats["owner"]
            return next((n for n, p in self.processes.items() if p["serving"].get("incarnation") == owner), "")

        return await until(named, DEADLINE_S, every_s=REST_EVERY_S, waiting_for=f"{topic} to be served")

    async def stats(self, topic: str, kind: str = "stats") -> dict[str, Any]:
        """The owner's response; {} while the owner does not respond. kind: stats or internalStats."""
        answer = await self.request("GET", f"{rest_path(topic)}/{kind}")
        assert answer.status_code in {200, 503, 504}, answer.text
        told: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
        return told

    async def served_by_another(self, topic: str, owner_epoch: int) -> dict[str, Any]:
        """Its statistics once it is served in a later epoch than `owner_epoch`."""

        async def later() -> dict[str, Any]:
            stats = await self.stats(topic)
            return stats if stats.get("phase") == "serving" and stats["owner_epoch"] > owner_epoch else {}

        waiting_for = f"{topic} above epoch {owner_epoch}"
        return await until(later, DEADLINE_S, every_s=REST_EVERY_S, waiting_for=waiting_for)


async def _missing(cluster: Cluster) -> list[str]:
    """The reasons why the cluster is not complete, for the message of a failed test."""
    processes = cluster.processes
    if down := [f"{name}: {p}" for name, p in processes.items() if not _serves(p)]:
        return down
    missing = []
    for replica in [name for name, p in processes.items() if p["role"] == "metadata"]:
        try:
            brokers = await cluster.get("/admin/v2/brokers", replica=replica)
            nodes = await cluster.get("/admin/v2/storage-nodes", replica=replica)
        except httpx.TransportError as error:
            return [f"{replica}: {error!r}"]  # the process reported that it serves before it was killed
        seen = {
            "owner": {owner["incarnation"] for owner in brokers if owner["connected"]},
            "storage": {node["incarnation"] for node in nodes if node["live"]},
        }
        missing += [
            f"{replica} does not see {name}: {brokers} {nodes}"
            for name, p in processes.items()
            if p["role"] in seen and p["serving"]["incarnation"] not in seen[p["role"]]
        ]
    return missing


def rest_path(topic: str) -> str:
    """Of a topic under its REST address."""
    return f"/admin/v2/persistent/{parse_topic(topic)}"


def _serves(process: dict[str, Any]) -> bool:
    return process["state"] == "serving" and alive(process["pid"])


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError):
            found += map(int, task.read_text().split())
    return found


def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two storage nodes and two owners, and a Redis for keys, for the tests of a folder that need no settings of their
    own: its start costs as much as many of them. Each test has topics that no other of the folder uses, and restores
    what else it changes."""
    place = tmp_path_factory.mktemp("shared")
    with (
        RedisProcess.running(place / "redis") as redis,
        Cluster.running(place, storage_nodes=2, owners=2, redis_url=redis.url) as running,
    ):
        yield running
