"""A bound on request bodies, whether or not anybody reads them: in bytes, and in the time they may take to come."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oncelog.core.errors import MessageTooLarge
from oncelog.metadata.admin.problems import http_problem, problem

BODY_BYTES_MAX = 1 << 20
BODY_TIMEOUT_S = 10.0


class BodyLimit:
    """Reads the body first; the application then gets it in one piece."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        bytes_max: int = BODY_BYTES_MAX,
        others: Mapping[str, int] = MappingProxyType({}),
        timeout_s: float = BODY_TIMEOUT_S,
    ) -> None:
        """others: {beginning of a path: the bound below it}."""
        self._app = app
        self._bytes_max = bytes_max
        self._others = others
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                body = await self._read(receive, self._bytes_max_of(scope["path"]))
        except MessageTooLarge as error:
            await problem(error)(scope, receive, send)
            return
        except TimeoutError:
            detail = f"the body did not come within {self._timeout_s:g} s"
            await http_problem(408, detail, {"Connection": "close"})(scope, receive, send)
            return
        except ClientDisconnect:
            return
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._app(scope, replay, send)

    def _bytes_max_of(self, path: str) -> int:
        return next((most for start, most in self._others.items() if path.startswith(start)), self._bytes_max)

    async def _read(self, receive: Receive, bytes_max: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece = message.get("body", b"")
            size += len(piece)
            if size > bytes_max:
                raise MessageTooLarge(f"the body has more than {bytes_max} bytes", field="body", limit=bytes_max)
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)
