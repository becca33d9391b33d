"""Runs a load through a door and its control by turns, in changing order, and adds up what each process used."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from oncelog_lab.bench.cpu import CpuMeter
from oncelog_lab.bench.figures import median, rounded
from oncelog_lab.cluster import LabCluster

#: Runs once, and lets the meter measure what comes behind the opening: a new topic costs much. Returns (messages,
#: seconds).
Load = Callable[[CpuMeter], Awaitable[tuple[int, float]]]


class Measured(NamedTuple):
    """rates: messages a second of each run. cpu_us: {role: microseconds of CPU of a message, in all runs together}."""

    rates: Sequence[float]
    cpu_us: dict[str, float]

    @property
    def rate(self) -> float:
        return median(self.rates)

    def detail(self) -> dict[str, object]:
        return {"runs": rounded(self.rates, 0), "cpu_us": self.cpu_us}

    def shown(self) -> str:
        return ", ".join(f"{role} {us:.3g}" for role, us in self.cpu_us.items() if us >= 0.05)


async def alternated(cluster: LabCluster, runs: int, loads: Sequence[Load]) -> list[Measured]:
    """Of each load. Before them each runs once without being measured: connections, caches and the allocator."""
    meters = [CpuMeter(cluster) for _ in loads]
    rates: list[list[float]] = [[] for _ in loads]
    counts = [0 for _ in loads]
    for load in loads:
        await load(CpuMeter(cluster))
    for run in range(runs):
        order = range(len(loads)) if run % 2 else reversed(range(len(loads)))
        for number in order:
            count, seconds = await loads[number](meters[number])
            rates[number].append(count / seconds)
            counts[number] += count
    return [Measured(rate, meter.us_each(count)) for rate, meter, count in zip(rates, meters, counts, strict=True)]
