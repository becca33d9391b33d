"""Latency: from send_nowait to the callback of the future, for one client that sends 200 messages per second.

The runs alternate with the limits path, from the write of a frame to its answer. A row is the median over the runs.
"""

from oncelog_lab.bench.figures import BenchRow, FigureTarget, median, rounded
from oncelog_lab.bench.limits import LATENCY_BYTES
from oncelog_lab.bench.loads import send_paced
from oncelog_lab.bench.publish import new_producers
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import BenchSettings

#: Before the first run, to warm up connections, caches and the allocator on both sides.
_WARM_UP_S = 0.5


async def latency_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """Two rows, p50 and p99."""
    cluster, path = await stack.cluster(), await stack.path()
    rate, seconds = settings.rate, settings.latency_seconds
    tell(f"latency at {rate:g} msg/s")
    ours, limits = [], []
    async with await cluster.connect() as client:
        (producer,) = await new_producers(client, 1)
        await send_paced(producer, message_bytes=settings.message_bytes, per_second=rate, seconds=_WARM_UP_S)
        await path.latencies(frame_bytes=LATENCY_BYTES, per_second=rate, seconds=_WARM_UP_S)
        for _ in range(settings.runs):
            limits.append(await path.latencies(frame_bytes=LATENCY_BYTES, per_second=rate, seconds=seconds))
            ours.append(
                await send_paced(producer, message_bytes=settings.message_bytes, per_second=rate, seconds=seconds)
            )
        await producer.close()
    rows = []
    for name, share, bound in (("p50", "p50_ms", 1.5), ("p99", "p99_ms", 2.0)):
        own, bare = [getattr(run, share) for run in ours], [getattr(run, share) for run in limits]
        rows.append(
            BenchRow(
                f"latency at {rate:g} msg/s, {name}",
                median(own),
                "ms",
                median(bare),
                FigureTarget(bound, at_most=True, of_ratio=True, of="limits"),
                {"runs_ms": rounded(own, 3), "limits_runs_ms": rounded(bare, 3)},
                f"limits {median(bare):.2f} ms",
            )
        )
    return rows
