"""The consumer of whole entries, for gateways: over real gRPC, against the fake cluster."""

import pytest

import oncelog
from oncelog.client.gateways import (
    StartEdge,
    open_entry_consumer,
)
from oncelog.core import errors
from oncelog.core.delivery.events import FlowReported
from oncelog.core.ids import EntryId, Position
from oncelog.rpc.codecs.consumer_codec import OpenConsumer
from tests.contract.sdk.consuming.entry_consumers import (
    DEADLINE_S,
    EACH,
    comes_nothing,
    fill,
    four,
    indexes,
    opened,
    ranges,
    taken,
)
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.fakes.fake_topic import LEDGER

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio


# --- entries and permits ----------------------------------------------------------------------------------------------


async def test_delivery_has_the_stored_entry_and_what_acknowledging_needs(client: oncelog.AsyncClient) -> None:
    """As a reader gives it, with the name of its producer."""
    producer = await client.create_producer("flights", producer_name="importer")
    await producer.send_many([b"a", b"b"])
    consumer = await opened(client, permits=1)
    assert (consumer.topic, consumer.subscription, consumer.name) == ("public/default/flights", "billing", "c")
    assert (consumer.created, consumer.active, consumer.failure) == (True, True, None)
    (entry,) = await taken(consumer, 1)
    stored = entry.whole.stored
    assert (stored.entry.position, stored.entry.count, stored.batch.count) == (Position(LEDGER, EntryId(1)), 2, 2)
    assert (entry.whole.producer_name, entry.ranges, entry.messages) == ("importer", ranges(0, 1), 2)
    assert (entry.delivery_count, entry.seek_epoch, entry.generation) == (1, 0, 1)


@pytest.mark.hazard("entry-above-the-permits")
async def test_entry_comes_whole_on_one_permit_and_none_comes_beyond_the_permits(client: oncelog.AsyncClient) -> None:
    """Also after acknowledgements, which give no permit. A lower sum changes nothing."""
    await fill(client, 6)
    consumer = await opened(client)
    await comes_nothing(consumer)
    consumer.permits(1)
    entries = await taken(consumer, 1)
    assert indexes(entries) == four(0)
    await consumer.ack(entries[0].ranges, entries[0].seek_epoch)
    consumer.permits(EACH)
    consumer.permits(0)
    await comes_nothing(consumer)
    consumer.permits(EACH + 1)
    assert indexes(await taken(consumer, 1)) == four(1)
    await comes_nothing(consumer)
    consumer.permits(4 * EACH)
    assert indexes(await taken(consumer, 2)) == four(2, 3)
    await comes_nothing(consumer)


