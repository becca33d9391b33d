"""The command that ends a session with ZooKeeper, at a real server. Tests of zombies use it with real processes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from oncelog.core.ids import Incarnation
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.registry import LiveMetadata, LiveOwner, LiveStorageNode, Registry
from oncelog.metadata_store.session.store_session import SessionState
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from tests.cluster.sessions import SESSION_TIMEOUT_MS, end_session, password_of, session_of
from tests.cluster.until import until

DEADLINE_S = 30.0
OWNER = LiveOwner(Incarnation("a" * 32), "127.0.0.1", {"grpc": 1}, 0)
NODE = LiveStorageNode(Incarnation("b" * 32), "127.0.0.1", 2, 1 << 30)
REPLICA = LiveMetadata("127.0.0.1", {"grpc": 3})


@asynccontextmanager
async def opened(server: ZooKeeperServer) -> AsyncIterator[ZooKeeperSession]:
    session = await ZooKeeperSession.connect(server.address, session_timeout_ms=SESSION_TIMEOUT_MS)
    try:
        yield session
    finally:
        await session.close()


@pytest_asyncio.fixture
async def session(zookeeper_server: ZooKeeperServer) -> AsyncIterator[ZooKeeperSession]:
    """Of the process whose session is ended."""
    async with opened(zookeeper_server) as own:
        yield own


def test_password_is_that_of_java() -> None:
    """`new java.util.Random(id ^ 0xB3415C00L).nextBytes(…)`; a server with a number above 127 gives negative ids."""
    assert password_of(0x1000_0000_0000_0001).hex() == "054cc74a37327db215e702e20c73f005"
    assert password_of(-0x1000_0000_0000_0001).hex() == "20f62cb5648dc2d771471c8a2486a9ee"


@pytest.mark.asyncio
async def test_password_is_that_of_the_server(session: ZooKeeperSession) -> None:
    """The server computes it from the id and a constant of its source, so nobody needs to ask the process."""
    session_id, password = session._connection.client.client_id
    assert password_of(session_id) == password


@pytest.mark.asyncio
async def test_session_ends_at_once_and_its_process_goes_on_in_another(
    session: ZooKeeperSession, zookeeper_server: ZooKeeperServer
) -> None:
    """Its records are gone when the command returns, long before the session would time out."""
    former = session.session_id
    assert former is not None
    states: list[SessionState] = []
    session.add_listener(states.append)
    await session.ensure_path("")
    await session.create("/held", b"", ephemeral=True)
    async with opened(zookeeper_server) as other:
        await end_session(zookeeper_server.address, former)
        assert await other.read("/held") is None
    await until(lambda: session.session_id not in {None, former}, DEADLINE_S, waiting_for="another session")
    assert SessionState.LOST in states


@pytest.mark.asyncio
async def test_session_that_has_ended_cannot_be_ended(zookeeper_server: ZooKeeperServer) -> None:
    """A test that ends another session than it means to would wait for its effect in vain."""
    async with opened(zookeeper_server) as session:
        former = session.session_id
    assert former is not None
    with pytest.raises(AssertionError, match="has ended before"):
        await end_session(zookeeper_server.address, former)


@pytest.mark.asyncio
async def test_session_of_a_process_is_found_by_what_it_reports(
    session: ZooKeeperSession, zookeeper_server: ZooKeeperServer
) -> None:
    """Owners and storage nodes have a name of their own. Of a metadata service the newest is found: its predecessor at
    the same address is registered until its session ends."""
    await ClusterStore(session).establish()
    registry = Registry(session)
    await registry.register_owner(OWNER).establish()
    await registry.register_metadata(REPLICA).establish()
    async with opened(zookeeper_server) as other:
        await Registry(other).register_storage_node(NODE).establish()
        await Registry(other).register_metadata(REPLICA).establish()
        reports = (
            {"incarnation": OWNER.incarnation, "address": "127.0.0.1:1"},
            {"incarnation": NODE.incarnation, "address": "127.0.0.1:2"},
            {"address": "127.0.0.1:3"},
        )
        found = [await session_of(zookeeper_server.address, each) for each in reports]
        assert found == [session.session_id, other.session_id, other.session_id]
