"""The SDK's consumer and time: which deliveries time out, and which one a negative acknowledgement or an id means."""

import pytest

import oncelog
from oncelog.core import errors
from oncelog.core.delivery.events import NackRequested
from tests.contract.sdk.consuming.test_client_consumer import DEADLINE_S, MOMENT_S, consume, fill, numbers, receive
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio


@pytest.mark.hazard("timeout-in-the-window")
@pytest.mark.parametrize("kind", ["exclusive", "failover"])
async def test_slow_application_gets_everything_from_the_slow_message_on_again(
    client: oncelog.AsyncClient, kind: str
) -> None:
    """What waits behind it is received for the first time after it, uncounted, and in order."""
    await fill(client, 12)
    async with await consume(client, kind, ack_timeout=0.3) as consumer:
        (slow,) = await receive(consumer, 1)
        again = None
        while again is None:
            batch = await consumer.receive_batch(1, max_wait=DEADLINE_S)
            if batch[0].index == slow.index:
                again = batch[0]
            else:
                await consumer.ack(batch)
        assert again.delivery_count == 2
        await consumer.ack(again)


@pytest.mark.hazard("timeout-in-the-window")
async def test_messages_in_the_window_do_not_time_out(client: oncelog.AsyncClient) -> None:
    """The application takes its time for each message, longer in sum than the time-out."""
    await fill(client, 30)
    async with await consume(client, "shared", ack_timeout=5, max_deliveries=1, dead_letter_topic="dead") as slow:
        (first,) = await receive(slow, 1)
        other = await consume(client, "shared", ack_timeout=5, max_deliveries=1, dead_letter_topic="dead")
        assert len(await other.receive_batch(max_wait=MOMENT_S)) == 0
        await slow.ack(first)
        rest = await receive(slow, 29)
        assert {message.delivery_count for message in rest} == {1}


@pytest.mark.hazard("nack-counted-twice")
async def test_negative_acknowledgement_names_the_delivery(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """That of the message as it was received, whether a message, a batch or an id is given."""
    await fill(client, 4)
    async with await consume(client, "shared") as consumer:
        first = await receive(consumer, 4)
        await consumer.nack(first, delay=0)
        second = await consumer.receive_batch(4, max_wait=DEADLINE_S)
        assert [message.delivery_count for message in second] == [2] * 4
        # The former delivery is settled: this must not take the message from the application again.
        await consumer.nack(first[3], delay=0)
        await fill(client, 1)
        (new,) = await receive(consumer, 1)
        assert new.index == 4
        await consumer.ack(new)
        await consumer.nack([second[0], first[0]], delay=0)
        await consumer.nack(second[1].message_id, delay=0)
        await consumer.nack(second, delay=0)
        named = [each.delivery_counts for each in cluster.consume.requests if isinstance(each, NackRequested)]
        assert named == [{}, {}, {0: 2}, {1: 2}, {0: 2, 1: 2, 2: 2, 3: 2}]
        third = await consumer.receive_batch(4, max_wait=DEADLINE_S)
        assert sorted((message.index, message.delivery_count) for message in third) == [(i, 3) for i in range(4)]


@pytest.mark.hazard("former-consumer-acks")
async def test_message_id_counts_for_a_received_message_only(client: oncelog.AsyncClient) -> None:
    """The other messages of its entry may be with another consumer, and the acknowledgement would count for them."""
    producer = await client.create_producer("flights")
    await producer.send_many([b"0", b"1", b"2", b"3"])
    one = await consume(client, "shared", receive_window=2)
    other = await consume(client, "shared", receive_window=2)
    mine, theirs = await receive(one, 2), await receive(other, 2)
    assert sorted(numbers([*mine, *theirs])) == [0, 1, 2, 3]
    for consumer, message in ((one, theirs[0]), (other, mine[1])):
        with pytest.raises(errors.InvalidArgument, match="not one that this consumer received lately"):
            await consumer.ack(message.message_id)
    await one.ack([message.message_id for message in mine])


@pytest.mark.hazard("late-ack-after-seek")
async def test_message_id_counts_at_the_seek_epoch_of_its_message(client: oncelog.AsyncClient) -> None:
    """A part of the entry was received again after the seek; the rest was not."""
    producer = await client.create_producer("flights")
    await producer.send_many([b"0", b"1", b"2", b"3"])
    async with await consume(client) as consumer:
        before = await receive(consumer, 4)
        await consumer.seek(oncelog.Index(0))
        assert numbers(await receive(consumer, 2)) == [0, 1]
        with pytest.raises(errors.StaleSeekEpoch):
            await consumer.ack(before[3].message_id)
        await consumer.ack(before[1].message_id)
