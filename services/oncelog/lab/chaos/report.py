"""The outcome: the pause that clients saw at each fault, a table for people, one JSON object for programs.

The figure of a fault is the longest pause of a publisher between two acknowledgements that overlaps the time from the
strike to the healing; of two faults at once each gets the same. The gap is that of publishers which stay open; those
that come and go have to open their topic meanwhile, and have a figure of their own. Publishers over HTTP count for
Redis alone: what they wait for at other faults is shown in the timeline.

The longest of more pauses is longer, with a fault or without. What can be held against a quiet time is the share of
pauses above its p99.9, one in a thousand there; a fault that heals late has more pauses to share its long ones with.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from oncelog.lab.chaos.report_lines import STEADY
from oncelog.lab.chaos.runner import Faults, Hit
from oncelog.lab.chaos.schedule import Kind, Step
from oncelog.lab.chaos.workload_link import Pause

_STEADY_CLIENTS = (STEADY,)
_OPENING_CLIENTS = ("named-", "automatic-")
_HTTP_CLIENTS = ("http-",)
_COUNTS = ("acked", "stored", "lost", "duplicated", "out_of_order", "ghosts", "holes", "disagreements")
#: Shorter ones are the pace of the workload itself.
_TOLD_MS_MIN = 250.0


@dataclass(frozen=True, slots=True)
class KindFigures:
    """Of one kind of fault. gaps_ms: ascending; empty where publishing was not observed.

    opening_gap_ms_max: of those that opened their topic anew meanwhile. above_quiet: the share of all pauses of those
    that stayed open, around faults of this kind, that were longer than p99.9 of those before any; None where not known.
    """

    kind: Kind
    planned: int
    gaps_ms: tuple[float, ...]
    count: int
    opening_gap_ms_max: float | None
    above_quiet: float | None = None

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
        }


def gap_ms(hit: Hit, pauses: Sequence[Pause]) -> float | None:
    """The longest pause of those who publish and stay open, around one fault; None where nobody's is known."""
    return _longest_ms(hit, pauses, _HTTP_CLIENTS if hit.struck.fault.kind is Kind.REDIS_KILL else _STEADY_CLIENTS)


def _longest_ms(hit: Hit, pauses: Sequence[Pause], clients: tuple[str, ...]) -> float | None:
    return max((pause.ms for pause in pauses_around(hit, pauses) if pause.client.startswith(clients)), default=None)


def above_quiet(hits: Sequence[Hit], pauses: Sequence[Pause], quiet_gap_ms_p999: float | None) -> float | None:
    """See `KindFigures`. A pause around two of the faults counts once; those of publishers over HTTP have no quiet."""
    around = {
        id(pause): pause.ms
        for hit in hits
        if hit.struck.fault.kind is not Kind.REDIS_KILL
        for pause in pauses_around(hit, pauses)
        if pause.client.startswith(_STEADY_CLIENTS)
    }
    if quiet_gap_ms_p999 is None or not around:
        return None
    return round(sum(ms > quiet_gap_ms_p999 for ms in around.values()) / len(around), 4)


def pauses_around(hit: Hit, pauses: Sequence[Pause]) -> list[Pause]:
    """Those that overlap the time from the strike to the healing."""
    to_s = float("inf") if hit.healed_at_s is None else hit.healed_at_s
    return [pause for pause in pauses if pause.overlaps(hit.struck.at_s, to_s)]


def told_pauses(hit: Hit, pauses: Sequence[Pause]) -> str:
    """{client: its longest pause}, of those worth telling, as text."""
    longest: dict[str, float] = {}
    for pause in pauses_around(hit, pauses):
        longest[pause.client] = max(pause.ms, longest.get(pause.client, 0.0))
    told = [f"{client} {ms:.0f} ms" for client, ms in sorted(longest.items()) if ms >= _TOLD_MS_MIN]
    return ", ".join(told) or f"none above {_TOLD_MS_MIN:.0f} ms"


