"""Subscriptions: receiving with acknowledgements, durable acknowledgements alone, and latencies.

subscribe    an exclusive consumer receives a whole topic and acknowledges each batch cumulatively, against a reader's
             read_batch in the same run
ack          four consumers share a subscription and acknowledge message by message, each with its ranges: alone, and
             beside a producer, which is compared with the same producer alone. And the latency of one awaited
             acknowledgement
end-to-end   from the send of a message until its consumer has it, against the latency of publishing
"""

import asyncio
import time
from collections.abc import Sequence

from oncelog import EARLIEST
from oncelog.client.client import AsyncClient
from oncelog.client.consuming.consumer import AsyncConsumer
from oncelog.client.producing.producer import AsyncProducer
from oncelog_lab.bench.baseline import DRAIN_S, ticks
from oncelog_lab.bench.consume import count_batches, fill, read_whole
from oncelog_lab.bench.figures import BenchRow, FigureTarget, Latencies, median, rounded
from oncelog_lab.bench.loads import batch_count, send_lists, send_paced
from oncelog_lab.bench.publish import LIST_BATCHES, new_producers
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import LARGE, BenchSettings
from oncelog_lab.failures import LabFailed
from oncelog_lab.values import make_values

_SUBSCRIPTION = "bench"
_SHARED = 4
_BATCH_MESSAGES = 10_000
_SLOWEST_MSG_PER_S = 10_000
_WARM_UP_S = 0.5


async def subscribe_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """One row."""
    total = settings.messages
    tell(f"consume {total:,} messages with acknowledgements")
    received, read = [], []
    cluster = await stack.cluster()
    async with await cluster.connect() as client:
        for _ in range(settings.runs):
            topic = await filled(client, settings, total)
            read.append(await read_whole(client, topic, total, count_batches))
            received.append(await _received(client, topic, total))
    return [
        BenchRow(
            "subscribe, cumulative ack per batch",
            median(received),
            "msg/s",
            median(read),
            FigureTarget(0.9, of_ratio=True, of="read_batch"),
            {"runs": rounded(received, 0), "read_runs": rounded(read, 0)},
            f"read_batch {median(read):,.0f} msg/s",
        )
    ]


async def filled(client: AsyncClient, settings: BenchSettings, total: int) -> str:
    """A topic with `total` messages."""
    count = LIST_BATCHES * batch_count(settings.message_bytes, LARGE.batch_bytes)
    values = make_values(settings.message_bytes, count)
    (producer,) = await new_producers(client, 1)
    async with producer:
        await fill(producer, values, total)
    return producer.topic


async def _received(client: AsyncClient, topic: str, total: int) -> float:
    """Messages per second, from the subscribing to the last durable acknowledgement."""
    began, found = time.perf_counter(), 0
    try:
        async with asyncio.timeout(total / _SLOWEST_MSG_PER_S + DRAIN_S):
            async with await client.subscribe(topic, subscription=_SUBSCRIPTION, start=EARLIEST) as consumer:
                pending: list[asyncio.Future[object]] = []
                while found < total:
                    batch = await consumer.receive_batch(_BATCH_MESSAGES)
                    found += sum(1 for part in batch.batches for _ in part.values)
                    pending.append(asyncio.ensure_future(consumer.ack_cumulative(batch)))
                    if len(pending) > _SHARED:
                        await pending.pop(0)
                await asyncio.gather(*pending)
    except TimeoutError as late:
        raise LabFailed(f"{topic} was not consumed in time: {found} of {total} messages") from late
    return total / (time.perf_counter() - began)


async def ack_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """Four consumers of one shared subscription, alone and beside a producer; one awaited acknowledgement."""
    total = settings.messages
    tell(f"acknowledge {total:,} messages one by one, 4 consumers")
    acked, alone, beside, acked_beside = [], [], [], []
    cluster = await stack.cluster()
    async with await cluster.connect() as client:
        for _ in range(settings.runs):
            (producer,) = await new_producers(client, 1)
            alone.append(await _published(producer, settings))
            acked.append(await _acked_one_by_one(client, await filled(client, settings, total), total))
            topic = await filled(client, settings, total)
            shared = asyncio.ensure_future(_acked_one_by_one(client, topic, total))
            beside.append(await _published(await client.create_producer(topic, producer_name="beside"), settings))
            acked_beside.append(await shared)
        latency = await _ack_latency(client, settings)
    return [
        BenchRow(
            f"ack, shared, {_SHARED} consumers",
            median(acked),
            "msg/s",
            target=FigureTarget(300_000),
            detail={"runs": rounded(acked, 0)},
        ),
        BenchRow(
            "the same beside a producer",
            median(acked_beside),
            "msg/s",
            median(acked),
            detail={"runs": rounded(acked_beside, 0)},
            note="of what it is alone",
        ),
        BenchRow(
            "publishing to the topic meanwhile",
            median(beside),
            "msg/s",
            median(alone),
            FigureTarget(0.8, of_ratio=True, of="alone"),
            {"runs": rounded(beside, 0), "alone_runs": rounded(alone, 0)},
        ),
        latency,
    ]


async def _published(producer: AsyncProducer, settings: BenchSettings) -> float:
    moved = await send_lists(
        [producer], message_bytes=settings.message_bytes, batch_bytes=LARGE.batch_bytes, list_batches=LIST_BATCHES,
        window=LARGE.window, seconds=settings.seconds,
    )  # fmt: skip
    await producer.close()
    return moved.bytes_per_s / settings.message_bytes


