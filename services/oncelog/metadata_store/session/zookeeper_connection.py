"""The connection under a ZooKeeper session: an asyncio interface to kazoo's threads. It alone uses kazoo's internals.

How it works
- kazoo has one thread for the connection and one for watches (`kazoo_handler`). Requests go to its queue from the event
  loop, and answers come back by `call_soon_threadsafe`, once for all that have arrived. Nothing here blocks in a kazoo
  thread, and nothing of kazoo blocks the event loop.
- A request is handed over only while connected (`until_connected`): kazoo queues requests while SUSPENDED and would
  send them with the next connection, long after the caller was told that the outcome is unknown.
- kazoo stops for ever when its connection thread fails; an unknown error code is enough. A watchdog starts it again.
  The session is then LOST and continues under a new id.
- A server that has seen fewer transactions than a client closes the client's connections at once, and kazoo would try
  for ever. After a session timeout without a connection the watchdog opens another client, which has seen none: if that
  one finds an older transaction, ZooKeeper's data was lost or restored from a backup, and this session ends.
- The watchdog also closes a connection that gets no session. ZooKeeper 3.9 does not close connections that reach it
  while it loads (a null pointer in its log) and answers nothing on them; kazoo would wait there for a whole session
  timeout.
"""

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadArgumentsError,
    BadVersionError,
    InvalidACLError,
    KazooException,
    MarshallingError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from oncelog.core.errors import (
    InvariantViolated,
    OncelogError,
    PermissionDenied,
    StoreUnavailable,
    Unauthenticated,
    WrongCluster,
)
from oncelog.core.placement.first_cluster import RESTORE
from oncelog.metadata_store.session.kazoo_handler import ImpatientHandler, ServerTls
from oncelog.metadata_store.session.store_session import Fired, SessionState, StateListener
from oncelog.metadata_store.session.zookeeper_users import ZooKeeperUser

CLOSE_TIMEOUT_S = 3.0
WATCHDOG_PERIOD_S = 1.0
#: How long a server may take to answer for the session after it accepted the connection; at most half a session.
HANDSHAKE_TIMEOUT_S = 2.0
#: Pauses between attempts to connect, seconds: a client must reconnect well within its session timeout.
RECONNECT_DELAY_S = 0.05
RECONNECT_DELAY_MAX_S = 0.5

OnOlder = Callable[[OncelogError], None]

_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}
#: Answers of the server: certain, and the same if asked again.
ANSWERS = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError)
_OUR_MISTAKES = (BadArgumentsError, MarshallingError, NoChildrenForEphemeralsError, InvalidACLError)


