"""Loads in alternation, and the rows of their results.

The speed of a machine changes while a benchmark runs. So every load runs once in each round, a figure is the median of
its rounds, and a ratio compares figures of the same rounds. The first round is a warm-up and does not count: the JVM
compiles, workers start, pages are cached. Each figure is printed at once.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from oncelog_lab.bench.figures import BenchRow, median, rounded
from oncelog_lab.bench.running import Tell
from oncelog_lab.bench.table import shown


class SparkSample(NamedTuple):
    """One run. figure: rows per second, or seconds. busy_cores: of the whole machine during the run."""

    figure: float
    busy_cores: float


SparkLoads = Mapping[str, Callable[[], Awaitable[SparkSample]]]


async def alternate(
    loads: SparkLoads, *, runs: int, tell: Tell, what: str, warm_up: bool = True
) -> dict[str, list[SparkSample]]:
    """{name: one sample per round, without the warm-up}."""
    found: dict[str, list[SparkSample]] = {name: [] for name in loads}
    for number in range(0 if warm_up else 1, runs + 1):
        tell(f"{what}: {'warming up' if number == 0 else f'round {number} of {runs}'}, {len(loads)} runs")
        for name, run in loads.items():
            sample = await run()
            if number:
                found[name].append(sample)
                tell(f"  {name}: {shown(sample.figure)}")
    return found


def rate_row(
    what: str,
    ours: Sequence[SparkSample],
    theirs: Sequence[SparkSample] | None = None,
    *,
    of: str = "",
    row_bytes: int = 0,
) -> BenchRow:
    """Rows per second, and the ratio to `theirs`. of: name of `theirs`. row_bytes: 0: without MB/s."""
    figure = median([each.figure for each in ours])
    notes = [f"{figure * row_bytes / 1e6:.0f} MB/s"] if row_bytes else []
    return _row(what, "rows/s", ours, theirs, of, notes)


def seconds_row(
    what: str, ours: Sequence[SparkSample], theirs: Sequence[SparkSample] | None = None, *, of: str = ""
) -> BenchRow:
    """Seconds, and the ratio to `theirs`."""
    return _row(what, "s", ours, theirs, of, [])


def _row(
    what: str, unit: str, ours: Sequence[SparkSample], theirs: Sequence[SparkSample] | None, of: str, notes: list[str]
) -> BenchRow:
    figures = [each.figure for each in ours]
    detail: dict[str, object] = {
        "runs": rounded(figures),
        "busy_cores": rounded([each.busy_cores for each in ours]),
    }
    if theirs is None:
        return BenchRow(what, median(figures), unit, None, None, detail, "; ".join(notes))
    ratios = ratios_of(ours, theirs)
    detail |= {"limit_runs": rounded([each.figure for each in theirs]), "ratios": rounded(ratios)}
    notes.append(f"ratio to {of}: {min(ratios):.2f} to {max(ratios):.2f}")
    return BenchRow(
        what, median(figures), unit, median([each.figure for each in theirs]), None, detail, "; ".join(notes)
    )


def ratios_of(ours: Sequence[SparkSample], theirs: Sequence[SparkSample]) -> list[float]:
    """The ratio of each round, which shows its noise."""
    return [one.figure / other.figure for one, other in zip(ours, theirs, strict=True)]


def busy_s() -> float:
    """Seconds that the cores of this machine were busy since its start. Linux counts in hundredths."""
    counts = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:8]]
    idle_and_waiting = sum(counts[3:5])
    return (sum(counts) - idle_and_waiting) / 100
