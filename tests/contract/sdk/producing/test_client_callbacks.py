"""send_nowait(on_result=): a callback for each message instead of a future."""

import asyncio
from concurrent import futures
from typing import Any

import pytest

import oncelog
from oncelog.core.errors import (
    InvalidArgument,
    OncelogError,
    ProducerClosed,
    SequenceIdRequired,
    StaleSequence,
    TooManyRequests,
)
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
        producer.send_nowait(b"%d" % number, on_result=calls, sequence_id=number, key=b"k")
    result = await producer.send(b"last", sequence_id=100)
    assert [each.sequence_id for each in calls.results] == list(range(100))
    assert calls.results[99].message_id < result.message_id  # type: ignore[operator]
    producer.send_nowait(b"5", on_result=calls, sequence_id=5)
    await producer.flush()
    assert calls.results[-1].duplicate
    assert calls.errors == []
    assert cluster.topic("orders").values() == [b"%d" % number for number in range(100)] + [b"last"]


async def test_callback_gets_the_error_of_its_message(client: oncelog.AsyncClient) -> None:
    """A stale id fails alone; what is pending when the producer is closed fails, too."""
    producer = await client.create_producer("orders", producer_name="importer")
    calls = Calls()
    for sequence_id in (2, 3, 5):
        producer.send_nowait(b"x", on_result=calls, sequence_id=sequence_id)
    await producer.flush()
    producer.send_nowait(b"x", on_result=calls, sequence_id=4)
    await producer.flush()
    assert [type(error) for error in calls.errors] == [StaleSequence]
    producer.send_nowait(b"x", on_result=calls, sequence_id=6)
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
        producer.send_nowait(b"x", on_result=callback)
    await producer.flush()
    assert len(calls.results) == 2
    producer.send_nowait(b"x", on_result=raises)
    producer.send_nowait(b"x", on_result=calls)
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
        producer.send_nowait(b"%d" % sent, on_result=again)
        sent += 1

    again(None, None)
    async with asyncio.timeout(DEADLINE_S):
        await done.wait()
    assert cluster.topic("orders").values() == [b"%d" % number for number in range(20)]


async def test_callback_may_close_its_producer(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The messages behind it get their results, and a later one is refused."""
    producer = await client.create_producer("orders")
    calls = Calls()
    closing: list[asyncio.Task[None]] = []

    def closes(result: oncelog.SendResult | None, error: OncelogError | None) -> None:
        assert error is None
        closing.append(asyncio.create_task(producer.close()))

    for on_result in (closes, calls, calls):
        producer.send_nowait(b"x", on_result=on_result)
    await producer.flush()
    await asyncio.gather(*closing)
    assert (len(closing), len(calls.results), calls.errors) == (1, 2, [])
    with pytest.raises(ProducerClosed):
        producer.send_nowait(b"late", on_result=calls)
    assert len(cluster.topic("orders").values()) == 3


async def test_messages_with_and_without_options_keep_their_order(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """Those that have only a value are checked less; each still has the options that it was given."""
    producer = await client.create_producer("orders")
    calls = Calls()
    for number in range(9):
        key = b"k%d" % number if number % 3 == 1 else None
        properties = {"n": str(number)} if number % 2 else None
        producer.send_nowait(b"%d" % number, on_result=calls, key=key, properties=properties)
        with pytest.raises(SequenceIdRequired):
            producer.send_nowait(b"mixed", on_result=calls, sequence_id=100)
    await producer.flush()
    assert [each.sequence_id for each in calls.results] == list(range(9))
    reader = await client.create_reader("orders")
    messages = [await reader.read_next(timeout=DEADLINE_S) for _ in range(9)]
    assert [(each.value, each.key, dict(each.properties)) for each in messages] == [
        (b"%d" % n, b"k%d" % n if n % 3 == 1 else None, {"n": str(n)} if n % 2 else {}) for n in range(9)
    ]


async def test_call_that_is_refused_calls_nothing_back(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The error is raised, and nothing was sent."""
    producer = await client.create_producer("orders", pending_bytes_max=1)
    calls = Calls()
    with pytest.raises(InvalidArgument, match="on_result must be a function, not int"):
        producer.send_nowait(b"x", on_result=7)  # type: ignore[call-overload]
    with pytest.raises(InvalidArgument, match="value"):
        producer.send_nowait("x", on_result=calls)  # type: ignore[call-overload]
    cluster.knobs.gate.clear()
    producer.send_nowait(b"x", on_result=calls)
    with pytest.raises(TooManyRequests, match="pending_bytes_max"):
        producer.send_nowait(b"y", on_result=calls)
    cluster.knobs.gate.set()
    await producer.flush()
    assert (len(calls.results), calls.errors) == (1, [])


async def test_callbacks_of_a_partitioned_topic(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The message goes to its partition."""
    cluster.partitioned["public/default/split"] = 3
    producer = await client.create_producer("split", producer_name="importer")
    calls = Calls()
    for number in range(6):
        producer.send_nowait(b"%d" % number, on_result=calls, sequence_id=number)
    await producer.flush()
    assert sorted((each.sequence_id, each.message_id.partition) for each in calls.results if each.message_id) == [
        (number, number % 3) for number in range(6)
    ]
