"""What opens something may be awaited, or entered without `await`."""

import asyncio
from typing import Any, assert_type

import pytest

import oncelog
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.fakes.openings import OPENINGS

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio


async def test_everything_is_opened_without_await(cluster: FakeCluster) -> None:
    """A newcomer forgets the `await` behind `async with`, and got an error about coroutines. The block closes it."""
    async with oncelog.connect(cluster.url) as client:
        async with client.create_producer("flights") as producer:
            await producer.send(b"x")
        async with client.create_reader("flights") as reader:
            assert (await reader.read_next(timeout=30)).value == b"x"
        async with client.subscribe("flights", subscription="s", start=oncelog.EARLIEST) as consumer:
            await consumer.ack(await consumer.receive(timeout=30))
        async with client.search("flights") as search:
            assert [message.value async for message in search] == [b"x"]
        assert (producer.failure is not None, reader.closed, consumer.failure is not None) == (True, True, True)
    with pytest.raises(oncelog.errors.ClientClosed):
        await client.create_producer("flights")


@pytest.mark.parametrize("name", OPENINGS)
async def test_it_is_a_coroutine_in_every_respect(client: oncelog.AsyncClient, name: str) -> None:
    """Programs that await it, enter what it gives, or run it in a task go on as before."""
    await (await client.create_producer("flights")).send(b"x")
    open_one = OPENINGS[name]
    async with await open_one(client) as first:
        assert type(first).__name__.startswith("Async")
    (second,) = await asyncio.gather(open_one(client))
    await second.close()
    task = asyncio.create_task(open_one(client))
    assert task.get_stack(), "debuggers see where it is"
    await (await task).close()
    once = open_one(client)
    await (await once).close()
    with pytest.raises(RuntimeError, match="already awaited"):
        await once


async def test_one_that_is_never_awaited_is_warned_of(client: oncelog.AsyncClient) -> None:
    """As of any coroutine."""
    with pytest.warns(RuntimeWarning, match=r"create_reader' was never awaited"):
        client.create_reader("flights")


async def test_use_of_what_was_not_awaited_says_so(client: oncelog.AsyncClient) -> None:
    """It said `can't send non-None value to a just-started coroutine`."""
    producer: Any = client.create_producer("flights")
    for arguments in ({}, {"sequence_id": 1}):
        with pytest.raises(TypeError, match=r"create_producer\(...\) was not awaited: write `await create_producer"):
            producer.send(b"x", **arguments)
    with pytest.raises(AttributeError, match=r"'send_many': create_producer\(...\) was not awaited"):
        await producer.send_many([b"x"])
    with (
        pytest.raises(TypeError, match=r"was not awaited: write .* or `async with create_producer\(...\) as`"),
        producer,
    ):
        pass
    assert repr(producer) == "<create_producer(...), to be awaited>"
    producer.close()


async def checked_by_mypy(url: str) -> None:
    """Never called: a wrong type ends `make lint`."""
    assert_type(await oncelog.connect(url), oncelog.AsyncClient)
    async with oncelog.connect(url) as client:
        assert_type(client, oncelog.AsyncClient)
        assert_type(await client.create_producer("flights"), oncelog.AsyncProducer)
        async with client.create_producer("flights", producer_name="p") as producer:
            assert_type(producer, oncelog.AsyncProducer)
        async with client.create_reader("flights") as reader:
            assert_type(reader, oncelog.AsyncReader)
        async with client.subscribe("flights", subscription="s") as consumer:
            assert_type(consumer, oncelog.AsyncConsumer)
        async with client.search("flights") as search:
            assert_type(search, oncelog.AsyncSearch)
        await client.create_producer(7)  # type: ignore[arg-type]
        assert client.create_producer("flights").topic  # type: ignore[attr-defined]
