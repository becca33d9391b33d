"""The report of a chaos run: a table for people, one JSON object for programs.

The figure of a fault is the longest pause of a steady publisher between two acknowledgements that overlaps the time
from the fault until the cluster was healthy again. Of two faults at once, both get the same figure. Publishers that
reconnect have to open their topic meanwhile and have a figure of their own. Publishers over HTTP count for Redis only;
their pauses at other faults are in the timeline.

The longest of many pauses is long even without a fault. To compare with the quiet time before the first fault, the
report gives the share of pauses above the p99.9 of that time.
"""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from oncelog_lab.acknowledgements import STEADY, AckPause, longest_pause_ms
from oncelog_lab.chaos.runner import FaultHit, FaultResults
from oncelog_lab.chaos.schedule import FaultStep
from oncelog_lab.faults.kinds import DESTRUCTIVE, FaultKind
from oncelog_lab.faults.replacement import WAITED_S
from oncelog_lab.verdict import FAULTS

_STEADY_CLIENTS = (STEADY,)
_OPENING_CLIENTS = ("named-", "automatic-")
_HTTP_CLIENTS = ("http-",)
_COUNTS = ("acked", "stored", "delivered", "redelivered", *FAULTS)
#: Shorter pauses are the rate of the workload itself.
_SHOWN_MS_MIN = 250.0


@dataclass(frozen=True, slots=True)
class KindFigures:
    """The figures of one kind of fault. gaps_ms: ascending, empty without steady publishers.

    opening_gap_ms_max: of publishers that reconnect. above_quiet: the share of all pauses of steady publishers around
    faults of this kind that are longer than the p99.9 before the first fault. Both None if unknown.
    """

    kind: FaultKind
    planned: int
    gaps_ms: tuple[float, ...]
    count: int
    opening_gap_ms_max: float | None
    above_quiet: float | None = None
    #: of kinds that destroy copies: seconds until all copies were there again, ascending
    repair_s: tuple[float, ...] = ()
    #: of the same kinds: seconds until the node could be replaced, before the fault; ascending
    waited_s: tuple[float, ...] = ()

    def to_json(self) -> dict[str, object]:
        gaps = self.gaps_ms
        return {
            "kind": str(self.kind),
            "count": self.count,
            "planned": self.planned,
            "client_gap_ms_p50": round(statistics.median(gaps), 1) if gaps else None,
            "client_gap_ms_max": round(gaps[-1], 1) if gaps else None,
            "opening_gap_ms_max": self.opening_gap_ms_max,
            "above_quiet": self.above_quiet,
            "repair_s": list(self.repair_s),
            "waited_s": list(self.waited_s),
        }


def gap_ms(hit: FaultHit, pauses: Sequence[AckPause]) -> float | None:
    """The figure of one fault. None without a pause of these clients."""
    return _longest_ms(
        hit, pauses, _HTTP_CLIENTS if hit.injected.fault.kind is FaultKind.REDIS_KILL else _STEADY_CLIENTS
    )


def _longest_ms(hit: FaultHit, pauses: Sequence[AckPause], clients: tuple[str, ...]) -> float | None:
    return longest_pause_ms(pauses, hit.injected.at_s, _end_s(hit), clients)


def _end_s(hit: FaultHit) -> float:
    return float("inf") if hit.healthy_at_s is None else hit.healthy_at_s


def above_quiet(hits: Sequence[FaultHit], pauses: Sequence[AckPause], quiet_gap_ms_p999: float | None) -> float | None:
    """See `KindFigures`. A pause around two faults counts once. Publishers over HTTP have no quiet time."""
    around = {
        id(pause): pause.ms
        for hit in hits
        if hit.injected.fault.kind is not FaultKind.REDIS_KILL
        for pause in _pauses_around(hit, pauses)
        if pause.client.startswith(_STEADY_CLIENTS)
    }
    if quiet_gap_ms_p999 is None or not around:
        return None
    return round(sum(ms > quiet_gap_ms_p999 for ms in around.values()) / len(around), 4)


def _pauses_around(hit: FaultHit, pauses: Sequence[AckPause]) -> list[AckPause]:
    return [pause for pause in pauses if pause.overlaps(hit.injected.at_s, _end_s(hit))]


def pauses_text(hit: FaultHit, pauses: Sequence[AckPause]) -> str:
    """The longest pause of each client around a fault, as text."""
    longest: dict[str, float] = {}
    for pause in _pauses_around(hit, pauses):
        longest[pause.client] = max(pause.ms, longest.get(pause.client, 0.0))
    shown = [f"{client} {ms:.0f} ms" for client, ms in sorted(longest.items()) if ms >= _SHOWN_MS_MIN]
    return ", ".join(shown) or f"none above {_SHOWN_MS_MIN:.0f} ms"


