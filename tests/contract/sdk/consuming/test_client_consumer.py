"""The SDK's consumer over real gRPC, against the fake cluster: messages come until they are acknowledged."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest

import oncelog
from oncelog.core import errors
from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.delivery.events import AckRequested, FlowReported
from oncelog.rpc.codecs.consumer_codec import OpenConsumer
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0
#: To ask again and again, or whether another one gets nothing: a slow machine finds less surely that it does.
MOMENT_S = 0.05
#: The cumulative acknowledgement has its answer before it ends, on a busy machine too.
NACK_DELAY_S = 2.0


async def fill(client: oncelog.AsyncClient, count: int = 10, *, topic: str = "flights", batch: int = 4) -> None:
    """Messages b"0", b"1" …, about `batch` in an entry."""
    producer = await client.create_producer(topic, batch_bytes_max=batch * 5)
    await producer.send_many([b"%d" % i for i in range(count)])


async def consume(client: oncelog.AsyncClient, kind: str = "exclusive", **more: object) -> oncelog.AsyncConsumer:
    options: dict[str, object] = {"start": oncelog.EARLIEST, **more}
    return await client.subscribe("flights", subscription="billing", type=kind, **options)  # type: ignore[arg-type]


async def receive(consumer: oncelog.AsyncConsumer, count: int) -> list[oncelog.Message]:
    return [await consumer.receive(timeout=DEADLINE_S) for _ in range(count)]


def numbers(messages: list[oncelog.Message]) -> list[int]:
    return [int(message.value) for message in messages]


async def test_messages_have_all_their_fields(client: oncelog.AsyncClient) -> None:
    """Field by field, single and in batches; producer names are asked for."""
    producer = await client.create_producer("flights", producer_name="importer", batch_bytes_max=20)
    sent = await producer.send_many([b"%d" % i for i in range(9)], sequence_ids=range(0, 90, 10))
    async with await consume(client, consumer_name="worker") as consumer:
        first = await consumer.receive(timeout=DEADLINE_S)
        assert (first.value, first.producer_name, first.sequence_id, first.index) == (b"0", "importer", 0, 0)
        assert (first.partition, first.delivery_count, first.generation, first.seek_epoch) == (-1, 1, 1, 0)
        assert first.message_id == sent.message_ids[0]
        batch = await consumer.receive_batch(4, max_wait=DEADLINE_S)
        assert [bytes(value) for value in batch.values] == [b"1", b"2", b"3", b"4"]
        assert [message.index for message in batch] == [1, 2, 3, 4]
        assert [list(part.sequence_ids) for part in batch.batches] == [[10, 20, 30], [40]]
        assert (batch[-1].value, batch[1:3][0].value, len(batch)) == (b"4", b"2", 4)
        assert [message.message_id for message in batch] == list(sent.message_ids)[1:5]
        assert numbers(list(await consumer.receive_batch(4, max_wait=DEADLINE_S))) == [5, 6, 7, 8]
        assert len(await consumer.receive_batch(max_wait=0)) == 0
        assert (consumer.topic, consumer.subscription) == ("public/default/flights", "billing")
        assert (consumer.consumer_name, consumer.active, consumer.generations) == ("worker", True, {-1: 1})


async def test_acknowledged_messages_do_not_come_again(client: oncelog.AsyncClient) -> None:
    """A message, a batch, a message id, a list, and the rest cumulatively."""
    await fill(client, 20)
    async with await consume(client) as consumer:
        messages = await receive(consumer, 5)
        assert await consumer.ack(messages[0]) == oncelog.AckResult(durable=True)
        await consumer.ack([messages[2], messages[4].message_id])
        await consumer.ack(await consumer.receive_batch(3, max_wait=DEADLINE_S))
    async with await consume(client) as consumer:
        messages = await receive(consumer, 4)
        assert numbers(messages) == [1, 3, 8, 9]
        await consumer.ack_cumulative(messages[2])
    async with await consume(client) as consumer:
        assert numbers(await receive(consumer, 11)) == list(range(9, 20))


async def test_subscription_begins_at_its_start(client: oncelog.AsyncClient) -> None:
    """Only where it is created; the default is what is stored from then on."""
    await fill(client, 10)
    index = await client.subscribe("flights", subscription="index", start=oncelog.Index(7))
    assert (await index.receive(timeout=DEADLINE_S)).index == 7
    message_id = (await index.receive(timeout=DEADLINE_S)).message_id
    behind = await client.subscribe("flights", subscription="behind", start=message_id)
    at = await client.subscribe("flights", subscription="at", start=message_id, inclusive=True)
    assert ((await behind.receive()).index, (await at.receive()).index) == (9, 8)
    latest = await client.subscribe("flights", subscription="latest")
    assert latest.created
    await fill(client, 1)
    assert (await latest.receive(timeout=DEADLINE_S)).index == 10
    await latest.close()
    again = await client.subscribe("flights", subscription="latest", start=oncelog.EARLIEST)
    assert not again.created
    assert (await again.receive(timeout=DEADLINE_S)).index == 10


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
async def test_consumers_share_a_subscription(client: oncelog.AsyncClient, kind: str) -> None:
    """Each message goes to one of them; what a closed consumer has not acknowledged goes to the other."""
    await fill(client, 40, batch=2)
    consumers = [await consume(client, kind, receive_window=8) for _ in range(2)]
    first, second = [await receive(consumer, 5) for consumer in consumers]
    assert not {message.index for message in first} & {message.index for message in second}
    await consumers[0].close()
    rest = await receive(consumers[1], 35)
    assert sorted(numbers(second + rest)) == list(range(40))
    assert {message.delivery_count for message in second} == {1}


@pytest.mark.hazard("activation-not-durable")
async def test_standby_takes_over_from_a_closed_consumer(client: oncelog.AsyncClient) -> None:
    """Failover: with a higher generation, at what was not acknowledged."""
    await fill(client, 6)
    active = await consume(client, "failover", consumer_name="a")
    standby = await consume(client, "failover", consumer_name="b")
    assert (active.active, standby.active) == (True, False)
    await active.ack_cumulative((await receive(active, 3))[-1])
    waiting = asyncio.ensure_future(standby.receive(timeout=DEADLINE_S))
    await active.close()
    message = await waiting
    assert (message.index, message.generation, standby.active) == (3, 2, True)


@pytest.mark.hazard("former-consumer-acks")
@pytest.mark.hazard("wrong-delivery-count")
async def test_nack_has_messages_delivered_again(client: oncelog.AsyncClient) -> None:
    """At once, or after the delay; with a higher delivery count. A cumulative acknowledgement ends before it."""
    await fill(client, 3)
    consumer = await consume(client)
    messages = await receive(consumer, 3)
    await consumer.nack(messages[1:2], delay=0)
    await consumer.nack(messages[0], delay=NACK_DELAY_S)
    assert await consumer.ack_cumulative(messages[2]) == oncelog.AckResult(durable=True, complete=False)
    again = await receive(consumer, 2)
    assert (numbers(again), [message.delivery_count for message in again]) == ([1, 0], [2, 2])
    assert (await consumer.ack_cumulative(messages[2])).complete


@pytest.mark.hazard("late-ack-after-seek")
async def test_seek_begins_again(client: oncelog.AsyncClient) -> None:
    """Nothing of before the seek is received after it, and its acknowledgements are void."""
    await fill(client, 12)
    consumer = await consume(client, "shared")
    before = await receive(consumer, 6)
    await consumer.ack(before[:3])
    await consumer.seek(oncelog.Index(2))
    again = await receive(consumer, 10)
    assert (numbers(again), {message.seek_epoch for message in again}) == (list(range(2, 12)), {1})
    with pytest.raises(errors.StaleSeekEpoch):
        await consumer.ack(before[5])
    await consumer.ack(again)
    with pytest.raises(errors.InvalidArgument, match="index 13 is outside of the topic's 0 to 12"):
        await consumer.seek(oncelog.Index(13))
    await consumer.seek(again[3].message_id)
    assert (await consumer.receive(timeout=DEADLINE_S)).index == 6
    await consumer.seek(oncelog.LATEST)
    await fill(client, 1)
    assert (await consumer.receive(timeout=DEADLINE_S)).index == 12


async def test_seek_may_ask_for_effects_again(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """A plain one does not."""
    await fill(client, 5)
    consumer = await consume(client)
    (subscription,) = cluster.topic("flights").ack_state.subscriptions.values()
    await consumer.seek(oncelog.Index(1))
    assert subscription.redo_epoch == 0
    await consumer.seek(oncelog.Index(3), redo=True)
    assert (subscription.redo_epoch, subscription.redo_index) == (2, 3)


@pytest.mark.hazard("delivered-while-held")
@pytest.mark.hazard("recreated-subscription")
async def test_consumer_goes_on_with_another_owner(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """It keeps what it holds, so nothing comes twice, and its acknowledgements are sent again."""
    await fill(client, 10)
    consumer = await consume(client, "shared")
    held = await receive(consumer, 4)
    cluster.consume.writable.clear()
    acks = [asyncio.ensure_future(consumer.ack(message)) for message in held[:2]]
    await until(lambda: any(isinstance(each, AckRequested) for each in cluster.consume.requests), DEADLINE_S)
    await cluster.take_over()
    cluster.consume.writable.set()
    assert [result.durable for result in await asyncio.gather(*acks)] == [True, True]
    assert numbers(await receive(consumer, 6)) == [4, 5, 6, 7, 8, 9]
    await consumer.ack(held)
    openings = [each.opening for each in cluster.consume.requests if isinstance(each, OpenConsumer)]
    assert [opening.resume is None for opening in openings] == [True, False]
    assert openings[-1].first_index is None


@pytest.mark.hazard("recreated-subscription")
@pytest.mark.parametrize("connected", [True, False])
async def test_deleted_subscription_ends_its_consumer(
    client: oncelog.AsyncClient, cluster: FakeCluster, *, connected: bool
) -> None:
    """For good, and nothing is created again; also if the consumer learns it when it reconnects."""
    await fill(client, 3)
    consumer = await consume(client)
    message = await consumer.receive(timeout=DEADLINE_S)
    waiting = asyncio.ensure_future(consumer.receive_batch(10, max_wait=DEADLINE_S))
    topic = cluster.topic("flights")
    if connected:
        assert cluster.owner is not None
        cluster.owner.consumers.of(topic).delete("billing")
    else:
        topic.ack_state = SubscriptionsState()
        await cluster.take_over()
    with pytest.raises(errors.SubscriptionGone):
        await waiting
    for call in (consumer.receive(), consumer.ack(message), consumer.seek(oncelog.EARLIEST), anext(aiter(consumer))):
        with pytest.raises(errors.SubscriptionGone):
            await call
    assert not topic.ack_state.subscriptions


@pytest.mark.hazard("deposed-owner-delivers")
async def test_consumer_leaves_a_deposed_owner(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """As soon as another user of the client has met a newer one, although the deposed owner reports nothing wrong."""
    await fill(client, 3)
    consumer = await consume(client)
    await receive(consumer, 3)
    deposed = await cluster.depose()
    try:
        await client.create_reader("flights")  # looks the topic up
        await fill(client, 1)
        assert (await consumer.receive(timeout=DEADLINE_S)).index == 3
    finally:
        await deposed.kill()


@pytest.mark.hazard("key-moves-too-early")
async def test_nack_drops_the_later_messages_of_its_key(client: oncelog.AsyncClient) -> None:
    """key_shared: a message does not overtake an earlier one of its key, though it was here already."""
    producer = await client.create_producer("flights")
    await producer.send_many([b"%d" % i for i in range(8)], keys=["a", "b"] * 4)
    consumer = await consume(client, "key_shared")
    first = await consumer.receive(timeout=DEADLINE_S)
    await consumer.nack(first, delay=0.2)
    assert numbers(await receive(consumer, 7)) == [1, 3, 5, 7, 0, 2, 4]


@pytest.mark.hazard("relative-credit")
async def test_reports_of_credit_are_merged(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """The newest one says everything, so an unsent older one is replaced."""
    await fill(client, 300, batch=100)
    consumer = await consume(client, "shared")
    await receive(consumer, 300)

    await consumer.flush()
    reports = [each for each in cluster.consume.requests if isinstance(each, FlowReported)]
    assert reports[-1].handed_out == 300
    assert len(reports) < 30


async def test_cancelled_subscribe_leaves_no_consumer(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """An attachment that is answered later is given up at once."""
    await fill(client, 1)
    cluster.consume.writable.clear()
    subscribing = asyncio.ensure_future(consume(client))
    await until(lambda: any(isinstance(each, OpenConsumer) for each in cluster.consume.requests), DEADLINE_S)
    subscribing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await subscribing
    cluster.consume.writable.set()

    async def attached() -> bool:
        try:
            return bool(await consume(client))
        except errors.ConsumerBusy:
            return False

    await until(attached, DEADLINE_S)


async def test_many_acknowledgements_are_few_requests(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """Concurrent calls are merged into ranges."""
    await fill(client, 2000, batch=100)
    consumer = await consume(client, "shared")
    messages = await receive(consumer, 2000)
    await asyncio.gather(*(consumer.ack(message) for message in messages))
    acks = [each for each in cluster.consume.requests if isinstance(each, AckRequested)]
    assert len(acks) < 10
    assert sum(last - first + 1 for ack in acks for first, last in ack.ranges) == 2000


async def test_calls_wait_for_the_requests_in_flight(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """While the owner is slow, later acknowledgements are merged."""
    await fill(client, 100)
    consumer = await consume(client, "shared")
    messages = await receive(consumer, 100)
    cluster.consume.writable.clear()
    futures = []
    for message in messages:
        futures.append(consumer.ack_nowait(message))
        await asyncio.wait({futures[-1]}, timeout=0)  # a turn of the loop
    await until(lambda: any(isinstance(each, AckRequested) for each in cluster.consume.requests), DEADLINE_S)
    cluster.consume.writable.set()
    await asyncio.gather(*futures)
    assert sum(isinstance(each, AckRequested) for each in cluster.consume.requests) == 5


def has_acknowledgements(cluster: FakeCluster, count: int) -> bool:
    """Whether the owner has received so many requests of them."""
    return sum(isinstance(each, AckRequested) for each in cluster.consume.requests) >= count


async def test_closing_waits_for_acknowledgements(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """The consumer's close, and the client's."""
    await fill(client, 4)
    for number in range(2):
        consumer = await consume(client)
        cluster.consume.writable.clear()
        ack = consumer.ack_nowait(await consumer.receive(timeout=DEADLINE_S))
        closing = asyncio.ensure_future(consumer.close() if number == 0 else client.close())
        # The closing has begun long before the owner gets the acknowledgement, which it does not answer yet.
        await until(partial(has_acknowledgements, cluster, number + 1), DEADLINE_S)
        assert not closing.done()
        assert not ack.done()
        cluster.consume.writable.set()
        await closing
        assert ack.result().durable
        with pytest.raises(errors.ConsumerClosed):
            await consumer.receive()


@pytest.mark.hazard("ack-state-at-its-limit")
async def test_acknowledgement_in_memory_is_visible(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """The owner hides the message, and does not promise it for the next owner."""
    await fill(client, 4)
    consumer = await consume(client)
    cluster.consume.in_memory = True
    assert not (await consumer.ack(await receive(consumer, 2))).durable
    assert not (await consumer.ack_cumulative(await consumer.receive_batch(1))).durable


async def test_iteration_ends_when_the_consumer_is_closed(client: oncelog.AsyncClient) -> None:
    """A waiting call too, in any task."""
    await fill(client, 3)
    consumer = await consume(client)
    got = []
    async for message in consumer:
        got.append(message)
        if len(got) == 3:
            asyncio.get_running_loop().call_later(0.05, lambda: asyncio.ensure_future(consumer.close()))
    assert numbers(got) == [0, 1, 2]


async def test_cancelled_call_loses_no_message(client: oncelog.AsyncClient) -> None:
    """What a cancelled receive_batch had taken is returned by the next call."""
    await fill(client, 3)
    consumer = await consume(client)
    receiving = asyncio.ensure_future(consumer.receive_batch(100, max_wait=60))
    await until(lambda: sum(driver.waiting for driver in consumer._drivers) == 3, DEADLINE_S)
    receiving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    assert numbers(list(await consumer.receive_batch(2, max_wait=DEADLINE_S))) == [0, 1]
    assert (await consumer.receive()).value == b"2"
    with pytest.raises(errors.DeadlineExceeded, match="no message for billing"):
        await consumer.receive(timeout=0.05)


async def test_entry_that_cannot_be_decoded_does_not_stop_the_subscription(
    client: oncelog.AsyncClient, cluster: FakeCluster
) -> None:
    """The error names the messages; receiving goes on behind them. With "skip" they are acknowledged."""
    await fill(client, 12)
    damaged = []

    def mangle(entry: object) -> object:
        if entry.base_index == 4:  # type: ignore[attr-defined]
            damaged.append(entry)
            return replace(entry, data=bytes(entry.data[:-1]) + b"?")  # type: ignore[type-var,attr-defined]
        return entry

    cluster.consume.mangle = mangle  # type: ignore[assignment]
    async with await consume(client) as consumer:
        assert numbers(list(await consumer.receive_batch(8))) == [0, 1, 2, 3]
        with pytest.raises(errors.CorruptEntry) as raised:
            await consumer.receive()
        assert (raised.value.details["first_index"], raised.value.details["count"]) == (4, 4)
        rest = await receive(consumer, 4)
        assert numbers(rest) == [8, 9, 10, 11]
        await consumer.ack(rest)
    async with await consume(client, on_corrupt="skip") as consumer:
        assert numbers(await receive(consumer, 4)) == [0, 1, 2, 3]
        # Whoever receives decodes: nothing comes, and the entry is skipped.
        async with asyncio.timeout(DEADLINE_S):
            while not consumer.skipped.total:
                assert len(await consumer.receive_batch(max_wait=MOMENT_S)) == 0
        assert (consumer.skipped.total, consumer.skipped.newest[0].first_index) == (1, 4)
    cluster.consume.mangle = lambda entry: entry
    async with await consume(client) as consumer:
        assert numbers(await receive(consumer, 4)) == [0, 1, 2, 3]
        await fill(client, 1)
        assert (await consumer.receive(timeout=DEADLINE_S)).index == 12


async def test_consumer_waits_for_storage_nodes_and_ends_when_an_entry_is_lost(
    client: oncelog.AsyncClient, cluster: FakeCluster
) -> None:
    """It attaches again while no live node has the next entry; an entry that none can give any more is an error."""
    await fill(client, 3)
    away = errors.LedgerUnavailable("away", waiting_for="storage-1")
    cluster.consume.read_errors = [away] * 100
    consumer = await consume(client)

    async def says_why() -> bool:
        with pytest.raises(errors.DeadlineExceeded) as late:
            await consumer.receive(timeout=0.1)
        return "away" in str(late.value) and isinstance(late.value.__cause__, errors.LedgerUnavailable)

    await until(says_why, DEADLINE_S, waiting_for="an error that says why")
    cluster.consume.read_errors = []
    assert numbers(await receive(consumer, 3)) == [0, 1, 2]
    cluster.consume.read_errors = [errors.UnreadableEntry("damaged everywhere", ledger_id=3, entry_id=2)]
    await fill(client, 1)
    with pytest.raises(errors.UnreadableEntry):
        await consumer.receive(timeout=DEADLINE_S)


async def test_second_exclusive_consumer_is_refused(client: oncelog.AsyncClient) -> None:
    """And so is another type while there are consumers, and a connected name."""
    await fill(client, 1)
    await consume(client)
    with pytest.raises(errors.ConsumerBusy):
        await consume(client)
    with pytest.raises(errors.SubscriptionTypeMismatch):
        await consume(client, "shared")
    shared = await client.subscribe("flights", subscription="another", type="shared", consumer_name="a")
    with pytest.raises(errors.ConsumerBusy, match="choose another name"):
        await client.subscribe("flights", subscription="another", type="shared", consumer_name="a")
    await fill(client, 1)
    message = await shared.receive(timeout=DEADLINE_S)
    with pytest.raises(errors.InvalidArgument, match="exclusive or failover"):
        await shared.ack_cumulative(message)


async def test_client_reports_that_no_owner_answers(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """Subscribing ends after operation_timeout."""
    await fill(client, 1)
    await cluster.kill_owner()
    async with await oncelog.connect(cluster.url, operation_timeout=0.3) as hasty:
        with pytest.raises(errors.DeadlineExceeded):
            await consume(hasty)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("subscription", {"subscription": ""}),
        ("subscription", {"subscription": "x" * 256}),
        ("subscription", {"subscription": 7}),
        ("type", {"type": "Shared"}),
        ("start", {"start": "earliest"}),
        ("inclusive", {"inclusive": 1}),
        ("consumer_name", {"consumer_name": "a\n"}),
        ("max_deliveries", {"max_deliveries": -1}),
        ("max_deliveries", {"max_deliveries": True}),
        ("dead_letter_topic", {"dead_letter_topic": "dead"}),
        ("topic", {"dead_letter_topic": "a/b", "max_deliveries": 1}),
        ("ack_timeout", {"ack_timeout": 0}),
        ("ack_timeout", {"ack_timeout": float("inf")}),
        ("receive_window", {"receive_window": 0}),
        ("priority", {"priority": 1 << 31}),
        ("properties", {"properties": {"a": 1}}),
        ("properties", {"properties": {str(i): "" for i in range(65)}}),
        ("properties", {"properties": {"a": "é" * 8_192}}),
        ("properties", {"properties": {"a": "\ud800"}}),
        ("on_corrupt", {"on_corrupt": "ignore"}),
    ],
)
async def test_wrong_argument_is_named(client: oncelog.AsyncClient, field: str, options: dict[str, object]) -> None:
    """Before anything is sent."""
    with pytest.raises(errors.OncelogError) as raised:
        await client.subscribe("flights", **{"subscription": "billing", **options})  # type: ignore[arg-type]
    assert raised.value.details["field"] == field


async def test_wrong_message_is_refused(client: oncelog.AsyncClient) -> None:
    """What this consumer has not received cannot be acknowledged through it."""
    await fill(client, 5)
    consumer = await consume(client)
    other = await client.subscribe("flights", subscription="other", start=oncelog.EARLIEST)
    message = await other.receive(timeout=DEADLINE_S)
    for wrong in (message, message.message_id, 7, "message", [message], None):
        with pytest.raises(errors.InvalidArgument) as raised:
            await consumer.ack(wrong)  # type: ignore[arg-type]
        assert raised.value.details["field"] == "messages"
    for delay in (-1, float("nan"), 1e9, "1"):
        with pytest.raises(errors.InvalidArgument, match="delay"):
            await other.nack(message, delay=delay)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="max_messages"):
        await other.receive_batch(0)
