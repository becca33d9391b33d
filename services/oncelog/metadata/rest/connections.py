"""The connections of the REST port: how many there may be, who gives way, and how long nothing may be said.

Nobody has shown a token when a connection is taken, so a connection that says nothing must not keep out one that does.
Rules
- A connection is counted from the moment it is taken, before TLS. It is busy while a request is answered.
- When the port is full, or one address has its share, the oldest connection (of that address) that is not busy gives
  way to the new one. Only where all of them are busy the new one is refused.
- TLS and the head of a request have HEAD_TIMEOUT_S from the first byte of each, and from the start of a connection; so
  has the rest of a request that was answered before it was read.
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
#: The system's pause for a process without descriptors, or for another failure to take a connection.
ACCEPT_PAUSE_S = 0.1


class ConnectionLimits(NamedTuple):
    """connections_max: at the port. per_peer_max: of one address among them."""

    connections_max: int
    per_peer_max: int
    head_timeout_s: float = HEAD_TIMEOUT_S


class Seat:
    """One connection. waiting_since: seconds of the loop's clock, None: idle between two requests, or busy."""

    __slots__ = ("busy", "peer", "socket", "waiting_since")

    def __init__(self, peer: str, connection: socket.socket, now_s: float) -> None:
        self.peer = peer
        self.socket = connection
        self.busy = False
        self.waiting_since: float | None = now_s

    def end(self) -> None:
        """Have the transport see the end of the connection, whatever it is at."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class Seats:
    """All connections of one port, the oldest first."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._seats: dict[Seat, None] = {}
        self._peers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._seats)

    def make_room(self, peer: str) -> str | None:
        """End a connection where the new one of `peer` would be too many; why it is refused, if none can be ended."""
        per_peer, total = self.limits.per_peer_max, self.limits.connections_max
        if self._peers.get(peer, 0) >= per_peer:
            return self._end_one(f"{peer} has {per_peer} connections, the most for one address", peer)
        if len(self._seats) >= total:
            return self._end_one(f"this server has {total} connections, the most it takes", None)
        return None

    def take(self, seat: Seat) -> None:
        self._seats[seat] = None
        self._peers[seat.peer] = self._peers.get(seat.peer, 0) + 1

    def leave(self, seat: Seat) -> None:
        """May be called again."""
        if seat not in self._seats:
            return
        del self._seats[seat]
        left = self._peers[seat.peer] - 1
        if left:
            self._peers[seat.peer] = left
        else:
            del self._peers[seat.peer]

    def end_slow(self, now_s: float) -> None:
        """End the connections that have been in the middle of something for too long."""
        latest_s = now_s - self.limits.head_timeout_s
        for seat in [seat for seat in self._seats if seat.waiting_since is not None and seat.waiting_since < latest_s]:
            self.leave(seat)
            seat.end()

    def _end_one(self, full: str, peer: str | None) -> str | None:
        for seat in self._seats:
            if not seat.busy and peer in (None, seat.peer):
                self.leave(seat)
                seat.end()
                return None
        return f"{full}, and all of them are answering requests: try again"


class SeatedProtocol(H11Protocol):
    """uvicorn's protocol; it tells its seat what it is at."""

    def __init__(self, seat: Seat, seats: Seats, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._seat = seat
        self._seats = seats

    def data_received(self, data: bytes) -> None:
        if not self._seat.busy and self._seat.waiting_since is None:
            self._seat.waiting_since = self.loop.time()
        super().data_received(data)
        if self._is_answering:
            self._seat.busy, self._seat.waiting_since = True, None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._seat.busy = self._is_answering
        # The rest of a body that nobody wants any more has as long as a head; uvicorn ends an idle connection itself.
        unread = not self._seat.busy and self.conn.their_state is not h11.IDLE
        self._seat.waiting_since = self.loop.time() if unread else None

    @property
    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        self._seats.leave(self._seat)
        super().connection_lost(exc)


class Listener:
    """Takes the connections of one socket; has what uvicorn asks of asyncio's server."""

    def __init__(self, listener: socket.socket, server: uvicorn.Server, seats: Seats) -> None:
        self._listener = listener
        self._server = server
        self._seats = seats
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
                # No descriptors are left, or the client has gone already.
                logger.warning("a connection could not be taken: %s", error)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            peer = str(address[0])
            refused = self._seats.make_room(peer)
            if refused is not None:
                self._refuse(connection, refused)
                continue
            seat = Seat(peer, connection, self._loop.time())
            self._seats.take(seat)
            task = self._loop.create_task(self._connect(seat))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, seat: Seat) -> None:
        config, server = self._server.config, self._server

        def protocol() -> SeatedProtocol:
            return SeatedProtocol(
                seat, self._seats, config=config, server_state=server.server_state, app_state=server.lifespan.state
            )

        try:
            await self._loop.connect_accepted_socket(protocol, seat.socket, ssl=config.ssl)
        except (OSError, EOFError) as error:  # TLS's errors are OSErrors
            self._seats.leave(seat)
            logger.debug("a connection of %s did not come to be: %s", seat.peer, error)
            seat.socket.close()
        except BaseException:
            self._seats.leave(seat)
            seat.end()
            raise

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self._seats.end_slow(self._loop.time())

    def _refuse(self, connection: socket.socket, reason: str) -> None:
        """Over TLS nothing can be said."""
        with contextlib.suppress(OSError):
            if self._server.config.ssl is None:
                connection.send(_refusal(reason))
        connection.close()


def _refusal(reason: str) -> bytes:
    code = "service_unavailable"
    problem = {"type": f"urn:oncelog:problem:{code}", "title": "Not now", "status": 503, "detail": reason, "code": code}
    body = json.dumps(problem).encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
