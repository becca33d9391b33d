"""The report of the demo: a table for people, one JSON object for programs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from oncelog_lab.verdict import LogVerdict


@dataclass(frozen=True, slots=True)
class DemoTakeover:
    """ms: from the acquisition of the topic until the new owner served, as that owner reports it.

    client_gap_ms: the longest time meanwhile without an acknowledgement for the producer. None if the producer had
    published its last line before, as it may on a busy machine.
    """

    ms: float
    replayed_entries: int
    client_gap_ms: float | None


@dataclass(frozen=True, slots=True)
class DemoConsumption:
    """What the consumers of the subscription reported. acked: by the topic owner, which has no backlog any more."""

    delivered: int
    redelivered: int
    acked: int
    acked_seen_again: int
    never_delivered: int

    @property
    def perfect(self) -> bool:
        return not self.acked_seen_again and not self.never_delivered

    @property
    def counts(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class DemoReport:
    """lines: of the file. Always stored == lines - lost + duplicated: a message that is no line of the file counts as
    a duplicate, and the line in whose place it stands as lost."""

    lines: int
    verdict: LogVerdict
    duplicates_refused: int
    takeovers: Sequence[DemoTakeover]
    consumption: DemoConsumption

    @property
    def perfect(self) -> bool:
        return self.verdict.perfect and self.consumption.perfect

    @property
    def counts(self) -> dict[str, int]:
        verdict = self.verdict
        return {
            "lines": self.lines,
            "stored": verdict.stored,
            "lost": verdict.lost,
            "duplicated": verdict.duplicated + verdict.unexpected,
            "out_of_order": verdict.out_of_order,
            "duplicates_refused": self.duplicates_refused,
        }

    @property
    def summary(self) -> str:
        """The result in one line."""
        counts = self.counts
        words = ", ".join(
            f"{counts[name]:,} {name.replace('_', ' ')}" for name in ("lost", "duplicated", "out_of_order")
        )
        again = self.consumption.acked_seen_again
        return f"{self.lines:,} lines: {words}; {again:,} seen again after their acknowledgement"

    def to_json(self) -> dict[str, object]:
        takeovers = [
            {
                "ms": round(takeover.ms, 1),
                "replayed_entries": takeover.replayed_entries,
                "client_gap_ms": None if takeover.client_gap_ms is None else round(takeover.client_gap_ms, 1),
            }
            for takeover in self.takeovers
        ]
        return {**self.counts, **self.consumption.counts, "takeovers": takeovers}


def show_demo(report: DemoReport, console: Console) -> None:
    """Print the table."""
    counts = Table(title="File against topic", title_justify="left", show_header=False)
    counts.add_column()
    counts.add_column(justify="right")
    for name, count in report.counts.items():
        counts.add_row(name.replace("_", " "), f"{count:,}")
    consumed = Table(title="Subscription, two consumers", title_justify="left", show_header=False)
    consumed.add_column()
    consumed.add_column(justify="right")
    names = {"acked": "acknowledged", "acked_seen_again": "acknowledged and seen again"}
    for name, count in report.consumption.counts.items():
        consumed.add_row(names.get(name, name.replace("_", " ")), f"{count:,}")
    takeovers = Table(title="Takeovers", title_justify="left")
    for column in ("", "ms", "entries replayed", "client without acks, ms"):
        takeovers.add_column(column, justify="right")
    for number, takeover in enumerate(report.takeovers, start=1):
        gap = "-" if takeover.client_gap_ms is None else f"{takeover.client_gap_ms:.0f}"
        takeovers.add_row(str(number), f"{takeover.ms:.1f}", f"{takeover.replayed_entries:,}", gap)
    console.print(counts)
    console.print(consumed)
    console.print(takeovers)
    for violation in report.verdict.violations:
        console.print(f"  {violation}", markup=False, soft_wrap=True)
