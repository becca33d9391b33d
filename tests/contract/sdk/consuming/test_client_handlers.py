"""`consumer.run` against the fake cluster: handled messages are acknowledged, failed ones come again, in order."""

import asyncio
import os
import re
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import oncelog
from oncelog.client.consuming import handler_run
from oncelog.core.errors import ConsumerClosed, InvalidArgument
from tests.cluster.until import until, yield_to_loop
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
AT_ONCE = oncelog.Retry(delay=0)
DEADLINE_S = 30


async def fill(client: oncelog.AsyncClient, count: int, *, keys: int = 0) -> None:
    producer = await client.create_producer("flights", batch_bytes_max=50)
    given = [b"%d" % (number % keys) for number in range(count)] if keys else None
    await producer.send_many([b"%d" % number for number in range(count)], keys=given)


async def subscribe(client: oncelog.AsyncClient, kind: str = "exclusive", **more: object) -> oncelog.AsyncConsumer:
    options: dict[str, object] = {"start": oncelog.EARLIEST, "type": kind, **more}
    return await client.subscribe("flights", subscription="s", **options)  # type: ignore[arg-type]


async def run_until(
    consumer: oncelog.AsyncConsumer,
    handler: Callable[[oncelog.Message], Awaitable[object]],
    done: Callable[[], object],
    **options: object,
) -> None:
    """Run the handler until `done`, and then cancel the run."""
    running = asyncio.ensure_future(consumer.run(handler, **options))  # type: ignore[arg-type]
    await until(lambda: done() or running.done(), DEADLINE_S)
    if running.done():
        await running
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def require_left(client: oncelog.AsyncClient, count: int, kind: str = "exclusive") -> None:
    """The subscription would deliver so many messages again, and then a new one."""
    producer = await client.create_producer("flights")
    async with await subscribe(client, kind) as consumer:
        if count:
            assert len(await consumer.receive_batch(count, max_wait=DEADLINE_S)) == count
        await producer.send(b"new")
        assert (await consumer.receive(timeout=DEADLINE_S)).value == b"new"


@pytest.mark.parametrize("kind", ["exclusive", "shared", "key_shared"])
async def test_failed_messages_come_again_and_ordered_ones_in_order(client: oncelog.AsyncClient, kind: str) -> None:
    """Each third message fails at its first delivery. What was handled is acknowledged."""
    await fill(client, 60, keys=5)
    handled: list[int] = []

    async def handle(message: oncelog.Message) -> None:
        lasts = asyncio.ensure_future(asyncio.Event().wait())
        await asyncio.wait({lasts}, timeout=0.001 * (message.index % 3))
        lasts.cancel()
        if message.index % 3 == 0 and message.delivery_count == 1:
            raise RuntimeError("not now")
        handled.append(message.index)

    consumer = await subscribe(client, kind)
    await run_until(consumer, handle, lambda: len(handled) == 60, concurrency=8, retry=AT_ONCE)
    assert sorted(handled) == list(range(60)), "each once"
    if kind == "exclusive":
        assert handled == list(range(60))
    if kind == "key_shared":
        for key in range(5):
            assert [index for index in handled if index % 5 == key] == list(range(key, 60, 5))
    await require_left(client, 0, kind)


