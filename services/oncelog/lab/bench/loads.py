"""The loads that a producer is given. Each is bounded in time, keeps what is in flight bounded, and waits for every
answer: a figure counts acknowledged messages alone, from the first send to the last answer."""

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from oncelog.client.producer import AsyncProducer
from oncelog.client.results import SendResult
from oncelog.core.formats.columns import LENGTH_BYTES
from oncelog.lab.bench.figures import Latencies
from oncelog.lab.bench.limits import DRAIN_S, Throughput, ticks
from oncelog.lab.bench.processes import BenchFailed

#: Different values that a load goes through; each is half noise, so that nothing on the way has it easy.
DISTINCT_VALUES = 1000
#: Futures made in one turn of the event loop; messages whose futures may be open, and their bytes.
FUTURES_PER_TURN = 2500
FUTURES_OPEN_MAX = 15_000
FUTURES_OPEN_BYTES_MAX = 16 * 1024 * 1024

SendFuture = asyncio.Future[SendResult]


def make_values(message_bytes: int, count: int) -> list[bytes]:
    """`count` messages of one size."""
    noise = message_bytes // 2
    distinct = [os.urandom(noise) + bytes(message_bytes - noise) for _ in range(min(count, DISTINCT_VALUES))]
    return [distinct[index % len(distinct)] for index in range(count)]


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

    lanes = max(len(producers), window // list_batches)
    async with _deadline(seconds), asyncio.TaskGroup() as tasks:
        for lane in range(lanes):
            tasks.create_task(send_on(producers[lane % len(producers)]))
    took = time.perf_counter() - began
    return Throughput(sent * message_bytes / took, took)


async def send_futures(producer: AsyncProducer, *, message_bytes: int, seconds: float) -> Throughput:
    """send_nowait for each message, and each future awaited."""
    values = make_values(message_bytes, FUTURES_PER_TURN)
    open_max = min(FUTURES_OPEN_MAX, FUTURES_OPEN_BYTES_MAX // message_bytes)
    turns_max = max(1, open_max // FUTURES_PER_TURN)
    turns: deque[list[SendFuture]] = deque()
    sent = 0
    began = time.perf_counter()
    async with _deadline(seconds):
        while time.perf_counter() - began < seconds:
            turns.append([producer.send_nowait(value) for value in values])
            sent += len(values)
            await asyncio.sleep(0)
            while len(turns) >= turns_max:
                for future in turns.popleft():
                    await future
        while turns:
            for future in turns.popleft():
                await future
    took = time.perf_counter() - began
    return Throughput(sent * message_bytes / took, took)


async def send_paced(
    producer: AsyncProducer,
    *,
    message_bytes: int,
    per_second: float,
    seconds: float,
    acknowledged: Callable[[float], None] | None = None,
) -> Latencies:
    """Single messages at a fixed rate; from send_nowait to the result. acknowledged: told the moment of each answer."""
    value = make_values(message_bytes, 1)[0]
    latencies: list[float] = []
    futures: list[SendFuture] = []

    def answered(_future: SendFuture, *, sent_at: float) -> None:
        now = time.perf_counter()
        latencies.append(now - sent_at)
        if acknowledged is not None:
            acknowledged(now)

    async with _deadline(seconds):
        async for _ in ticks(per_second=per_second, seconds=seconds):
            sent_at = time.perf_counter()
            future = producer.send_nowait(value)
            future.add_done_callback(partial(answered, sent_at=sent_at))
            futures.append(future)
        for future in futures:
            await future
    # The last future's callbacks run after whoever awaited it.
    await asyncio.sleep(0)
    return Latencies.of(latencies)


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    """The load's own time, and DRAIN_S for the answers. Raises BenchFailed."""
    try:
        async with asyncio.timeout(seconds + DRAIN_S):
            yield
    except TimeoutError as late:
        raise BenchFailed(f"messages were not acknowledged {DRAIN_S:.0f} s after {seconds:g} s of load") from late