@dataclass(frozen=True, slots=True)
class Report:
    """verdict: as the workload gave it. quiet_gap_ms_p999: of the pauses of those who stay open, before any fault."""

    seed: int
    verdict: dict[str, Any]
    figures: tuple[KindFigures, ...]
    misses: tuple[str, ...]
    unhealed: str | None
    quiet_gap_ms_p999: float | None = None

    @property
    def perfect(self) -> bool:
        """Nothing wrong, and every planned fault struck and healed."""
        wrong = any(self.verdict[name] for name in _COUNTS[2:])
        return not wrong and not self.misses and self.unhealed is None and self.verdict["acked"] > 0

    def to_json(self) -> dict[str, object]:
        return {
            "seed": self.seed,
            "ok": self.perfect,
            **{name: self.verdict[name] for name in _COUNTS},
            "quiet_gap_ms_p999": self.quiet_gap_ms_p999,
            "faults": [figures.to_json() for figures in self.figures],
            "missed": list(self.misses),
            "unhealed": self.unhealed,
            "stories": list(self.verdict["stories"]),
        }


def make_report(
    seed: int,
    steps: Sequence[Step],
    faults: Faults,
    pauses: Sequence[Pause],
    verdict: dict[str, Any],
    quiet_gap_ms_p999: float | None = None,
) -> Report:
    """Put together what the runner did and what the workload found."""
    figures = []
    planned = [fault.kind for step in steps for fault in step.faults]
    for kind in (kind for kind in Kind if kind in planned):
        hits = [hit for hit in faults.hits if hit.struck.fault.kind is kind]
        gaps = sorted(gap for hit in hits if (gap := gap_ms(hit, pauses)) is not None)
        opening = [longest for hit in hits if (longest := _longest_ms(hit, pauses, _OPENING_CLIENTS)) is not None]
        opening_max = round(max(opening), 1) if opening else None
        share = above_quiet(hits, pauses, quiet_gap_ms_p999)
        figures.append(KindFigures(kind, planned.count(kind), tuple(gaps), len(hits), opening_max, share))
    misses = tuple(f"step {miss.step}, {miss.fault.kind}: {miss.reason}" for miss in faults.misses)
    return Report(seed, verdict, tuple(figures), misses, faults.unhealed, quiet_gap_ms_p999)


def show_schedule(steps: Sequence[Step], console: Console) -> None:
    """The plan as a table."""
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


def schedule_json(seed: int, steps: Sequence[Step]) -> dict[str, object]:
    """The plan for programs."""
    return {
        "seed": seed,
        "nominal_seconds": round(sum(step.nominal_s for step in steps), 1),
        "steps": [
            {
                "step": step.number,
                "pause_s": step.pause_s,
                "faults": [
                    {"kind": str(fault.kind), "pick": fault.pick, "hold_s": fault.hold_s} for fault in step.faults
                ],
            }
            for step in steps
        ],
    }


def show(report: Report, console: Console) -> None:
    """The table for each kind of fault, and the verdict."""
    table = Table(title="Faults", title_justify="left", box=None, pad_edge=False)
    table.add_column("kind", no_wrap=True)
    for column in ("struck", "planned", "client gap p50, ms", "max, ms", "above quiet p99.9", "with opening, max, ms"):
        table.add_column(column, justify="right")
    for figures in report.figures:
        shown = figures.to_json()
        p50, worst = shown["client_gap_ms_p50"], shown["client_gap_ms_max"]
        share = "" if figures.above_quiet is None else f"{figures.above_quiet:.1%}"
        gaps = (_number(p50), _number(worst), share, _number(figures.opening_gap_ms_max))
        table.add_row(str(figures.kind), str(figures.count), str(figures.planned), *gaps)
    console.print(table)
    if report.quiet_gap_ms_p999 is not None:
        console.print(f"without a fault: client gap p99.9 {report.quiet_gap_ms_p999:,.0f} ms", highlight=False)
    counts = ", ".join(f"{report.verdict[name]:,} {name.replace('_', ' ')}" for name in _COUNTS)
    console.print(f"seed {report.seed}: {counts}", markup=False, highlight=False, soft_wrap=True)
    for story in (*report.verdict["stories"], *report.misses, *filter(None, (report.unhealed,))):
        console.print(f"  {story}", markup=False, highlight=False, soft_wrap=True)
    verdict = (
        "passed: nothing lost, doubled or reordered, and every planned fault struck" if report.perfect else "FAILED"
    )
    console.print(verdict, markup=False, highlight=False)


def _number(value: object) -> str:
    return "" if value is None else f"{value:,.0f}"
