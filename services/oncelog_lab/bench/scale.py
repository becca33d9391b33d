"""Scale: the same load on clusters with more owners, or more storage nodes.

Twelve topics, spread over the owners, with lists of one 64 KiB batch. All processes share the cores of one machine, so
the rate cannot grow with their number; what tells is the CPU of a message, which should not grow either. Efficiency is
the CPU of a message with one owner and three storage nodes, divided by that of the row.
"""

import asyncio

from oncelog_lab.bench.cpu import CpuMeter
from oncelog_lab.bench.figures import BenchRow, median, rounded
from oncelog_lab.bench.loads import send_lists
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import SMALL, BenchSettings
from oncelog_lab.cluster import STORAGE_NODES, standalone_cluster

_TOPICS = 12
#: (owners, storage nodes)
_CLUSTERS = ((1, STORAGE_NODES), (2, STORAGE_NODES), (4, STORAGE_NODES), (6, STORAGE_NODES), (2, 2 * STORAGE_NODES))


async def scale_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """One row for each cluster: us of CPU of a message. The ratio is to the first one."""
    rows: list[BenchRow] = []
    for owners, storage_nodes in _CLUSTERS:
        tell(f"{owners} owners, {storage_nodes} storage nodes")
        cpu, rates, used = await _measure(stack, settings, owners, storage_nodes)
        total = sum(cpu.values())
        one = rows[0].figure if rows else total
        rows.append(
            BenchRow(
                f"owners {owners}, storage nodes {storage_nodes}: CPU of a message", total, "us", one, None,
                {"cpu_us": cpu, "runs": rounded(rates, 0), "efficiency": round(one / total, 2), "owners_used": used},
                f"efficiency {one / total:.2f}; {median(rates):,.0f} msg/s; topics on {used} owners",
            )
        )  # fmt: skip
    return rows


async def _measure(
    stack: BenchStack, settings: BenchSettings, owners: int, storage_nodes: int
) -> tuple[dict[str, float], list[float], int]:
    """Returns ({role: us of CPU of a message}, messages per second of each run, owners that have a topic)."""
    topics = [f"bench-scale-{number}" for number in range(_TOPICS)]
    async with (
        standalone_cluster(stack.new_directory(), owners=owners, storage_nodes=storage_nodes) as cluster,
        await cluster.connect() as client,
    ):
        await cluster.until_serving({"owner": owners, "storage": storage_nodes})
        own = [
            await client.create_producer(topic, producer_name="bench", batch_bytes_max=SMALL.batch_bytes)
            for topic in topics
        ]
        used = {(await cluster.owner_of(topic)).name for topic in topics}
        meter, rates, sent = CpuMeter(cluster), [], 0
        for measured in [False] + settings.runs * [True]:  # the first run warms up
            with meter if measured else CpuMeter(cluster):
                done = await send_lists(
                    own, message_bytes=settings.message_bytes, batch_bytes=SMALL.batch_bytes, list_batches=1,
                    window=SMALL.window, seconds=settings.seconds,
                )  # fmt: skip
            if measured:
                count, seconds = done.messages(settings.message_bytes)
                rates.append(count / seconds)
                sent += count
        await asyncio.gather(*(producer.close() for producer in own))
    return meter.us_each(sent), rates, len(used)
