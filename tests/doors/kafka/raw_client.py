"""A door for Kafka's clients on a loopback socket, and a client that writes and reads its bytes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from struct import pack, unpack
from typing import Any

from oncelog.core.names import NamespaceName
from oncelog_doors.connections.listener import Listener
from oncelog_doors.core.shared.admissions import AdmissionLimits, Admissions
from oncelog_doors.kafka.asking import Address
from oncelog_doors.kafka.codec import Body, read_response, write_request
from oncelog_doors.kafka.connection import Connection
from oncelog_doors.kafka.home import KafkaHome
from oncelog_doors.wire.kafka_tables import REQUESTS
from tests.doors.kafka.fake_cluster import FakeCluster
from tests.doors.raw_connection import DEADLINE_S, ManualTimers, RawConnection, connected, listening

NO_CLIENT = b"\xff\xff"


class KafkaWorld:
    def __init__(self, cluster: FakeCluster, **options: Any) -> None:
        self.cluster = cluster
        self.timers = ManualTimers()
        self.home = KafkaHome(
            cluster, self.timers, namespace=NamespaceName("public", "default"),
            admissions=Admissions(AdmissionLimits(options.pop("connections_max", 100))), **options,
        )  # fmt: skip
        self.door = Listener(self.home, partial(Connection, self.home))
        self.port = 0


@asynccontextmanager
async def kafka_world(cluster: FakeCluster | None = None, **options: Any) -> AsyncIterator[KafkaWorld]:
    """options: of `KafkaHome`, and connections_max."""
    async with listening(KafkaWorld(cluster or FakeCluster(), **options)) as world:
        yield world


def request(api: str, version: int, body: Body, correlation_id: int = 1, *, client_id: bytes = NO_CLIENT) -> bytes:
    tags = b"\0" if version >= REQUESTS[api].flexible else b""
    head = pack(">hhi", REQUESTS[api].key, version, correlation_id) + client_id + tags
    data = head + b"".join(write_request(api, version, body))
    return pack(">i", len(data)) + data


class RawClient(RawConnection):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self._number = 0

    def send(self, api: str, version: int, body: Body) -> int:
        """Returns its correlation id."""
        self._number += 1
        self.write(request(api, version, body, self._number))
        return self._number

    async def read(self, api: str, version: int) -> tuple[int, Body]:
        """The correlation id and the body of the next answer. Raises EOFError when the door has closed it."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                [size] = unpack(">i", await self._reader.readexactly(4))
                data = await self._reader.readexactly(size)
            except asyncio.IncompleteReadError as error:
                raise EOFError from error
        tagged = api != "ApiVersions" and version >= REQUESTS[api].flexible
        [number] = unpack(">i", data[:4])
        return number, read_response(api, version, data[4 + tagged :])

    async def ask(self, api: str, version: int, body: Body) -> Body:
        """The answer to a request, which is the next one."""
        number = self.send(api, version, body)
        found, answer = await self.read(api, version)
        assert found == number
        return answer

    async def closed(self) -> None:
        """Return when the door has closed the connection, without another answer."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                assert await self._reader.read(1) == b""
            except ConnectionError:
                pass


@asynccontextmanager
async def raw_client(port: int) -> AsyncIterator[RawClient]:
    async with connected(RawClient, port) as client:
        yield client


__all__ = ["Address", "KafkaWorld", "RawClient", "kafka_world", "raw_client", "request"]