class RequestInterrupted(Exception):
    """No answer: the connection broke, the session ended, or a timeout. A write may have been applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperAccess:
    """Credentials and TLS. users: for digest authentication; every node then belongs only to the first (`tree_acls`).

    tls None: plaintext, in which a digest is readable on the wire.
    """

    users: tuple[ZooKeeperUser, ...] = ()
    tls: ServerTls | None = None


class ZooKeeperConnection:
    """One kazoo client. It belongs to the event loop in which it was opened."""

    def __init__(
        self, new_client: Callable[[], KazooClient], session_timeout_s: float, on_older: OnOlder | None
    ) -> None:
        self._new_client = new_client
        self.client = new_client()
        self._on_older = on_older
        #: since when the watchdog has seen no connection, and whether the transactions are being compared
        self._missing_since_s: float | None = None
        self._comparing = False
        self._session_timeout_s = session_timeout_s
        self.state = SessionState.LOST
        #: Called on the event loop at each change of state.
        self.listeners: list[StateListener] = []
        self._loop = asyncio.get_running_loop()
        self._state_changed = asyncio.Event()
        #: The error of every further call; None while the session can still serve.
        self._ended: OncelogError | None = None
        self._closing = False
        self._watchdog: asyncio.TimerHandle | None = None
        #: calls that kazoo's threads have posted, and whether `_deliver` is about to make them
        self._posted: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._delivering = False
        #: (the socket that has no session yet, when it was first seen)
        self._handshake: tuple[socket.socket, float] | None = None

    @classmethod
    async def open(
        cls,
        hosts: str,
        *,
        session_timeout_ms: int,
        connect_timeout_ms: int,
        access: ZooKeeperAccess,
        on_older: OnOlder | None = None,
    ) -> Self:
        """Raises StoreUnavailable if no host answers in time, Unauthenticated if none accepts the credentials."""
        timeout_s = session_timeout_ms / 1000
        connection = cls(partial(_new_client, hosts, timeout_s, access), timeout_s, on_older)
        connection.client.add_listener(connection._heard)
        connection.client.start_async()
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await connection.until_connected()
        except TimeoutError as error:
            await connection.close()
            raise StoreUnavailable(
                f"no ZooKeeper answers at {hosts} within {connect_timeout_ms / 1000:g} s: {connection._advice}",
                hosts=hosts,
            ) from error
        except BaseException:
            await connection.close()
            raise
        connection._watch_over()
        return connection

    async def close(self) -> None:
        """End the session, within a few seconds even if no server answers. May be called again."""
        if self._closing:
            return
        self._closing = True
        self._end(StoreUnavailable("the session with ZooKeeper was closed"))
        if self._watchdog is not None:
            self._watchdog.cancel()
        ended = asyncio.Event()
        # Not the loop's executor: a server that does not answer would delay the end of the process.
        threading.Thread(target=self._stop_client, args=(ended,), name="zookeeper-close", daemon=True).start()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await ended.wait()
        except TimeoutError:
            self._cut_connection()  # the server ends the session by its timeout
            await ended.wait()

    @property
    def _advice(self) -> str:
        failure = self.client.handler.tls_failure
        if failure:
            return f"its TLS handshake failed ({failure}): correct the CA file and the name that are expected of it"
        return "start it, or correct the address"

    @property
    def session_id(self) -> int | None:
        client_id: tuple[int, bytes] | None = self.client.client_id
        return None if client_id is None else client_id[0]

    @property
    def closed(self) -> bool:
        return self._ended is not None

    async def until_connected(self) -> None:
        """Raises the error that ended the session, if it has ended."""
        while True:
            if self._ended is not None:
                raise self._ended
            # kazoo's own flag, because ours follows one iteration of the loop later.
            if self.client.connected:
                return
            self._state_changed.clear()
            await self._state_changed.wait()

    def issue(self, request: Callable[[], Any]) -> asyncio.Future[Any]:
        """Hand a request to kazoo. The future's error is one of ANSWERS, an OncelogError, or RequestInterrupted."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        request().rawlink(lambda result: self._post(_settle, answer, result))
        return answer

    def watcher(self, fired: Fired | None) -> Callable[[object], None] | None:
        """The callback for kazoo, which calls it in its own thread; it calls `fired` on the event loop."""
        return None if fired is None else lambda _event: self._post(fired)

    def _post(self, callback: Callable[..., object], *arguments: object) -> None:
        """From any thread: call `callback` on the event loop."""
        self._posted.append((callback, arguments))
        if self._delivering:
            return
        self._delivering = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            # The loop was closed first, so nothing waits for this any more.
            if not self._loop.is_closed():
                raise

    def _deliver(self) -> None:
        self._delivering = False  # before the queue is empty: what is posted from now on is delivered again
        while self._posted:
            callback, arguments = self._posted.popleft()
            # Each in a call of its own, so that one that fails does not affect the others.
            self._loop.call_soon(callback, *arguments)

    def _heard(self, state: str) -> None:
        """Runs in kazoo's connection thread."""
        refused = self.client.client_state == KeeperState.AUTH_FAILED
        self._post(self._enter, _STATES[state], refused)

    def _enter(self, state: SessionState, refused: bool) -> None:
        if refused:
            self._end(Unauthenticated("ZooKeeper rejected the credentials: correct the user name and password"))
        self._state_changed.set()
        # Once ended the state stays LOST, whatever kazoo's thread still reports.
        if state is self.state or self.closed:
            return
        self.state = state
        self._tell_listeners()

    def _end(self, error: OncelogError) -> None:
        """Report LOST even if the state was LOST before, so that waiting tasks learn that no change will come."""
        if self._ended is not None:
            return
        self._ended = error
        self._state_changed.set()
        self.state = SessionState.LOST
        self._tell_listeners()

    def _tell_listeners(self) -> None:
        for listener in tuple(self.listeners):
            # Each in a call of its own, so that a failing listener does not affect the others.
            self._loop.call_soon(listener, self.state)

    def _watch_over(self) -> None:
        if self.closed:
            return
        if self.client._connection.connection_stopped.is_set():  # noqa: SLF001
            threading.Thread(target=self._revive_client, name="zookeeper-revive", daemon=True).start()
        else:
            self._watch_handshake()
            self._watch_history()
            self._watchdog = self._loop.call_later(WATCHDOG_PERIOD_S, self._watch_over)

    def _watch_handshake(self) -> None:
        connection = None if self.client.connected else self.client._connection._socket  # noqa: SLF001
        if connection is None:
            self._handshake = None
        elif self._handshake is None or self._handshake[0] is not connection:
            self._handshake = (connection, self._loop.time())
        elif self._loop.time() - self._handshake[1] > min(HANDSHAKE_TIMEOUT_S, self._session_timeout_s / 2):
            self._handshake = None
            _shut_down(connection)

    def _watch_history(self) -> None:
        now_s = self._loop.time()
        if self.client.connected:
            self._missing_since_s = None
        elif self._missing_since_s is None:
            self._missing_since_s = now_s
        elif now_s - self._missing_since_s > self._session_timeout_s and not self._comparing:
            self._comparing, self._missing_since_s = True, now_s
            threading.Thread(target=self._compare, name="zookeeper-compare", daemon=True).start()

    def _compare(self) -> None:
        """Runs in a thread of its own: a server that does not answer must not delay the end of the process."""
        found, seen = None, self.client.last_zxid
        try:
            found = _newest_transaction(self._new_client(), self._session_timeout_s)
        finally:
            self._post(self._compared, found, seen)

    def _compared(self, found: int | None, seen: int) -> None:
        self._comparing = False
        if found is None or found >= seen or self.client.connected or self.closed:
            return
        error = WrongCluster(
            f"ZooKeeper is older than this process has seen it: its newest transaction is {found:#x}, and was "
            f"{seen:#x}: it has lost its data, or was restored from an older backup; {RESTORE}"
        )
        self._end(error)
        if self._on_older is not None:
            self._on_older(error)

    def _revive_client(self) -> None:
        try:
            self.client.start_async()
            if self._closing:
                self.client.stop()  # `close` ran in between and found nothing to stop
        finally:
            self._post(self._watch_over)

    def _stop_client(self, ended: asyncio.Event) -> None:
        try:
            self.client.stop()
            self.client.close()
        finally:
            self._post(ended.set)

    def _cut_connection(self) -> None:
        connection = self.client._connection._socket  # noqa: SLF001
        if connection is not None:
            _shut_down(connection)


