"""Faults on the wire between clients of Kafka and a door: answers to Produce are lost, with their connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from struct import Struct

_SIZE = Struct(">i")
_REQUEST = Struct(">hhi")
_NUMBER = Struct(">i")
_PRODUCE = 0
#: A door tells clients of this machine to stay at the address that they have used, which would be its own.
_SOURCE = "127.0.0.2"


class LossyProxy:
    """Made by `running`. lost: which answers to Produce are lost, counted from 0."""

    def __init__(self, door_port: int, lost: frozenset[int]) -> None:
        self._door_port, self._lost = door_port, lost
        self._links: set[asyncio.Task[None]] = set()
        #: answers to Produce that came
        self.produces = 0

    @classmethod
    @asynccontextmanager
    async def running(cls, port: int, door_port: int, lost: frozenset[int]) -> AsyncIterator["LossyProxy"]:
        proxy = cls(door_port, lost)
        server = await asyncio.start_server(proxy._accept, "127.0.0.1", port)
        try:
            yield proxy
        finally:
            server.close()
            links = tuple(proxy._links)
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
                address = (_SOURCE, 0)
                from_door, to_door = await asyncio.open_connection("127.0.0.1", self._door_port, local_addr=address)
                sinks.append(to_door)
                asked: dict[int, int] = {}
                ways = [
                    asyncio.create_task(self._requests(from_client, to_door, asked)),
                    asyncio.create_task(self._answers(from_door, to_client, asked)),
                ]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
        except asyncio.CancelledError:
            pass  # the end
        finally:
            self._links.discard(link)
            for sink in sinks:
                sink.transport.abort()

    async def _requests(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, asked: dict[int, int]) -> None:
        """asked: {correlation id: key of the request}"""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await source.readexactly(_SIZE.size)
                body = await source.readexactly(*_SIZE.unpack(head))
                key, _version, number = _REQUEST.unpack_from(body)
                asked[number] = key
                sink.write(head + body)
                await sink.drain()

    async def _answers(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, asked: dict[int, int]) -> None:
        """Returns when an answer is lost, so the connection is cut."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await source.readexactly(_SIZE.size)
                body = await source.readexactly(*_SIZE.unpack(head))
                if asked.pop(*_NUMBER.unpack_from(body)) == _PRODUCE:
                    self.produces += 1
                    if self.produces - 1 in self._lost:
                        return
                sink.write(head + body)
                await sink.drain()
