"""A TCP relay that a test puts before a server to lose what crosses it: requests, replies, or the whole connection."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum

from oncelog.runtime.port_claim import claim_port, port_of


class Loss(Enum):
    NONE = "none"
    #: The next bytes to the server are swallowed, and the connection is cut.
    REQUEST = "request"
    #: The next bytes to the client are swallowed, and the connection is cut: the server has done what was asked.
    REPLY = "reply"


class CutProxy:
    """One relay on 127.0.0.1; made by `running`."""

    def __init__(self, server_port: int, tls: ssl.SSLContext | None = None) -> None:
        self._server_port = server_port
        self._tls = tls
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self.loss = Loss.NONE
        #: How many requests or replies pass before the one that is lost.
        self.passing_first = 0
        self.port = 0
        #: All that clients sent, of all connections.
        self.sent = bytearray()

    @classmethod
    @asynccontextmanager
    async def running(
        cls, server_port: int, *, port: int = 0, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator["CutProxy"]:
        """port: where it listens; 0: any free port. tls: clients connect with TLS; the server is plain."""
        proxy = cls(server_port, tls)
        with claim_port("127.0.0.1", port) as claim:
            proxy.port = port_of(claim)
            await proxy.accept()
            try:
                yield proxy
            finally:
                await proxy.refuse()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def accept(self) -> None:
        """Take connections, at the same port as before."""
        self._listener = await asyncio.start_server(self._relay, "127.0.0.1", self.port, ssl=self._tls)

    async def refuse(self) -> None:
        """Cut every connection and take no further ones. The port stays reserved for this relay."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self.cut()

    async def cut(self) -> None:
        """Cut every connection; the next is taken again."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def hold(self) -> None:
        """From now on pass nothing, and close nothing: a network that swallows."""
        self._passing.clear()

    def release(self) -> None:
        """Pass on what was held."""
        self._passing.set()

    async def _relay(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        writers = [to_client]
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
            writers.append(to_server)
            ways = {
                asyncio.ensure_future(self._pump(from_client, to_server, Loss.REQUEST)),
                asyncio.ensure_future(self._pump(from_server, to_client, Loss.REPLY)),
            }
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (ConnectionError, asyncio.CancelledError):
            return  # either end broke, or the test cut it: both close the other end
        finally:
            self._tasks.discard(task)
            for writer in writers:
                writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, loss: Loss) -> None:
        while data := await source.read(65_536):
            await self._passing.wait()
            if loss is Loss.REQUEST:
                self.sent += data
            if self.loss is loss:
                if not self.passing_first:
                    self.loss = Loss.NONE
                    return
                self.passing_first -= 1
            sink.write(data)
            await sink.drain()
        await self._passing.wait()


def request_types(sent: bytes) -> list[int]:
    """The ZooKeeper operation codes among frames of a client, its connect request aside.

    A frame is its length, then xid and type; a connect request has neither, and begins with protocol version 0.
    """
    types, at = [], 0
    while at + 12 <= len(sent):
        length, xid, kind = struct.unpack_from(">iii", sent, at)
        if xid != 0:
            types.append(kind)
        at += 4 + length
    return types
