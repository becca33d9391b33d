"""Limits of the REST port's connections: number, number per address, and time to send a request.

A connection is accepted before the client has sent a token. So an idle connection must not keep others out.

Rules
- A connection counts from the moment it is accepted, before TLS. It is busy while a request is being answered.
- If the port or the client's address has reached its limit, the oldest connection that is not busy (of that address, in
  the second case) is closed for the new one. Only if all of them are busy, the new connection is refused.
- The TLS handshake and each request's head must be complete within HEAD_TIMEOUT_S, from the first byte and from the
  start of a connection. The same limit applies to the rest of a request that was answered before it was read.
"""

import asyncio
import contextlib
import json
import logging
import socket
from typing import Any, NamedTuple

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

logger = logging.getLogger(__name__)

HEAD_TIMEOUT_S = 10.0
SWEEP_S = 1.0
#: Pause after a failure to accept a connection, for example without free file descriptors.
ACCEPT_PAUSE_S = 0.1


class ConnectionLimits(NamedTuple):
    """connections_max: of the port. per_peer_max: of one client address."""

    connections_max: int
    per_peer_max: int
    head_timeout_s: float = HEAD_TIMEOUT_S


class LimitedConnection:
    """One connection. receiving_since: start of a handshake or request, in loop time; None: idle between requests, or
    busy.
    """

    __slots__ = ("busy", "peer", "receiving_since", "socket")

    def __init__(self, peer: str, connection: socket.socket, now_s: float) -> None:
        self.peer = peer
        self.socket = connection
        self.busy = False
        self.receiving_since: float | None = now_s

    def end(self) -> None:
        """Shut the socket down; the transport notices, whatever its state."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class Connections:
    """All connections of one port, oldest first."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._connections: dict[LimitedConnection, None] = {}
        self._peers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def make_room(self, peer: str) -> str | None:
        """Close a connection if a new one of `peer` exceeds a limit. Returns the reason if none can be closed."""
        per_peer, total = self.limits.per_peer_max, self.limits.connections_max
        if self._peers.get(peer, 0) >= per_peer:
            return self._end_one(f"{peer} has {per_peer} connections, the maximum for one address", peer)
        if len(self._connections) >= total:
            return self._end_one(f"this server has {total} connections, the maximum", None)
        return None

    def take(self, tracked: LimitedConnection) -> None:
        self._connections[tracked] = None
        self._peers[tracked.peer] = self._peers.get(tracked.peer, 0) + 1

    def leave(self, tracked: LimitedConnection) -> None:
        """Idempotent."""
        if tracked not in self._connections:
            return
        del self._connections[tracked]
        left = self._peers[tracked.peer] - 1
        if left:
            self._peers[tracked.peer] = left
        else:
            del self._peers[tracked.peer]

    def end_slow(self, now_s: float) -> None:
        """Close the connections whose handshake or request takes too long."""
        latest_s = now_s - self.limits.head_timeout_s
        for tracked in [
            tracked
            for tracked in self._connections
            if tracked.receiving_since is not None and tracked.receiving_since < latest_s
        ]:
            self.leave(tracked)
            tracked.end()

    def _end_one(self, full: str, peer: str | None) -> str | None:
        for tracked in self._connections:
            if not tracked.busy and peer in (None, tracked.peer):
                self.leave(tracked)
                tracked.end()
                return None
        return f"{full}, and all of them are busy: retry"


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol, which also tracks the state of its connection."""

    def __init__(self, tracked: LimitedConnection, connections: Connections, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._tracked = tracked
        self._connections = connections

    def data_received(self, data: bytes) -> None:
        if not self._tracked.busy and self._tracked.receiving_since is None:
            self._tracked.receiving_since = self.loop.time()
        super().data_received(data)
        if self._is_answering:
            self._tracked.busy, self._tracked.receiving_since = True, None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._tracked.busy = self._is_answering
        # The rest of an unread body has the same time limit as a head. uvicorn closes idle connections itself.
        unread = not self._tracked.busy and self.conn.their_state is not h11.IDLE
        self._tracked.receiving_since = self.loop.time() if unread else None

    @property
    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.leave(self._tracked)
        super().connection_lost(exc)


class Listener:
    """Accepts the connections of one socket; has the methods of asyncio.Server that uvicorn uses."""

    def __init__(self, listener: socket.socket, server: uvicorn.Server, connections: Connections) -> None:
        self._listener = listener
        self._server = server
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._tasks = [self._loop.create_task(self._accept()), self._loop.create_task(self._sweep())]

    def close(self) -> None:
        for task in (*self._tasks, *self._connecting):
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait((*self._tasks, *self._connecting))

    async def _accept(self) -> None:
        while True:
            try:
                connection, address = await self._loop.sock_accept(self._listener)
            except OSError as error:
                # No file descriptors are free, or the client has disconnected already.
                logger.warning("could not accept a connection; will retry: %s", error)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            peer = str(address[0])
            refused = self._connections.make_room(peer)
            if refused is not None:
                self._refuse(connection, refused)
                continue
            tracked = LimitedConnection(peer, connection, self._loop.time())
            self._connections.take(tracked)
            task = self._loop.create_task(self._connect(tracked))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, tracked: LimitedConnection) -> None:
        config, server = self._server.config, self._server

        def protocol() -> LimitedProtocol:
            return LimitedProtocol(
                tracked,
                self._connections,
                config=config,
                server_state=server.server_state,
                app_state=server.lifespan.state,
            )

        try:
            await self._loop.connect_accepted_socket(protocol, tracked.socket, ssl=config.ssl)
        except (OSError, EOFError) as error:  # TLS's errors are OSErrors
            self._connections.leave(tracked)
            logger.debug("could not establish a connection from %s: %s", tracked.peer, error)
            tracked.socket.close()
        except BaseException:
            self._connections.leave(tracked)
            tracked.end()
            raise

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self._connections.end_slow(self._loop.time())

    def _refuse(self, connection: socket.socket, reason: str) -> None:
        """Answer 503 over plain HTTP; over TLS, only close."""
        with contextlib.suppress(OSError):
            if self._server.config.ssl is None:
                connection.send(_refusal(reason))
        connection.close()


def _refusal(reason: str) -> bytes:
    code = "service_unavailable"
    problem = {
        "type": f"urn:oncelog:problem:{code}",
        "title": "Service unavailable",
        "status": 503,
        "detail": reason,
        "code": code,
    }
    body = json.dumps(problem).encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
