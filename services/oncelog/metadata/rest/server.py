"""uvicorn on the process's own event loop: it listens, and neither takes the signals nor sets up logs."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from fastapi import FastAPI

from oncelog.core.errors import InvalidArgument
from oncelog.metadata.rest.connections import ConnectionLimits, Listener, Seats
from oncelog.runtime.security import ServerCertificate

LIMITS = ConnectionLimits(connections_max=1_000, per_peer_max=500)
KEEP_ALIVE_S = 30


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, seats: Seats) -> None:
        super().__init__(config)
        self._seats = seats

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to runtime.process."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take connections in a way that knows limits; the rest is uvicorn's."""
        await self.lifespan.startup()
        listeners: list[Any] = [Listener(each, self, self._seats) for each in sockets or ()]
        self.servers = listeners
        self.started = True


class RestServer:
    """`start`, then `run` as a task; `stop` makes it return. certificate None: plain text."""

    def __init__(
        self,
        app: FastAPI,
        *,
        stop_timeout_s: int,
        certificate: ServerCertificate | None = None,
        limits: ConnectionLimits = LIMITS,
    ) -> None:
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=stop_timeout_s,
            ssl_context_factory=None if certificate is None else lambda _config, _default: certificate.ssl_context(),
        )
        #: the connections there are
        self.seats = Seats(limits)
        self._server = _Server(config, self.seats)
        self._socket: socket.socket | None = None

    def start(self, *, host: str, port: int) -> int:
        """Bind; port 0 takes a free one. Returns the port. Raises InvalidArgument when the address cannot be had."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Inherited by each connection: an answer's head and body are two writes, and the second one would wait for
            # the other side's delayed acknowledgement, 40 ms. uvloop does so by itself, Python's own loop does not.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            listener.bind((host, port))
            listener.listen(1024)
        except OSError as error:
            listener.close()
            raise InvalidArgument(f"cannot listen on {host}:{port}; is the port in use?", field="rest_port") from error
        listener.setblocking(False)
        self._socket = listener
        return int(listener.getsockname()[1])

    async def run(self) -> None:
        """Serve until stopped."""
        assert self._socket is not None, "start comes first"
        try:
            await self._server.serve(sockets=[self._socket])
        except asyncio.CancelledError:
            self._socket.close()
            raise

    def stop(self) -> None:
        """Take no new connections, let running requests end."""
        self._server.should_exit = True
