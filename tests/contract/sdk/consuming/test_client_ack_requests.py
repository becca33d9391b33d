"""Acknowledgements of many messages in one call: split into requests that an owner takes, and settled together."""

import pytest

import oncelog
from oncelog.core import errors
from oncelog.core.delivery.events import AckRequested
from oncelog.rpc.codecs.consumer_codec import RANGE_NUMBERS_MAX
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0
COUNT = 40_000


@pytest.mark.hazard("oversized-ack-entry")
async def test_one_void_acknowledgement_among_many_does_not_undo_the_others(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """20,000 single messages and some of before a seek, in one call: the error names the seek, the rest is durable, and
    no request is larger than an owner takes."""
    producer = await client.create_producer("flights")
    await producer.send_many([b""] * COUNT)
    async with await client.subscribe(
        "flights", subscription="s", type="shared", start=oncelog.EARLIEST, receive_window=2 * COUNT
    ) as consumer:
        old = await consumer.receive_batch(10, max_wait=None)
        await consumer.seek(oncelog.EARLIEST)
        messages: list[oncelog.Message] = []
        while len(messages) < COUNT:
            messages += await consumer.receive_batch(COUNT, max_wait=None)
        cluster.consume.requests.clear()
        with pytest.raises(errors.StaleSeekEpoch):
            await consumer.ack([*old, *messages[::2]])
    acks = cluster.topic("flights").ack_state.subscriptions[cluster.topic("flights").ack_state.names["s"]].acks
    assert acks.mark_delete + acks.acked_count == COUNT // 2
    assert not acks.contains(1)
    requests = [each for each in cluster.consume.requests if isinstance(each, AckRequested)]
    assert max(len(each.ranges) for each in requests) * 2 <= RANGE_NUMBERS_MAX
    assert sum(len(each.ranges) for each in requests) >= COUNT // 2
