"""A ZooKeeper that is older than the data: a storage node that answers proves it, and no silence does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.era import Era
from oncelog.core.errors import OncelogError, StoreUnavailable
from oncelog.core.ids import Incarnation
from oncelog.core.node.starts import REBUILT, JournalEnd, StorageEnd
from oncelog.core.placement.first_cluster import Answers, DirectorySeen, NoAnswer
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.log_storage.directory.directory_starts import DirectoryStarts
from oncelog.metadata_store.joining.joining import JoinedCluster, join_cluster
from oncelog.metadata_store.joining.node_proofs import NodeProofs
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterStore
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry, StorageCookie
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import Fired, StoreSession, Znode
from oncelog.runtime.process import Shutdown
from oncelog.runtime.settings import ProcessSettings
from tests.cluster.until import until, yield_to_loop
from tests.contract.node.directory.small_log import CLUSTER
from tests.contract.node.test_open_node import open_node
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("older-zookeeper-is-served")]

DEADLINE_S = 60.0
PATIENT = ProcessSettings(zookeeper_hosts="zookeeper:2181", start_timeout_ms=60_000)


class World:
    """A cluster in memory with one storage node, of which ZooKeeper had a former state, and a process that joins."""

    def __init__(self, path: Path, me: Incarnation, address: str) -> None:
        self.me, self.address = me, address
        self.tree = MemoryTree()
        self.session = self.open()
        self.registry = Registry(self.session)
        self.starts = DirectoryStarts(path, me, self.registry, on_superseded=pytest.fail)
        self.proofs = NodeProofs()
        #: of the process that joins
        self.sessions: list[MemorySession] = []
        self.lost: list[OncelogError] = []
        self.reasons: list[str] = []

    def open(self) -> MemorySession:
        return MemorySession(self.tree, root="/oncelog")

    async def connect(self, _timeout_ms: int) -> StoreSession:
        self.sessions.append(self.open())
        return self.sessions[-1]

    async def add_cookie(self, node: Incarnation, address: str = "") -> None:
        host, _, port = (address or self.address).rpartition(":")
        await self.registry.write_cookie(StorageCookie(node, host, int(port)), version=ABSENT_VERSION)

    async def register(self) -> None:
        host, _, port = self.address.rpartition(":")
        await self.registry.register_storage_node(LiveStorageNode(self.me, host, int(port), 0)).establish()

    def go_back(self, former: MemoryTree) -> None:
        """ZooKeeper has these records; sessions go on."""
        self.tree.nodes.clear()
        self.tree.nodes.update(former.nodes)

    async def fault(self) -> str | None:
        return await self.proofs.fault(self.session, await ClusterStore(self.session).require(), True)

    async def join(self, proofs: NodeProofs | None = None) -> JoinedCluster | None:
        return await join_cluster(
            PATIENT,
            Shutdown(),
            connect=self.connect,
            on_lost=self.lost.append,
            on_waiting=self.reasons.append,
            proved_older=(proofs or self.proofs).fault,
        )

    def reconnect(self) -> None:
        """The connection of the process breaks and returns."""
        self.sessions[-1].faults.suspend()
        self.sessions[-1].faults.resume()

    async def looked(self) -> None:
        """The process has looked, if it was about to."""
        for _ in range(20):
            await self.session.read(paths.CLUSTER)
            await yield_to_loop()


@asynccontextmanager
async def world_of(tmp_path: Path) -> AsyncIterator[tuple[World, MemoryTree]]:
    """(The world, the records as they were before the node has written its own for the last time.)"""
    path = tmp_path / "node"
    async with open_node(path) as node:
        await node.listen()
        world = World(path, node.runner.incarnation, node.address)
        await ClusterStore(world.session).establish(CLUSTER)
        await world.add_cookie(world.me)
        await world.starts.look()
        await world.starts.begin(JournalEnd(1, 0))
        former = MemoryTree(dict(world.tree.nodes))
        await world.starts.note(JournalEnd(1, 100))
        try:
            yield world, former
        finally:
            await world.proofs.close()


async def test_start_waits_while_zookeeper_is_older_and_names_the_node_that_proves_it(tmp_path: Path) -> None:
    """Also when the node has gone meanwhile. It goes on by itself once ZooKeeper has its records again."""
    async with world_of(tmp_path) as (world, former):
        newest = MemoryTree(dict(world.tree.nodes))
        world.go_back(former)
        join = asyncio.create_task(world.join())
        await until(lambda: world.reasons, DEADLINE_S)
        assert f"storage node {world.me} at {world.address} has written version 1 of its record" in world.reasons[0]
        assert "ZooKeeper has version 0" in world.reasons[0]
        assert "run `oncelog admin backup restore`" in world.reasons[0]
        world.address = "127.0.0.1:1"
        for _ in range(2):
            fault = await world.fault()
            assert fault is not None
            assert not join.done()
        world.go_back(newest)
        joined = await join
        assert joined is not None
        assert world.lost == []
        await joined.session.close()


async def test_node_that_does_not_answer_proves_nothing(tmp_path: Path) -> None:
    """So a start does not depend on storage nodes. Nor does a node of another cluster, or of the ZooKeeper of a former
    era."""
    async with world_of(tmp_path) as (world, former):
        assert await world.fault() is None
        world.go_back(former)
        for other in (ClusterRecord("other"), ClusterRecord(CLUSTER, era=Era(2, "a" * 32))):
            assert await NodeProofs().fault(world.session, other, True) is None
    proofs = NodeProofs()
    joined = await world.join(proofs)
    assert joined is not None
    await joined.session.close()
    await proofs.close()


async def test_record_that_was_written_anew_proves_nothing(tmp_path: Path) -> None:
    """Its version is that of a new record. The node starts with it, and then writes its own again."""
    async with world_of(tmp_path) as (world, _):
        await world.session.delete(paths.storage_end(world.me), version=1)
        assert "and ZooKeeper has none" in str(await world.fault())
        lost = StorageEnd(0, REBUILT, JournalEnd(0, 0))
        await world.registry.write_end(world.me, lost, version=ABSENT_VERSION)
        assert await world.fault() is None


async def test_record_that_an_operator_has_rebuilt_proves_nothing(tmp_path: Path) -> None:
    """It was deleted. The node writes it from its first version on, and has said a higher one before."""
    async with world_of(tmp_path) as (world, _):
        assert await world.fault() is None
        await world.session.delete(paths.storage_end(world.me), version=1)
        again = DirectoryStarts(tmp_path / "node", world.me, world.registry, on_superseded=pytest.fail)
        await again.look()
        await again.begin(JournalEnd(1, 100))
        assert await world.registry.end_version(world.me) == 0
        assert await world.fault() is None


async def test_node_that_was_removed_does_not_stop_the_cluster_by_a_record_that_is_missing(tmp_path: Path) -> None:
    """Its process was left running at an address that settings name. Somebody has deleted its record."""

    async def named() -> Answers:
        return {"node:1": DirectorySeen(CLUSTER, world.address)}

    async with world_of(tmp_path) as (world, _):
        cookie = await world.registry.read_cookie(world.me)
        assert cookie is not None
        retired = replace(cookie.value, retired=True)
        await world.registry.write_cookie(retired, version=cookie.version)
        await world.add_cookie(Incarnation("b" * 32), "127.0.0.1:1")
        await world.session.delete(paths.storage_end(world.me), version=1)
        proofs = NodeProofs(named=named)
        assert await proofs.fault(world.session, ClusterRecord(CLUSTER), True) is None
        await proofs.close()


async def test_node_that_only_settings_name_proves_it(tmp_path: Path) -> None:
    """ZooKeeper knows its former address, or does not know the node. One that has data of another cluster shows that
    ZooKeeper was emptied before the cluster was created there."""
    answers: Answers = {}

    async def named() -> Answers:
        return answers

    async with world_of(tmp_path) as (world, former):
        answers = {"node:1": DirectorySeen(CLUSTER, world.address), "silent:1": NoAnswer("refused")}
        for where in ("127.0.0.1:1", ""):
            world.go_back(former)
            cookie = await world.registry.read_cookie(world.me)
            assert cookie is not None
            await world.session.delete(f"{paths.STORAGE_COOKIES}/{world.me}", version=cookie.version)
            if where:
                await world.add_cookie(world.me, where)
            found = NodeProofs(named=named)
            fault = await found.fault(world.session, ClusterRecord(CLUSTER), True)
            assert fault is not None
            assert f"storage node {world.me} at {world.address} has written version 1 of its record" in fault
            await found.close()
        fault = await NodeProofs(named=named).fault(world.session, ClusterRecord("other"), True)
        assert f"storage node node:1 has data of cluster {CLUSTER}" in str(fault)


async def test_start_waits_for_a_zookeeper_of_a_later_era_that_a_node_has_written_in(tmp_path: Path) -> None:
    """One of three nodes is enough, also one that ZooKeeper does not name, because it came after that copy. A node that
    a restore has only raised proves nothing."""

    async def named() -> Answers:
        return {"node:1": DirectorySeen(CLUSTER, world.address)}

    path = tmp_path / "node"
    later, former = Era(3, "a" * 32), ClusterRecord(CLUSTER, era=Era(2, "b" * 32))
    async with open_node(path) as node:
        await node.listen()
        world = World(path, node.runner.incarnation, node.address)
        await ClusterStore(world.session).establish(CLUSTER)
        for letter in "bc":
            await world.add_cookie(Incarnation(letter * 32), "127.0.0.1:1")
        without = MemoryTree(dict(world.tree.nodes))
        await world.add_cookie(world.me)
        with_node = MemoryTree(dict(world.tree.nodes))
        await node.runner.raise_era(world.me, later, committed=False)
        proofs = NodeProofs(named=named)
        assert await proofs.fault(world.session, former, True) is None
        await node.runner.join_era(later)
        starts = DirectoryStarts(path, world.me, world.registry, on_superseded=pytest.fail, era=later)
        await starts.look()
        await starts.begin(JournalEnd(1, 0))
        for tree in (with_node, without):
            world.go_back(tree)
            fault = str(await proofs.fault(world.session, former, True))
            assert f"{world.me} at {world.address} has written its record in era 3, and ZooKeeper is in era 2" in fault
        await proofs.close()


async def test_looks_of_a_healthy_cluster_read_no_record(tmp_path: Path) -> None:
    """Each process of a large cluster looks each ten seconds. A node that goes away is asked, and all is read once."""
    async with world_of(tmp_path) as (world, _):
        session = world.open()
        cluster = await ClusterStore(session).require()
        registration = world.registry.register_storage_node(LiveStorageNode(world.me, "h", 1, 0))
        await registration.establish()
        for registered, reads in ((True, 0), (False, 4), (False, 1)):
            if not registered:
                await registration.withdraw()
            before = session.reads_of.total()
            assert await world.proofs.fault(session, cluster, False) is None
            assert session.reads_of.total() - before == reads


class FailingSession(MemorySession):
    """Reads a storage node's cookie once, and then ZooKeeper does not answer while `fails`."""

    fails = True

    async def read(self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None) -> Znode | None:
        if self.fails and self.reads_of.total() > 0:
            raise StoreUnavailable("no answer")
        return await super().read(path, fired=fired, timeout_ms=timeout_ms)


