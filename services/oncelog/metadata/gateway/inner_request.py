"""A request to the REST application from inside the process, without a connection: for REST over gRPC, and the console.

The application treats it as any other one: authentication, rules, limits of bodies, and error bodies are the same. Its
`server` is None, so the application can tell it from a request that came over HTTP.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Scope

logger = logging.getLogger(__name__)
_VIA = "oncelog_via"


@dataclass(frozen=True, slots=True)
class InnerRequest:
    """target: path and query, percent-encoded. headers: lower-case names. peer: the client's address, for logs."""

    method: str
    target: str
    headers: Sequence[tuple[bytes, bytes]] = ()
    body: bytes = b""
    peer: str = ""
    #: over what it came: "grpc", or "console"
    via: str = "grpc"


@dataclass(slots=True)
class InnerAnswer:
    """headers: lower-case names, in the order in which the application sent them."""

    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""


async def answer(app: ASGIApp, request: InnerRequest, gone: asyncio.Event) -> InnerAnswer:
    """The whole answer of the application; 500 if it failed. gone: set when nobody waits for the answer any more."""
    result = InnerAnswer()
    pieces: list[bytes] = []
    waiting: list[Message] = [{"type": "http.request", "body": request.body, "more_body": False}]

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            result.status = message["status"]
            for name, value in message.get("headers", ()):
                result.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))
        elif message["type"] == "http.response.body":
            pieces.append(message.get("body", b""))

    scope = _scope(request)
    try:
        await app(scope, receive, send)
    except Exception:
        # As the HTTP server does. The application has answered 500 before it raised, if it could.
        logger.exception("a REST request failed", extra={"fields": {"path": scope["path"]}})
        result.status = result.status or 500
    result.body = b"".join(pieces)
    return result


def note_via(scope: Scope, via: str) -> None:
    """Over what a request came, if not REST."""
    scope[_VIA] = via


def via_of(scope: Scope) -> str:
    """Over what a request came: "rest", "grpc" or "console"."""
    via: str = scope.get(_VIA, "rest")
    return via


def _scope(request: InnerRequest) -> Scope:
    path, _, query = request.target.partition("?")
    own = [(b"host", b"oncelog"), (b"content-length", str(len(request.body)).encode())]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "https",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [*own, *request.headers],
        "client": (request.peer, 0),
        "server": None,
        "state": {},
        _VIA: request.via,
    }
