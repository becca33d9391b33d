"""Faults on the wire between one client and a door: frames are counted, held back, replaced, and lost with a cut."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from struct import Struct
from typing import Self

_SIZE = Struct(">I")


class Link:
    """One connection of the client, and that to the door. waiting: frames that are held, of each direction."""

    def __init__(self, to_client: asyncio.StreamWriter, to_door: asyncio.StreamWriter) -> None:
        self.to_client, self.to_door = to_client, to_door
        self.waiting: dict[asyncio.StreamWriter, list[bytes]] = {to_client: [], to_door: []}
        #: the client's side is broken, and the door does not know
        self.stranded = False


class FaultProxy:
    """Made by `running`. It is the address of one client, and passes on all that it is not asked to hold or to lose.
    The form of frames is that of a protocol: a size of four bytes, and what the subclass knows."""

    def __init__(self, door_port: Callable[[], int]) -> None:
        self._door_port = door_port
        self._links: dict[asyncio.Task[None], Link | None] = {}
        #: {name: how many of its frames still pass}
        self._holding: dict[str, int] = {}
        #: frames that came, by name
        self.seen: Counter[str] = Counter()
        #: of them, those that were held back
        self.held: Counter[str] = Counter()
        #: {name: which of its frames, counted from 0, are lost, each with its connection}
        self.lost: dict[str, Collection[int]] = {}
        self.port = 0

    @classmethod
    @asynccontextmanager
    async def running(cls, door_port: Callable[[], int], port: int = 0) -> AsyncIterator[Self]:
        """door_port: asked for each connection, because a door that was started again has another one. port: of the
        proxy; 0: a free one."""
        proxy = cls(door_port)
        server = await asyncio.start_server(proxy._accept, "127.0.0.1", port)
        proxy.port = server.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            server.close()
            await proxy.cut()

    # --- of a protocol ------------------------------------------------------------------------------------------------

    def link_of(self, to_client: asyncio.StreamWriter, to_door: asyncio.StreamWriter) -> Link:
        return Link(to_client, to_door)

    def named(self, link: Link, body: bytes, *, of_client: bool) -> tuple[str, bytes]:
        """The name of a frame, and what is passed on in place of its body. of_client: its direction."""
        raise NotImplementedError

    # --- faults -------------------------------------------------------------------------------------------------------

    def hold(self, name: str, *, after: int = 0) -> None:
        """Hold frames of this name back in each connection from now on, and what follows them. after: so many of them
        pass before."""
        self._holding[name] = after

    def release(self) -> None:
        """Pass on what was held, in its order."""
        self._holding.clear()
        self._pass_on(stranded=False)

    def strand(self) -> None:
        """Break the client's side of all connections; the door does not notice. What is held of the client comes with
        `arrive_late`; answers to it are counted, and go nowhere. The next connection is taken, and nothing held."""
        self._holding.clear()
        for link in self._open():
            link.stranded = True
            link.to_client.transport.abort()

    def arrive_late(self) -> None:
        """The door gets what was held in connections that are stranded."""
        self._pass_on(stranded=True)

    def _pass_on(self, *, stranded: bool) -> None:
        for link in self._open():
            if link.stranded is stranded:
                for sink, frames in link.waiting.items():
                    sink.writelines(frames)
                    frames.clear()

    async def cut(self) -> None:
        """Cut all connections: what was held is lost. The next connection is taken again."""
        self._holding.clear()
        links = tuple(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    def _open(self) -> list[Link]:
        return [link for link in self._links.values() if link is not None]

    # --- connections --------------------------------------------------------------------------------------------------

    async def _accept(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links[task] = None
        sinks = [to_client]
        try:
            with suppress(ConnectionError):
                from_door, to_door = await asyncio.open_connection("127.0.0.1", self._door_port())
                sinks.append(to_door)
                link = self._links[task] = self.link_of(to_client, to_door)
                ways = [
                    asyncio.create_task(self._pump(link, from_client, of_client=True)),
                    asyncio.create_task(self._pump(link, from_door, of_client=False)),
                ]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                    if link.stranded:
                        await ways[1]
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
        except asyncio.CancelledError:
            pass  # `cut`
        finally:
            del self._links[task]
            for sink in sinks:
                sink.transport.abort()

    async def _pump(self, link: Link, source: asyncio.StreamReader, *, of_client: bool) -> None:
        """Until one of the sides has closed its connection, or a frame is lost with it."""
        sink = link.to_door if of_client else link.to_client
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await source.readexactly(_SIZE.size)
                body = await source.readexactly(*_SIZE.unpack(head))
                name, passed_on = self.named(link, body, of_client=of_client)
                self.seen[name] += 1
                if self.seen[name] - 1 in self.lost.get(name, ()):
                    return
                frame = _SIZE.pack(len(passed_on)) + passed_on
                if link.stranded and not of_client:
                    continue
                if self._is_held(name, link.waiting[sink]):
                    link.waiting[sink].append(frame)
                else:
                    sink.write(frame)
                    await sink.drain()

    def _is_held(self, name: str, waiting: list[bytes]) -> bool:
        left = self._holding.get(name)
        if left:
            self._holding[name] = left - 1
        if left == 0 or waiting:
            self.held[name] += 1
            return True
        return False
