"""The proxy of the proof in front of a door for Kafka's clients, with a client of bytes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.proof.kafka.proxy import KafkaProxy
from tests.cluster.until import until
from tests.doors.kafka.client_batches import batch_of, numbered
from tests.doors.kafka.raw_client import KafkaWorld, RawClient, kafka_world, raw_client
from tests.doors.raw_connection import DEADLINE_S

pytestmark = pytest.mark.asyncio

NOT_LEADER = 6


def produce(sequence: int) -> dict[str, Any]:
    records = batch_of(numbered(1), producer=(1_001, 0, sequence))
    parts = [{"index": 0, "records": records}]
    return {"acks": -1, "timeout_ms": 60_000, "topic_data": [{"name": "orders", "partition_data": parts}]}


async def answered(client: RawClient) -> tuple[int, int]:
    """Code and offset."""
    [topic] = (await client.read("Produce", 8))[1]["responses"]
    [partition] = topic["partition_responses"]
    return partition["error_code"], partition["base_offset"]


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[KafkaWorld, KafkaProxy, RawClient]]:
    async with (
        kafka_world() as world,
        KafkaProxy.running(lambda: world.port) as proxy,
        raw_client(proxy.port) as client,
    ):
        yield world, proxy, client


async def test_client_is_told_the_address_of_the_proxy() -> None:
    async with proxied() as (_, proxy, client):
        found = await client.ask("Metadata", 8, {"topics": None, "allow_auto_topic_creation": True})
        assert [(each["host"], each["port"]) for each in found["brokers"]] == [("127.0.0.1", proxy.port)]
        assert proxy.seen == {"Metadata": 1, "Metadata answer": 1}


async def test_producer_id_is_noted_or_replaced_once() -> None:
    async with proxied() as (_, proxy, client):
        asked = {"transactional_id": None, "transaction_timeout_ms": 0}
        own = (await client.ask("InitProducerId", 4, asked))["producer_id"]
        proxy.foreign_producer_id = 7
        assert (await client.ask("InitProducerId", 4, asked))["producer_id"] == 7
        assert (await client.ask("InitProducerId", 4, asked))["producer_id"] != 7
        assert proxy.producer_ids[:2] == [own, 7]


async def test_refused_batch_does_not_reach_the_door_and_a_replaced_answer_is_of_a_stored_one() -> None:
    async with proxied() as (world, proxy, client):
        proxy.hold("Produce")
        client.send("Produce", 8, produce(0))
        client.send("Produce", 8, produce(0))
        await until(lambda: proxy.held["Produce"] == 2, DEADLINE_S)
        proxy.refuse_held(NOT_LEADER)
        assert await answered(client) == (NOT_LEADER, -1)
        assert not world.cluster.log().marks
        proxy.answer_next(ErrorCode.REQUEST_TIMED_OUT)
        proxy.release()
        assert await answered(client) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        client.send("Produce", 8, produce(0))
        assert await answered(client) == (ErrorCode.NONE, 0)
        with pytest.raises(LookupError, match="no batch of partition 0 is held"):
            proxy.refuse_held(NOT_LEADER)


async def test_stranded_batch_comes_late_and_its_answer_goes_nowhere() -> None:
    """The client's next connection is whole."""
    async with proxied() as (world, proxy, client):
        proxy.hold("Produce")
        client.send("Produce", 8, produce(0))
        await until(lambda: proxy.held["Produce"] == 1, DEADLINE_S)
        proxy.strand()
        await client.closed()
        async with raw_client(proxy.port) as again:
            again.send("Produce", 8, produce(0))
            assert await answered(again) == (ErrorCode.NONE, 0)
            again.send("Produce", 8, produce(1))
            assert await answered(again) == (ErrorCode.NONE, 1)
            proxy.arrive_late()
            await until(lambda: proxy.seen["Produce answer"] == 3, DEADLINE_S)
        assert world.cluster.log().marks == {1_001: 1}


async def test_lost_answer_cuts_its_connection() -> None:
    async with proxied() as (world, proxy, client):
        proxy.lost["Produce answer"] = {1}
        client.send("Produce", 8, produce(0))
        assert await answered(client) == (ErrorCode.NONE, 0)
        client.send("Produce", 8, produce(1))
        await client.closed()
        assert world.cluster.log().marks == {1_001: 1}
