"""A minimal HTTP server for orchestrators and Prometheus: GET /livez, /readyz and /metrics, and values of the process.

    health = Health(telemetry.metrics_text, security.open_to)
    health.live_when("journal", lambda: journal.failure)       # None: fine, else the reason
    health.ready_when("zookeeper", lambda: None if session.connected else "not connected")
    port = await health.start(host="127.0.0.1", port=0)

/livez and /readyz answer 200 {"status": "ok", "reasons": {}}, or 503 with the reasons by name; a process that is not
live is not ready. The server runs on the process's own event loop, so a hanging loop fails the probe. It reads no
bodies and keeps no connections, and both the size and the time of a request are limited. Without authentication it
refuses what a page of another origin may have sent: 403, with the reason.
"""

import asyncio
import json
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

from oncelog.core.errors import InvalidArgument, PermissionDenied
from oncelog.runtime.observing.http_hosts import HttpHosts
from oncelog.runtime.telemetry import METRICS_CONTENT_TYPE

#: None: healthy; otherwise the reason, in a few words.
Check = Callable[[], str | None]

_HEAD_BYTES_MAX = 8 * 1024
_READ_TIMEOUT_S = 5.0
#: Connections at once; another one replaces the oldest, so that idle connections cannot block probes.
_CONNECTIONS_MAX = 256


class _Answer(NamedTuple):
    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"


class Health:
    """Checks run on the event loop at each request, so they must not block."""

    def __init__(self, metrics_text: Callable[[], bytes], open_to: HttpHosts | None) -> None:
        """open_to: None: the port answers anyone, because authentication is on."""
        self._metrics_text = metrics_text
        self._open_to = open_to
        self._live: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}
        self._values: dict[bytes, Callable[[], object]] = {}
        self._server: asyncio.Server | None = None
        #: open connections, the oldest first
        self._open: dict[asyncio.StreamWriter, None] = {}

    def live_when(self, name: str, check: Check) -> None:
        """The process must be restarted when `check` returns a reason."""
        self._live[name] = check

    def ready_when(self, name: str, check: Check) -> None:
        """The process must get no new work while `check` returns a reason."""
        self._ready[name] = check

    def serve_value(self, path: str, value: Callable[[], object]) -> None:
        """Answer GET `path` with the value as JSON."""
        self._values[path.encode()] = value

    async def start(self, *, host: str, port: int) -> int:
        """Listen; port 0 takes a free one. Returns the port. Raises InvalidArgument when the address cannot be used."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=_HEAD_BYTES_MAX)
        except OSError as error:
            raise InvalidArgument(
                f"cannot listen on {host}:{port}: {error.strerror or error}; choose a free port", field="health_port"
            ) from error
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= _CONNECTIONS_MAX:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._response(head))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            pass  # no valid request, or the client is gone
        finally:
            self._open.pop(writer, None)
            writer.close()

    def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        refused = self._refusal(head)
        answer = refused or self._answer(method, rest.partition(b" ")[0].partition(b"?")[0])
        lines = (
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
            f"Content-Type: {answer.content_type}",
            f"Content-Length: {len(answer.body)}",
            "Connection: close",
        )
        return "\r\n".join((*lines, "", "")).encode() + (b"" if method == b"HEAD" else answer.body)

    def _refusal(self, head: bytes) -> _Answer | None:
        if self._open_to is None:
            return None
        lines = [line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:]]
        headers = {name.strip().lower(): value.strip() for name, _, value in reversed(lines)}
        try:
            self._open_to.check(head.partition(b" ")[0].decode("latin-1"), headers.get)
        except PermissionDenied as error:
            return _Answer(HTTPStatus.FORBIDDEN, json.dumps({"status": error.message}).encode())
        return None

    def _answer(self, method: bytes, path: bytes) -> _Answer:
        if method not in {b"GET", b"HEAD"}:
            return _Answer(HTTPStatus.METHOD_NOT_ALLOWED, b'{"status": "only GET is supported"}')
        match path:
            case b"/livez":
                return _verdict(self._live)
            case b"/readyz":
                return _verdict(self._live | self._ready)
            case b"/metrics":
                return _Answer(HTTPStatus.OK, self._metrics_text(), METRICS_CONTENT_TYPE)
            case _ if path in self._values:
                return _Answer(HTTPStatus.OK, json.dumps(self._values[path]()).encode())
            case _:
                return _Answer(HTTPStatus.NOT_FOUND, b'{"status": "not found; try /livez, /readyz or /metrics"}')


def _verdict(checks: dict[str, Check]) -> _Answer:
    reasons = {name: reason for name, check in checks.items() if (reason := check()) is not None}
    body = json.dumps({"status": "failed" if reasons else "ok", "reasons": reasons}).encode()
    return _Answer(HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK, body)