@dataclass(frozen=True, slots=True)
class ChaosReport:
    """verdict: as the workload printed it. quiet_gap_ms_p999: of steady publishers, before the first fault."""

    seed: int
    verdict: dict[str, Any]
    figures: tuple[KindFigures, ...]
    misses: tuple[str, ...]
    unhealthy: str | None
    quiet_gap_ms_p999: float | None = None

    @property
    def perfect(self) -> bool:
        """Whether nothing was wrong, and every planned fault was injected and survived."""
        wrong = any(self.verdict[name] for name in FAULTS)
        return not wrong and not self.misses and self.unhealthy is None and self.verdict["acked"] > 0

    def to_json(self) -> dict[str, object]:
        return {
            "seed": self.seed,
            "ok": self.perfect,
            **{name: self.verdict[name] for name in _COUNTS},
            "quiet_gap_ms_p999": self.quiet_gap_ms_p999,
            "faults": [figures.to_json() for figures in self.figures],
            "missed": list(self.misses),
            "unhealthy": self.unhealthy,
            "violations": list(self.verdict["violations"]),
        }


def make_report(
    seed: int,
    steps: Sequence[FaultStep],
    results: FaultResults,
    pauses: Sequence[AckPause],
    verdict: dict[str, Any],
    quiet_gap_ms_p999: float | None = None,
) -> ChaosReport:
    figures = []
    planned = [fault.kind for step in steps for fault in step.faults]
    for kind in (kind for kind in FaultKind if kind in planned):
        hits = [hit for hit in results.hits if hit.injected.fault.kind is kind]
        gaps = sorted(gap for hit in hits if (gap := gap_ms(hit, pauses)) is not None)
        opening = [longest for hit in hits if (longest := _longest_ms(hit, pauses, _OPENING_CLIENTS)) is not None]
        opening_max = round(max(opening), 1) if opening else None
        share = above_quiet(hits, pauses, quiet_gap_ms_p999)
        repair_s, waited_s = _repair_times(hits) if kind in DESTRUCTIVE else ((), ())
        figures.append(
            KindFigures(kind, planned.count(kind), tuple(gaps), len(hits), opening_max, share, repair_s, waited_s)
        )
    misses = tuple(f"step {miss.step}, {miss.fault.kind}: {miss.reason}" for miss in results.misses)
    return ChaosReport(seed, verdict, tuple(figures), misses, results.unhealthy, quiet_gap_ms_p999)


def _repair_times(hits: Sequence[FaultHit]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    repair_s = sorted(
        round(hit.recovered_at_s - hit.injected.at_s, 1) for hit in hits if hit.recovered_at_s is not None
    )
    waited_s = sorted(float(hit.injected.detail[WAITED_S]) for hit in hits)
    return tuple(repair_s), tuple(waited_s)


def show_schedule(steps: Sequence[FaultStep], console: Console) -> None:
    """Print the schedule as a table."""
    table = Table(title="Planned faults", title_justify="left", box=None, pad_edge=False)
    for column in ("step", "after", "faults"):
        table.add_column(column)
    for step in steps:
        faults = " and ".join(
            f"{fault.kind} (pick {fault.pick})" + (f" for {fault.hold_s:g} s" if fault.hold_s else "")
            for fault in step.faults
        )
        table.add_row(str(step.number), f"{step.pause_s:g} s", faults)
    console.print(table)


def schedule_json(seed: int, steps: Sequence[FaultStep]) -> dict[str, object]:
    return {
        "seed": seed,
        "nominal_seconds": round(sum(step.nominal_s for step in steps), 1),
        "steps": [
            {"step": step.number, "pause_s": step.pause_s, "faults": [asdict(fault) for fault in step.faults]}
            for step in steps
        ],
    }


def show_report(report: ChaosReport, console: Console) -> None:
    """Print the figures of each kind, and the verdict."""
    table = Table(title="Faults", title_justify="left", box=None, pad_edge=False)
    table.add_column("kind", no_wrap=True)
    for column in (
        "injected",
        "planned",
        "client gap p50, ms",
        "max, ms",
        "above quiet p99.9",
        "with opening, max, ms",
    ):
        table.add_column(column, justify="right")
    for figures in report.figures:
        shown = figures.to_json()
        share = "" if figures.above_quiet is None else f"{figures.above_quiet:.1%}"
        p50, worst, opening = (
            "" if shown[name] is None else f"{shown[name]:,.0f}"
            for name in ("client_gap_ms_p50", "client_gap_ms_max", "opening_gap_ms_max")
        )
        table.add_row(str(figures.kind), str(figures.count), str(figures.planned), p50, worst, share, opening)
    console.print(table)
    for figures in report.figures:
        if figures.repair_s:
            shown_s = ", ".join(f"{seconds:g}" for seconds in figures.repair_s)
            waited = f"before the fault the node could be replaced after at most {figures.waited_s[-1]:g} s"
            console.print(f"{figures.kind}: all copies were there again after {shown_s} s; {waited}", highlight=False)
    if report.quiet_gap_ms_p999 is not None:
        console.print(f"without a fault: client gap p99.9 {report.quiet_gap_ms_p999:,.0f} ms", highlight=False)
    counts = ", ".join(f"{report.verdict[name]:,} {name.replace('_', ' ')}" for name in _COUNTS)
    problems = [*report.verdict["violations"], *report.misses, *filter(None, (report.unhealthy,))]
    promises = "nothing lost, duplicated or reordered, no acknowledged message came again"
    passed = f"passed: {promises}, and every planned fault was injected"
    lines = [f"seed {report.seed}: {counts}", *(f"  {each}" for each in problems)]
    for line in (*lines, passed if report.perfect else "FAILED"):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
