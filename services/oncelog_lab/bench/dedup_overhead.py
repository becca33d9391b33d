"""Dedup overhead: the cost of checking every batch, in pairs of runs with and without deduplication.

throughput   messages per second of send_many: the median over all pairs of the rate with deduplication divided by the
             rate without
p99          of single messages at 200 per second: the median with deduplication must not exceed the highest without
"""

from oncelog.client.client import AsyncClient
from oncelog_lab.bench.figures import BenchRow, FigureTarget, median, rounded
from oncelog_lab.bench.loads import send_lists, send_paced
from oncelog_lab.bench.publish import LIST_BATCHES, new_producers
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import BenchSettings

ON, OFF = "public/bench-dedup-on", "public/bench-dedup-off"
_REST_DEADLINE_S = 10.0


async def dedup_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """Two rows: the ratio of the throughputs, and p99."""
    tell(f"deduplication on and off, {settings.pairs} pairs")
    cluster = await stack.cluster()
    async with cluster.rest() as rest:
        for namespace, enabled in ((ON, True), (OFF, False)):
            path = f"/admin/v2/namespaces/{namespace}"
            await rest.put_in_place("PUT", path, deadline_s=_REST_DEADLINE_S)
            await rest.put_in_place("POST", f"{path}/deduplication", enabled, deadline_s=_REST_DEADLINE_S)
    throughputs: dict[str, list[float]] = {ON: [], OFF: []}
    p99s: dict[str, list[float]] = {ON: [], OFF: []}
    async with await cluster.connect() as client:
        for pair in range(settings.pairs):
            # The order changes from pair to pair, because the speed of a machine changes over time.
            for namespace in (ON, OFF) if pair % 2 else (OFF, ON):
                throughput, p99_ms = await _run(client, namespace, settings)
                throughputs[namespace].append(throughput)
                p99s[namespace].append(p99_ms)
    ratios = [on / off for on, off in zip(throughputs[ON], throughputs[OFF], strict=True)]
    highest_off = max(p99s[OFF])
    return [
        BenchRow(
            "dedup on / off, throughput",
            median(ratios),
            "of off",
            target=FigureTarget(0.98),
            detail={
                "ratios": rounded(ratios, 3),
                "on": rounded(throughputs[ON], 0),
                "off": rounded(throughputs[OFF], 0),
            },
            note=f"on {median(throughputs[ON]):,.0f}, off {median(throughputs[OFF]):,.0f} msg/s",
        ),
        BenchRow(
            "dedup on, p99 within the spread of off",
            median(p99s[ON]),
            "ms",
            target=FigureTarget(round(highest_off, 3), at_most=True),
            detail={"on_ms": rounded(p99s[ON], 3), "off_ms": rounded(p99s[OFF], 3)},
            note=f"off {min(p99s[OFF]):.2f} to {highest_off:.2f} ms, median {median(p99s[OFF]):.2f}",
        ),
    ]


async def _run(client: AsyncClient, namespace: str, settings: BenchSettings) -> tuple[float, float]:
    """(messages per second, p99 in ms) of one half of a pair."""
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
            per_second=settings.rate,
            seconds=settings.pair_seconds,
        )
    return load.bytes_per_s / settings.message_bytes, latencies.p99_ms
