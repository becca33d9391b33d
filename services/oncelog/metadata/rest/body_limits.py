"""Bounds on request bodies, whether or not anybody reads them: in bytes, in JSON values, in the time they may take, and
together.

Together counts what has come of the bodies of all requests that are not answered yet, for so long they are in memory. A
request whose body does not fit any more is refused at once, with Retry-After. Room is taken as bytes come and not as
they are announced: whoever announces much and sends nothing keeps nobody out.
"""

import asyncio
import re
from collections.abc import Mapping
from types import MappingProxyType

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oncelog.core.errors import InvalidArgument, MessageTooLarge, OncelogError, ServiceUnavailable
from oncelog.metadata.rest.problems import http_problem, problem

BODY_BYTES_MAX = 1 << 20
BODY_TIMEOUT_S = 10.0
ALL_BYTES_MAX = 64 << 20


#: Deeper than any body of this interface, and far above no parser's stack.
DEPTH_MAX = 32
#: Strings, brackets and commas of one body, unless an application says otherwise.
VALUES_MAX = 65_536
#: Anchored, with possessive quantifiers: no input is scanned twice.
_TOKEN = re.compile(rb'[^"\[\]{},]*+("[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},])', re.DOTALL)


class _Room:
    """What is left for the bodies of all requests."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._free_bytes = bytes_max

    def take(self, size: int) -> None:
        """Raises ServiceUnavailable, and takes nothing."""
        if size > self._free_bytes:
            message = (
                f"requests under way have {self._bytes_max} bytes of bodies together: send this one again in a moment"
            )
            raise ServiceUnavailable(message, limit=self._bytes_max)
        self._free_bytes -= size

    def give_back(self, size: int) -> None:
        self._free_bytes += size
        assert self._free_bytes <= self._bytes_max, "what was given back was taken"


class _Body:
    """The body of one request: its own bound, and its share of the room."""

    def __init__(self, room: _Room, bytes_max: int) -> None:
        self._room = room
        self._bytes_max = bytes_max
        self._taken_bytes = 0

    async def read(self, receive: Receive) -> bytes:
        """All of it. Raises MessageTooLarge, ServiceUnavailable, ClientDisconnect."""
        pieces: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece = message.get("body", b"")
            if self._taken_bytes + len(piece) > self._bytes_max:
                text = f"the body has more than {self._bytes_max} bytes"
                raise MessageTooLarge(text, field="body", limit=self._bytes_max)
            self._room.take(len(piece))
            self._taken_bytes += len(piece)
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)

    def give_back(self) -> None:
        self._room.give_back(self._taken_bytes)


class BodyLimit:
    """Reads the body first; the application then gets it in one piece."""

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
        """others: {beginning of a path: the bound below it}. all_bytes_max: of all together, at least of one.
        values_max: of the JSON in one body (`json_limits`)."""
        self._app = app
        self._bytes_max = bytes_max
        self._others = others
        self._room = _Room(max(all_bytes_max, bytes_max, *others.values()))
        self._timeout_s = timeout_s
        self._values_max = values_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(self._room, self._bytes_max_of(scope["path"]))
        try:
            await self._answer(body, scope, receive, send)
        finally:
            body.give_back()

    async def _answer(self, body: _Body, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                whole = await body.read(receive)
            check_json(whole, values_max=self._values_max)
        except OncelogError as error:
            await problem(error)(scope, receive, send)
            return
        except TimeoutError:
            detail = f"the body did not come within {self._timeout_s:g} s"
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


def check_json(body: bytes, *, values_max: int = VALUES_MAX) -> None:
    """Raises MessageTooLarge above `values_max`, InvalidArgument where the body is nested too deeply or not UTF-8.

    What is no JSON otherwise passes: the parser tells what is wrong with it.
    """
    if b"\0" in body:
        # UTF-16 and UTF-32, which the parser would detect, and which this scan would read wrongly.
        raise InvalidArgument("the body is not JSON in UTF-8", field="body")
    values = depth = at = 0
    while (match := _TOKEN.match(body, at)) is not None:
        at = match.end()
        token = body[at - 1]
        if token in b"]}":
            depth -= 1
            continue
        values += 1
        if values > values_max:
            message = f"the body holds more than {values_max} values: send less in one request"
            raise MessageTooLarge(message, field="body", limit=values_max)
        if token in b"[{":
            depth += 1
            if depth > DEPTH_MAX:
                message = f"the body is not JSON that can be read: it is nested deeper than {DEPTH_MAX}"
                raise InvalidArgument(message, field="body", limit=DEPTH_MAX)
