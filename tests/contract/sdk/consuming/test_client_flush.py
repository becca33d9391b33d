"""`consumer.flush` and the end of a consumer over real gRPC: when they return, the fake cluster has applied it all."""

import asyncio

import pytest

import oncelog
from oncelog.client.consuming.open_calls import OpenCalls
from oncelog.core import errors
from oncelog.core.delivery.events import COUNTED_MAX, AckRequested, ConsumerDetached, FlowReported, NackRequested
from tests.cluster.until import until, yield_to_loop
from tests.contract.sdk.consuming.test_client_consumer import DEADLINE_S, consume, fill, numbers, receive
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio


def begun(cluster: FakeCluster) -> list[int]:
    """What the application has, as the owner was told last."""
    told = [each for each in cluster.consume.requests if isinstance(each, FlowReported)][-1]
    return [index for first, last in told.begun for index in range(first, last + 1)]


def question(request: object) -> bool:
    return isinstance(request, AckRequested) and not request.ranges and request.below is None


async def acks_at(cluster: FakeCluster, count: int) -> None:
    """Return when so many acknowledgements of messages have reached the owner."""

    def arrived() -> int:
        acks = [each for each in cluster.consume.requests if isinstance(each, AckRequested | NackRequested)]
        return sum(bool(each.ranges) for each in acks)

    await until(lambda: arrived() >= count, DEADLINE_S)


@pytest.mark.hazard("flushed-before-applied")
async def test_flushed_reports_are_at_the_owner(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """Nobody waits for a report. Without a flush, who looked at the owner then raced with it."""
    await fill(client, 12)
    for kind in ("exclusive", "shared"):
        async with await consume(client, kind) as consumer:
            messages = await receive(consumer, 5)
            await consumer.flush()
            assert begun(cluster) == [message.index for message in messages]
            assert question(cluster.consume.requests[-1]), "the question is behind the report"
            await consumer.ack(messages[0])
            await receive(consumer, 1)
            await consumer.flush()
            assert len(begun(cluster)) == 5


async def test_flush_waits_for_acknowledgements(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """For those that are sent, and those that wait for the answers to others. A cancelled future recalls nothing."""
    await fill(client, 40)
    consumer = await consume(client)
    messages = await receive(consumer, 40)
    cluster.consume.writable.clear()
    futures = []
    for message in messages[:12]:  # four requests are in flight, and the rest waits
        futures.append(consumer.ack_nowait(message))
        await asyncio.wait({futures[-1]}, timeout=0)
    cancelled = consumer.ack_nowait(messages[12])
    cancelled.cancel()
    cumulative = [asyncio.ensure_future(consumer.ack_cumulative(messages[number])) for number in (14, 16, 18)]
    await yield_to_loop()
    flushes = [asyncio.ensure_future(consumer.flush()) for _ in range(2)]
    await acks_at(cluster, 4)
    assert not any(flush.done() for flush in flushes)
    cluster.consume.writable.set()
    await asyncio.gather(*flushes)
    assert all(future.done() for future in (*futures, *cumulative))
    await consumer.close(flush=False)
    async with await consume(client) as again:
        assert numbers(await receive(again, 21)) == list(range(19, 40))


async def test_flush_waits_for_negative_acknowledgements(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """One of more messages than a request may name takes several requests, one after the other."""
    count = COUNTED_MAX + 10
    await fill(client, count, batch=1_000)
    consumer = await consume(client)
    batch = await consumer.receive_batch(count, max_wait=DEADLINE_S)
    cluster.consume.writable.clear()
    nacking = asyncio.ensure_future(consumer.nack(batch, delay=60))
    await acks_at(cluster, 1)
    flushing = asyncio.ensure_future(consumer.flush())
    await yield_to_loop()
    cluster.consume.writable.set()
    await flushing
    named = [each.ranges for each in cluster.consume.requests if isinstance(each, NackRequested)]
    assert [ranges[-1].last for ranges in named] == [COUNTED_MAX - 1, count - 1]
    await nacking


async def test_flush_says_how_many_acknowledgements_are_open(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """As closing the consumer does. A cancelled flush, and one that came too late, leave the consumer as it was."""
    await fill(client, 10)
    consumer = await consume(client)
    messages = await receive(consumer, 10)
    cluster.consume.writable.clear()
    acks = [consumer.ack_nowait(message) for message in messages[:3]]
    nacking = asyncio.ensure_future(consumer.nack(messages[5], delay=0))
    await acks_at(cluster, 2)
    # With a limit that no other call of the test has.
    calls = OpenCalls(consumer._partitions, "flights, subscription billing", timeout_ms=1)
    late = await calls.within(calls.settled(reports=True))
    assert late is not None
    assert "flights, subscription billing: 3 acknowledgements were not answered within 1 ms" in late.message
    flushing = asyncio.ensure_future(consumer.flush())
    await yield_to_loop()
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    cluster.consume.writable.set()
    await consumer.flush()
    assert all(ack.result().durable for ack in acks)
    await nacking
    assert calls.count == 0


async def test_flush_of_a_consumer_that_has_ended_raises_why(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """Before the call, and while it waits: nothing says that its reports have arrived."""
    await fill(client, 4)
    closed = await consume(client)
    await closed.close()
    with pytest.raises(errors.ConsumerClosed):
        await closed.flush()
    consumer = await consume(client)
    cluster.consume.writable.clear()
    consumer.ack_nowait(await consumer.receive(timeout=DEADLINE_S))
    flushing = asyncio.ensure_future(consumer.flush())
    await acks_at(cluster, 1)
    await consumer.close(flush=False)
    with pytest.raises(errors.ConsumerClosed):
        await flushing


async def test_flush_goes_on_with_another_owner(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """The owner ends while it owes the answers. The next one gets what is unanswered again."""
    await fill(client, 6)
    consumer = await consume(client)
    messages = await receive(consumer, 6)
    cluster.consume.writable.clear()
    ack = consumer.ack_nowait(messages[0])
    flushing = asyncio.ensure_future(consumer.flush())
    await acks_at(cluster, 1)
    await cluster.take_over()
    cluster.consume.writable.set()
    await flushing
    assert ack.result().durable
    assert {message.index for message in messages[1:]} <= set(begun(cluster))


async def test_handler_may_flush(client: oncelog.AsyncClient) -> None:
    """Its own message is not acknowledged before it returns, so the flush does not wait for that."""
    await fill(client, 6)
    consumer, flushed = await consume(client, "shared"), list[int]()

    async def handle(message: oncelog.Message) -> None:
        await consumer.flush()
        flushed.append(message.index)
        if len(flushed) == 6:
            running.cancel()

    running = asyncio.ensure_future(consumer.run(handle, concurrency=3))
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(flushed) == list(range(6))


async def test_closed_consumer_is_gone_for_others(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """Another process gets no ConsumerBusy for a consumer whose close has returned."""
    await fill(client, 4)
    async with await oncelog.connect(cluster.url) as other:
        for _ in range(5):
            for each in (client, other):
                await (await consume(each)).close()
                detached, asked = cluster.consume.requests[-2:]
                assert isinstance(detached, ConsumerDetached)
                assert question(asked)
