"""Limits of request bodies: bytes, JSON values, time to arrive, and total bytes of all requests in progress.

The total counts the received bytes of all requests that are not answered yet, because these are in memory. A request
that exceeds the total is refused at once, with Retry-After. Bytes count when they arrive, not when Content-Length
announces them: so a client that announces a large body and sends nothing does not block others.

JSON values are counted before the body is parsed, because parsing creates an object for each value: 8 MiB of `{},`
would take more than a gigabyte. The scan keeps nothing: strings, opening brackets and commas count one each, and the
scan ends at the limit.

A body that is compressed is refused, 415: here it would have to be decompressed before it can be counted.

A file that is uploaded is read by its route, part by part and with a limit of its own, once the caller's rights are
known: `FILES`.
"""

import asyncio
import re
from collections.abc import Mapping
from types import MappingProxyType

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oncelog.core.errors import InvalidArgument, MessageTooLarge, OncelogError, ServiceUnavailable
from oncelog.metadata.rest.problems import http_problem, problem

BODY_BYTES_MAX = 1 << 20
BODY_TIMEOUT_S = 10.0
ALL_BYTES_MAX = 64 << 20


#: Deeper than any valid body of this interface.
DEPTH_MAX = 32
#: (Method, path prefix) of the requests that have a file.
FILES = ("PUT", "/admin/v2/backups/")
#: Default limit of strings, opening brackets and commas in one body.
VALUES_MAX = 65_536
#: Anchored and with possessive quantifiers, so that no input is scanned twice.
_TOKEN = re.compile(rb'[^"\[\]{},]*+("[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},])', re.DOTALL)


class _TotalBytes:
    """Bytes that are still free for the bodies of all requests."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._free_bytes = bytes_max

    def take(self, size: int) -> None:
        """Reserve `size` bytes. Raises ServiceUnavailable if they are not free."""
        if size > self._free_bytes:
            message = (
                f"the request bodies in progress reached the total limit of {self._bytes_max} bytes: retry shortly"
            )
            raise ServiceUnavailable(message, limit=self._bytes_max)
        self._free_bytes -= size

    def free(self, size: int) -> None:
        self._free_bytes += size
        assert self._free_bytes <= self._bytes_max, "only reserved bytes are freed"


class _Body:
    """The body of one request, with its own limit and its share of the total."""

    def __init__(self, total: _TotalBytes, bytes_max: int) -> None:
        self._total = total
        self._bytes_max = bytes_max
        self._taken_bytes = 0

    async def read(self, receive: Receive) -> bytes:
        """Read the whole body. Raises MessageTooLarge, ServiceUnavailable, ClientDisconnect."""
        pieces: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece = message.get("body", b"")
            if self._taken_bytes + len(piece) > self._bytes_max:
                text = f"the body has more than {self._bytes_max} bytes, the maximum"
                raise MessageTooLarge(text, field="body", limit=self._bytes_max)
            self._total.take(len(piece))
            self._taken_bytes += len(piece)
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)

    def free(self) -> None:
        self._total.free(self._taken_bytes)


class BodyLimit:
    """Middleware that reads and checks the whole body before it calls the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        bytes_max: int = BODY_BYTES_MAX,
        others: Mapping[str, int] = MappingProxyType({}),
        all_bytes_max: int = ALL_BYTES_MAX,
        timeout_s: float = BODY_TIMEOUT_S,
        values_max: int = VALUES_MAX,
    ) -> None:
        """others: {path prefix: its limit instead of bytes_max}. all_bytes_max: total of all requests, at least that of
        one request. values_max: JSON values in one body.
        """
        self._app = app
        self._bytes_max = bytes_max
        self._others = others
        self._total = _TotalBytes(max(all_bytes_max, bytes_max, *others.values()))
        self._timeout_s = timeout_s
        self._values_max = values_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (encoding := _encoding_of(scope)):
            detail = f"Content-Encoding {encoding[:100]} is not supported: send the body as it is, without compression"
            await http_problem(415, detail, {"Accept-Encoding": "identity"})(scope, receive, send)
            return
        if scope["type"] != "http" or (scope["method"] == FILES[0] and scope["path"].startswith(FILES[1])):
            await self._app(scope, receive, send)
            return
        body = _Body(self._total, self._bytes_max_of(scope["path"]))
        try:
            await self._answer(body, scope, receive, send)
        finally:
            body.free()

    async def _answer(self, body: _Body, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                whole = await body.read(receive)
            check_json(whole, values_max=self._values_max)
        except OncelogError as error:
            await problem(error)(scope, receive, send)
            return
        except TimeoutError:
            detail = f"the request body did not arrive within {self._timeout_s:g} s"
            await http_problem(408, detail, {"Connection": "close"})(scope, receive, send)
            return
        except ClientDisconnect:
            return
        waiting: list[Message] = [{"type": "http.request", "body": whole, "more_body": False}]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._app(scope, replay, send)

    def _bytes_max_of(self, path: str) -> int:
        return next((most for start, most in self._others.items() if path.startswith(start)), self._bytes_max)


def _encoding_of(scope: Scope) -> str:
    """How the body is encoded; empty: not at all."""
    encoding = ", ".join(Headers(scope=scope).getlist("content-encoding")).strip()
    return "" if encoding.lower() == "identity" else encoding


def check_json(body: bytes, *, values_max: int = VALUES_MAX) -> None:
    """Raises MessageTooLarge above `values_max`, InvalidArgument if the body is nested too deeply or is not UTF-8.

    Other invalid JSON passes: the parser reports it.
    """
    if b"\0" in body:
        # UTF-16 or UTF-32: the parser would detect and accept them, but this scan cannot read them.
        raise InvalidArgument("the body is not JSON encoded as UTF-8", field="body")
    values = depth = at = 0
    while (match := _TOKEN.match(body, at)) is not None:
        at = match.end()
        token = body[at - 1]
        if token in b"]}":
            depth -= 1
            continue
        values += 1
        if values > values_max:
            message = f"the body has more than {values_max} JSON values, the maximum: send less in one request"
            raise MessageTooLarge(message, field="body", limit=values_max)
        if token in b"[{":
            depth += 1
            if depth > DEPTH_MAX:
                message = f"the JSON of the body is nested deeper than {DEPTH_MAX} levels, the maximum"
                raise InvalidArgument(message, field="body", limit=DEPTH_MAX)
