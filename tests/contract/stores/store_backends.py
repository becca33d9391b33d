"""The backends for tests of the stores: the fake in memory and a real ZooKeeper, with the same faults on request."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol
from uuid import uuid4

from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from tests.cluster.sessions import SESSION_TIMEOUT_MS, end_session
from tests.cluster.until import until
from tests.contract.stores.cut_proxy import CutProxy, Loss
from tests.contract.stores.memory_store import MemorySession, MemoryTree

DEADLINE_S = 30.0


class Backend(Protocol):
    """Opens sessions with one store and injects faults."""

    async def open(self) -> StoreSession: ...

    def lose_next_request(self, session: StoreSession) -> None:
        """The next write does not reach the server, and its caller gets no answer."""

    def lose_next_reply(self, session: StoreSession) -> None:
        """The next write is applied, but its caller gets no answer."""

    async def break_connection(self, session: StoreSession) -> None:
        """The session continues on another connection."""

    async def expire(self, session: StoreSession) -> None:
        """The server ends the session; the client continues in a new one."""


class MemoryBackend:
    def __init__(self) -> None:
        self._tree = MemoryTree()

    async def open(self) -> MemorySession:
        session = MemorySession(self._tree, root="/oncelog")
        await session.ensure_path("")
        return session

    def lose_next_request(self, session: StoreSession) -> None:
        assert isinstance(session, MemorySession)
        session.faults.lose_next_request()

    def lose_next_reply(self, session: StoreSession) -> None:
        assert isinstance(session, MemorySession)
        session.faults.lose_next_reply()

    async def break_connection(self, session: StoreSession) -> None:
        assert isinstance(session, MemorySession)
        session.faults.suspend()
        session.faults.resume()

    async def expire(self, session: StoreSession) -> None:
        assert isinstance(session, MemorySession)
        session.faults.expire()
        session.faults.resume()


class ZooKeeperBackend:
    """Each session has its own relay in front of the server, and each backend its own root."""

    def __init__(self, server: ZooKeeperServer, stack: AsyncExitStack) -> None:
        self._server = server
        self._stack = stack
        self._root = f"/test-{uuid4().hex}"
        self._proxies: dict[int, CutProxy] = {}

    @classmethod
    @asynccontextmanager
    async def running(cls, server: ZooKeeperServer) -> AsyncIterator["ZooKeeperBackend"]:
        async with AsyncExitStack() as stack:
            yield cls(server, stack)

    async def open(self) -> ZooKeeperSession:
        proxy = await self._stack.enter_async_context(CutProxy.running(self._server.port))
        session = await ZooKeeperSession.connect(proxy.address, session_timeout_ms=SESSION_TIMEOUT_MS, root=self._root)
        self._stack.push_async_callback(session.close)
        self._proxies[id(session)] = proxy
        await session.ensure_path("")
        return session

    def proxy(self, session: StoreSession) -> CutProxy:
        return self._proxies[id(session)]

    def lose_next_request(self, session: StoreSession) -> None:
        self.proxy(session).loss = Loss.REQUEST

    def lose_next_reply(self, session: StoreSession) -> None:
        self.proxy(session).loss = Loss.REPLY

    async def break_connection(self, session: StoreSession) -> None:
        await self.proxy(session).cut()

    async def expire(self, session: StoreSession) -> None:
        assert isinstance(session, ZooKeeperSession)
        former = session.session_id
        assert former is not None
        proxy = self.proxy(session)
        await proxy.refuse()
        await end_session(self._server.address, former)
        await proxy.accept()
        await until(
            lambda: session.session_id not in {None, former}, DEADLINE_S, waiting_for="a new session of the client"
        )


async def new_cluster(backend: Backend) -> StoreSession:
    """A session with a cluster at its root."""
    session = await backend.open()
    await ClusterStore(session).establish("test-cluster")
    return session
