"""How kazoo waits for its socket and hands over answers, with few system calls and no threads of its own for answers.

kazoo 2.11 creates and closes an epoll object for each wait, waits before each of three socket calls of a request, and
passes each answer through a queue to one more thread. That cost a quarter of the CPU of a process that uses ZooKeeper
much. Here a wait is one `poll`, whatever has arrived is received at once, a request is sent without a wait, and an
answer is delivered by the connection's thread.
"""

import errno
import logging
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler

logger = logging.getLogger(__name__)

#: Fraction of a session; the rest is for finding another server.
SILENCE_RATIO = 2 / 3
_RECEIVE_BYTES = 64 * 1024
_WANTS = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_READABLE = select.POLLIN | select.POLLPRI | select.POLLHUP | select.POLLERR


@dataclass(frozen=True, slots=True)
class ServerTls:
    """How servers are verified. context: makes the context of the next connection, so that changed files are used.
    server_name: the name that their certificates must contain; empty: the name of each host."""

    context: Callable[[], ssl.SSLContext]
    server_name: str = ""


class BufferedSocket:
    """A connected socket that receives ahead. kazoo asks `pending` before it waits, as for TLS, and reads from here."""

    def __init__(self, connected: Any, timeout_s: float) -> None:
        """timeout_s: how long a send may wait for the server."""
        connected.setblocking(False)
        self._socket = connected
        self._timeout_s = timeout_s
        self._received = memoryview(b"")

    def pending(self) -> int:
        """Bytes that can be received without a wait."""
        inner = getattr(self._socket, "pending", None)
        return len(self._received) + (inner() if inner is not None else 0)

    def recv(self, size: int) -> bytes:
        """Empty at the end of the connection. Raises what a socket without a timeout raises."""
        if not self._received:
            self._received = memoryview(self._socket.recv(_RECEIVE_BYTES))
        data, self._received = self._received[:size], self._received[size:]
        return bytes(data)

    def send(self, data: Any) -> int:
        """Raises OSError if the server takes nothing for `timeout_s`."""
        while True:
            try:
                sent: int = self._socket.send(data)
            except _WANTS as wants:
                reading = isinstance(wants, ssl.SSLWantReadError)
                if not _poll(*(([self], []) if reading else ([], [self])), self._timeout_s)[reading is False]:
                    raise OSError(errno.ETIMEDOUT, f"the server takes no data for {self._timeout_s:g} s") from wants
            else:
                return sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


class _DirectResult(AsyncResult):  # type: ignore[misc]  # kazoo has no types
    """An answer that is delivered by the thread that received it. Our callbacks only pass it on."""

    def _do_callbacks(self) -> None:
        for callback in self._callbacks:
            try:
                callback(self)
            except Exception:
                logger.exception("a callback of kazoo failed")


class ImpatientHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's handler of threads and sockets, with two timeouts that kazoo lacks.

    - A host that accepts no connection is given up soon enough to try every other one within half a session.
    - A connection on which a request waits is given up when nothing was received for two thirds of a session:
      ZooKeeper's own rule for clients. kazoo 2.11 sends a ping only when nothing was sent for a while, so a client that
      goes on sending never notices a network that drops everything, and its session ends although other servers are up.

    session_timeout_s: what the client requests; hosts_count: servers in its list. tls None: plaintext.
    """

    def __init__(
        self,
        session_timeout_s: float,
        hosts_count: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        tls: ServerTls | None = None,
    ) -> None:
        super().__init__()
        self._tls = tls
        #: why the last TLS handshake failed; empty after a connection
        self.tls_failure = ""
        self._one_host_timeout_s = session_timeout_s / (2 * hosts_count)
        self._silence_max_s = session_timeout_s * SILENCE_RATIO
        self._clock = clock
        self._connection: object = None
        #: Since when a request may wait for an answer; None if every request was followed by some answer.
        self._asked_at_s: float | None = None

    def async_result(self) -> AsyncResult:
        return _DirectResult(self)

    def create_connection(self, *arguments: Any, timeout: float, **options: Any) -> Any:
        # kazoo would wait for one silent host for a whole session timeout, and lose the session although others are up.
        timeout = min(timeout, self._one_host_timeout_s)
        if self._tls is None:
            connected = super().create_connection(*arguments, timeout=timeout, **options)
        else:
            connected = self._tls_connection(self._tls, options["address"], options["hostname"], timeout)
        return BufferedSocket(connected, self._silence_max_s)

    def _tls_connection(self, tls: ServerTls, address: tuple[str, int], host: str, timeout_s: float) -> ssl.SSLSocket:
        """kazoo's own function would trust the system's CAs, too, and leave the socket of a failed handshake open.

        Raises OSError, of which SSLError is one.
        """
        context = tls.context()
        plain = socket.create_connection(address, timeout_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected = context.wrap_socket(plain, server_hostname=tls.server_name or host)
        except OSError as error:
            plain.close()
            if isinstance(error, ssl.SSLError):
                self.tls_failure = getattr(error, "verify_message", "") or error.reason or str(error)
            raise
        self.tls_failure = ""
        return connected

    def select(self, readers: Sequence[Any], writers: Sequence[Any], errors: Sequence[Any], timeout: float) -> Any:
        """kazoo's connection thread waits here, and only here, for both answers and requests.

        Raises OSError if the server is silent for too long; kazoo treats that as a broken connection.
        """
        if writers and not readers:
            return [], list(writers), []  # `BufferedSocket.send` waits where it must
        if len(readers) < 2:
            return _poll(readers, writers, timeout)
        connection, requests = readers
        if connection is not self._connection:
            self._connection, self._asked_at_s = connection, None
        received = connection.pending() > 0
        ready = _poll(readers, [], 0 if received else min(timeout, self._patience_s()))
        if received and connection not in ready[0]:
            ready[0].append(connection)
        if connection in ready[0]:
            self._asked_at_s = None
        elif self._patience_s() == 0:
            raise OSError(errno.ETIMEDOUT, f"no data from the server for {self._silence_max_s:g} s")
        if requests in ready[0] and self._asked_at_s is None:
            self._asked_at_s = self._clock()
        return ready

    def _patience_s(self) -> float:
        if self._asked_at_s is None:
            return float("inf")
        return max(0.0, self._asked_at_s + self._silence_max_s - self._clock())


def _poll(readers: Sequence[Any], writers: Sequence[Any], timeout_s: float) -> tuple[list[Any], list[Any], list[Any]]:
    """As `select.select`, for sockets of any number."""
    waiting = select.poll()
    for one in readers:
        waiting.register(one.fileno(), select.POLLIN | select.POLLPRI)
    for one in writers:
        waiting.register(one.fileno(), select.POLLOUT)
    events = dict(waiting.poll(None if timeout_s == float("inf") else max(0.0, timeout_s) * 1000))
    return (
        [one for one in readers if events.get(one.fileno(), 0) & _READABLE],
        [one for one in writers if events.get(one.fileno(), 0) & ~(select.POLLIN | select.POLLPRI)],
        [],
    )
