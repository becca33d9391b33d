"""A name server for one name whose address changes, as a pod's does: the part of DNS that gRPC asks."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

_HEADER = struct.Struct(">HHHHH")
_RECORD = struct.Struct(">HHHIH")
_ANSWER = 0x8580  # authoritative, no error
_NAME_OF_THE_QUESTION = 0xC00C
_ADDRESS, _INTERNET = 1, 1


class NameServer(asyncio.DatagramProtocol):
    """Answers every question for an IPv4 address with `address`, and others with nothing. To be kept for no time."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.port = 0
        self._transport: asyncio.DatagramTransport

    @classmethod
    @asynccontextmanager
    async def running(cls, address: str) -> AsyncIterator[Self]:
        loop = asyncio.get_running_loop()
        transport, server = await loop.create_datagram_endpoint(lambda: cls(address), local_addr=("127.0.0.1", 0))
        server.port = transport.get_extra_info("sockname")[1]
        try:
            yield server
        finally:
            transport.close()

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        question = data[12 : data.index(0, 12) + 5]
        (kind,) = struct.unpack(">H", question[-4:-2])
        answers = b""
        if kind == _ADDRESS:
            answers = _RECORD.pack(_NAME_OF_THE_QUESTION, _ADDRESS, _INTERNET, 0, 4) + socket.inet_aton(self.address)
        self._transport.sendto(data[:2] + _HEADER.pack(_ANSWER, 1, bool(answers), 0, 0) + question + answers, addr)
