"""A client of asyncio in another event loop than its own: an error at once, where a call would wait for ever."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import oncelog
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
DEADLINE_S = 30


async def refuses(call: Callable[[], Awaitable[object]]) -> None:
    """In another event loop, as in a web framework's worker thread."""

    async def in_the_other_loop() -> None:
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(RuntimeError, match="belongs to the event loop in which it was made"):
                await call()

    await asyncio.to_thread(asyncio.run, in_the_other_loop())


async def test_calls_in_another_event_loop_are_refused(client: oncelog.AsyncClient) -> None:
    """Also those that would send first, and fail then. The client works on in its own loop."""
    producer = await client.create_producer("flights")
    reader = await client.create_reader("flights")
    consumer = await client.subscribe("flights", subscription="s", start=oncelog.EARLIEST)

    async def handle(message: oncelog.Message) -> None:
        """Is not called."""

    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: client.create_producer("flights"),
        lambda: client.create_reader("flights"),
        lambda: client.subscribe("flights", subscription="t"),
        lambda: client.last_message_id("flights"),
        client.close,
        lambda: producer.send(b"x"),
        lambda: producer.send_nowait(b"x"),
        lambda: producer.send_many([b"x"]),
        producer.flush,
        producer.close,
        reader.read_next,
        reader.read_batch,
        reader.has_message_available,
        lambda: reader.seek(oncelog.EARLIEST),
        reader.close,
        consumer.receive,
        lambda: consumer.receive_batch(max_wait=DEADLINE_S),
        lambda: consumer.ack([]),
        consumer.flush,
        lambda: consumer.run(handle),
        consumer.close,
    ]
    for call in calls:
        await refuses(call)
    await producer.send(b"mine")
    assert (await reader.read_next(timeout=DEADLINE_S)).value == b"mine"
    assert (await consumer.receive(timeout=DEADLINE_S)).value == b"mine"


async def test_send_that_would_wait_for_room_is_refused_in_another_event_loop(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """It does not wait first."""
    producer = await client.create_producer("flights", pending_bytes_max=1)
    cluster.knobs.gate.clear()
    pending = producer.send_nowait(b"x")
    await refuses(lambda: producer.send(b"y"))
    cluster.knobs.gate.set()
    await pending
    assert cluster.topic("flights").values() == [b"x"]
