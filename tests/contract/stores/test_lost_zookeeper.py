"""A process that is connected while ZooKeeper loses its data, or gets an older state: it notices, with one sentence."""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.errors import OncelogError, WrongCluster
from oncelog.core.ids import Incarnation
from oncelog.core.placement.level import Level
from oncelog.core.records.id_claim import Counter, CounterRecord
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.joining.history_watch import HistoryWatch
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterStore, encode_cluster
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import SessionState
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from tests.cluster.sessions import AWAY_MS
from tests.cluster.until import until, yield_to_loop
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("emptied-zookeeper")]

DEADLINE_S = 90.0


@asynccontextmanager
async def session_of(server: ZooKeeperServer, lost: list[OncelogError]) -> AsyncIterator[ZooKeeperSession]:
    """A session that has seen a few transactions."""
    session = await ZooKeeperSession.connect(server.address, session_timeout_ms=AWAY_MS, on_older=lost.append)
    try:
        await session.ensure_path("")
        for number in range(50):
            assert await session.create(f"/{number}", b"") is WriteStatus.OK
        yield session
    finally:
        await session.close()


@pytest.mark.parametrize("backup", [False, True], ids=["emptied", "restored"])
async def test_session_notices_a_server_that_lost_its_data(tmp_path: Path, *, backup: bool) -> None:
    """The server closes each connection without a reason, and the client once tried for ever."""
    data, lost = tmp_path / "zookeeper", list[OncelogError]()
    server = await ZooKeeperServer.start(data)
    port = server.port
    if backup:
        await server.stop()
        shutil.copytree(data / "state", tmp_path / "older")
        server = await ZooKeeperServer.start(data, port)
    async with session_of(server, lost) as session:
        await server.stop()
        shutil.rmtree(data / "state")
        if backup:
            shutil.copytree(tmp_path / "older", data / "state")
        server = await ZooKeeperServer.start(data, port)
        try:
            await until(lambda: lost, DEADLINE_S)
            assert len(lost) == 1
            assert "ZooKeeper is older than this process has seen it" in lost[0].message
            assert "keep the data of all storage nodes" in lost[0].message
            assert session.closed
            with pytest.raises(WrongCluster):
                await session.read("/1")
        finally:
            await server.stop()


async def test_session_waits_for_a_server_that_returns_with_its_data(tmp_path: Path) -> None:
    """It was away for longer than a session: nothing was lost."""
    data, lost = tmp_path / "zookeeper", list[OncelogError]()
    server = await ZooKeeperServer.start(data)
    port = server.port
    async with session_of(server, lost) as session:
        before = session.session_id
        await server.stop()
        states: list[SessionState] = []
        session.add_listener(states.append)
        loop = asyncio.get_running_loop()
        away_until = loop.time() + 2 * AWAY_MS / 1000
        await until(lambda: loop.time() > away_until, DEADLINE_S)
        server = await ZooKeeperServer.start(data, port)
        try:
            assert (await session.read("/49", timeout_ms=60_000)) is not None
            await until(lambda: session.session_id is not None, DEADLINE_S)
            assert (session.closed, lost) == (False, [])
            assert before is not None
        finally:
            await server.stop()


class World:
    """A cluster in the memory store, and a process that watches it."""

    def __init__(self) -> None:
        self.session = MemorySession(MemoryTree(), root="/oncelog")
        self.lost: list[OncelogError] = []

    async def begin(self) -> ClusterRecord:
        record = await ClusterStore(self.session).establish()
        await self.count(100)
        HistoryWatch(self.session, record, on_lost=self.lost.append)
        await self.looked()
        return record

    async def count(self, following: int) -> None:
        store = CounterStore(self.session, Counter.LEDGER)
        stored = await store.read()
        record = CounterRecord(following, Incarnation("t" * 32), str(following))
        assert (await store.write(record, version=stored.version)).status is WriteStatus.OK

    async def looked(self) -> None:
        """The connection breaks and returns; the process has looked, and reads of others have been answered since."""
        self.session.faults.suspend()
        self.session.faults.resume()
        for _ in range(20):
            await self.session.read(paths.CLUSTER)
            await yield_to_loop()

    async def replace_record(self, data: bytes | None) -> None:
        node = await self.session.read(paths.CLUSTER)
        assert node is not None
        if data is None:
            await self.session.delete(paths.CLUSTER, version=node.version)
        else:
            await self.session.write(paths.CLUSTER, data, version=node.version)


async def test_process_ends_when_the_level_is_raised_above_its_own() -> None:
    """It was away while the cluster was finalized, or came back with an old image."""
    world = World()
    record = await world.begin()
    store = ClusterStore(world.session)
    found = await store.find()
    assert found is not None
    raised = replace(record, level=Level(record.level.stored + 1))
    assert (await store.write(raised, version=found.version)).status is WriteStatus.OK
    await world.looked()
    (lost,) = world.lost
    assert f"this cluster has level {record.level.stored + 1}" in lost.message
    assert "start a newer version" in lost.message


async def test_process_notices_at_the_next_connection_that_the_record_is_gone() -> None:
    """Also in a new session, and when the transactions of ZooKeeper do not show it."""
    world = World()
    record = await world.begin()
    await world.replace_record(None)
    await world.looked()
    (error,) = world.lost
    assert error.message == (
        f"ZooKeeper has no record of cluster {record.cluster_id} any more: it has lost its data; keep the data of all "
        "storage nodes, and run `oncelog admin backup restore`"
    )
    await world.looked()
    assert len(world.lost) == 1
    await world.session.close()


async def test_process_notices_another_cluster() -> None:
    """It was created in the emptied ZooKeeper while the process had no connection."""
    world = World()
    await world.begin()
    await world.replace_record(encode_cluster(ClusterRecord("other")))
    await world.looked()
    (error,) = world.lost
    assert "ZooKeeper has cluster other" in error.message
    await world.session.close()


@pytest.mark.hazard("ledger-id-given-twice")
async def test_process_notices_that_the_counter_of_ledger_ids_went_back() -> None:
    """A restored ensemble: its transactions are of a new epoch, so it accepts clients that have seen more."""
    world = World()
    await world.begin()
    await world.count(120)
    await world.looked()
    assert world.lost == []
    await world.count(110)
    await world.looked()
    (error,) = world.lost
    assert "its next ledger id is 110, and was 120: it was restored from an older backup" in error.message
    await world.session.close()


async def test_damaged_record_does_not_end_a_process(caplog: pytest.LogCaptureFixture) -> None:
    """It proves no loss: an operator may repair it. It is logged."""
    caplog.set_level(logging.WARNING)
    world = World()
    await world.begin()
    await world.replace_record(b"[")
    await world.looked()
    assert world.lost == []
    assert any("could not compare ZooKeeper" in message for message in caplog.messages)
    await world.session.close()
