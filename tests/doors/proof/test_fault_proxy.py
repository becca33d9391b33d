"""The proxy of the proof, between a client of bytes and a server of bytes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from oncelog_doors.proof.pulsar.proxy import PulsarProxy
from tests.cluster.until import until
from tests.doors.pulsar.bytes_of_clients import PING, command, frame, send

DEADLINE_S = 30.0
RECEIPT, SEND_ERROR = 7, 8
PING_FRAME = frame(command(PING))


def sent(number: int) -> bytes:
    return send(1, number, b"", b"")


def receipt(number: int) -> bytes:
    return frame(command(RECEIPT, (1, 1), (2, number)))


class Ends:
    """A server, a proxy in front of it, and a client of the proxy."""

    def __init__(self, proxy: PulsarProxy) -> None:
        self.proxy = proxy
        #: {connection: what the server got}
        self.got: list[bytearray] = []
        self.servers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.servers.append(writer)
        got = bytearray()
        self.got.append(got)
        while data := await reader.read(1000):
            got += data
        writer.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        count = len(self.got)
        ends = await asyncio.open_connection("127.0.0.1", self.proxy.port)
        await until(lambda: len(self.got) > count, DEADLINE_S)
        return ends


@asynccontextmanager
async def running() -> AsyncIterator[Ends]:
    port = 0
    async with PulsarProxy.running(lambda: port) as proxy:
        ends = Ends(proxy)
        server = await asyncio.start_server(ends.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            yield ends
        finally:
            server.close()


@pytest.mark.asyncio
async def test_frames_pass_and_are_counted() -> None:
    """However they are cut into pieces; errors by their name, too."""
    async with running() as ends:
        reader, writer = await ends.connect()
        wire = PING_FRAME + sent(1) + sent(2)
        for at in range(0, len(wire), 7):
            writer.write(wire[at : at + 7])
            await writer.drain()
        await until(lambda: bytes(ends.got[0]) == wire, DEADLINE_S)
        error = frame(command(SEND_ERROR, (1, 1), (2, 2), (3, 2), (4, b"cannot determine")))
        ends.servers[0].write(error)
        assert await reader.readexactly(len(error)) == error
        assert ends.proxy.seen == {"ping": 1, "send": 2, "send_error": 1, "PersistenceError": 1}
        writer.close()


@pytest.mark.asyncio
async def test_held_frame_holds_what_follows_it_until_the_release() -> None:
    """The other direction goes on."""
    async with running() as ends:
        reader, writer = await ends.connect()
        ends.proxy.hold("send", after=1)
        writer.write(sent(1) + PING_FRAME + sent(2) + PING_FRAME + sent(3))
        await until(lambda: ends.proxy.held["send"] == 2, DEADLINE_S)
        ends.servers[0].write(receipt(1))
        assert await reader.readexactly(len(receipt(1))) == receipt(1)
        assert ends.got[0] == sent(1) + PING_FRAME
        ends.proxy.release()
        writer.write(sent(4))
        whole = sent(1) + PING_FRAME + sent(2) + PING_FRAME + sent(3) + sent(4)
        await until(lambda: bytes(ends.got[0]) == whole, DEADLINE_S)
        writer.close()


@pytest.mark.asyncio
async def test_cut_loses_what_was_held_and_the_next_connection_is_whole() -> None:
    async with running() as ends:
        reader, first = await ends.connect()
        ends.proxy.hold("send_receipt")
        ends.servers[0].write(receipt(1) + receipt(2))
        await until(lambda: ends.proxy.held["send_receipt"] == 2, DEADLINE_S)
        await ends.proxy.cut()
        assert await reader.read() == b""
        first.close()
        reader, writer = await ends.connect()
        ends.servers[1].write(receipt(3))
        assert await reader.readexactly(len(receipt(3))) == receipt(3)
        assert ends.got[0] == b""
        writer.close()


@pytest.mark.asyncio
async def test_connection_ends_with_that_of_the_server() -> None:
    async with running() as ends:
        reader, writer = await ends.connect()
        ends.servers[0].close()
        assert await reader.read() == b""
        writer.close()
