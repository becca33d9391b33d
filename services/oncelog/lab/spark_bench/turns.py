"""Contestants in turns, and what a row says of them. Pure but for the contestants themselves.

A machine slows down and speeds up while a bench runs. So every contestant runs once in each turn, a figure is the
median of its turns, and what is compared is taken from the same turns. The first turn warms up and does not count: the
JVM compiles, workers are started, pages come into the cache. Each figure is told at once: a bench that is ended has
shown something.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from oncelog.lab.bench.figures import Row, median, rounded
from oncelog.lab.bench.table import shown

Tell = Callable[[str], None]


class Sample(NamedTuple):
    """One run. figure: rows a second, or seconds. busy_cores: of the whole machine, meanwhile."""

    figure: float
    busy_cores: float


Contestants = Mapping[str, Callable[[], Awaitable[Sample]]]


async def in_turns(
    contestants: Contestants, *, runs: int, tell: Tell, what: str, warm_up: bool = True
) -> dict[str, list[Sample]]:
    """{name: its samples, one of each turn that counts}."""
    found: dict[str, list[Sample]] = {name: [] for name in contestants}
    for turn in range(0 if warm_up else 1, runs + 1):
        tell(f"{what}: {'warming up' if turn == 0 else f'turn {turn} of {runs}'}, {len(contestants)} runs")
        for name, run in contestants.items():
            sample = await run()
            if turn:
                found[name].append(sample)
                tell(f"  {name}: {shown(sample.figure)}")
    return found


def rate_row(
    what: str, ours: Sequence[Sample], theirs: Sequence[Sample] | None = None, *, of: str = "", row_bytes: int = 0
) -> Row:
    """Rows a second, and what they are of `theirs`. of: who they are, for people. row_bytes: 0: no MB/s are told."""
    figure = median([each.figure for each in ours])
    notes = [f"{figure * row_bytes / 1e6:.0f} MB/s"] if row_bytes else []
    return _row(what, "rows/s", ours, theirs, of, notes)


def seconds_row(what: str, ours: Sequence[Sample], theirs: Sequence[Sample] | None = None, *, of: str = "") -> Row:
    """Seconds, and what they are of `theirs`."""
    return _row(what, "s", ours, theirs, of, [])


def _row(
    what: str, unit: str, ours: Sequence[Sample], theirs: Sequence[Sample] | None, of: str, notes: list[str]
) -> Row:
    figures = [each.figure for each in ours]
    detail: dict[str, object] = {
        "runs": rounded(figures),
        "busy_cores": rounded([each.busy_cores for each in ours]),
    }
    if theirs is None:
        return Row(what, median(figures), unit, None, None, detail, "; ".join(notes))
    ratios = ratios_of(ours, theirs)
    detail |= {"limit_runs": rounded([each.figure for each in theirs]), "ratios": rounded(ratios)}
    notes.append(f"ratio to {of}: {min(ratios):.2f} to {max(ratios):.2f}")
    return Row(what, median(figures), unit, median([each.figure for each in theirs]), None, detail, "; ".join(notes))


def ratios_of(ours: Sequence[Sample], theirs: Sequence[Sample]) -> list[float]:
    """Of each turn by itself: how noisy the ratio is."""
    return [one.figure / other.figure for one, other in zip(ours, theirs, strict=True)]


def busy_s() -> float:
    """Seconds that this machine's cores were busy since it was started; Linux counts them in hundredths."""
    counts = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:8]]
    idle_and_waiting = sum(counts[3:5])
    return (sum(counts) - idle_and_waiting) / 100