def _new_client(hosts: str, session_timeout_s: float, access: ZooKeeperAccess) -> KazooClient:
    return KazooClient(
        hosts=hosts,
        timeout=session_timeout_s,
        handler=ImpatientHandler(session_timeout_s, len(hosts.split(",")), tls=access.tls),
        connection_retry=KazooRetry(max_tries=-1, delay=RECONNECT_DELAY_S, max_delay=RECONNECT_DELAY_MAX_S),
        auth_data=[("digest", user.credentials) for user in access.users] or None,
        default_acl=[access.users[0].acl] if access.users else None,
    )


def _newest_transaction(client: KazooClient, timeout_s: float) -> int | None:
    """The newest transaction of the ensemble; None if no server answers. Blocks.

    The new session is itself a transaction of a quorum, so a server that is only behind has caught up by then.
    """
    try:
        client.start(timeout=timeout_s)
        client.sync_async("/").get(timeout=timeout_s)
        client.exists_async("/").get(timeout=timeout_s)
        newest: int = client.last_zxid
        return newest
    except (KazooException, KazooTimeoutError):
        return None
    finally:
        client.stop()
        client.close()


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    # Already done: its caller timed out, or kazoo reports one failure twice.
    if answer.done():
        return
    if result.exception is None:
        answer.set_result(result.value)
    else:
        answer.set_exception(translated(result.exception))


def translated(error: BaseException) -> Exception:
    """Everything that is not a certain answer becomes RequestInterrupted."""
    if isinstance(error, ANSWERS):
        answer: Exception = error
        return answer
    if isinstance(error, NoAuthError):
        return PermissionDenied(
            "ZooKeeper denied access: the nodes belong to another user. Give this process the credentials of the "
            "cluster (ONCELOG_ZOOKEEPER_AUTH_FILE)"
        )
    if isinstance(error, AuthFailedError):
        return Unauthenticated("ZooKeeper rejected the credentials: correct the user name and password")
    if isinstance(error, _OUR_MISTAKES):
        return InvariantViolated(f"invalid request to ZooKeeper: {error!r}")
    interrupted = RequestInterrupted(repr(error))
    interrupted.__cause__ = error
    return interrupted


def _shut_down(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        # Already broken or closed, as intended.
        return
