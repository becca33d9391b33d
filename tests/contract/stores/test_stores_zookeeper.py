"""Properties of a ZooKeeper session that only a real server and a real network can show."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.errors import InvalidArgument, PermissionDenied, StoreUnavailable
from oncelog.core.ids import Incarnation
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.registry import LiveOwner, Registry
from oncelog.metadata_store.session.store_session import SessionState
from oncelog.metadata_store.session.zookeeper import DATA_BYTES_MAX, ZooKeeperSession
from oncelog.metadata_store.session.zookeeper_connection import CLOSE_TIMEOUT_S, ZooKeeperAccess
from oncelog.metadata_store.session.zookeeper_users import ZooKeeperUser
from oncelog.runtime.port_claim import claim_port, port_of
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from tests.cluster.sessions import SESSION_TIMEOUT_MS
from tests.cluster.until import until
from tests.contract.stores.cut_proxy import CutProxy, request_types
from tests.contract.stores.store_backends import DEADLINE_S, ZooKeeperBackend

OK, CONFLICT, UNKNOWN = WriteStatus.OK, WriteStatus.CONFLICT, WriteStatus.UNKNOWN
#: Operation codes of ZooKeeper's protocol.
GET, GET_CHILDREN, SYNC, PING = 4, 8, 9, 11

pytestmark = pytest.mark.asyncio


@pytest.mark.hazard("former-incarnation")
async def test_every_read_but_the_unsynced_follows_a_sync(zookeeper: ZooKeeperBackend) -> None:
    """A follower may lag: only a read after a sync shows every earlier answered write (hazard former-incarnation)."""
    session = await zookeeper.open()
    await session.create("/a", b"")
    sent = zookeeper.proxy(session).sent

    async def requests_of(asking: Any) -> list[int]:
        already = len(sent)
        await asking
        return [kind for kind in request_types(bytes(sent[already:])) if kind != PING]

    assert await requests_of(session.read("/a")) == [SYNC, GET]
    assert await requests_of(session.children("")) == [SYNC, GET_CHILDREN]
    assert await requests_of(session.read_unsynced("/a")) == [GET]
    # Many takeovers read at once: one sync is enough for all reads that were requested before it.
    assert await requests_of(asyncio.gather(*(session.read("/a") for _ in range(50)))) == [SYNC, *[GET] * 50]


async def test_absent_server_is_reported_within_the_deadline_and_leaves_no_thread() -> None:
    """The first start of a service: the message names the address, and what to do."""
    with claim_port("127.0.0.1") as claim:  # not listening: connections are refused
        port = port_of(claim)
        threads = threading.active_count()
        with pytest.raises(StoreUnavailable, match=rf"127\.0\.0\.1:{port} within 0\.3 s: start it, or correct"):
            await ZooKeeperSession.connect(f"127.0.0.1:{port}", connect_timeout_ms=300)
    await until(lambda: threading.active_count() <= threads, DEADLINE_S)


async def test_client_leaves_a_server_that_accepts_and_does_not_answer(zookeeper_server: ZooKeeperServer) -> None:
    """As a server that is just starting may do. Waiting there for a whole session timeout would lose the session."""
    silent: list[asyncio.StreamWriter] = []

    async def take(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        silent.append(writer)

    async with CutProxy.running(zookeeper_server.port) as proxy:
        session = await ZooKeeperSession.connect(proxy.address, session_timeout_ms=60_000)
        try:
            session_id = session.session_id
            await proxy.refuse()
            starting = await asyncio.start_server(take, "127.0.0.1", proxy.port)
            await until(lambda: silent, DEADLINE_S)
            starting.close()
            await proxy.accept()
            await until(lambda: session.state is SessionState.CONNECTED, DEADLINE_S)
            assert session.session_id == session_id
            assert len(silent) == 1
        finally:
            await session.close()
            for writer in silent:
                writer.close()


async def test_call_to_a_silent_server_ends_at_its_deadline(zookeeper: ZooKeeperBackend) -> None:
    """A network that drops everything returns no error; the caller must not wait for one."""
    session = await zookeeper.open()
    await session.create("/a", b"start")
    zookeeper.proxy(session).hold()
    with pytest.raises(StoreUnavailable, match=r"within 0\.2 s"):
        await session.read("/a", timeout_ms=200)
    assert await session.write("/a", b"late", version=0, timeout_ms=200) == (UNKNOWN, -1)
    zookeeper.proxy(session).release()
    assert ((await session.read("/a")) or ())[:3] == (b"late", 1, None)


async def test_busy_client_leaves_a_server_that_falls_silent(zookeeper_server: ZooKeeperServer) -> None:
    """A client that sends requests all the time sends no pings, so it did not notice a cut network until it healed."""
    async with CutProxy.running(zookeeper_server.port) as proxy:
        # Long enough that the pauses of a busy machine are no pauses to a client that pings after a third of a session.
        session = await ZooKeeperSession.connect(proxy.address, session_timeout_ms=6_000)
        try:
            proxy.hold()
            async with asyncio.timeout(DEADLINE_S):
                while session.state is SessionState.CONNECTED:
                    with pytest.raises(StoreUnavailable):
                        await session.read("/a", timeout_ms=50)
            proxy.release()
            assert await session.read("/a") is None
        finally:
            await session.close()


async def test_write_without_a_connection_is_never_sent_later(zookeeper: ZooKeeperBackend) -> None:
    """Its caller got UNKNOWN and has decided since."""
    session = await zookeeper.open()
    await session.create("/a", b"start")
    await zookeeper.proxy(session).refuse()
    await until(lambda: session.state is SessionState.SUSPENDED, DEADLINE_S)
    assert await session.write("/a", b"late", version=0, timeout_ms=200) == (UNKNOWN, -1)
    assert await session.create("/b", b"late", timeout_ms=200) is UNKNOWN
    await zookeeper.proxy(session).accept()
    assert ((await session.read("/a")) or ())[:3] == (b"start", 0, None)
    assert await session.read("/b") is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_failed_connection_thread_is_started_again(zookeeper: ZooKeeperBackend) -> None:
    """kazoo ends its thread for ever on an unexpected error; an unknown error code is enough."""
    session = await zookeeper.open()
    former = session.session_id

    class Poison:
        type = 4

        def serialize(self) -> bytes:
            raise RuntimeError("an error that kazoo does not expect")

    client = session._connection.client
    client._call(Poison(), client.handler.async_result())
    await until(lambda: session.session_id not in {None, former}, DEADLINE_S)
    assert await session.create("/a", b"") is OK


async def test_nodes_of_a_user_are_closed_to_others(zookeeper_server: ZooKeeperServer) -> None:
    """Without the password a client can neither read nor write."""
    owner = await ZooKeeperSession.connect(
        zookeeper_server.address,
        root="/closed",
        access=ZooKeeperAccess(users=(ZooKeeperUser("oncelog", "a secret of tests"),)),
    )
    stranger = await ZooKeeperSession.connect(zookeeper_server.address, root="/closed")
    try:
        await ClusterStore(owner).establish()
        assert await owner.create("/a", b"") is OK
        for refused in (
            stranger.read("/a"),
            stranger.write("/a", b"", version=0),
            stranger.create("/b", b""),
            ClusterStore(stranger).establish(),
        ):
            with pytest.raises(PermissionDenied):
                await refused
    finally:
        await stranger.close()
        await owner.close()


async def test_clusters_share_an_ensemble_below_paths_of_any_depth(zookeeper_server: ZooKeeperServer) -> None:
    """The first start creates every level of its path. The clusters do not see each other's nodes."""
    hosts = [f"{zookeeper_server.address}/shared/{path}" for path in ("teams/orders", "teams/invoices/")]
    sessions = [await ZooKeeperSession.connect(each) for each in hosts]
    above = await ZooKeeperSession.connect(zookeeper_server.address, root="")
    try:
        orders, invoices = [await ClusterStore(session).establish() for session in sessions]
        assert orders.cluster_id != invoices.cluster_id
        assert await ClusterStore(sessions[0]).require() == orders
        assert await above.children("/shared") == ["teams"]
        assert await above.children("/shared/teams") == ["invoices", "orders"]
        assert await above.children("/shared/teams/orders") == ["oncelog"]
    finally:
        for session in (*sessions, above):
            await session.close()


