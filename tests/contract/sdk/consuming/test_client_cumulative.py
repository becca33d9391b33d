"""Cumulative acknowledgements of one consumer become few requests, and its window does not run dry between batches."""

import asyncio

import pytest

import oncelog
from oncelog.core.delivery.events import AckRequested, FlowReported, NackRequested
from oncelog.rpc.codecs.consumer_codec import SeekThrough
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0


async def received(client: oncelog.AsyncClient, count: int) -> tuple[oncelog.AsyncConsumer, list[oncelog.Message]]:
    """An exclusive consumer and the first messages of its topic."""
    producer = await client.create_producer("flights")
    await producer.send_many([b""] * count)
    consumer = await client.subscribe("flights", subscription="s", start=oncelog.EARLIEST)
    batch = await consumer.receive_batch(count, max_wait=DEADLINE_S)
    assert len(batch) == count
    return consumer, list(batch)


async def test_cumulative_acknowledgements_while_one_is_unanswered_become_one_request(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """Of the highest place, in whatever order they were called; each call returns when that is durable."""
    consumer, messages = await received(client, 100)
    cluster.consume.requests.clear()
    cluster.consume.writable.clear()
    calls = [asyncio.ensure_future(consumer.ack_cumulative(messages[at])) for at in (0, *range(50, 100), *range(1, 50))]
    await until(lambda: any(isinstance(each, AckRequested) for each in cluster.consume.requests), DEADLINE_S)
    assert not any(call.done() for call in calls)
    cluster.consume.writable.set()
    async with asyncio.timeout(DEADLINE_S):
        results = await asyncio.gather(*calls)
    assert set(results) == {oncelog.AckResult(durable=True)}
    assert [each.below for each in cluster.consume.requests if isinstance(each, AckRequested)] == [1, 100]


@pytest.mark.hazard("former-consumer-acks")
async def test_cumulative_acknowledgements_beside_a_negative_one_have_results_of_their_own(
    client: oncelog.AsyncClient,
) -> None:
    """One ends before the message that was negatively acknowledged, and the lower ones are complete."""
    consumer, messages = await received(client, 10)
    await consumer.nack(messages[5], delay=3600)
    calls = [consumer.ack_cumulative(messages[at]) for at in (0, 3, 9, 4)]
    async with asyncio.timeout(DEADLINE_S):
        results = await asyncio.gather(*calls)
    assert [each.complete for each in results] == [True, True, False, True]


@pytest.mark.hazard("former-consumer-acks")
@pytest.mark.parametrize("kind", [NackRequested, SeekThrough])
async def test_cumulative_acknowledgements_go_before_a_later_negative_one_and_a_seek(
    cluster: FakeCluster, client: oncelog.AsyncClient, kind: type
) -> None:
    """Those that wait for an earlier answer are not overtaken: they would end early, or be void."""
    consumer, messages = await received(client, 10)
    cluster.consume.requests.clear()
    cluster.consume.writable.clear()
    calls = [asyncio.ensure_future(consumer.ack_cumulative(messages[at])) for at in (0, 8, 7)]
    negative = kind is NackRequested
    later = asyncio.ensure_future(consumer.nack(messages[5]) if negative else consumer.seek(oncelog.Index(2)))
    await until(lambda: any(isinstance(each, kind) for each in cluster.consume.requests), DEADLINE_S)
    cluster.consume.writable.set()
    async with asyncio.timeout(DEADLINE_S):
        assert {oncelog.AckResult(durable=True)} == set(await asyncio.gather(*calls))
        await later
    requests = [each for each in cluster.consume.requests if not isinstance(each, FlowReported)]
    assert [each.below for each in requests if isinstance(each, AckRequested)] == [1, 9]
    assert isinstance(requests[2], kind)


@pytest.mark.parametrize(
    ("arguments", "window"),
    [
        ({}, 50_000),
        ({"type": "failover"}, 50_000),
        ({"ack_timeout": 60.0}, 10_000),
        ({"type": "shared"}, 10_000),
        ({"type": "key_shared"}, 10_000),
        ({"receive_window": 20_000}, 20_000),
    ],
)
async def test_window_holds_several_batches_where_everything_goes_to_one_consumer(
    cluster: FakeCluster, client: oncelog.AsyncClient, arguments: dict[str, object], window: int
) -> None:
    """And stays small where what waits is kept from other consumers, or comes again after each time-out."""
    async with await client.subscribe("flights", subscription="s", **arguments):  # type: ignore[arg-type]
        await until(lambda: any(isinstance(each, FlowReported) for each in cluster.consume.requests), DEADLINE_S)
    flows = [each for each in cluster.consume.requests if isinstance(each, FlowReported)]
    assert flows[0].window == window


async def test_credit_is_reported_before_the_window_is_empty(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """An application that takes 10,000 messages leaves more than half of the window here or on its way, and the owner
    learns of it while the application works on these."""
    producer = await client.create_producer("flights")
    for _ in range(20):
        await producer.send_many([b""] * 1_000)
    async with await client.subscribe("flights", subscription="s", start=oncelog.EARLIEST) as consumer:
        assert len(await consumer.receive_batch(10_000, max_wait=DEADLINE_S)) == 10_000
        reported: list[FlowReported] = []

        def credit_is_reported() -> bool:
            reported[:] = [each for each in cluster.consume.requests if isinstance(each, FlowReported)]
            return reported[-1].handed_out > 0

        await until(credit_is_reported, DEADLINE_S)
        assert reported[-1].handed_out <= reported[-1].window // 2
