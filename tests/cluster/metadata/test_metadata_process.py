"""Metadata services and topic owners as real processes over a real ZooKeeper: starts, signals, deaths, exit codes."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import Incarnation
from oncelog.core.names import parse_topic
from oncelog.core.process_version import PROCESS_VERSION
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.registry import LiveOwner, Registry
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.metadata_codec import LOOKUP
from oncelog.runtime.process import ExitCode
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from oncelog.wire import metadata_pb2 as pb
from tests.cluster.commands import environment
from tests.cluster.forked_program import ForkedPopen, of_the_run
from tests.cluster.kills import end
from tests.cluster.sessions import SESSION_TIMEOUT_MS
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio

DEADLINE_S = 40.0
NO_OWNER = "no topic owner can take a topic: start a topic owner"
#: Of the one process whose session ends by its timeout: short enough to wait for once.
SHORT_SESSION_TIMEOUT_MS = 4_000


@pytest.fixture
def zookeeper(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> str:
    """ZooKeeper address of the cluster of the test, with its root: what a former test has killed is registered still,
    until its session ends."""
    return f"{zookeeper_server.address}/metadata-process/{tmp_path.name}"


class Process:
    """One service process; `serving` has the addresses that it reported. anew: it imports its modules, as for users."""

    def __init__(
        self, module: str, folder: Path, number: int, *arguments: str, session_timeout_ms: int, anew: bool
    ) -> None:
        self.log = folder / f"{module}-{number}.log"
        self._output = folder / f"{module}-{number}.out"
        given = environment() | {"ONCELOG_SESSION_TIMEOUT_MS": str(session_timeout_ms)}
        self.popen: subprocess.Popen[bytes]
        with self._output.open("wb") as output, self.log.open("wb") as log:
            if anew:
                words = [sys.executable, "-m", module, *arguments]
                self.popen = subprocess.Popen(words, stdout=output, stderr=log, env=given)
            else:
                self.popen = ForkedPopen(of_the_run(), module, arguments, given, log, output)

    async def serving(self) -> dict[str, str]:
        def said() -> bytes:
            assert self.popen.poll() is None, self.log.read_text()
            return self._output.read_bytes()

        line = await until(said, DEADLINE_S)
        serving: dict[str, str] = json.loads(line)["serving"]
        return serving

    @property
    def output(self) -> str:
        return self._output.read_text()

    async def ended(self) -> int:
        await until(lambda: self.popen.poll() is not None, DEADLINE_S)
        return self.popen.returncode

    def end(self) -> None:
        end(self.popen)


@dataclass
class Cluster:
    folder: Path
    zookeeper: str
    session: ZooKeeperSession
    processes: list[Process] = field(default_factory=list)

    def start(
        self, module: str, *arguments: str, session_timeout_ms: int = SESSION_TIMEOUT_MS, anew: bool = False
    ) -> Process:
        options = ("--zookeeper", self.zookeeper, "--port", "0", *arguments)
        number = len(self.processes)
        process = Process(module, self.folder, number, *options, session_timeout_ms=session_timeout_ms, anew=anew)
        self.processes.append(process)
        return process

    def start_metadata(self) -> Process:
        return self.start("oncelog.metadata", "--http-port", "0")

    def end(self) -> None:
        for process in self.processes:
            process.end()

    async def record(self, topic: str = "flights") -> TopicRecord:
        topics = TopicStore(self.session)
        found = await topics.find(parse_topic(topic))
        assert found is not None
        stored = await topics.read(found.value.topic_id)
        assert stored is not None
        return stored.value


@asynccontextmanager
async def running(zookeeper: str, folder: Path) -> AsyncIterator[Cluster]:
    """No process yet."""
    async with asyncio.timeout(120), AsyncExitStack() as stack:
        session = await ZooKeeperSession.connect(zookeeper)
        stack.push_async_callback(session.close)
        cluster = Cluster(folder, zookeeper, session)
        stack.callback(cluster.end)
        yield cluster


async def look_up(address: str, topic: str = "flights") -> pb.LookupAnswer:
    async with Channel(address) as channel:
        request = pb.LookupRequest(topic=topic, create_if_missing=True)
        return await channel.call(LOOKUP, request, timeout_ms=20_000)


@pytest.mark.hazard("emptied-zookeeper")
async def test_cluster_is_created_once_on_request_and_services_only_join_it(zookeeper: str, tmp_path: Path) -> None:
    """Several may request it at once, and again later: all print the same id. Without a request a service waits."""
    async with running(zookeeper, tmp_path) as cluster:
        waiting = cluster.start_metadata()
        await until(lambda: "waiting for the cluster's record" in waiting.log.read_text(), DEADLINE_S)
        assert await ClusterStore(cluster.session).read() is None
        requests = [cluster.start("oncelog.metadata", "--create-cluster") for _ in range(3)]
        assert [await request.ended() for request in requests] == [ExitCode.OK] * 3
        late = cluster.start("oncelog.metadata", "--create-cluster", anew=True)
        assert await late.ended() == ExitCode.OK
        found = {request.output for request in (*requests, late)}
        assert found == {json.dumps({"cluster_id": (await waiting.serving())["cluster_id"]}) + "\n"}


async def test_metadata_services_start_at_once_and_end_cleanly(zookeeper: str, tmp_path: Path) -> None:
    """SIGTERM ends each cleanly, and removes its registration."""
    async with running(zookeeper, tmp_path) as cluster:
        await ClusterStore(cluster.session).establish()
        replicas = [cluster.start_metadata() for _ in range(2)]
        serving = [await replica.serving() for replica in replicas]
        assert serving[0]["cluster_id"] == serving[1]["cluster_id"]
        expected = {(one["address"], one["http"]) for one in serving}

        async def registered() -> bool:
            live = (await Registry(cluster.session).metadata.live()).values()
            ports = {(f"{one.host}:{one.ports['grpc']}", f"{one.host}:{one.ports['http']}") for one in live}
            return ports == expected

        await until(registered, DEADLINE_S, waiting_for="the registrations of these two services alone")
        async with httpx.AsyncClient(verify=False) as http:
            for one in serving:
                clusters = await http.get(f"http://{one['http']}/admin/v2/clusters")
                assert clusters.json() == [one["cluster_id"]]
                assert (await http.get(f"http://{one['health']}/readyz")).json()["status"] == "ok"
                metrics = await http.get(f"http://{one['health']}/metrics")
                assert "oncelog_metadata_owners_live 0.0" in metrics.text
        for replica, number in zip(replicas, (signal.SIGTERM, signal.SIGINT), strict=True):
            replica.popen.send_signal(number)
            assert await replica.ended() == ExitCode.OK, replica.log.read_text()
        assert await Registry(cluster.session).metadata.live() == {}


async def test_stopped_owner_keeps_its_topics_until_its_session_ends(zookeeper: str, tmp_path: Path) -> None:
    """After SIGSTOP, the port still accepts connections, so only the end of the session decides. The session ends by
    its timeout, as for users; all other tests end sessions by command."""
    async with running(zookeeper, tmp_path) as cluster:
        await ClusterStore(cluster.session).establish()
        metadata = await cluster.start_metadata().serving()
        owner = cluster.start("oncelog.topic_owner", session_timeout_ms=SHORT_SESSION_TIMEOUT_MS, anew=True)
        stopped = (await owner.serving())["incarnation"]
        assert (await look_up(metadata["address"], "stopped")).owner_incarnation == stopped
        heir = (await cluster.start("oncelog.topic_owner").serving())["incarnation"]
        owner.popen.send_signal(signal.SIGSTOP)
        registry = Registry(cluster.session)

        async def moved() -> bool:
            named = await cluster.record("stopped")
            alive = Incarnation(stopped) in {one.incarnation for one in (await registry.owners.live()).values()}
            # The record was read first: an owner that has a session now had one then.
            assert not (alive and named.owner != stopped), "moved while the session lasted"
            return named.owner == heir

        await until(moved, DEADLINE_S)
        owner.popen.send_signal(signal.SIGCONT)


async def test_invalid_arguments_fail_the_start(zookeeper: str, tmp_path: Path) -> None:
    """With an exit code and a message that name the argument."""
    async with running(zookeeper, tmp_path) as cluster:
        await ClusterStore(cluster.session).establish()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            in_use = cluster.start("oncelog.metadata", "--http-port", str(taken.getsockname()[1]))
            unknown = cluster.start("oncelog.metadata", "--colour", "red", anew=True)
            assert await in_use.ended() == ExitCode.FAILED
        assert "Address already in use" in in_use.log.read_text()
        assert await unknown.ended() == ExitCode.USAGE


@pytest.mark.hazard("away-node-of-an-older-version")
async def test_owner_of_a_version_below_the_level_counts_for_nothing(zookeeper: str, tmp_path: Path) -> None:
    """The cluster has the level of the program that has created it."""
    async with running(zookeeper, tmp_path) as cluster:
        await ClusterStore(cluster.session).establish()
        old = LiveOwner(Incarnation("7" * 32), "127.0.0.1", {"grpc": 9}, 0, version=PROCESS_VERSION - 1)
        await Registry(cluster.session).register_owner(old).establish()
        metadata = await cluster.start_metadata().serving()
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            health = await client.get(f"http://{metadata['http']}/admin/v2/brokers/health")
        assert (health.status_code, health.json()["detail"]) == (503, NO_OWNER)
