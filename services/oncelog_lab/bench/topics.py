"""Many topics, on a standalone cluster with two owners and default settings.

created and written   topics per second, each created by its producer, which stores one message; 64 at once
idle owners           percent of a core that all owners take together, with topics in which nothing happens
listed, looked up     the list of all names over REST, a page at a time, and look-ups, several at once
takeover              seconds from the SIGKILL of one owner until a producer of each topic was opened and has stored a
                      message again, against the same without a kill; its CPU by role, for each topic that moved,
                      without that of the writing itself
"""

import asyncio
import signal
import time
from dataclasses import replace

from oncelog.cli.admin.rest_paths import lookup_path, topics_path
from oncelog.client.client import AsyncClient
from oncelog.core.names import DEFAULT_NAMESPACE
from oncelog_lab.bench.cpu import CpuMeter, resident_bytes
from oncelog_lab.bench.figures import BenchRow, FigureTarget
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.cluster import STORAGE_NODES, LabCluster, signal_process
from oncelog_lab.failures import LabFailed

OWNERS = 2
_AT_ONCE = 64
#: After the last message: the snapshots that are due are written by then.
_REST_S = 8.0
#: For all topics, and for each one beside.
_DEADLINE_S, _DEADLINE_EACH_S = 60.0, 1.0


async def topics_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """Five rows, each at so many topics."""
    cluster = await stack.cluster(owners=OWNERS)
    await cluster.until_serving({"owner": OWNERS, "storage": STORAGE_NODES})
    topics = [f"bench-topics-{number}" for number in range(settings.topics)]
    empty_bytes = sum(map(resident_bytes, cluster.serving("owner")))
    async with await cluster.connect() as client:
        tell(f"create {len(topics):,} topics and write to each")
        meter = CpuMeter(cluster)
        with meter:
            seconds = await _write_to_each(client, topics)
        cpu_ms = _cpu_ms(meter, len(topics))
        created = BenchRow(
            "topics created and written to",
            len(topics) / seconds,
            "topics/s",
            target=FigureTarget(200),
            detail={"cpu_ms_each": cpu_ms},
            note=f"CPU of each: {_shown(cpu_ms)}",
        )
        tell(f"leave them alone for {settings.idle_seconds:g} s")
        idle = await _idle(cluster, settings, empty_bytes)
        tell("list them, and look them up")
        listed, owners = await _listed(cluster, topics)
        tell("SIGKILL for an owner")
        rows = [created, idle, *listed, await _killed(cluster, client, topics, owners)]
    return [replace(row, at={"topics": settings.topics}) for row in rows]


def _cpu_ms(meter: CpuMeter, count: int) -> dict[str, float]:
    """{role: CPU milliseconds for each of `count` topics}."""
    return {role: round(us / 1000, 2) for role, us in meter.us_each(count).items()}


def _shown(cpu_ms: dict[str, float]) -> str:
    return f"{sum(cpu_ms.values()):.1f} ms ({' '.join(f'{role} {ms:g}' for role, ms in cpu_ms.items())})"


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


async def _idle(cluster: LabCluster, settings: BenchSettings, empty_bytes: int) -> BenchRow:
    """empty_bytes: memory of all owners without topics."""
    await asyncio.sleep(_REST_S)
    meter = CpuMeter(cluster)
    with meter:
        await asyncio.sleep(settings.idle_seconds)
    used_us = meter.us_each(1)
    percent = {role: round(us / settings.idle_seconds / 10_000, 1) for role, us in used_us.items()}
    bytes_each = (sum(map(resident_bytes, cluster.serving("owner"))) - empty_bytes) // settings.topics
    return BenchRow(
        "idle owners",
        percent["owner"],
        "% of a core",
        target=FigureTarget(3, at_most=True),
        detail={"percent": percent, "owner_bytes_each": bytes_each},
        note=f"all owners together, {bytes_each / 1024:.0f} KiB for each topic; metadata {percent['metadata']:.1f} %",
    )


async def _listed(cluster: LabCluster, topics: list[str]) -> tuple[list[BenchRow], list[str]]:
    """Two rows, and the address of each topic's owner."""
    at_once = asyncio.Semaphore(_AT_ONCE)
    async with cluster.rest() as rest:
        began = time.perf_counter()
        names = (await rest.call("GET", topics_path(DEFAULT_NAMESPACE))).body
        listing_s = time.perf_counter() - began
        if missing := len(set(topics) - {name.rpartition("/")[2] for name in names}):
            raise LabFailed(f"the list lacks {missing} of {len(topics)} topics")

        async def owner_of(topic: str) -> str:
            async with at_once:
                answer = await rest.call("GET", lookup_path(topic))
            if not answer.ok:
                raise LabFailed(f"the look-up of {topic} answers {answer.status}: {answer.detail}")
            return str(answer.body["owner_address"])

        began = time.perf_counter()
        owners = await asyncio.gather(*map(owner_of, topics))
        each_s = (time.perf_counter() - began) / len(topics)
    return [
        BenchRow("topics listed over REST", listing_s * 1000, "ms"),
        BenchRow("look-up over REST among so many topics", each_s * 1000, "ms"),
    ], owners


async def _killed(cluster: LabCluster, client: AsyncClient, topics: list[str], owners: list[str]) -> BenchRow:
    meter = CpuMeter(cluster)
    with meter:
        undisturbed = await _write_to_each(client, topics)
    writing = meter.us_each(1)
    victim = await cluster.owner_of(topics[0])
    moving = owners.count(victim.address)
    meter = CpuMeter(cluster)
    signal_process(victim, signal.SIGKILL)
    with meter:
        seconds = await _write_to_each(client, topics)
    cpu_ms = {role: round((us - writing[role]) / moving / 1000, 2) for role, us in meter.us_each(1).items()}
    return BenchRow(
        "every topic written to after an owner's death",
        seconds,
        "s",
        undisturbed,
        detail={"moved": moving, "cpu_ms_each_moved": cpu_ms},
        note=f"{moving:,} moved; without a kill {undisturbed:.2f} s; CPU of each moved: {_shown(cpu_ms)}",
    )
