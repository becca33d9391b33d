"""A StoreSession over a real ZooKeeper: the meaning of its answers.

Rules
- A synced read is a sync and a get, sent together on one connection: ZooKeeper answers the requests of a client in
  order. Reads that are requested in the same step of the event loop share the sync that is sent after them. A sync asks
  the leader, without a quorum, and a leader that is cut off from its ensemble can answer it until it notices. Only a
  write is certain, so every decision made here ends in a versioned write.
- A write waits for a connection, within its timeout, and is then sent once. Without a clear answer of the server it is
  UNKNOWN.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar, assert_never

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)

from oncelog.core.errors import InvalidArgument, NotFound, StoreUnavailable
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.session.rooted_session import RootedSession
from oncelog.metadata_store.session.store_session import (
    CheckStep,
    CreateStep,
    DeleteStep,
    Fired,
    SessionState,
    StateListener,
    Step,
    StoreSession,
    WriteResult,
    WriteStep,
    Znode,
)
from oncelog.metadata_store.session.tree_acls import TreeAcls
from oncelog.metadata_store.session.zookeeper_connection import (
    ANSWERS,
    OnOlder,
    RequestInterrupted,
    ZooKeeperAccess,
    ZooKeeperConnection,
    translated,
)

T = TypeVar("T")

SESSION_TIMEOUT_MS = 6_000  # the pause that a vanished owner causes
CONNECT_TIMEOUT_MS = 15_000
OPERATION_TIMEOUT_MS = 10_000
RETRY_PAUSE_S = 0.02
DATA_BYTES_MAX = 1_000_000  # the server's jute.maxbuffer, 1 MiB, holds the whole request
#: Data of all steps of a transaction; the rest is for their paths.
TRANSACTION_BYTES_MAX = 1_040_000


class ZooKeeperSession:
    """A StoreSession over a real ZooKeeper. Created by `connect`, inside the event loop that it then belongs to."""

    def __init__(self, connection: ZooKeeperConnection, *, root: str, operation_timeout_ms: int) -> None:
        self._connection = connection
        self._client = connection.client
        self._root = root
        self._operation_timeout_ms = operation_timeout_ms
        #: None: this process has no credentials, and its nodes are open to everybody
        self.tree_acls: TreeAcls | None = None
        self._following: asyncio.Task[None] | None = None
        #: reads that the next sync will be sent for
        self._reads: list[_SyncedRead] = []

    @classmethod
    async def connect(
        cls,
        hosts: str,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        root: str = "/oncelog",
        access: ZooKeeperAccess | None = None,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        operation_timeout_ms: int = OPERATION_TIMEOUT_MS,
        on_older: OnOlder | None = None,
    ) -> Self:
        """Open a session with one of `hosts` ("host:port,host:port", with an optional path after the last one).

        root: below that path; both are created level by level if they are missing.
        on_older: called when ZooKeeper is older than this session has seen it, which has ended the session.
        Raises StoreUnavailable if no host answers in time, Unauthenticated if none accepts the credentials,
        PermissionDenied if the nodes below the root belong to another user.
        """
        # Not kazoo's chroot: kazoo creates only its last level.
        servers, slash, path = hosts.partition("/")
        connection = await ZooKeeperConnection.open(
            servers,
            session_timeout_ms=session_timeout_ms,
            connect_timeout_ms=connect_timeout_ms,
            access=access or ZooKeeperAccess(),
            on_older=on_older,
        )
        full_root = f"{slash}{path}".rstrip("/") + root.rstrip("/")
        session = cls(connection, root=full_root, operation_timeout_ms=operation_timeout_ms)
        if access is not None and access.users:
            await session._settle_acls(TreeAcls(connection, full_root or "/", access.users[0].acl))
        return session

    async def _settle_acls(self, acls: TreeAcls) -> None:
        self.tree_acls = acls
        try:
            await self._repeat("", acls.settle, None)
        except BaseException:
            await self.close()
            raise
        self._following = asyncio.create_task(acls.follow(), name="zookeeper-acls")

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
        await self._connection.close()

    def below(self, root: str) -> StoreSession:
        return RootedSession(self, root) if root else self

    @property
    def state(self) -> SessionState:
        return self._connection.state

    @property
    def session_id(self) -> int | None:
        return self._connection.session_id

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def add_listener(self, listener: StateListener) -> None:
        self._connection.listeners.append(listener)

    def remove_listener(self, listener: StateListener) -> None:
        self._connection.listeners.remove(listener)

    # -- reads

    async def read(self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None) -> Znode | None:
        full, watch = self._root + path, self._connection.watcher(fired)

        async def attempt() -> Znode | None:
            # A get leaves no watch on an absent node, an exists does. Most nodes that are watched here are absent.
            if watch is not None and await self._synced(full, partial(self._client.exists_async, full, watch)) is None:
                return None
            try:
                return _znode(await self._synced(full, partial(self._client.get_async, full)))
            except NoNodeError:
                return None

        return await self._repeat(path, attempt, timeout_ms)

    async def read_unsynced(self, path: str, *, timeout_ms: int | None = None) -> Znode | None:
        async def attempt() -> Znode | None:
            try:
                return _znode(await self._connection.issue(lambda: self._client.get_async(self._root + path)))
            except NoNodeError:
                return None

        return await self._repeat(path, attempt, timeout_ms)

    async def children(self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None) -> list[str]:
        full, watch = self._root + path, self._connection.watcher(fired)

        async def attempt() -> list[str]:
            try:
                return sorted(await self._synced(full, lambda: self._client.get_children_async(full, watch=watch)))
            except NoNodeError as error:
                raise NotFound(f"there is no {full} in ZooKeeper", path=full) from error

        return await self._repeat(path, attempt, timeout_ms)

    async def ensure_path(self, path: str, *, timeout_ms: int | None = None) -> None:
        full = (self._root + path).rstrip("/") or "/"
        # Repeating is harmless, unlike with any other write: the node exists, whichever process created it.
        await self._repeat(
            path, lambda: self._connection.issue(lambda: self._client.ensure_path_async(full)), timeout_ms
        )

    async def note(self, records: Sequence[str], *, deleted: bool = False) -> None:
        pass  # this session notes nothing

    # -- writes

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, timeout_ms: int | None = None
    ) -> WriteStatus:
        full = self._root + path
        try:
            await self._once(lambda: self._client.create_async(full, _fitting(data), ephemeral=ephemeral), timeout_ms)
        except NodeExistsError:
            return WriteStatus.CONFLICT
        except NoNodeError as error:
            raise NotFound(f"there is no parent of {full} in ZooKeeper", path=full) from error
        except RequestInterrupted:
            return WriteStatus.UNKNOWN
        return WriteStatus.OK

    async def create_sequential(
        self, path: str, data: bytes, *, timeout_ms: int | None = None
    ) -> tuple[WriteStatus, str | None]:
        full = self._root + path
        try:
            created = await self._once(
                lambda: self._client.create_async(full, _fitting(data), ephemeral=True, sequence=True), timeout_ms
            )
        except NoNodeError as error:
            raise NotFound(f"there is no parent of {full} in ZooKeeper", path=full) from error
        except RequestInterrupted:
            return WriteStatus.UNKNOWN, None
        return WriteStatus.OK, created.removeprefix(self._root)

    async def write(self, path: str, data: bytes, *, version: int, timeout_ms: int | None = None) -> WriteResult:
        assert version >= 0, "a write names the version it replaces"
        full = self._root + path
        try:
            stat = await self._once(lambda: self._client.set_async(full, _fitting(data), version=version), timeout_ms)
        except (BadVersionError, NoNodeError):
            return WriteResult(WriteStatus.CONFLICT)
        except RequestInterrupted:
            return WriteResult(WriteStatus.UNKNOWN)
        return WriteResult(WriteStatus.OK, stat.version)

    async def delete(self, path: str, *, version: int, timeout_ms: int | None = None) -> WriteStatus:
        assert version >= 0, "a delete names the version it removes"
        full = self._root + path
        try:
            await self._once(lambda: self._client.delete_async(full, version=version), timeout_ms)
        except (BadVersionError, NoNodeError, NotEmptyError):
            return WriteStatus.CONFLICT
        except RequestInterrupted:
            return WriteStatus.UNKNOWN
        return WriteStatus.OK

    async def transact(self, steps: Sequence[Step], *, timeout_ms: int | None = None) -> WriteStatus:
        try:
            results = await self._once(lambda: _transaction(self._client, self._root, steps).commit_async(), timeout_ms)
        except RequestInterrupted:
            return WriteStatus.UNKNOWN
        return _transaction_status(steps, results)

    # -- how a request crosses to kazoo's threads and back

    async def _repeat(self, path: str, attempt: Callable[[], Awaitable[T]], timeout_ms: int | None) -> T:
        """Retry until there is an answer. Raises StoreUnavailable at the deadline."""
        timeout_s = (self._operation_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    await self._connection.until_connected()
                    try:
                        return await attempt()
                    except RequestInterrupted:
                        await asyncio.sleep(RETRY_PAUSE_S)
        except TimeoutError as error:
            raise StoreUnavailable(
                f"ZooKeeper did not answer a read of {self._root}{path} within {timeout_s:g} s: "
                "check that it runs and is reachable"
            ) from error

    async def _once(self, request: Callable[[], Any], timeout_ms: int | None) -> Any:
        """Send one request, when connected. Raises RequestInterrupted if no answer came, whether sent or not."""
        timeout_s = (self._operation_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        try:
            async with asyncio.timeout(timeout_s):
                await self._connection.until_connected()
                return await self._connection.issue(request)
        except TimeoutError as error:
            raise RequestInterrupted("timeout") from error

    async def _synced(self, full_path: str, request: Callable[[], Any]) -> Any:
        read = _SyncedRead(request, asyncio.get_running_loop().create_future())
        self._reads.append(read)
        if len(self._reads) == 1:
            asyncio.get_running_loop().call_soon(self._send_reads, full_path)
        try:
            await asyncio.wait((read.answer,))
        except asyncio.CancelledError:
            read.answer.cancel()
            raise
        error = read.answer.exception()
        # The sync was answered before: ZooKeeper answers in order.
        if read.sync is not None and (interrupted := read.sync.exception()) is not None:
            raise interrupted
        # A new session may begin on a server that is behind what the old session synced.
        if read.session_id is None or self.session_id != read.session_id:
            raise RequestInterrupted("the session ended between the sync and the read")
        if error is not None:
            raise error
        return read.answer.result()

    def _send_reads(self, path: str) -> None:
        """One sync for all reads that were requested before it is sent. path: any; a sync is for the whole tree."""
        reads, self._reads = self._reads, []
        sync = self._connection.issue(lambda: self._client.sync_async(path))
        sync.add_done_callback(_error_of)
        session_id = self.session_id
        for read in reads:
            read.sync, read.session_id = sync, session_id
            try:
                self._connection.issue(read.request).add_done_callback(partial(_pass_on, read.answer))
            except Exception as error:  # noqa: BLE001  # a mistake in one request is its caller's alone
                read.answer.set_exception(error)


@dataclass(slots=True, eq=False)
class _SyncedRead:
    """A read that waits to be sent behind a sync. sync, session_id: once both are sent."""

    request: Callable[[], Any]
    answer: asyncio.Future[Any]
    sync: asyncio.Future[Any] | None = None
    session_id: int | None = None


def _error_of(answer: asyncio.Future[Any]) -> BaseException | None:
    """Also marks the error as seen, so that it is not reported if nobody waits for the answer any more."""
    return None if answer.cancelled() else answer.exception()


def _pass_on(waiting: asyncio.Future[Any], answer: asyncio.Future[Any]) -> None:
    error = _error_of(answer)
    if waiting.done():
        return
    if error is not None:
        waiting.set_exception(error)
    else:
        waiting.set_result(answer.result())


def _transaction(client: KazooClient, root: str, steps: Sequence[Step]) -> Any:
    transaction = client.transaction()
    _fitting(b"".join(step.data for step in steps if isinstance(step, CreateStep | WriteStep)), TRANSACTION_BYTES_MAX)
    for step in steps:
        full = root + step.path
        match step:
            case CreateStep():
                transaction.create(full, _fitting(step.data))
            case WriteStep():
                transaction.set_data(full, _fitting(step.data), step.version)
            case DeleteStep():
                transaction.delete(full, step.version)
            case CheckStep():
                transaction.check(full, step.version)
            case _:
                assert_never(step)
    return transaction


def _transaction_status(steps: Sequence[Step], results: list[Any]) -> WriteStatus:
    """Raises NotFound if a node was to be created below a parent that does not exist."""
    # The other steps only report that they were rolled back.
    failed = [
        (step, result)
        for step, result in zip(steps, results, strict=True)
        if isinstance(result, KazooException) and not isinstance(result, RolledBackError | RuntimeInconsistency)
    ]
    for step, error in failed:
        if isinstance(error, NoNodeError) and isinstance(step, CreateStep):
            raise NotFound(f"there is no parent of {step.path} in ZooKeeper", path=step.path)
        if not isinstance(error, ANSWERS):
            raise translated(error)
    return WriteStatus.CONFLICT if failed else WriteStatus.OK


def _znode(answer: tuple[bytes, Any]) -> Znode:
    data, stat = answer
    return Znode(data, stat.version, stat.ephemeralOwner or None, stat.mtime, stat.czxid, stat.pzxid)


def _fitting(data: bytes, bytes_max: int = DATA_BYTES_MAX) -> bytes:
    """Raises InvalidArgument where the server would break the connection instead of answering."""
    if len(data) > bytes_max:
        raise InvalidArgument(
            f"a record of {len(data)} bytes exceeds ZooKeeper's limit of {bytes_max} bytes", limit=bytes_max
        )
    return data
