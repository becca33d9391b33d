"""The outcome of the demo: a table for people, one JSON object for programs."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from oncelog.lab.demo.comparison import Verdict


@dataclass(frozen=True, slots=True)
class Takeover:
    """ms: from the ownership gained to serving, by the owner's own account.

    client_gap_ms: the longest time that the producer was without an acknowledgement around it.
    """

    ms: float
    replayed_entries: int
    client_gap_ms: float


@dataclass(frozen=True, slots=True)
class Report:
    verdict: Verdict
    duplicates_refused: int
    takeovers: Sequence[Takeover]

    def to_json(self) -> dict[str, object]:
        verdict = self.verdict
        return {
            "lines": verdict.lines,
            "stored": verdict.stored,
            "lost": verdict.lost,
            "duplicated": verdict.duplicated,
            "out_of_order": verdict.out_of_order,
            "duplicates_refused": self.duplicates_refused,
            "takeovers": [
                {
                    "ms": round(takeover.ms, 1),
                    "replayed_entries": takeover.replayed_entries,
                    "client_gap_ms": round(takeover.client_gap_ms, 1),
                }
                for takeover in self.takeovers
            ],
        }


def show(report: Report, console: Console) -> None:
    """Print the table."""
    verdict = report.verdict
    counts = Table(title="File against topic", title_justify="left", show_header=False)
    counts.add_column()
    counts.add_column(justify="right")
    for name, count in (
        ("lines", verdict.lines),
        ("stored", verdict.stored),
        ("lost", verdict.lost),
        ("duplicated", verdict.duplicated),
        ("out of order", verdict.out_of_order),
        ("duplicates refused", report.duplicates_refused),
    ):
        counts.add_row(name, f"{count:,}")
    takeovers = Table(title="Takeovers", title_justify="left")
    for column in ("", "ms", "entries replayed", "client without acks, ms"):
        takeovers.add_column(column, justify="right")
    for number, takeover in enumerate(report.takeovers, start=1):
        takeovers.add_row(
            str(number), f"{takeover.ms:.1f}", f"{takeover.replayed_entries:,}", f"{takeover.client_gap_ms:.0f}"
        )
    console.print(counts)
    console.print(takeovers)
    for story in verdict.stories:
        console.print(f"  {story}", markup=False, soft_wrap=True)
