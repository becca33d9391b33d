"""Dedup overhead: what judging every batch costs, with deduplication on against off, in pairs that take turns.

throughput   send_many's messages a second; the row is the median over the pairs of on divided by off
p99          of single messages at 200 a second; on's median must lie within what off alone spans over its own runs
"""

from oncelog.client.client import AsyncClient
from oncelog.lab.bench.cluster import Cluster
from oncelog.lab.bench.figures import Row, Target, median, rounded
from oncelog.lab.bench.loads import send_lists, send_paced
from oncelog.lab.bench.publish import LIST_BATCHES, Tell, new_producers
from oncelog.lab.bench.settings import BenchSettings

ON, OFF = "public/bench-dedup-on", "public/bench-dedup-off"


async def dedup_rows(cluster: Cluster, settings: BenchSettings, tell: Tell) -> list[Row]:
    """Two rows: the throughput's ratio, and p99 beside its bound."""
    tell(f"deduplication on against off, {settings.pairs} pairs")
    for namespace, enabled in ((ON, True), (OFF, False)):
        await cluster.set_deduplication(namespace, enabled=enabled)
    throughputs: dict[str, list[float]] = {ON: [], OFF: []}
    p99s: dict[str, list[float]] = {ON: [], OFF: []}
    async with await cluster.connect() as client:
        for pair in range(settings.pairs):
            # Whoever comes first in one pair comes second in the next, for a machine changes while it is watched.
            for namespace in (ON, OFF) if pair % 2 else (OFF, ON):
                throughput, p99_ms = await _run(client, namespace, settings)
                throughputs[namespace].append(throughput)
                p99s[namespace].append(p99_ms)
    ratios = [on / off for on, off in zip(throughputs[ON], throughputs[OFF], strict=True)]
    highest_off = max(p99s[OFF])
    return [
        Row(
            "dedup on / off, throughput",
            median(ratios),
            "of off",
            target=Target(0.98),
            detail={
                "ratios": rounded(ratios, 3),
                "on": rounded(throughputs[ON], 0),
                "off": rounded(throughputs[OFF], 0),
            },
            note=f"on {median(throughputs[ON]):,.0f}, off {median(throughputs[OFF]):,.0f} msg/s",
        ),
        Row(
            "dedup on, p99 within the spread of off",
            median(p99s[ON]),
            "ms",
            target=Target(round(highest_off, 3), at_most=True),
            detail={"on_ms": rounded(p99s[ON], 3), "off_ms": rounded(p99s[OFF], 3)},
            note=f"off {min(p99s[OFF]):.2f} to {highest_off:.2f} ms, median {median(p99s[OFF]):.2f}",
        ),
    ]


async def _run(client: AsyncClient, namespace: str, settings: BenchSettings) -> tuple[float, float]:
    """(messages a second, p99 in ms) of one half of a pair."""
    (producer,) = await new_producers(client, 1, namespace=namespace)
    async with producer:
        load = await send_lists(
            [producer],
            message_bytes=settings.message_bytes,
            batch_bytes=settings.large.batch_bytes,
            list_batches=LIST_BATCHES,
            window=settings.large.window,
            seconds=settings.pair_seconds,
        )
        latencies = await send_paced(
            producer,
            message_bytes=settings.message_bytes,
            per_second=settings.latency_rate,
            seconds=settings.pair_seconds,
        )
    return load.bytes_per_s / settings.message_bytes, latencies.p99_ms