async def _acked_one_by_one(client: AsyncClient, topic: str, total: int) -> float:
    """Each message is acknowledged by a call of its own; the SDK merges them."""
    left = total
    began = time.perf_counter()

    async def consume(consumer: AsyncConsumer) -> None:
        nonlocal left
        while left > 0:
            batch = await consumer.receive_batch(_BATCH_MESSAGES, max_wait=0.2)
            futures = [consumer.ack_nowait(message) for message in batch]
            for future in futures:
                await future
            left -= len(batch)

    consumers = [
        await client.subscribe(topic, subscription=_SUBSCRIPTION, type="shared", start=EARLIEST) for _ in range(_SHARED)
    ]
    try:
        async with asyncio.timeout(total / _SLOWEST_MSG_PER_S + DRAIN_S):
            await asyncio.gather(*map(consume, consumers))
    except TimeoutError as late:
        raise LabFailed(f"{topic}: {left} messages were not acknowledged in time") from late
    took = time.perf_counter() - began
    for consumer in consumers:
        await consumer.close()
    return total / took


async def _ack_latency(client: AsyncClient, settings: BenchSettings) -> BenchRow:
    """p50 of `await ack` of single messages, against p50 of a send, at the same rate."""
    rate, seconds = settings.rate, settings.seconds
    count = int(rate * (seconds + _WARM_UP_S)) + 100
    sends, acks = [], []
    for _ in range(settings.runs):
        topic = await filled(client, settings, count)
        (producer,) = await new_producers(client, 1)
        await send_paced(producer, message_bytes=settings.message_bytes, per_second=rate, seconds=_WARM_UP_S)
        sent = await send_paced(producer, message_bytes=settings.message_bytes, per_second=rate, seconds=seconds)
        sends.append(sent.p50_ms)
        await producer.close()
        async with await client.subscribe(topic, subscription=_SUBSCRIPTION, type="shared", start=EARLIEST) as consumer:
            acks.append((await _paced_acks(consumer, rate, seconds)).p50_ms)
    return BenchRow(
        f"await ack at {rate:g}/s, p50",
        median(acks),
        "ms",
        median(sends),
        FigureTarget(1.1, at_most=True, of_ratio=True, of="publish"),
        {"runs_ms": rounded(acks, 3), "publish_runs_ms": rounded(sends, 3)},
        f"publish {median(sends):.2f} ms",
    )


async def _paced_acks(consumer: AsyncConsumer, rate: float, seconds: float) -> Latencies:
    latencies: list[float] = []

    async def ack_one() -> None:
        message = await consumer.receive()
        began = time.perf_counter()
        await consumer.ack(message)
        latencies.append(time.perf_counter() - began)

    async with asyncio.timeout(seconds + DRAIN_S), asyncio.TaskGroup() as tasks:
        async for _ in ticks(per_second=rate, seconds=seconds):
            tasks.create_task(ack_one())
    return Latencies.of(latencies)


async def end_to_end_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """p50 and p99 from send to receive, against publishing at the same rate by the same sends."""
    rate, seconds = settings.rate, settings.latency_seconds
    tell(f"end-to-end latency at {rate:g} msg/s")
    cluster = await stack.cluster()
    ours: list[Latencies] = []
    sends: list[Latencies] = []
    async with await cluster.connect() as client:
        for _ in range(settings.runs):
            (producer,) = await new_producers(client, 1)
            async with producer, await client.subscribe(producer.topic, subscription=_SUBSCRIPTION) as consumer:
                await _end_to_end(producer, consumer, rate, _WARM_UP_S)
                received, sent = await _end_to_end(producer, consumer, rate, seconds)
                ours.append(received)
                sends.append(sent)
    return [
        _latency_row(f"end-to-end at {rate:g} msg/s, {name}", [getattr(run, share) for run in ours],
                     [getattr(run, share) for run in sends], bound)
        for name, share, bound in (("p50", "p50_ms", 1.3), ("p99", "p99_ms", 2.0))
    ]  # fmt: skip


def _latency_row(what: str, own: Sequence[float], publish: Sequence[float], bound: float) -> BenchRow:
    return BenchRow(
        what,
        median(own),
        "ms",
        median(publish),
        FigureTarget(bound, at_most=True, of_ratio=True, of="publish"),
        {"runs_ms": rounded(own, 3), "publish_runs_ms": rounded(publish, 3)},
        f"publish {median(publish):.2f} ms",
    )


async def _end_to_end(
    producer: AsyncProducer, consumer: AsyncConsumer, rate: float, seconds: float
) -> tuple[Latencies, Latencies]:
    """(until the consumer has the message, until its sender knows that it is stored)."""
    received: list[float] = []
    stored: list[float] = []

    async def receive(count: int) -> None:
        while len(received) < count:
            batch = await consumer.receive_batch(_BATCH_MESSAGES)
            now = time.perf_counter()
            received.extend(now - float(message.value) for message in batch)
            consumer.ack_nowait(batch)

    async def send() -> None:
        began = time.perf_counter()
        await producer.send(b"%r" % began)
        stored.append(time.perf_counter() - began)

    async with asyncio.timeout(seconds + DRAIN_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(receive(round(rate * seconds)))
        async for _ in ticks(per_second=rate, seconds=seconds):
            tasks.create_task(send())
    return Latencies.of(received), Latencies.of(stored)
