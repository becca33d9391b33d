"""`oncelog bench mirror`: a topic copied from one cluster into another one, against a loop without origins.

The control reads batches of the source and sends their values to a topic of the target: killed anywhere, it doubles
messages or loses its place. Mirror and control alternate. Both clusters are on this machine.
"""

import asyncio
import time
from dataclasses import replace

from oncelog import EARLIEST
from oncelog.client.client import AsyncClient
from oncelog.client.stored import end_of
from oncelog.core.names import parse_topic
from oncelog_effects.mirror.mirror import Mirror
from oncelog_effects.mirror.topics import Choice
from oncelog_lab.bench.baseline import DRAIN_S
from oncelog_lab.bench.figures import BenchRow, FigureTarget, median, rounded
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.bench.subscribe import filled
from oncelog_lab.cluster import standalone_cluster
from oncelog_lab.failures import LabFailed

_SLOWEST_MSG_PER_S = 500
_SENDS = 8


async def mirror_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """One row."""
    total, mirrored, controls = settings.messages, list[float](), list[float]()
    source_cluster = await stack.cluster()
    async with (
        standalone_cluster(stack.new_directory(), owners=1) as target_cluster,
        await source_cluster.connect() as source,
        await target_cluster.connect() as target,
    ):
        tell(f"mirror {total:,} messages of {settings.message_bytes} bytes")
        for run in range(settings.runs):
            topic = await filled(source, settings, total)
            pair = [(copied_by_hand, controls), (_mirrored, mirrored)]
            for measure, figures in pair if run % 2 else reversed(pair):
                figures.append(await measure(source, target, topic, total))
    return [
        BenchRow(
            f"mirror, {settings.message_bytes} B",
            median(mirrored),
            "msg/s",
            median(controls),
            FigureTarget(0.6, of_ratio=True, of="read_batch + send_many"),
            {"runs": rounded(mirrored, 0), "control_runs": rounded(controls, 0)},
            f"read_batch + send_many {median(controls):,.0f} msg/s",
        )
    ]


async def copied_by_hand(source: AsyncClient, target: AsyncClient, topic: str, total: int) -> float:
    """Messages per second, from the opening of a reader to the last acknowledgement. The copy is a topic of its own."""
    began, done, pending = time.perf_counter(), 0, list[asyncio.Future[object]]()
    copy = str(replace(parse_topic(topic), local=f"{parse_topic(topic).local}-by-hand"))
    async with (
        asyncio.timeout(total / _SLOWEST_MSG_PER_S + DRAIN_S),
        await target.create_producer(copy) as producer,
        await source.create_reader(topic, start=EARLIEST) as reader,
    ):
        while done < total:
            values = (await reader.read_batch()).values
            pending.append(asyncio.ensure_future(producer.send_many(values)))
            done += len(values)
            if len(pending) >= _SENDS:
                await pending.pop(0)
        await asyncio.gather(*pending)
        return total / (time.perf_counter() - began)


async def _mirrored(source: AsyncClient, target: AsyncClient, topic: str, total: int) -> float:
    """Messages per second of `mirror --once`, from its first question to the last copy that is stored."""
    began = time.perf_counter()
    async with asyncio.timeout(total / _SLOWEST_MSG_PER_S + DRAIN_S):
        await Mirror(source, target, Choice((parse_topic(topic),))).run_once()
    rate = total / (time.perf_counter() - began)
    end = await end_of(target, topic)
    if end != total:
        raise LabFailed(f"{topic} has {total} messages, and its copy has {end}")
    return rate
