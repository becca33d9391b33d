"""send_async: a callback for each message instead of a future."""

import asyncio
from concurrent import futures
from typing import Any

import pytest

import oncelog
from oncelog.core.errors import InvalidArgument, OncelogError, ProducerClosed, StaleSequence, TooManyRequests
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0


class Calls:
    """Results of callbacks, in the order of the calls."""

    def __init__(self) -> None:
        self.results: list[oncelog.SendResult] = []
        self.errors: list[OncelogError] = []

    def __call__(self, result: oncelog.SendResult | None, error: OncelogError | None) -> None:
        if result is not None:
            assert error is None
            self.results.append(result)
        elif error is not None:
            self.errors.append(error)


async def test_callback_gets_the_result_of_its_message(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """In the order of the messages, once each, mixed with futures."""
    producer = await client.create_producer("orders", producer_name="importer")
    calls = Calls()
    for number in range(100):
        producer.send_async(b"%d" % number, calls, sequence_id=number, key=b"k")
    result = await producer.send(b"last", sequence_id=100)
    assert [each.sequence_id for each in calls.results] == list(range(100))
    assert calls.results[99].message_id < result.message_id  # type: ignore[operator]
    producer.send_async(b"5", calls, sequence_id=5)
    await producer.flush()
    assert calls.results[-1].duplicate
    assert calls.errors == []
    assert cluster.topic("orders").values() == [b"%d" % number for number in range(100)] + [b"last"]


async def test_callback_gets_the_error_of_its_message(client: oncelog.AsyncClient) -> None:
    """A stale id fails alone; what is pending when the producer is closed fails, too."""
    producer = await client.create_producer("orders", producer_name="importer")
    calls = Calls()
    for sequence_id in (2, 3, 5):
        producer.send_async(b"x", calls, sequence_id=sequence_id)
    await producer.flush()
    producer.send_async(b"x", calls, sequence_id=4)
    await producer.flush()
    assert [type(error) for error in calls.errors] == [StaleSequence]
    producer.send_async(b"x", calls, sequence_id=6)
    await producer.close(flush=False)
    assert [type(error) for error in calls.errors] == [StaleSequence, ProducerClosed]
    assert len(calls.results) == 3


@pytest.mark.parametrize("raised", [ZeroDivisionError, asyncio.CancelledError, futures.CancelledError])
async def test_callback_that_raises_takes_no_result_from_another_message(
    client: oncelog.AsyncClient, raised: type[BaseException]
) -> None:
    """Its exception goes to the event loop's exception handler; so does a cancellation of something that the callback
    looked at, as of a future of the application."""
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
    producer = await client.create_producer("orders")
    calls = Calls()

    def raises(result: oncelog.SendResult | None, error: OncelogError | None) -> None:
        raise raised

    for callback in (calls, raises, calls):
        producer.send_async(b"x", callback)
    await producer.flush()
    assert len(calls.results) == 2
    producer.send_async(b"x", raises)
    producer.send_async(b"x", calls)
    await producer.close(flush=False)
    assert [type(error) for error in calls.errors] == [ProducerClosed]
    assert [type(error) for error in reported] == [raised] * 2


async def test_callback_may_send_the_next_message(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """A callback runs on the event loop, where all of the producer's methods may be called."""
    producer = await client.create_producer("orders")
    done = asyncio.Event()
    sent = 0

    def again(result: oncelog.SendResult | None, error: OncelogError | None) -> None:
        nonlocal sent
        assert error is None
        if sent == 20:
            done.set()
            return
        producer.send_async(b"%d" % sent, again)
        sent += 1

    again(None, None)
    async with asyncio.timeout(DEADLINE_S):
        await done.wait()
    assert cluster.topic("orders").values() == [b"%d" % number for number in range(20)]


async def test_call_that_is_refused_calls_nothing_back(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """As `send_nowait`: the error is raised, and nothing was sent."""
    producer = await client.create_producer("orders", pending_bytes_max=1)
    calls = Calls()
    with pytest.raises(InvalidArgument, match="callback"):
        producer.send_async(b"x", None)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="value"):
        producer.send_async("x", calls)  # type: ignore[arg-type]
    cluster.knobs.gate.clear()
    producer.send_async(b"x", calls)
    with pytest.raises(TooManyRequests, match="pending_bytes_max"):
        producer.send_async(b"y", calls)
    cluster.knobs.gate.set()
    await producer.flush()
    assert (len(calls.results), calls.errors) == (1, [])


async def test_callbacks_of_a_partitioned_topic(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The message goes to its partition."""
    cluster.partitioned["public/default/split"] = 3
    producer = await client.create_producer("split", producer_name="importer")
    calls = Calls()
    for number in range(6):
        producer.send_async(b"%d" % number, calls, sequence_id=number)
    await producer.flush()
    assert sorted((each.sequence_id, each.message_id.partition) for each in calls.results if each.message_id) == [
        (number, number % 3) for number in range(6)
    ]
