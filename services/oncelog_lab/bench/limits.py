"""The limits run: what this machine can do at most, on the limits path (`baseline`)."""

from oncelog.rpc.options import FRAME_BYTES_TARGET
from oncelog_lab.bench.figures import BenchRow, median, rounded
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import BenchSettings

LATENCY_BYTES = 100


async def limits_rows(stack: BenchStack, settings: BenchSettings, _tell: Tell) -> list[BenchRow]:
    """The throughput of large batches, and the latency of single messages at 200 per second.

    A third row has the same bytes in flight in frames of the size that the product fills its frames up to. The
    difference to the first row is what merging frames can gain; no ratio includes it.
    """
    client = await stack.path()
    batch_bytes, window = settings.large.batch_bytes, settings.large.window
    message_bytes, seconds = settings.message_bytes, settings.seconds
    throughputs, coalesced, latencies = [], [], []
    fewer = max(1, batch_bytes * window // FRAME_BYTES_TARGET)
    for _ in range(settings.runs):
        throughputs.append(await client.publish(frame_bytes=batch_bytes, window=window, seconds=seconds))
        coalesced.append(await client.publish(frame_bytes=FRAME_BYTES_TARGET, window=fewer, seconds=seconds))
        latencies.append(await client.latencies(frame_bytes=LATENCY_BYTES, per_second=200, seconds=seconds))
    bytes_per_s = [run.bytes_per_s for run in throughputs]
    shape = f"{batch_bytes // 1024} KiB frames, {window} in flight"
    detail: dict[str, object] = {"mb_per_s": rounded([run / 1e6 for run in bytes_per_s])}
    return [
        BenchRow(f"limits: {shape}", median(bytes_per_s) / 1e6, "MB/s", detail=detail),
        BenchRow(f"limits: as messages of {message_bytes} B", median(bytes_per_s) / message_bytes, "msg/s"),
        BenchRow(
            f"limits: {FRAME_BYTES_TARGET // 1024} KiB frames, {fewer} in flight",
            median([run.bytes_per_s for run in coalesced]) / 1e6,
            "MB/s",
        ),
        BenchRow("limits: latency at 200 msg/s, p50", median([run.p50_ms for run in latencies]), "ms"),
        BenchRow("limits: latency at 200 msg/s, p99", median([run.p99_ms for run in latencies]), "ms"),
    ]
