"""What measures the commands of `oncelog bench` that need `oncelog_effects`."""

from collections.abc import Awaitable, Callable, Mapping

from oncelog_lab.bench.effects.mirror import mirror_rows
from oncelog_lab.bench.effects.relay import relay_rows
from oncelog_lab.bench.effects.sql import effects_rows
from oncelog_lab.bench.figures import BenchRow
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import BenchSettings

#: {command: its rows}
EFFECTS_MEASUREMENTS: Mapping[str, Callable[[BenchStack, BenchSettings, Tell], Awaitable[list[BenchRow]]]] = {
    "effects": effects_rows,
    "relay": relay_rows,
    "mirror": mirror_rows,
}
