"""Faults on the wire between one client of Pulsar and a door: frames are counted, held back, and lost with a cut."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from struct import Struct

from oncelog_doors.core.pulsar.server_errors import ServerError
from oncelog_doors.pulsar.commands import parse_command

_SIZE = Struct(">I")


class FaultProxy:
    """Made by `running`. It is the address of one client, and passes on all that it is not asked to hold."""

    def __init__(self, door_port: Callable[[], int]) -> None:
        self._door_port = door_port
        self._links: set[asyncio.Task[None]] = set()
        #: {command: how many of its frames still pass}
        self._holding: dict[str, int] = {}
        self._waiting: dict[asyncio.StreamWriter, list[bytes]] = {}
        #: frames that came, by command; errors by their name in Pulsar's protocol, too
        self.seen: Counter[str] = Counter()
        #: of them, those that were held back
        self.held: Counter[str] = Counter()
        self.port = 0

    @classmethod
    @asynccontextmanager
    async def running(cls, door_port: Callable[[], int]) -> AsyncIterator["FaultProxy"]:
        """door_port: asked for each connection, because a door that was started again has another one."""
        proxy = cls(door_port)
        server = await asyncio.start_server(proxy._accept, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            server.close()
            await proxy.cut()

    def hold(self, command: str, *, after: int = 0) -> None:
        """Hold this command back in each connection from now on, and what follows it. after: so many of its frames
        pass before."""
        self._holding[command] = after

    def release(self) -> None:
        """Pass on what was held, in its order."""
        self._holding.clear()
        for sink, frames in self._waiting.items():
            sink.writelines(frames)
            frames.clear()

    async def cut(self) -> None:
        """Cut all connections: what was held is lost. The next connection is taken again."""
        self._holding.clear()
        links = tuple(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def _accept(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self._links.add(link)
        sinks = [to_client]
        try:
            with suppress(ConnectionError):
                from_door, to_door = await asyncio.open_connection("127.0.0.1", self._door_port())
                sinks.append(to_door)
                self._waiting |= {to_client: [], to_door: []}
                ways = [
                    asyncio.create_task(self._pump(from_client, to_door)),
                    asyncio.create_task(self._pump(from_door, to_client)),
                ]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
        except asyncio.CancelledError:
            pass  # `cut`
        finally:
            self._links.discard(link)
            for sink in sinks:
                self._waiting.pop(sink, None)
                sink.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Until one of the sides has closed its connection."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await source.readexactly(_SIZE.size)
                body = await source.readexactly(*_SIZE.unpack(head))
                if self._is_held(_name(body, self.seen), self._waiting[sink]):
                    self._waiting[sink].append(head + body)
                else:
                    sink.write(head + body)
                    await sink.drain()

    def _is_held(self, name: str, waiting: list[bytes]) -> bool:
        left = self._holding.get(name)
        if left:
            self._holding[name] = left - 1
        if left == 0 or waiting:
            self.held[name] += 1
            return True
        return False


def _name(body: bytes, seen: Counter[str]) -> str:
    """The command of a frame, which is counted."""
    (size,) = _SIZE.unpack_from(body)
    name, command = parse_command(body[_SIZE.size : _SIZE.size + size])
    seen[name] += 1
    if name in ("error", "send_error"):
        seen[ServerError(getattr(command, name).error).wire_name] += 1
    return name
