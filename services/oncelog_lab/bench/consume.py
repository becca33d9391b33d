"""Consume: reads a topic from its first message to its last, after send_many has published it.

read_batch           a whole entry per call; the values are slices of the received bytes, and each one is counted
...through owners    the same with `storage_reads=False`: no bytes from storage nodes directly
one object each      `async for message in reader`, and the value of each message is read

The topic is larger than the owner's cache, so most of it is read from storage nodes. read_batch is compared with the
rate of publishing the same messages in the same run.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from oncelog import EARLIEST
from oncelog.client.client import AsyncClient
from oncelog.client.producing.producer import AsyncProducer
from oncelog.client.reading.reader import AsyncReader
from oncelog_lab.bench.baseline import DRAIN_S
from oncelog_lab.bench.cpu import CpuMeter
from oncelog_lab.bench.figures import BenchRow, FigureTarget, median, rounded
from oncelog_lab.bench.loads import batch_count
from oncelog_lab.bench.publish import LIST_BATCHES, new_producers
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import LARGE, BenchSettings
from oncelog_lab.failures import LabFailed
from oncelog_lab.values import make_values

#: A reader slower than this runs into the deadline.
_SLOWEST_MSG_PER_S = 20_000
_CALLS_AT_ONCE = LARGE.window // LIST_BATCHES


async def consume_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """Three rows: batches, batches through owners, and objects."""
    total = settings.messages
    tell(f"consume {total:,} messages")
    published, batches, through_owner, objects = [], [], [], []
    message_bytes = settings.message_bytes
    values = make_values(message_bytes, LIST_BATCHES * batch_count(message_bytes, LARGE.batch_bytes))
    cluster = await stack.cluster()
    direct, owner, single = CpuMeter(cluster), CpuMeter(cluster), CpuMeter(cluster)
    keep = not settings.return_memory
    async with (
        await cluster.connect(keep_memory=keep) as client,
        await cluster.connect(storage_reads=False, keep_memory=keep) as owner_client,
    ):
        for _ in range(settings.runs):
            (producer,) = await new_producers(client, 1)
            async with producer:
                published.append(await fill(producer, values, total))
            # First the row that is compared with no other: after publishing, storage nodes still write for a while.
            with single:
                objects.append(await read_whole(client, producer.topic, total, count_objects))
            with direct:
                batches.append(await read_whole(client, producer.topic, total, count_batches))
            with owner:
                through_owner.append(await read_whole(owner_client, producer.topic, total, count_batches))
    reads = total * settings.runs
    return [
        BenchRow(
            "consume, read_batch",
            median(batches),
            "msg/s",
            median(published),
            FigureTarget(2.0, of_ratio=True, of="publish"),
            {"runs": rounded(batches, 0), "published_runs": rounded(published, 0), **direct.detail(reads)},
            f"published at {median(published):,.0f} msg/s; CPU {_shown(direct.us_each(reads))}",
        ),
        BenchRow(
            "consume, read_batch through owners",
            median(through_owner),
            "msg/s",
            median(batches),
            None,
            {"runs": rounded(through_owner, 0), **owner.detail(reads)},
            f"ratio: of the row above; CPU {_shown(owner.us_each(reads))}",
        ),
        BenchRow(
            "consume, one object each",
            median(objects),
            "msg/s",
            median(published),
            FigureTarget(500_000),
            {"runs": rounded(objects, 0), **single.detail(reads)},
        ),
    ]


def _shown(us_each: dict[str, float]) -> str:
    parts = ", ".join(f"{role} {us:.2f}" for role, us in us_each.items() if us >= 0.05)
    return f"{parts} us a message"


async def fill(producer: AsyncProducer, values: Sequence[bytes], total: int) -> float:
    """Publish exactly `total` messages, repeating `values`. Returns messages per second."""
    left = total
    began = time.perf_counter()

    async def send_on() -> None:
        nonlocal left
        while left > 0:
            count = min(left, len(values))
            left -= count
            await producer.send_many(values if count == len(values) else values[:count])

    async with asyncio.timeout(total / _SLOWEST_MSG_PER_S + DRAIN_S), asyncio.TaskGroup() as tasks:
        for _ in range(_CALLS_AT_ONCE):
            tasks.create_task(send_on())
    return total / (time.perf_counter() - began)


async def read_whole(
    client: AsyncClient, topic: str, total: int, count: Callable[[AsyncReader, int], Awaitable[int]]
) -> float:
    """Read everything from the start. Returns messages per second, from the opening of the reader."""
    began = time.perf_counter()
    try:
        async with asyncio.timeout(total / _SLOWEST_MSG_PER_S + DRAIN_S):
            async with await client.create_reader(topic, start=EARLIEST) as reader:
                found = await count(reader, total)
    except TimeoutError as late:
        raise LabFailed(f"{topic} could not be read within {total / _SLOWEST_MSG_PER_S + DRAIN_S:.0f} s") from late
    if found != total:
        raise LabFailed(f"{topic} has {total} messages, but {found} were read")
    return total / (time.perf_counter() - began)


async def count_batches(reader: AsyncReader, total: int) -> int:
    found = 0
    while found < total:
        batch = await reader.read_batch()
        found += sum(1 for _ in batch.values)
    return found


async def count_objects(reader: AsyncReader, total: int) -> int:
    found = 0
    async for message in reader:
        found += len(message.value) > 0
        if found == total:
            break
    return found
