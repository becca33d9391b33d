"""A door on a loopback socket, and a client that writes and reads its bytes."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from oncelog_doors.connections.listener import Listener
from oncelog_doors.core.pulsar.send_budget import SendBudget, SendLimits
from oncelog_doors.core.shared.admissions import AdmissionLimits, Admissions
from oncelog_doors.pulsar.connection import Connection
from oncelog_doors.pulsar.frames import Frame, FrameReader, limits_after_connect
from oncelog_doors.pulsar.home import Home
from tests.doors.pulsar.bytes_of_clients import CONNECT, PRODUCER, SEND, body, command, entry, frame
from tests.doors.pulsar.fake_cluster import FakeCluster
from tests.doors.raw_connection import DEADLINE_S, ManualTimers, RawConnection, connected, listening

TOPIC = b"persistent://public/default/orders"


class DoorWorld:
    def __init__(self, cluster: FakeCluster, limits: SendLimits | None, connections_max: int) -> None:
        self.cluster = cluster
        self.timers = ManualTimers()
        self.home = Home(
            cluster, self.timers, server_version="Oncelog 1", budget=SendBudget(limits),
            admissions=Admissions(AdmissionLimits(connections_max)),
        )  # fmt: skip
        self.door = Listener(self.home, partial(Connection, self.home))
        self.port = 0


@asynccontextmanager
async def door_world(
    cluster: FakeCluster | None = None,
    limits: SendLimits | None = None,
    tls: ssl.SSLContext | None = None,
    connections_max: int = 100,
) -> AsyncIterator[DoorWorld]:
    async with listening(DoorWorld(cluster or FakeCluster(), limits, connections_max), tls) as world:
        yield world


class RawClient(RawConnection):
    """version: decides the family."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self._frames = FrameReader(limits_after_connect(5 * 1024 * 1024), with_entry="message")

    async def read(self) -> Frame:
        """The next frame. Raises EOFError when the door has closed the connection."""
        async with asyncio.timeout(DEADLINE_S):
            while (found := self._frames.read()) is None:
                data = await self._reader.read(65_536)
                if not data:
                    raise EOFError
                self._frames.feed(data)
        return found

    async def answer(self, data: bytes) -> Any:
        """The body of the next command, after these bytes."""
        self.write(data)
        found = await self.read()
        return getattr(found.command, found.name)

    async def names_until_closed(self) -> list[str]:
        """The commands that come before the end."""
        names = []
        while True:
            try:
                names.append((await self.read()).name)
            except (EOFError, ConnectionError):
                return names

    async def connect(self, version: bytes = b"Pulsar-CPP-v4.2.0", *more: tuple[int, int | bytes]) -> Any:
        return await self.answer(frame(command(CONNECT, (1, version), (4, 20), *more)))

    async def open_producer(
        self, *more: tuple[int, int | bytes], producer_id: int = 1, topic: bytes = TOPIC, name: bytes = b"importer"
    ) -> Any:
        """more: fields of PRODUCER, such as (8, epoch) and (11, token)."""
        return await self.answer(producer(*more, producer_id=producer_id, topic=topic, name=name))

    def abort(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def raw_client(port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawClient]:
    async with connected(RawClient, port, ssl=tls, server_hostname=tls and "localhost") as client:
        yield client


def producer(
    *more: tuple[int, int | bytes], producer_id: int = 1, topic: bytes = TOPIC, name: bytes = b"importer"
) -> bytes:
    named = ((4, name),) if name else ()
    return frame(command(PRODUCER, (1, topic), (2, producer_id), (3, 77), *named, *more))


def send(
    sequence_id: int,
    value: bytes = b"v",
    *more: tuple[int, int | bytes],
    producer_id: int = 1,
    producer_name: bytes = b"importer",
    checksum: bool = True,
) -> bytes:
    """One message. more: fields of SEND. checksum: False: without it and the mark in front of it."""
    whole = entry(body((1, producer_name), (2, sequence_id), (3, 1)), value)
    return frame(command(SEND, (1, producer_id), (2, sequence_id), *more), whole if checksum else whole[6:])
