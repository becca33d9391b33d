"""The SDK's consumer of a partitioned topic, over real gRPC against the fake cluster."""

import asyncio

import pytest

import oncelog
from oncelog.core import errors
from oncelog.rpc.codecs.consumer_codec import SeekThrough
from tests.cluster.until import until
from tests.contract.sdk.consuming.test_client_consumer import DEADLINE_S, consume, fill, receive
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio


async def test_partitions_are_consumed_as_one(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """All of them, with message ids and acknowledgements of each; an index is a place of one."""
    cluster.partitioned["public/default/flights"] = 3
    for number in range(3):
        await fill(client, 5, topic=f"flights-partition-{number}")
    async with await consume(client) as consumer:
        messages = await receive(consumer, 15)
        assert sorted((message.partition, message.index) for message in messages) == [
            (partition, index) for partition in range(3) for index in range(5)
        ]
        assert consumer.generations == {0: 1, 1: 1, 2: 1}
        await consumer.ack([message.message_id for message in messages if message.partition == 1])
        await consumer.ack([message for message in messages if message.index == 0])
        with pytest.raises(errors.InvalidArgument, match="place of one partition"):
            await consumer.seek(oncelog.Index(3))
    async with await consume(client) as consumer:
        batch = await consumer.receive_batch(8, max_wait=DEADLINE_S)
        assert {(message.partition, message.index) for message in batch} == {
            (p, i) for p in (0, 2) for i in range(1, 5)
        }
        await consumer.ack_cumulative(batch)
        await consumer.seek(oncelog.EARLIEST)
        assert len(await consumer.receive_batch(15, max_wait=DEADLINE_S)) == 15
    with pytest.raises(errors.InvalidArgument, match="place of one partition"):
        await consume(client, start=oncelog.Index(1))


async def test_failure_on_one_of_several_partitions_says_what_was_done(
    client: oncelog.AsyncClient, cluster: FakeCluster
) -> None:
    """Without that, an application cannot know whether a part of its work counts. REST says it in the same words."""
    cluster.partitioned["public/default/flights"] = 3
    for number in range(3):
        await fill(client, 4, topic=f"flights-partition-{number}")
    async with (
        await consume(client, "failover", consumer_name="a") as consumer,
        await client.subscribe(
            "flights-partition-2", subscription="billing", type="failover", consumer_name="b"
        ) as other,
    ):
        batch = await consumer.receive_batch(12, max_wait=DEADLINE_S)
        assert len(batch) == 12
        cluster.consume.writable.clear()
        seeking = asyncio.ensure_future(other.seek(oncelog.EARLIEST))
        await until(lambda: any(isinstance(each, SeekThrough) for each in cluster.consume.requests), DEADLINE_S)
        seeking_all = asyncio.ensure_future(consumer.seek(oncelog.EARLIEST))
        await until(lambda: sum(isinstance(each, SeekThrough) for each in cluster.consume.requests) == 4, DEADLINE_S)
        cluster.consume.writable.set()
        await seeking
        with pytest.raises(errors.ServiceUnavailable, match=r"done on 2 of 3 partitions, failed on 1; .*partition-2: "):
            await seeking_all
        batch = await consumer.receive_batch(12, max_wait=DEADLINE_S)
        assert len(batch) == 12
        await other.seek(oncelog.EARLIEST)
        for acknowledge in (consumer.ack_cumulative, consumer.ack):
            with pytest.raises(errors.StaleSeekEpoch, match=r"done on 2 of 3 partitions, failed on 1; .*partition-2: "):
                await acknowledge(batch)
