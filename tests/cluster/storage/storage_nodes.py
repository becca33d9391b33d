"""Storage nodes as real processes, over a real ZooKeeper and real directories."""

import asyncio
import contextlib
import json
import resource
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from oncelog.core.errors import OncelogError
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.writer import Add
from oncelog.core.records.id_claim import Counter, CounterRecord
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from oncelog.rpc.channel import Channel, Stream
from oncelog.rpc.codecs.storage_codec import APPEND, AppendAnswer, AppendFrame
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from tests.cluster.commands import environment
from tests.cluster.forked_program import ForkedPopen, of_the_run
from tests.cluster.kills import Once, end, kill
from tests.cluster.until import until
from tests.contract.storage_client.ledger_world import TOPIC

START_S = 90.0
DEADLINE_S = 30.0
SEGMENT_BYTES = 8 << 20
#: Of the disk of the machine that runs the tests.
FREE_BYTES_MIN = 64 << 20


class StorageNodeProcess:
    """One process and its output. It may be started again on the same directory."""

    def __init__(self, data: Path, zookeeper: str, *, port: int = 0) -> None:
        self.data = data
        self.log = data.with_suffix(".log")
        self._output = data.with_suffix(".out")
        self._arguments = ["--data", str(data), "--zookeeper", zookeeper]
        self._arguments += ["--port", str(port), "--segment-bytes", str(SEGMENT_BYTES)]
        self.process: subprocess.Popen[bytes] | None = None
        #: the parsed line of standard output
        self.serving: dict[str, str] = {}

    @property
    def incarnation(self) -> Incarnation:
        return Incarnation(self.serving["incarnation"])

    @property
    def address(self) -> str:
        return self.serving["address"]

    def launch(self) -> None:
        """Start without waiting."""
        given = {"ONCELOG_FREE_BYTES_MIN": str(FREE_BYTES_MIN)}
        with self._output.open("wb") as output, self.log.open("ab") as log:
            self.process = ForkedPopen(
                of_the_run(), "oncelog.log_storage", self._arguments, environment() | given, log, output
            )

    async def start(self) -> None:
        """Return once it reports that it serves."""
        self.launch()
        await self.serves()

    async def serves(self) -> None:
        """Return once it reports that it serves."""
        await until(self._said, START_S, waiting_for=f"{self.data.name} to serve")
        self.serving = json.loads(self._output.read_bytes())["serving"]

    async def serves_or_ends(self) -> int | None:
        """None once it serves; its exit code if it ends before."""
        process = self.process
        assert process is not None

        def is_decided() -> bool:
            return process.poll() is not None or self._output.read_bytes().endswith(b"\n")

        await until(is_decided, START_S, waiting_for=f"{self.data.name} to serve or to end")
        if process.poll() is None:
            await self.serves()
        return process.poll()

    def _said(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.last_line()
        return self._output.read_bytes().endswith(b"\n")

    def last_line(self) -> str:
        lines = self.log.read_text().splitlines()
        return lines[-1] if lines else ""

    async def ended(self) -> int:
        """Wait until it ends by itself; returns the exit code."""
        process = self.process
        assert process is not None
        await until(lambda: process.poll() is not None, DEADLINE_S, waiting_for=f"the end of {self.data.name}")
        return process.returncode

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def kill(self, *, once: Once) -> None:
        """Kill it, as in a crash, as soon as the condition holds."""
        assert self.process is not None
        await kill(self.process, once=once)

    def end(self) -> None:
        """Kill it if it runs still."""
        if self.process is not None:
            end(self.process)

    def limit_file_bytes(self, size: int) -> None:
        """From now on no file can grow beyond `size`: a disk that fails during a write."""
        assert self.process is not None
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, size))

    def wipe(self) -> None:
        """Delete the directory, as with a new disk."""
        shutil.rmtree(self.data)

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of its health port."""
        try:
            with urllib.request.urlopen(f"http://{self.serving['health']}{path}", timeout=DEADLINE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


class StorageCluster:
    """A root in ZooKeeper, and storage nodes by number."""

    def __init__(self, tmp_path: Path, zookeeper: str, session: ZooKeeperSession) -> None:
        #: address for the nodes, including the root
        self.zookeeper = zookeeper
        self.registry = Registry(session)
        self.ledgers = LedgerStore(session)
        self.counter = CounterStore(session, Counter.LEDGER)
        self._tmp_path = tmp_path
        self.nodes: list[StorageNodeProcess] = []

    @classmethod
    @asynccontextmanager
    async def running(cls, tmp_path: Path, server: ZooKeeperServer, count: int) -> AsyncIterator["StorageCluster"]:
        zookeeper = f"{server.address}/{uuid4().hex}"
        session = await ZooKeeperSession.connect(zookeeper)
        cluster = cls(tmp_path, zookeeper, session)
        try:
            await ClusterStore(session).establish()
            await asyncio.gather(*(cluster.node().start() for _ in range(count)))
            yield cluster
        finally:
            for node in cluster.nodes:
                node.end()
            await session.close()

    def node(self, *, port: int = 0) -> StorageNodeProcess:
        """Another node, not started."""
        data = self._tmp_path / f"node-{len(self.nodes)}"
        self.nodes.append(StorageNodeProcess(data, self.zookeeper, port=port))
        return self.nodes[-1]

    @property
    def addresses(self) -> dict[Incarnation, str]:
        return {node.incarnation: node.address for node in self.nodes}

    async def create_ledger(self, ledger_id: int, members: Sequence[StorageNodeProcess]) -> LedgerMetadata:
        metadata = LedgerMetadata(
            LedgerId(ledger_id),
            TOPIC,
            tuple(node.incarnation for node in members),
            len(members) // 2 + 1,
        )
        assert (await self.ledgers.write(metadata, version=ABSENT_VERSION)).status is WriteStatus.OK
        await self.claim(ledger_id)
        return metadata

    async def claim(self, ledger_id: int) -> None:
        """Let the counter of ledger ids be above it, as it is before an id is used."""
        stored = await self.counter.read()
        if stored.value.next <= ledger_id:
            claim = CounterRecord(ledger_id + 1, Incarnation("t" * 32), "t")
            await self.counter.write(claim, version=stored.version)


async def append_until_lost(
    node: StorageNodeProcess,
    target: Incarnation,
    adds: Sequence[Add],
    *,
    recovery: bool = False,
    fates: dict[EntryId, AppendStatus] | None = None,
) -> dict[EntryId, AppendStatus]:
    """One entry a frame on one stream; what became of each, up to the end of the stream, however it ends.

    fates: filled as the answers come, for whoever watches.
    """
    fates = {} if fates is None else fates
    async with Channel(node.address) as channel, asyncio.TaskGroup() as tasks:
        stream = channel.stream(APPEND)
        tasks.create_task(_take_answers(stream, fates))
        with contextlib.suppress(OncelogError):
            for add in adds:
                await stream.write(AppendFrame(target, recovery, [add.parts]))
            await stream.finish()
    return fates


async def _take_answers(stream: Stream[AppendFrame, list[AppendAnswer]], fates: dict[EntryId, AppendStatus]) -> None:
    with contextlib.suppress(OncelogError):
        async for answers in stream:
            for answer in answers:
                fates |= dict.fromkeys(answer.entry_ids, answer.status)
