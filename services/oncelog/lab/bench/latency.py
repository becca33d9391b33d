"""Latency: what one message waits for its acknowledgement at 200 messages a second, one client, nothing else running.

From send_nowait to the future's callback, against the bare path's write to answer, in turns. p50 and p99 are those of
each run; the rows are the medians over the runs.
"""

from oncelog.lab.bench.cluster import Cluster
from oncelog.lab.bench.figures import Row, Target, median, rounded
from oncelog.lab.bench.limits import LATENCY_BYTES, PathClient
from oncelog.lab.bench.loads import send_paced
from oncelog.lab.bench.publish import Tell, new_producers
from oncelog.lab.bench.settings import BenchSettings

#: Before the first run, so that connections, caches and the allocator are warm on both sides.
_WARM_UP_S = 0.5


async def latency_rows(cluster: Cluster, path: PathClient, settings: BenchSettings, tell: Tell) -> list[Row]:
    """Two rows, p50 and p99."""
    rate, seconds = settings.latency_rate, settings.latency_seconds
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
            Row(
                f"latency at {rate:g} msg/s, {name}",
                median(own),
                "ms",
                median(bare),
                Target(bound, at_most=True, of_ratio=True, of="limits"),
                {"runs_ms": rounded(own, 3), "limits_runs_ms": rounded(bare, 3)},
                f"limits {median(bare):.2f} ms",
            )
        )
    return rows
