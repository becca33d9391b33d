"""What the raw clients of each protocol share: time that a test moves, a door on a loopback socket, and its end."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

from oncelog_doors.connections.listener import DRAIN_MS, Listener

DEADLINE_S = 60.0
#: When a door of a test begins, nearly.
WALL_MS = 1_764_000_000_000


class ManualTimers:
    """Time that a test moves."""

    def __init__(self) -> None:
        self._now_ms = 1000
        self._timers: list[tuple[int, Callable[[], None]]] = []

    def now_ms(self) -> int:
        return self._now_ms

    def wall_ms(self) -> int:
        return WALL_MS + self._now_ms

    def at(self, when_ms: int, call: Callable[[], None]) -> Callable[[], None]:
        timer = (when_ms, call)
        self._timers.append(timer)
        return lambda: self._timers.remove(timer) if timer in self._timers else None

    def advance(self, by_ms: int) -> None:
        """Call what is due, in its order."""
        end_ms = self._now_ms + by_ms
        while due := [timer for timer in self._timers if timer[0] <= end_ms]:
            timer = min(due, key=lambda each: each[0])
            self._timers.remove(timer)
            self._now_ms = max(self._now_ms, timer[0])
            timer[1]()
        self._now_ms = end_ms


class Door(Protocol):
    timers: ManualTimers
    door: Listener
    port: int


W = TypeVar("W", bound=Door)


@asynccontextmanager
async def listening(world: W, tls: ssl.SSLContext | None = None) -> AsyncIterator[W]:
    """The door accepts connections inside of the block. Behind it no answer is waited for."""
    world.port = await world.door.listen("127.0.0.1", 0, tls)
    try:
        yield world
    finally:
        closing = asyncio.ensure_future(world.door.close())
        await asyncio.wait([closing], timeout=0)
        world.timers.advance(DRAIN_MS)
        await closing


class RawConnection:
    """A client that writes and reads bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass  # the door was faster


C = TypeVar("C", bound=RawConnection)


@asynccontextmanager
async def connected(client_class: type[C], port: int, **options: Any) -> AsyncIterator[C]:
    """options: of `asyncio.open_connection`."""
    client = client_class(*await asyncio.open_connection("127.0.0.1", port, **options))
    try:
        yield client
    finally:
        await client.close()
