"""Pulsar's own Python client, which is its C++ library, in front of a cluster in memory.

It blocks, so it runs in threads. What it does by itself, and a client of bytes cannot show: that it echoes the token,
resends what is pending, fails one message and goes on, and ends for a newer instance.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import pulsar
import pytest

from oncelog_doors.connections.listener import Listener
from oncelog_doors.connections.ports import LoopTimers
from oncelog_doors.core.shared.named_topics import NamedTopic
from oncelog_doors.pulsar.connection import Connection
from oncelog_doors.pulsar.home import Home
from tests.cluster.until import until
from tests.doors.pulsar.fake_cluster import FakeCluster

DEADLINE_S = 60.0
TOPIC = "persistent://public/default/orders"
T = TypeVar("T")


class Doors:
    """Doors one after another on one port, as after a restart."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.port = 0
        self.home: Home | None = None
        self._door: Listener | None = None

    async def start(self) -> None:
        self.home = Home(self.cluster, LoopTimers(), server_version="Oncelog 1")
        self._door = Listener(self.home, partial(Connection, self.home))
        self.port = await self._door.listen("127.0.0.1", self.port)

    async def stop(self) -> None:
        if self._door is not None:
            await self._door.close()

    def client(self) -> Any:
        return pulsar.Client(
            f"pulsar://127.0.0.1:{self.port}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
            operation_timeout_seconds=int(DEADLINE_S),
        )  # fmt: skip


@asynccontextmanager
async def running() -> AsyncIterator[Doors]:
    doors = Doors()
    await doors.start()
    try:
        yield doors
    finally:
        await doors.stop()


@asynccontextmanager
async def producer(doors: Doors, name: str | None = "importer", **options: Any) -> AsyncIterator[Any]:
    client = await threaded(doors.client)
    try:
        yield await threaded(client.create_producer, TOPIC, name, send_timeout_millis=0, **options)
    finally:
        await threaded(client.close)


async def threaded(call: Callable[..., T], *arguments: Any, **options: Any) -> T:
    async with asyncio.timeout(DEADLINE_S):
        return await asyncio.to_thread(call, *arguments, **options)


def send_all(opened: Any, ids: range) -> list[Any]:
    """Send a message under each id, and return the results in the order of their receipts."""
    results: list[Any] = []
    for number in ids:
        opened.send_async(b"line %d" % number, lambda result, _: results.append(result), sequence_id=number)
    opened.flush()
    return results


@pytest.mark.asyncio
async def test_application_resumes_behind_its_last_sequence_id() -> None:
    async with running() as doors:
        async with producer(doors, batching_enabled=False) as opened:
            assert opened.last_sequence_id() == -1
            results = await threaded(send_all, opened, range(100, 400))
            assert results == [pulsar.Result.Ok] * 300
        async with producer(doors, batching_enabled=False) as opened:
            assert opened.last_sequence_id() == 399


@pytest.mark.asyncio
async def test_its_library_takes_id_0_for_none() -> None:
    """The message gets the next number that the library counts by itself (docs/pulsar.md): 0, 1, and, below 20, 2."""
    async with running() as doors, producer(doors, batching_enabled=False) as opened:
        for number in (0, 0, 20):
            await threaded(opened.send, b"m", sequence_id=number)
        with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
            await threaded(opened.send, b"m", sequence_id=0)
        stored = doors.cluster.topic("public/default/orders").entries
        assert [each.ids.sequence_id for each in stored] == [0, 1, 20]


@pytest.mark.asyncio
@pytest.mark.parametrize("compression", ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
async def test_batches_are_stored_as_they_are(compression: str) -> None:
    chosen = getattr(pulsar.CompressionType, compression)
    async with running() as doors, producer(doors, batching_enabled=True, compression_type=chosen) as opened:
        assert await threaded(send_all, opened, range(300)) == [pulsar.Result.Ok] * 300
        stored = doors.cluster.topic("public/default/orders").entries
        assert len(stored) < 100


@pytest.mark.asyncio
async def test_stale_message_fails_alone_and_the_producer_goes_on() -> None:
    """Its library has no error for one message, so the door closes the producer and refuses its next opening once."""
    async with running() as doors, producer(doors, batching_enabled=False) as opened:
        await threaded(opened.send, b"a", sequence_id=10)
        with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
            await threaded(opened.send, b"late", sequence_id=3)
        for number in range(11, 15):
            await threaded(opened.send, b"more", sequence_id=number)
        stored = doors.cluster.topic("public/default/orders").entries
        assert [each.ids.sequence_id for each in stored] == [10, 11, 12, 13, 14]


@pytest.mark.asyncio
async def test_producer_comes_back_with_its_token_and_resends_what_is_pending() -> None:
    """The door ends while nothing is decided. The next one sees the same instance and each message again."""
    async with running() as doors, producer(doors, batching_enabled=False) as opened:
        await threaded(opened.send, b"first", sequence_id=0)
        topic = doors.cluster.topic("public/default/orders")
        topic.takes = False
        sending = asyncio.create_task(threaded(send_all, opened, range(1, 50)))
        await until(lambda: len(topic.waiting) == 49, DEADLINE_S)
        (session,) = doors.cluster.opened
        assert doors.home is not None
        for connection in list(doors.home.connections.values()):
            connection.fail("a test cuts it")
        await until(session.end.done, DEADLINE_S)
        topic.take()
        assert await sending == [pulsar.Result.Ok] * 49
        assert [each.ids.sequence_id for each in topic.entries] == [*range(50)]
        assert doors.cluster.opened[-1].generation == session.generation


@pytest.mark.asyncio
async def test_older_instance_ends_when_a_newer_one_has_its_name() -> None:
    async with running() as doors, producer(doors) as older:
        await threaded(older.send, b"of the older one", sequence_id=0)
        doors.cluster.topic("public/default/orders").fences = True
        async with producer(doors) as newer:
            await threaded(newer.send, b"of the newer one", sequence_id=1)
            with pytest.raises(pulsar.PulsarException) as failed:
                await threaded(older.send, b"of a zombie", sequence_id=2)
            assert not isinstance(failed.value, pulsar.Timeout)
            await threaded(newer.send, b"goes on", sequence_id=2)
        stored = doors.cluster.topic("public/default/orders").entries
        assert len(stored) == 3


@pytest.mark.asyncio
async def test_name_is_assigned_and_given_back() -> None:
    async with running() as doors:
        async with producer(doors, None) as opened:
            name = opened.producer_name()
            assert name == "assigned-0"
        assert list(doors.cluster.topic("public/default/orders").names) == [name]


@pytest.mark.asyncio
async def test_pattern_is_applied_by_the_client() -> None:
    """It takes partitions for their topic, and looks that up. If no topic fits, it subscribes to none."""
    async with running() as doors:
        doors.cluster.listed = [NamedTopic("public/default/orders"), NamedTopic("public/default/lines", 3)]
        client = await threaded(doors.client)
        await threaded(client.subscribe, re.compile("persistent://public/default/nothing-.*"), "billing")
        assert doors.cluster.asked == ["public/default"]
        subscribing = threaded(client.subscribe, re.compile("persistent://public/default/li.*"), "billing")
        # Whether it may subscribe is another matter.
        await asyncio.gather(subscribing, return_exceptions=True)
        assert set(doors.cluster.asked) == {"public/default", "public/default/lines"}
        await threaded(client.close)
