"""REST over the gRPC port, for clients that can reach only this port: one call carries one HTTP request.

The call is served by the same application as the REST port, with the same authentication, body limits and error bodies.
The token is that of the gRPC call.

Requests that take messages of a session wait for them, so they do not count among the requests at once: a session has
one of them at a time, and the number of sessions is bounded.
"""

import asyncio
import re

from starlette.types import ASGIApp

from oncelog.core.errors import InvalidArgument, MessageTooLarge, TooManyRequests
from oncelog.metadata.gateway.inner_request import InnerRequest, answer
from oncelog.rpc.codecs.metadata_codec import REST_BYTES_MAX, REST_SERVED
from oncelog.rpc.options import AUTHORIZATION
from oncelog.rpc.server import Server, ServerStream
from oncelog.wire import metadata_pb2 as pb

AT_ONCE_MAX = 100
#: Requests that wait for messages; far above the sessions of a replica.
WAITING_AT_ONCE_MAX = 1_000
TARGET_CHARACTERS_MAX = 8_192
HEADERS_MAX = 64
HEADER_CHARACTERS_MAX = 8_192
REQUEST_S = 30.0

_METHODS = frozenset({"GET", "PUT", "POST", "PATCH", "DELETE", "HEAD"})
_TARGET = re.compile(r"/[!-~]*", re.ASCII)
_WAITS = re.compile(r"/topics/[^?]*/session/[^/?]*/messages(\?.*)?", re.ASCII)
_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,256}", re.ASCII)
_VALUE = re.compile(r"[\t -~]*", re.ASCII)
#: Headers of the connection, and headers that gRPC carries itself.
_DROPPED = frozenset(
    {
        AUTHORIZATION,
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

RestStream = ServerStream[pb.RestRequest, pb.RestAnswer]


class RestOverGrpc:
    """Serves `Rest` from an ASGI application."""

    def __init__(self, app: ASGIApp, *, at_once_max: int = AT_ONCE_MAX, request_s: float = REQUEST_S) -> None:
        """request_s: how long the request message may take to arrive."""
        self._app = app
        self._at_once_max = at_once_max
        self._request_s = request_s
        self._receiving = 0
        #: requests in progress; as over HTTP, they continue after their client has disconnected
        self._answering: set[asyncio.Task[pb.RestAnswer]] = set()
        #: of these, those that wait for messages
        self._waiting: set[asyncio.Task[pb.RestAnswer]] = set()

    def serve(self, server: Server) -> None:
        """Register the method."""
        server.client_stream(REST_SERVED, self._serve)

    async def _serve(self, stream: RestStream) -> None:
        if self._receiving + len(self._answering) - len(self._waiting) >= self._at_once_max:
            message = f"{self._at_once_max} REST requests are in progress on the gRPC port, the maximum: retry shortly"
            raise TooManyRequests(message, limit=self._at_once_max)
        self._receiving += 1
        try:
            request = await self._request(stream)
            checked = _checked(request, stream.header(AUTHORIZATION), stream.peer)
        finally:
            self._receiving -= 1
        gone = asyncio.Event()
        waits = request.method == "GET" and _WAITS.fullmatch(request.target) is not None
        if waits and len(self._waiting) >= WAITING_AT_ONCE_MAX:
            message = f"{WAITING_AT_ONCE_MAX} requests wait for messages on the gRPC port, the maximum: retry shortly"
            raise TooManyRequests(message, limit=WAITING_AT_ONCE_MAX)
        answering = asyncio.create_task(self._answer(checked, gone))
        for tasks in (self._answering, self._waiting) if waits else (self._answering,):
            tasks.add(answering)
            answering.add_done_callback(tasks.discard)
        try:
            await stream.write(await asyncio.shield(answering))
        finally:
            gone.set()

    async def _request(self, stream: RestStream) -> pb.RestRequest:
        try:
            async with asyncio.timeout(self._request_s):
                return await anext(stream)
        except (TimeoutError, StopAsyncIteration) as error:
            raise InvalidArgument(f"no request message within {self._request_s:g} s", field="request") from error

    async def _answer(self, request: InnerRequest, gone: asyncio.Event) -> pb.RestAnswer:
        """gone: the client has ended the call."""
        result = await answer(self._app, request, gone)
        if len(result.body) > REST_BYTES_MAX:
            text = f"the response has {len(result.body)} bytes, the maximum here is {REST_BYTES_MAX}: use the REST port"
            raise MessageTooLarge(text, limit=REST_BYTES_MAX)
        wire = pb.RestAnswer(status=result.status, body=result.body)
        for name, value in result.headers:
            wire.headers.add(name=name, value=value)
        return wire


def _checked(request: pb.RestRequest, authorization: str | None, peer: str) -> InnerRequest:
    """Raises InvalidArgument."""
    if request.method not in _METHODS:
        raise InvalidArgument(f"method must be one of {', '.join(sorted(_METHODS))}", field="method")
    if len(request.target) > TARGET_CHARACTERS_MAX or _TARGET.fullmatch(request.target) is None:
        raise InvalidArgument(
            f"target must be a path, with an optional query, of at most {TARGET_CHARACTERS_MAX} characters",
            field="target",
            limit=TARGET_CHARACTERS_MAX,
        )
    if len(request.headers) > HEADERS_MAX:
        raise InvalidArgument(f"at most {HEADERS_MAX} headers are allowed", field="headers", limit=HEADERS_MAX)
    headers: list[tuple[bytes, bytes]] = []
    for header in request.headers:
        value_fits = len(header.value) <= HEADER_CHARACTERS_MAX and _VALUE.fullmatch(header.value) is not None
        if _NAME.fullmatch(header.name) is None or not value_fits:
            raise InvalidArgument(f"header {header.name[:40]!r} is not valid in HTTP", field="headers")
        if header.name not in _DROPPED:
            headers.append((header.name.encode(), header.value.encode()))
    if authorization is not None:
        headers.append((AUTHORIZATION.encode(), authorization.encode("latin-1", "replace")))
    return InnerRequest(request.method, request.target, headers, request.body, peer)
