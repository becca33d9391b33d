"""Messages in chunks with Pulsar's own Python client: 20 MiB through a door, and through its death."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pulsar
import pytest

import oncelog
from oncelog_doors.proof.pulsar.proxy import PulsarProxy
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.conftest import client
from tests.doors.clients.door_clusters import lasting_pulsar_cluster

__all__ = ["client", "lasting_pulsar_cluster"]

DEADLINE_S = 120.0
MIB = 1024 * 1024
VALUE = os.urandom(MIB) * 20
NAMESPACE = "public/default"
T = TypeVar("T")


def named(topic: str) -> str:
    return f"persistent://{NAMESPACE}/{topic}"


async def threaded(call: Callable[..., T], *arguments: Any, **options: Any) -> T:
    async with asyncio.timeout(DEADLINE_S):
        return await asyncio.to_thread(call, *arguments, **options)


class Pulsar:
    """A client of Pulsar behind a fault proxy."""

    def __init__(self, own: Any, proxy: PulsarProxy) -> None:
        self.own, self.proxy = own, proxy

    @classmethod
    @asynccontextmanager
    async def connected(cls, cluster: Cluster) -> AsyncIterator["Pulsar"]:
        def port() -> int:
            return int(cluster.status()["pulsar_url"].rpartition(":")[2])

        async with PulsarProxy.running(port) as proxy:
            own = pulsar.Client(
                f"pulsar://127.0.0.1:{proxy.port}", operation_timeout_seconds=int(DEADLINE_S),
                logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Info),
            )  # fmt: skip
            try:
                yield cls(own, proxy)
            finally:
                await threaded(own.close)

    async def producer(self, topic: str, name: str = "shop", **options: Any) -> Any:
        chosen = {"batching_enabled": False, "chunking_enabled": True, "send_timeout_millis": 0} | options
        return await threaded(self.own.create_producer, named(topic), name, **chosen)

    async def read(self, topic: str) -> list[Any]:
        def all_of_it() -> list[Any]:
            reader = self.own.create_reader(named(topic), pulsar.MessageId.earliest)
            found = []
            while reader.has_message_available():
                found.append(reader.read_next(int(DEADLINE_S * 1000)))
            return found

        return await threaded(all_of_it)


async def values_of(client: oncelog.AsyncClient, topic: str) -> list[bytes]:
    reader = await client.create_reader(f"{NAMESPACE}/{topic}", start=oncelog.EARLIEST)
    last = await client.create_producer(f"{NAMESPACE}/{topic}", producer_name="end")
    await last.send(b"end")
    found = []
    async for message in reader:
        if message.producer_name == "end":
            break
        found.append(message.value)
    return found


@pytest.mark.asyncio
async def test_clients_of_both_kinds_read_it_as_one_message(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    async with Pulsar.connected(cluster) as both:
        producer = await both.producer("sales")
        await threaded(
            producer.send, VALUE, sequence_id=7, partition_key="k", properties={"a": "b"}, event_timestamp=5000
        )
        await threaded(producer.send, b"small", sequence_id=8)
        own = await client.create_producer(f"{NAMESPACE}/sales", producer_name="sdk", chunking=True)
        await own.send(VALUE[::-1], key=b"of sdk", properties={"c": "d"})
        found = await both.read("sales")
        assert [each.data() for each in found] == [VALUE, b"small", VALUE[::-1]]
        assert (found[0].partition_key(), found[0].properties(), found[0].event_timestamp()) == ("k", {"a": "b"}, 5000)
        assert (found[2].partition_key(), found[2].properties()) == ("of sdk", {"c": "d"})
        reader = await client.create_reader(f"{NAMESPACE}/sales", start=oncelog.EARLIEST)
        first = await anext(aiter(reader))
        assert first.value == VALUE
        assert (first.key, first.properties, first.event_time_ms) == (b"k", {"a": "b"}, 5000)
        assert (first.producer_name, first.sequence_id) == ("shop", 7)


@pytest.mark.asyncio
async def test_consumer_acknowledges_it_as_one_message(cluster: Cluster) -> None:
    async with Pulsar.connected(cluster) as both:
        producer = await both.producer("bills")
        for number in (1, 2, 3):
            await threaded(producer.send, bytes([number]) * (12 * MIB), sequence_id=number)

        def consumed(count: int, *, back: bool = False) -> list[int]:
            consumer = both.own.subscribe(
                named("bills"), "billing", pulsar.ConsumerType.Shared, receiver_queue_size=4,
                initial_position=pulsar.InitialPosition.Earliest, negative_ack_redelivery_delay_ms=100,
            )  # fmt: skip
            numbers = []
            for _ in range(count):
                message = consumer.receive(int(DEADLINE_S * 1000))
                assert len(set(message.data())) == 1
                numbers.append(message.data()[0])
                if back:
                    consumer.negative_acknowledge(message)
                    back = False
                else:
                    consumer.acknowledge(message)
            consumer.close()
            return numbers

        assert sorted(await threaded(consumed, 3, back=True)) in ([1, 1, 2], [1, 2, 3])
        rest = await threaded(consumed, 1)
        assert rest in ([1], [2], [3])


@pytest.mark.asyncio
async def test_it_is_stored_once_through_the_death_of_the_door(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """Its chunks have no receipts, so the library sends all of them again."""
    async with Pulsar.connected(cluster) as both:
        producer = await both.producer("ledger")
        both.proxy.hold("send", after=2)
        sending = asyncio.create_task(threaded(producer.send, VALUE, sequence_id=1))
        await cluster.kill("door-1", once=lambda: both.proxy.held["send"] >= 1)
        await both.proxy.cut()
        await sending
        await threaded(producer.send, VALUE, sequence_id=1)
        await threaded(producer.send, b"next", sequence_id=2)
        assert await values_of(client, "ledger") == [VALUE, b"next"]
        assert [each.data() for each in await both.read("ledger")][:2] == [VALUE, b"next"]


@pytest.mark.asyncio
async def test_it_is_delivered_whole_after_a_connection_that_broke_in_the_middle(cluster: Cluster) -> None:
    """The library has some of its chunks; it gets all of them again, and joins them."""
    async with Pulsar.connected(cluster) as both:
        producer = await both.producer("halves")
        await threaded(producer.send, VALUE, sequence_id=1)
        await threaded(producer.send, b"next", sequence_id=2)
        both.proxy.hold("message", after=2)
        consumer = await threaded(
            both.own.subscribe, named("halves"), "billing", initial_position=pulsar.InitialPosition.Earliest
        )
        receiving = asyncio.create_task(threaded(consumer.receive, int(DEADLINE_S * 1000)))
        await cluster.kill("door-1", once=lambda: both.proxy.held["message"] >= 1)
        await both.proxy.cut()
        message = await receiving
        assert message.data() == VALUE
        await threaded(consumer.acknowledge, message)
        assert (await threaded(consumer.receive, int(DEADLINE_S * 1000))).data() == b"next"