async def test_what_a_node_has_said_is_compared_although_zookeeper_did_not_answer_then(tmp_path: Path) -> None:
    """The node says nothing new at the next look."""
    async with world_of(tmp_path) as (world, former):
        world.go_back(former)
        session = FailingSession(world.tree, root="/oncelog")
        with pytest.raises(StoreUnavailable):
            await world.proofs.fault(session, ClusterRecord(CLUSTER), False)
        session.fails = False
        assert await world.proofs.fault(session, ClusterRecord(CLUSTER), False) is not None


@pytest.mark.parametrize("shown_by", ["a reconnection", "a node that is not registered"])
async def test_running_process_ends_when_a_node_proves_it(tmp_path: Path, shown_by: str) -> None:
    """Its session goes on in the older ZooKeeper. At other times nobody asks a registered node."""
    async with world_of(tmp_path) as (world, _):
        former = MemoryTree(dict(world.tree.nodes))
        await world.register()
        registered = MemoryTree(dict(world.tree.nodes))
        joined = await world.join()
        assert joined is not None
        await world.looked()
        await world.starts.note(JournalEnd(1, 200))
        world.go_back(registered)
        joined.history.look_soon()
        await world.looked()
        assert world.lost == []
        if shown_by == "a reconnection":
            world.reconnect()
        else:
            world.go_back(former)
            joined.history.look_soon()
        await until(lambda: world.lost, DEADLINE_S)
        assert "has written version 2 of its record, and ZooKeeper has version 1" in world.lost[0].message
        await joined.session.close()


async def test_process_that_restores_the_records_goes_on(tmp_path: Path) -> None:
    """It ends only when they are committed."""
    async with world_of(tmp_path) as (world, former):
        joined = await world.join()
        assert joined is not None
        joined.history.restoring(Era(2, "a" * 32))
        world.go_back(former)
        world.reconnect()
        await world.looked()
        assert await world.fault() is not None
        assert world.lost == []
        joined.history.restores = None
        joined.history.look_soon()
        await until(lambda: world.lost, DEADLINE_S)
        await joined.session.close()
