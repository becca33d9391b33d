"""Many topics, on a standalone cluster with two owners and default settings.

created and written   topics per second, each created by its producer, which stores one message; 16 at once
idle owners           percent of a core that all owners take together, with topics in which nothing happens
takeover              seconds from the SIGKILL of one owner until a producer of each topic was opened and has stored a
                      message again, against the same without a kill
"""

import asyncio
import signal
import time

from oncelog.client.client import AsyncClient
from oncelog.lab.bench.cpu import CpuMeter
from oncelog.lab.bench.figures import BenchRow, FigureTarget
from oncelog.lab.bench.running import BenchStack, Tell
from oncelog.lab.bench.settings import TopicsSettings
from oncelog.lab.cluster import STORAGE_NODES, LabCluster, signal_process
from oncelog.lab.failures import LabFailed

OWNERS = 2
_AT_ONCE = 16
#: After the last message: the snapshots that are due are written by then.
_REST_S = 8.0
#: For all topics, and for each one beside.
_DEADLINE_S, _DEADLINE_EACH_S = 60.0, 1.0


async def topics_rows(stack: BenchStack, settings: TopicsSettings, tell: Tell) -> list[BenchRow]:
    """Three rows."""
    cluster = await stack.cluster(owners=OWNERS)
    await cluster.until_serving({"owner": OWNERS, "storage": STORAGE_NODES})
    topics = [f"bench-topics-{number}" for number in range(settings.topics)]
    async with await cluster.connect() as client:
        tell(f"create {len(topics):,} topics and write to each")
        meter = CpuMeter(cluster)
        with meter:
            seconds = await _write_to_each(client, topics)
        cpu_ms = {role: round(cores * seconds / len(topics) * 1000, 1) for role, cores in meter.cores().items()}
        created = BenchRow(
            "topics created and written to",
            len(topics) / seconds,
            "topics/s",
            target=FigureTarget(200),
            detail={"cpu_ms_each": cpu_ms},
            note=f"CPU of each: {sum(cpu_ms.values()):.0f} ms",
        )
        tell(f"leave them alone for {settings.idle_seconds:g} s")
        idle = await _idle(cluster, settings)
        tell("SIGKILL for an owner")
        return [created, idle, await _killed(cluster, client, topics)]


async def _write_to_each(client: AsyncClient, topics: list[str]) -> float:
    """Store a message in each topic, by a producer of its own; returns the seconds for all. Raises LabFailed."""
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def write(topic: str) -> None:
        async with at_once, await client.create_producer(topic, producer_name="bench") as producer:
            await producer.send(b"x")

    began = time.perf_counter()
    try:
        async with asyncio.timeout(_DEADLINE_S + _DEADLINE_EACH_S * len(topics)):
            await asyncio.gather(*map(write, topics))
    except TimeoutError as late:
        raise LabFailed(f"not every one of {len(topics)} topics took a message in time") from late
    return time.perf_counter() - began


async def _idle(cluster: LabCluster, settings: TopicsSettings) -> BenchRow:
    await asyncio.sleep(_REST_S)
    meter = CpuMeter(cluster)
    with meter:
        await asyncio.sleep(settings.idle_seconds)
    cores = meter.cores()
    return BenchRow(
        f"idle owners of {settings.topics:,} topics",
        100 * cores.get("owner", 0.0),
        "% of a core",
        detail={"percent": {role: round(100 * each, 1) for role, each in cores.items()}},
        note=f"metadata {100 * cores.get('metadata', 0.0):.1f} %",
    )


async def _killed(cluster: LabCluster, client: AsyncClient, topics: list[str]) -> BenchRow:
    undisturbed = await _write_to_each(client, topics)
    signal_process(await cluster.owner_of(topics[0]), signal.SIGKILL)
    seconds = await _write_to_each(client, topics)
    return BenchRow(
        "every topic written to after an owner's death",
        seconds,
        "s",
        undisturbed,
        note=f"without a kill {undisturbed:.2f} s",
    )