async def test_record_too_large_for_the_server_is_refused_before_it_is_sent(zookeeper: ZooKeeperBackend) -> None:
    """The server would answer by breaking the connection, which looks like a lost reply, again and again."""
    session = await zookeeper.open()
    assert await session.create("/a", bytes(DATA_BYTES_MAX)) is OK
    with pytest.raises(InvalidArgument, match="exceeds ZooKeeper's limit"):
        await session.write("/a", bytes(DATA_BYTES_MAX + 1), version=0)


async def test_session_with_a_silent_server_can_be_closed(zookeeper: ZooKeeperBackend) -> None:
    """A process that stops does not wait for a server that is gone."""
    session = await zookeeper.open()
    reading = asyncio.ensure_future(session.read("/a"))
    zookeeper.proxy(session).hold()
    async with asyncio.timeout(CLOSE_TIMEOUT_S + DEADLINE_S):
        await session.close()
    with pytest.raises(StoreUnavailable):
        await reading
    assert session.state is SessionState.LOST


async def test_client_reconnects_to_a_server_that_restarts(tmp_path: Path) -> None:
    """Records are read and registrations made as before, whether the session was kept or not."""
    owner = LiveOwner(Incarnation("a" * 32), "127.0.0.1", {"grpc": 1}, 0)
    server = await ZooKeeperServer.start(tmp_path)
    session = await ZooKeeperSession.connect(server.address, session_timeout_ms=SESSION_TIMEOUT_MS)
    try:
        cluster = await ClusterStore(session).establish()
        registry = Registry(session)
        registration = registry.register_owner(owner)
        await registration.establish()
        keeping = asyncio.ensure_future(registration.keep())
        server.kill()
        await until(lambda: session.state is not SessionState.CONNECTED, DEADLINE_S)
        server = await ZooKeeperServer.start(tmp_path, server.port)
        assert await ClusterStore(session).require(cluster.cluster_id) == cluster

        async def registered() -> bool:
            node = await session.read(f"/owners/{owner.incarnation}")
            return node is not None and node.holder == session.session_id

        await until(registered, DEADLINE_S)
        assert await registry.owners.live() == {owner.incarnation: owner}
        await session.close()
        with pytest.raises(StoreUnavailable):
            await keeping
    finally:
        await session.close()
        await server.stop()
