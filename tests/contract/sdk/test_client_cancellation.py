"""Calls that are cancelled: what docs/processes-threads.md promises."""

import asyncio
from typing import Any

import pytest

import oncelog
from oncelog.client.network.partition_watch import for_each_partition
from oncelog.client.network.session_driver import SessionDriver
from oncelog.core.errors import ConsumerClosed, ServiceUnavailable
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.fakes.openings import OPENINGS

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
MESSAGES = 200
#: more than any opening has steps here
TURNS = 60


async def turns(count: int) -> None:
    """Let the event loop run so often."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        turn = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn


async def test_cancelled_receive_loses_no_message(client: oncelog.AsyncClient) -> None:
    """However late it is cancelled: also in the turn of the event loop in which a message arrives."""
    producer = await client.create_producer("flights")
    consumer = await client.subscribe("flights", subscription="s", start=oncelog.EARLIEST)
    got: list[bytes] = []
    for number in range(MESSAGES):
        receiving = asyncio.ensure_future(consumer.receive())
        sending = asyncio.ensure_future(producer.send(b"%d" % number))
        await turns(number % 25)
        receiving.cancel()
        (result,) = await asyncio.gather(receiving, return_exceptions=True)
        got += [bytes(result.value)] if isinstance(result, oncelog.Message) else []
        await sending
    while len(got) < MESSAGES:
        got.append(bytes((await consumer.receive(timeout=30)).value))
    assert got == [b"%d" % number for number in range(MESSAGES)]


async def test_cancelled_ack_is_done_all_the_same(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """It shares a request with others, which are answered as if nothing had happened."""
    producer = await client.create_producer("flights")
    await producer.send_many([b"0", b"1", b"2"])
    consumer = await client.subscribe("flights", subscription="s", start=oncelog.EARLIEST)
    first, second, third = [await consumer.receive(timeout=30) for _ in range(3)]
    cancelled, other = asyncio.ensure_future(consumer.ack(first)), asyncio.ensure_future(consumer.ack(second))
    await turns(1)
    cancelled.cancel()
    assert (await other).durable
    assert cancelled.cancelled()
    nacking = asyncio.ensure_future(consumer.nack(third, delay=0))
    await turns(1)
    nacking.cancel()
    again = await consumer.receive(timeout=30)
    assert (again.value, again.delivery_count) == (b"2", 2), "a cancelled nack is sent all the same"
    await consumer.close()
    with pytest.raises(ConsumerClosed):
        await consumer.receive()
    async with await client.subscribe("flights", subscription="s") as later:
        assert (await later.receive(timeout=30)).value == b"2"
        assert len(await later.receive_batch(max_wait=0)) == 0


async def test_cancelled_send_many_stores_a_beginning_of_its_list(
    client: oncelog.AsyncClient, cluster: FakeCluster
) -> None:
    """The batches that were given to the producer may be stored, the rest never is. The same list completes it."""
    producer = await client.create_producer("flights", producer_name="p", batch_bytes_max=20, pending_bytes_max=400)
    values = [b"%04d" % number for number in range(MESSAGES)]
    cluster.knobs.gate.clear()
    sending = asyncio.ensure_future(producer.send_many(values, sequence_ids=range(MESSAGES)))
    await until(lambda: producer.pending_bytes > 300, 30)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    cluster.knobs.gate.set()
    await producer.flush()
    stored = cluster.topic("flights").values()
    assert 0 < len(stored) < MESSAGES
    assert stored == values[: len(stored)]
    await producer.send_many(values, sequence_ids=range(MESSAGES))
    assert cluster.topic("flights").values() == values


async def test_send_cancelled_while_it_waits_for_room_is_never_stored(
    client: oncelog.AsyncClient, cluster: FakeCluster
) -> None:
    """Its message was not given to the producer yet."""
    producer = await client.create_producer("flights", pending_bytes_max=100)
    cluster.knobs.gate.clear()
    first = asyncio.ensure_future(producer.send(bytes(90)))
    await until(lambda: producer.pending_bytes > 0, 30)
    waiting = asyncio.ensure_future(producer.send(b"never"))
    await turns(1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    cluster.knobs.gate.set()
    await first
    await producer.send(b"later")
    assert cluster.topic("flights").values() == [bytes(90), b"later"]


async def test_failure_of_one_partition_leaves_no_mark_at_the_callers_task() -> None:
    """In Python 3.11 the count of cancellations stays above 0 after a TaskGroup has failed: what reads it later would
    take the application's task for one that somebody has cancelled."""

    async def opened(number: int) -> None:
        await turns(1)
        if number:
            raise ServiceUnavailable("not now")
        await asyncio.Event().wait()

    with pytest.raises(ServiceUnavailable):
        await for_each_partition(opened, [0, 1])
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.parametrize("name", OPENINGS)
async def test_opening_that_is_cancelled_leaves_nothing_open(
    cluster: FakeCluster, client: oncelog.AsyncClient, name: str
) -> None:
    """However late: when nothing has the object yet that could close it, and in the block, which closes it."""
    cluster.partitioned["public/default/flights"] = 3
    await (await client.create_producer("flights")).send_many([b"%d" % number for number in range(9)])
    entered: list[object] = []

    async def program() -> None:
        async with OPENINGS[name](client) as opened:
            entered.append(opened)
            await asyncio.Event().wait()

    for number in range(TURNS):
        task = asyncio.create_task(program())
        await turns(number)
        task.cancel()
        await asyncio.wait([task], timeout=30)
        assert task.cancelled(), "the opening has lost the cancellation"
        assert all(each.failure is not None for each in [*client._producers][1:])
        assert all(each.closed for each in client._readers)
        assert all(each.failure is not None for each in client._consumers)
    task = asyncio.create_task(program())
    await until(lambda: bool(entered), 30)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_search_that_is_cancelled_between_its_readers_closes_them(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """They read on until the client was closed."""
    cluster.partitioned["public/default/flights"] = 3
    await (await client.create_producer("flights")).send_many([b"%d" % number for number in range(9)])
    task = asyncio.create_task(client.search("flights"))
    await until(lambda: bool([*client._readers]), 30, every_s=0)
    assert not task.done(), "there are two readers to come"
    task.cancel()
    await asyncio.wait([task], timeout=30)
    assert task.cancelled()
    assert all(reader.closed for reader in client._readers)


@pytest.mark.parametrize("name", ["create_producer", "subscribe"])
async def test_opening_that_is_cancelled_as_it_succeeds_is_closed(
    client: oncelog.AsyncClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancellation arrives in the turn of the event loop in which the owner's answer does. Nothing could close what
    was open then: it kept its name, or its messages, until the client was closed."""
    tasks: list[asyncio.Task[object]] = []
    feed = SessionDriver.feed

    def fed(driver: Any, event: Any) -> None:
        feed(driver, event)
        if tasks and driver.core.is_bound:
            tasks.pop().cancel()

    monkeypatch.setattr(SessionDriver, "feed", fed)
    tasks.append(task := asyncio.ensure_future(OPENINGS[name](client)))
    await asyncio.wait([task], timeout=30)
    assert task.cancelled()
    opened: list[Any] = [*client._producers, *client._consumers]
    assert [each.failure is not None for each in opened] == [True]
