"""A server that answers each request with the next status of a list."""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self


class HttpAnswers:
    """Use it as a block. keys, paths: of the requests so far. when_exhausted: called with the last answer."""

    def __init__(self, statuses: Sequence[int]) -> None:
        self.keys: list[str] = []
        self.paths: list[str] = []
        self.when_exhausted: Callable[[], object] = lambda: None
        self.url = ""
        self._statuses = list(statuses)
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            await reader.readexactly(int(headers.get("content-length", "0")))
            self.paths.append(lines[0].split()[1])
            self.keys.append(headers.get("idempotency-key", ""))
            status = self._statuses.pop(0)
            if not self._statuses:
                self.when_exhausted()
            writer.write(f"HTTP/1.1 {status} said\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}".encode())
            await writer.drain()
        finally:
            writer.close()
