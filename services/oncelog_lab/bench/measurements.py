"""What measures each command of `oncelog bench`, but for those of effects. Loads the SDK: `commands` imports it when a
benchmark runs."""

from collections.abc import Awaitable, Callable, Mapping

from oncelog_lab.bench.consume import consume_rows
from oncelog_lab.bench.dedup_overhead import dedup_rows
from oncelog_lab.bench.figures import BenchRow
from oncelog_lab.bench.latency import latency_rows
from oncelog_lab.bench.limits import limits_rows
from oncelog_lab.bench.producers import producers_rows
from oncelog_lab.bench.publish import publish_rows
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.scale import scale_rows
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.bench.small import small_rows
from oncelog_lab.bench.subscribe import ack_rows, end_to_end_rows, subscribe_rows
from oncelog_lab.bench.tail import tail_rows
from oncelog_lab.bench.takeover import takeover_rows
from oncelog_lab.bench.topics import topics_rows

#: {command: its rows}
MEASUREMENTS: Mapping[str, Callable[[BenchStack, BenchSettings, Tell], Awaitable[list[BenchRow]]]] = {
    "limits": limits_rows,
    "publish": publish_rows,
    "latency": latency_rows,
    "small": small_rows,
    "tail": tail_rows,
    "scale": scale_rows,
    "dedup-overhead": dedup_rows,
    "consume": consume_rows,
    "subscribe": subscribe_rows,
    "ack": ack_rows,
    "end-to-end": end_to_end_rows,
    "takeover": takeover_rows,
    "topics": topics_rows,
    "producers": producers_rows,
}