async def test_message_that_always_fails_becomes_a_dead_letter(
    client: oncelog.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """After max_deliveries attempts; those behind it wait for that. That the message comes again and that it becomes a
    dead letter are different lines."""
    await fill(client, 5)
    seen: list[tuple[int, int]] = []

    async def handle(message: oncelog.Message) -> None:
        seen.append((message.index, message.delivery_count))
        if message.index == 1:
            raise ValueError("cannot be handled")

    consumer = await subscribe(client, max_deliveries=3)
    await run_until(consumer, handle, lambda: len(seen) == 7, retry=AT_ONCE)
    assert seen == [(0, 1), (1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (4, 1)]
    logged = [record.getMessage() for record in caplog.records]
    assert len(logged) == 3
    assert "the handler of s failed at message 1 (" in logged[0]
    assert "delivery 1), which comes again after 0 s" in logged[0]
    assert "delivery 3), which becomes a dead letter" in logged[2]


async def test_handler_that_always_fails_writes_few_lines(
    client: oncelog.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """One traceback, and at the end of the run the number of what was not logged yet."""
    await fill(client, 500)
    calls = 0

    async def handle(message: oncelog.Message) -> None:
        nonlocal calls
        calls += 1
        raise ValueError(f"cannot handle {message.index}")

    await run_until(await subscribe(client, "shared"), handle, lambda: calls >= 500, concurrency=8)
    first, *others = [record for record in caplog.records if "the handler of s failed" in record.getMessage()]
    assert first.exc_info is not None
    assert not any(record.exc_info for record in others)
    found = [
        re.search(r": ValueError: cannot handle \d+(?: \(and ([\d,]+) more like it)?", each.getMessage())
        for each in others
    ]
    assert 1 + sum(1 + int((each[1] or "0").replace(",", "")) for each in found if each) == calls
    assert len(others) < 50


async def test_repetitions_are_counted_while_the_run_goes_on(
    client: oncelog.AsyncClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if no other failure follows."""
    monkeypatch.setattr(handler_run, "COUNTED_EVERY_S", 0.01)
    await fill(client, 2)

    async def handle(message: oncelog.Message) -> None:
        raise ValueError("bad")

    consumer = await subscribe(client, "shared", max_deliveries=1)
    await run_until(consumer, handle, lambda: "becomes a dead letter: ValueError: bad" in caplog.text)


async def _group_that_fails() -> None:
    """Leaves the count of cancellations of this task above 0 in Python 3.11."""

    async def fail() -> None:
        await yield_to_loop()
        raise ValueError("a part of the work failed")

    async with asyncio.TaskGroup() as group:
        group.create_task(fail())
        group.create_task(asyncio.Event().wait())


async def _cancelled_by_another() -> None:
    work = asyncio.get_running_loop().create_future()
    work.cancel()
    await work


async def _both() -> None:
    with suppress(ExceptionGroup):
        await _group_that_fails()
    await _cancelled_by_another()


@pytest.mark.parametrize("failing", [_group_that_fails, _cancelled_by_another, _both])
async def test_handler_that_meets_a_cancellation_of_its_own_has_failed(
    client: oncelog.AsyncClient, failing: Callable[[], Awaitable[None]]
) -> None:
    """Nobody has cancelled the run: it goes on, and the message comes again. It ended, or stood still in silence."""
    await fill(client, 3)
    handled: list[int] = []

    async def handle(message: oncelog.Message) -> None:
        if message.delivery_count == 1 and message.index == 1:
            await failing()
        handled.append(message.index)

    await run_until(await subscribe(client), handle, lambda: len(handled) == 3, retry=AT_ONCE)
    assert handled == [0, 1, 2]
    await require_left(client, 0)


async def test_cancelled_run_finishes_its_handlers_and_closes(client: oncelog.AsyncClient) -> None:
    """What was handled is acknowledged, what was not begun goes to others, uncounted."""
    await fill(client, 20)
    begun: list[int] = []
    go_on = asyncio.Event()

    async def handle(message: oncelog.Message) -> None:
        begun.append(message.index)
        await go_on.wait()

    consumer = await subscribe(client, "shared")
    running = asyncio.ensure_future(consumer.run(handle, concurrency=3))
    await until(lambda: len(begun) == 3, DEADLINE_S)
    running.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(ConsumerClosed):
        await consumer.receive()
    assert len(begun) == 3
    await require_left(client, 17, "shared")


async def test_sigterm_ends_a_run_without_an_error(client: oncelog.AsyncClient) -> None:
    """The program goes on behind `run`, and the former handler of the signal is back."""
    await fill(client, 3)
    handled: list[int] = []
    former = signal.getsignal(signal.SIGTERM)

    async def handle(message: oncelog.Message) -> None:
        handled.append(message.index)
        if message.index == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            await until(lambda: signal.getsignal(signal.SIGTERM) is not former, DEADLINE_S)

    consumer = await subscribe(client)
    async with asyncio.timeout(DEADLINE_S):
        await consumer.run(handle)
    assert handled == [0, 1]
    assert signal.getsignal(signal.SIGTERM) is former
    await require_left(client, 1)


async def _takes_anything(*_: object) -> None:
    pass


async def test_run_refuses_what_it_cannot_run(client: oncelog.AsyncClient) -> None:
    """Wrong options leave the consumer open. A handler that is no coroutine function ends the run, and acknowledges
    nothing."""
    await fill(client, 1)
    consumer = await subscribe(client)
    with pytest.raises(
        InvalidArgument, match=r"handler must take \(message\), by position: fill\(client, count, keys\)"
    ):
        consumer.handler_run(fill, concurrency=1, retry=AT_ONCE)  # type: ignore[arg-type]
    for options in ({"concurrency": 0}, {"retry": 3}):
        with pytest.raises(InvalidArgument):
            await consumer.run(_takes_anything, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="handler must be an async function"):
        await consumer.run(lambda message: None)  # type: ignore[arg-type,return-value]
    await require_left(client, 1)


async def test_handler_runs_in_a_span_below_that_of_the_sender(client: oncelog.AsyncClient) -> None:
    """One trace from the request that publishes to the work of the consumer."""
    producer = await client.create_producer("flights", trace_context=True)
    with TracerProvider().get_tracer("application").start_as_current_span("request") as span:
        await producer.send(b"x")
    traces: list[int] = []

    async def handle(_message: oncelog.Message) -> None:
        traces.append(trace.get_current_span().get_span_context().trace_id)

    await run_until(await subscribe(client), handle, lambda: traces)
    assert traces == [span.get_span_context().trace_id]


async def test_synchronous_run_uses_threads(cluster: FakeCluster) -> None:
    """As many at once as `concurrency` says; `close` from another thread ends the run."""
    together = threading.Barrier(3, timeout=DEADLINE_S)
    handled: list[int] = []

    def program() -> None:
        with oncelog.Client(cluster.url) as client:
            client.create_producer("flights").send_many([b"0", b"1", b"2", b"3"])
            consumer = client.subscribe("flights", subscription="s", type="shared", start=oncelog.EARLIEST)

            def handle(message: oncelog.Message) -> None:
                if message.index < 3:
                    together.wait()
                handled.append(message.index)
                if len(handled) == 4:
                    threading.Thread(target=consumer.close).start()

            consumer.run(handle, concurrency=3)

            async def wrong(_message: oncelog.Message) -> None: ...

            with pytest.raises(InvalidArgument, match="handler must be a plain function"):
                consumer.run(wrong)

    await asyncio.to_thread(program)
    assert sorted(handled) == [0, 1, 2, 3]


_SIGNALLED = """
import os, signal, sys
import oncelog
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
with oncelog.Client(sys.argv[1]) as client:
    client.create_producer("flights").send_many([b"0", b"1", b"2"])
    consumer = client.subscribe("flights", subscription="s", start=oncelog.EARLIEST)
    def handle(message):
        print(message.index, flush=True)
        if message.index == 1:
            os.kill(os.getpid(), signal.NUMBER)
            signal.sigtimedwait([], 0.3)
            print("finished", flush=True)
    try:
        consumer.run(handle)
        print("returned")
    except KeyboardInterrupt:
        print("interrupted")
with oncelog.Client(sys.argv[1]) as client, client.subscribe("flights", subscription="s") as consumer:
    client.create_producer("flights").send(b"3")
    print([message.index for message in consumer.receive_batch(2, max_wait=60)])
"""


@pytest.mark.parametrize(("number", "end"), [("SIGTERM", "returned"), ("SIGINT", "interrupted")])
async def test_signal_ends_a_synchronous_run(cluster: FakeCluster, number: str, end: str) -> None:
    """The handler that runs is finished and its message acknowledged."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SIGNALLED.replace("NUMBER", number), cluster.url, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        printed, _ = await program.communicate()
    assert printed.decode().split("\n") == ["0", "1", "finished", end, "[2, 3]", ""]
    assert program.returncode == 0
