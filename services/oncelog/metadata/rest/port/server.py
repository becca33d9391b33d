"""Runs uvicorn on the process's event loop, without its signal handlers and log configuration."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oncelog.core.errors import DeadlineExceeded, InvalidArgument, OncelogError, ServiceUnavailable
from oncelog.metadata.rest.port.connections import ConnectionLimits, Connections, Listener
from oncelog.metadata.rest.problems import http_problem, problem, publishes
from oncelog.runtime.security import ServerCertificate

LIMITS = ConnectionLimits(connections_max=1_000, per_peer_max=500)
#: How long a connection without requests stays open, as responses say; and longer, for a request that is on the way.
KEEP_ALIVE_S = 30
_ON_THE_WAY_S = 5


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._connections = connections

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: `runtime.process` handles signals."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, but with a listener that enforces the connection limits."""
        await self.lifespan.startup()
        listeners: list[Any] = [Listener(each, self, self._connections) for each in sockets or ()]
        self.servers = listeners
        self.started = True


class _Framing:
    """Refuses a request with two lengths, whose end a proxy may see elsewhere, and says how long a connection stays
    open without requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        refused = _framing_fault(scope["http_version"], headers)
        if refused is not None:
            await http_problem(400, refused, {"Connection": "close"})(scope, receive, send)
            return
        closes = scope["http_version"] != "1.1" or "close" in headers.get("connection", "").lower()

        async def telling(message: Message) -> None:
            if message["type"] == "http.response.start" and not closes:
                answered = MutableHeaders(scope=message)
                if answered.get("connection", "").lower() != "close":
                    answered["keep-alive"] = f"timeout={KEEP_ALIVE_S}"
            await send(message)

        await self._app(scope, receive, telling)


def _framing_fault(version: str, headers: Headers) -> str | None:
    if "transfer-encoding" not in headers:
        return None
    if version == "1.0":
        return "HTTP/1.0 has no Transfer-Encoding: send Content-Length"
    if "content-length" in headers:
        return "the request has both Content-Length and Transfer-Encoding: send one of them"
    return None


class _StopAnswers:
    """Answers the requests that are cut off by the stop of the server. uvicorn cancels them, and would answer 500 in
    plain text."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except asyncio.CancelledError:
            if begun:
                raise  # the client sees that the response is cut off
            error: OncelogError = ServiceUnavailable("this metadata service is stopping: send the request again")
            if scope["method"] not in ("GET", "HEAD"):
                # 503 would say that nothing was done.
                error = DeadlineExceeded(
                    "this metadata service is stopping and did not finish the request: its outcome is unknown"
                )
            await problem(error, publishing=publishes(scope["path"]))(scope, receive, send)


class RestServer:
    """Call `start`, then start `run` as a task; `stop` makes it return. certificate None: plain HTTP."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        stop_timeout_s: int,
        certificate: ServerCertificate | None = None,
        limits: ConnectionLimits = LIMITS,
    ) -> None:
        config = uvicorn.Config(
            _Framing(_StopAnswers(app)),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S + _ON_THE_WAY_S,
            timeout_graceful_shutdown=stop_timeout_s,
            ssl_context_factory=None if certificate is None else lambda _config, _default: certificate.ssl_context(),
        )
        #: the open connections
        self.connections = Connections(limits)
        self._server = _Server(config, self.connections)
        self._socket: socket.socket | None = None

    def start(self, *, host: str, port: int) -> int:
        """Bind and listen, port 0: any free port. Returns the port. Raises InvalidArgument if that fails."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Inherited by each connection. A response's head and body are two writes, and without TCP_NODELAY the
            # second would wait 40 ms for the peer's delayed ACK. uvloop sets it by itself, asyncio's own loop does not.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            listener.bind((host, port))
            listener.listen(1024)
        except OSError as error:
            listener.close()
            raise InvalidArgument(
                f"cannot listen on {host}:{port}: {error.strerror or error}; choose a free port", field="rest_port"
            ) from error
        listener.setblocking(False)
        self._socket = listener
        return int(listener.getsockname()[1])

    async def run(self) -> None:
        """Serve until `stop`."""
        assert self._socket is not None, "`start` was called before `run`"
        try:
            await self._server.serve(sockets=[self._socket])
        except asyncio.CancelledError:
            self._socket.close()
            raise

    def stop(self) -> None:
        """Accept no new connections, and let requests in progress end."""
        self._server.should_exit = True
