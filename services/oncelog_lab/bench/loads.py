"""The loads of the benchmarks. Each bounds its time and what is in flight, and waits for every acknowledgement: a
figure counts acknowledged messages, from the first send to the last acknowledgement."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from oncelog.client.producing.producer import AsyncProducer
from oncelog.client.values.results import SendResult
from oncelog.core.formats.columns import LENGTH_BYTES
from oncelog_lab.bench.baseline import DRAIN_S, Throughput, ticks
from oncelog_lab.bench.figures import Latencies
from oncelog_lab.failures import LabFailed
from oncelog_lab.values import make_values

#: Futures created in one iteration of the event loop; limits of pending futures and of their bytes.
FUTURES_AT_ONCE = 2500
FUTURES_PENDING_MAX = 15_000
FUTURES_PENDING_BYTES_MAX = 16 * 1024 * 1024

SendFuture = asyncio.Future[SendResult]


def batch_count(message_bytes: int, batch_bytes: int) -> int:
    """Messages of one size that fill a batch, with their lengths."""
    return max(1, batch_bytes // (message_bytes + LENGTH_BYTES))


async def send_lists(
    producers: Sequence[AsyncProducer],
    *,
    message_bytes: int,
    batch_bytes: int,
    list_batches: int,
    window: int,
    seconds: float,
) -> Throughput:
    """send_many with lists that fill `list_batches` batches, `window` batches at a time, over all producers."""
    values = make_values(message_bytes, list_batches * batch_count(message_bytes, batch_bytes))
    sent = 0
    began = time.perf_counter()

    async def send_on(producer: AsyncProducer) -> None:
        nonlocal sent
        while time.perf_counter() - began < seconds:
            result = await producer.send_many(values)
            sent += result.count

    calls = max(len(producers), window // list_batches)
    async with _deadline(seconds), asyncio.TaskGroup() as tasks:
        for number in range(calls):
            tasks.create_task(send_on(producers[number % len(producers)]))
    took = time.perf_counter() - began
    return Throughput(sent * message_bytes / took, took)


async def send_futures(producer: AsyncProducer, *, message_bytes: int, seconds: float) -> Throughput:
    """send_nowait for each message, and each future awaited."""
    values = make_values(message_bytes, FUTURES_AT_ONCE)
    pending_max = min(FUTURES_PENDING_MAX, FUTURES_PENDING_BYTES_MAX // message_bytes)
    lists_max = max(1, pending_max // FUTURES_AT_ONCE)
    pending: deque[list[SendFuture]] = deque()
    sent = 0
    began = time.perf_counter()
    async with _deadline(seconds):
        while time.perf_counter() - began < seconds:
            pending.append([producer.send_nowait(value) for value in values])
            sent += len(values)
            await asyncio.sleep(0)
            while len(pending) >= lists_max:
                for future in pending.popleft():
                    await future
        while pending:
            for future in pending.popleft():
                await future
    took = time.perf_counter() - began
    return Throughput(sent * message_bytes / took, took)


async def send_callbacks(
    producer: AsyncProducer, *, message_bytes: int, seconds: float, futures: bool = False
) -> Throughput:
    """send_nowait for each message, with on_result or a callback of its future.

    Raises the error of a message.
    """
    values = make_values(message_bytes, FUTURES_AT_ONCE)
    pending_max = min(FUTURES_PENDING_MAX, FUTURES_PENDING_BYTES_MAX // message_bytes)
    sent = stored = 0
    failed: BaseException | None = None
    room = asyncio.Event()

    def answered(_result: SendResult | None, error: BaseException | None) -> None:
        nonlocal stored, failed
        stored += 1
        if stored == sent or sent - stored == pending_max - FUTURES_AT_ONCE:
            room.set()
        failed = failed or error

    def done(future: SendFuture) -> None:
        answered(None, future.exception())

    began = time.perf_counter()
    async with _deadline(seconds):
        while time.perf_counter() - began < seconds and failed is None:
            for value in values:
                if futures:
                    producer.send_nowait(value).add_done_callback(done)
                else:
                    producer.send_nowait(value, on_result=answered)
            sent += len(values)
            await asyncio.sleep(0)
            while sent - stored > pending_max - FUTURES_AT_ONCE:
                room.clear()
                await room.wait()
        while stored < sent:
            room.clear()
            await room.wait()
    if failed is not None:
        raise failed
    took = time.perf_counter() - began
    return Throughput(sent * message_bytes / took, took)


async def send_in_turn(
    producers: Sequence[AsyncProducer], *, message_bytes: int, count: int, seconds: float
) -> Throughput:
    """Each producer sends `count` messages (one: by `send`, more: by `send_many`), waits, and sends again."""
    values = make_values(message_bytes, count)
    sent = 0
    began = time.perf_counter()

    async def send_on(producer: AsyncProducer) -> None:
        nonlocal sent
        while time.perf_counter() - began < seconds:
            if count == 1:
                await producer.send(values[0])
            else:
                await producer.send_many(values)
            sent += count

    async with _deadline(seconds), asyncio.TaskGroup() as tasks:
        for producer in producers:
            tasks.create_task(send_on(producer))
    took = time.perf_counter() - began
    return Throughput(sent * message_bytes / took, took)


async def send_paced(
    producer: AsyncProducer,
    *,
    message_bytes: int,
    per_second: float,
    seconds: float,
) -> Latencies:
    """Single messages at a fixed rate, from send_nowait to the result."""
    value = make_values(message_bytes, 1)[0]
    latencies: list[float] = []
    futures: list[SendFuture] = []

    def answered(_future: SendFuture, *, sent_at: float) -> None:
        latencies.append(time.perf_counter() - sent_at)

    async with _deadline(seconds):
        async for _ in ticks(per_second=per_second, seconds=seconds):
            sent_at = time.perf_counter()
            future = producer.send_nowait(value)
            future.add_done_callback(partial(answered, sent_at=sent_at))
            futures.append(future)
        for future in futures:
            await future
    # The callback of the last future runs after the code that awaited it.
    await asyncio.sleep(0)
    return Latencies.of(latencies)


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    """The time of the load, and DRAIN_S for the last acknowledgements. Raises LabFailed."""
    try:
        async with asyncio.timeout(seconds + DRAIN_S):
            yield
    except TimeoutError as late:
        raise LabFailed(f"messages were not acknowledged {DRAIN_S:.0f} s after {seconds:g} s of load") from late