@pytest.mark.hazard("entry-above-the-permits", "delivered-while-held")
async def test_permits_outlive_a_takeover(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """What was handed out has used them, what waits takes them, and what is held does not come again."""
    await fill(client, 8)
    consumer = await opened(client, permits=2 * EACH + 1)
    assert indexes(await taken(consumer, 1)) == four(0)
    await cluster.take_over()
    consumer.permits(4 * EACH)
    assert indexes(await taken(consumer, 3)) == four(1, 2, 3)
    await comes_nothing(consumer)
    consumer.permits(4 * EACH + 1)
    assert indexes(await taken(consumer, 1)) == four(4)


async def test_few_bytes_wait_in_the_consumer(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """However many permits there are; the next ones come as it takes them."""
    await fill(client, 6)
    consumer = await open_entry_consumer(
        client, "flights", "billing", "shared", "c", start=StartEdge.EARLIEST, window_bytes=1, timeout=DEADLINE_S
    )
    consumer.permits(1_000)
    assert indexes(await taken(consumer, 6)) == four(*range(6))
    flows = [each for each in cluster.consume.requests if isinstance(each, FlowReported)]
    assert {each.bytes_max for each in flows} == {1}


# --- acknowledging ----------------------------------------------------------------------------------------------------


async def test_acknowledgement_covers_exactly_its_messages(client: oncelog.AsyncClient) -> None:
    """Parts of entries, too; the next consumer gets the rest, entry by entry."""
    await fill(client, 3)
    consumer = await opened(client, "shared", permits=100)
    entries = await taken(consumer, 3)
    result = await consumer.ack(ranges(0, 1, 5, 7, 8, 9, 10, 11), entries[0].seek_epoch)
    assert result == oncelog.AckResult(durable=True)
    await consumer.close()
    again = await opened(client, "shared", permits=100)
    assert indexes(await taken(again, 2)) == [[2, 3], [4, 6]]
    await comes_nothing(again)


@pytest.mark.hazard("former-consumer-acks")
async def test_cumulative_acknowledgement_ends_before_a_negative_one(client: oncelog.AsyncClient) -> None:
    await fill(client, 3)
    consumer = await opened(client, permits=100)
    entries = await taken(consumer, 3)
    await consumer.nack(ranges(5), delay_ms=60_000)
    last = entries[-1]
    assert not (await consumer.ack_below(12, last.seek_epoch, last.generation)).complete
    await consumer.close()
    again = await opened(client, permits=100)
    assert indexes(await taken(again, 2)) == [[6, 7], [8, 9, 10, 11]], "and message 5 is delayed"


async def test_shared_subscription_has_no_cumulative_acknowledgement(client: oncelog.AsyncClient) -> None:
    await fill(client, 1)
    consumer = await opened(client, "shared", permits=1)
    (entry,) = await taken(consumer, 1)
    with pytest.raises(errors.InvalidArgument, match="cumulative"):
        await consumer.ack_below(4, entry.seek_epoch, entry.generation)


@pytest.mark.hazard("wrong-delivery-count")
async def test_negative_acknowledgement_counts_the_messages_that_are_held(client: oncelog.AsyncClient) -> None:
    """Each delivery of them, whatever part; others are ignored. The count is that of the worst one."""
    await fill(client, 2)
    consumer = await opened(client, "shared", permits=100)
    (_, second) = await taken(consumer, 2)
    await consumer.nack(ranges(1, 2, 77), delay_ms=0)
    (again,) = await taken(consumer, 1)
    assert (indexes([again]), again.delivery_count) == ([[1, 2]], 2)
    await consumer.nack(ranges(2), delay_ms=0)
    (again,) = await taken(consumer, 1)
    assert (indexes([again]), again.delivery_count) == ([[2]], 3)
    await consumer.ack(second.ranges, second.seek_epoch)
    await consumer.nack(second.ranges, delay_ms=0)
    await comes_nothing(consumer)


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
async def test_redelivery_of_everything_is_in_order(client: oncelog.AsyncClient, kind: str) -> None:
    """Also of what has arrived here meanwhile, which counts nothing: nobody has taken it."""
    await fill(client, 5)
    consumer = await opened(client, kind, permits=100)
    entries = await taken(consumer, 3)
    await consumer.ack(entries[0].ranges, entries[0].seek_epoch)
    await consumer.redeliver()
    again = await taken(consumer, 4)
    assert indexes(again) == four(1, 2, 3, 4)
    assert [each.delivery_count for each in again] == [2, 2, 1, 1]
    assert {each.generation for each in again} == {1}, "and it has stayed the active consumer"
    assert (await consumer.ack_below(5 * EACH, again[-1].seek_epoch, again[-1].generation)).complete


async def test_redelivery_of_a_shared_subscription(client: oncelog.AsyncClient) -> None:
    await fill(client, 3)
    consumer = await opened(client, "shared", permits=100)
    await taken(consumer, 2)
    await consumer.redeliver()
    again = await taken(consumer, 3)
    assert sorted(indexes(again)) == four(0, 1, 2)
    assert sum(each.delivery_count for each in again) == 5


async def test_redelivery_of_nothing_changes_nothing(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    await fill(client, 1)
    consumer = await opened(client, permits=100)
    await consumer.redeliver()
    assert indexes(await taken(consumer, 1)) == four(0)
    assert sum(isinstance(each, OpenConsumer) for each in cluster.consume.requests) == 1


@pytest.mark.hazard("wrong-delivery-count")
@pytest.mark.parametrize("lost", [False, True])
async def test_oldest_message_of_a_client_that_is_lost_counts(client: oncelog.AsyncClient, lost: bool) -> None:
    """And none of one that has closed its consumer: what it works on is unknown."""
    await fill(client, 2)
    consumer = await opened(client, "shared", permits=100)
    (first, _) = await taken(consumer, 2)
    await consumer.ack(ranges(0, 1), first.seek_epoch)
    await consumer.close(client_lost=lost)
    assert isinstance(consumer.failure, errors.ConsumerClosed)
    again = await opened(client, "shared", permits=100)
    entries = await taken(again, 2)
    assert (indexes(entries), [each.delivery_count for each in entries]) == ([[2, 3], four(1)[0]], [1 + lost, 1])


async def test_close_sends_what_was_acknowledged_before(client: oncelog.AsyncClient) -> None:
    await fill(client, 2)
    consumer = await opened(client, permits=100)
    entries = await taken(consumer, 2)
    consumer.ack(entries[0].ranges, entries[0].seek_epoch)
    await consumer.close()
    await consumer.close()
    again = await opened(client, permits=100)
    assert indexes(await taken(again, 1)) == four(1)
    with pytest.raises(errors.ConsumerClosed):
        consumer.take()
    with pytest.raises(errors.ConsumerClosed):
        await consumer.arrival()
