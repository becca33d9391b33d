"""The report of a proof: the matrix of kills, the counts of messages, and the verdict of each of its parts."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.proofs.flights import Verdict
from tests.proofs.source_topic import Filled

_COUNTS = ("wanted", "stored", "lost", "duplicated", "foreign", "out_of_order")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one part of a proof: a command that was killed and started again until its end.

    verdict: of its result. faults: labels of its schedule, in the order of the matrix. hits: {label: how often it was
    injected}. missed: labels of those that were not injected, and why. complaints: what else is wrong. starts,
    failures: of the command. facts: {what: figure} beside the counts. protected: False: a control without what the
    proof is about; it must have duplicates.
    """

    name: str
    verdict: Verdict
    faults: Sequence[str]
    hits: Mapping[str, int]
    missed: Sequence[str]
    complaints: Sequence[str]
    starts: int
    failures: int
    seconds: float
    facts: Mapping[str, int | str | None] = field(default_factory=dict)
    protected: bool = True

    @property
    def wrong(self) -> list[str]:
        """Sentences."""
        found = [f"planned, but not injected: {fault}" for fault in self.missed]
        found += self.complaints
        if self.protected and not self.verdict.perfect:
            found.append("the result differs from the reference")
        if not self.protected and not self.verdict.duplicated:
            found.append("the control has no duplicate: the faults prove nothing")
        return found

    @property
    def good(self) -> bool:
        return not self.wrong

    @property
    def rows(self) -> dict[str, str]:
        """{what: text}, below the counts of messages."""
        expected = "once" if self.protected else "doubled, as expected"
        facts = {what: "" if figure is None else str(figure) for what, figure in self.facts.items()}
        counts = {"starts": str(self.starts), "failed_starts": str(self.failures), "seconds": f"{self.seconds:.0f}"}
        return {**facts, **counts, "verdict": expected if self.good else "BAD"}

    def to_json(self) -> dict[str, Any]:
        return {
            "good": self.good,
            "protected": self.protected,
            **asdict(self.verdict),
            **self.facts,
            "starts": self.starts,
            "failed_starts": self.failures,
            "missed": list(self.missed),
            "complaints": list(self.complaints),
            "seconds": round(self.seconds, 1),
        }


@dataclass(frozen=True, slots=True)
class Besides:
    """What a proof looks at besides its parts. name: of its facts in JSON. lines: of the text."""

    name: str
    good: bool
    facts: Mapping[str, Any]
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Report:
    """Of one run. parts: what the parts are called. A run that could not have failed is no proof."""

    seed: int
    filled: Filled
    parts: str
    outcomes: Sequence[Outcome]
    besides: Besides

    @property
    def proven(self) -> bool:
        return bool(self.outcomes) and all(each.good for each in self.outcomes) and self.besides.good

    def to_json(self) -> dict[str, Any]:
        return {
            "proven": self.proven,
            "seed": self.seed,
            "source": asdict(self.filled),
            self.parts: {each.name: each.to_json() for each in self.outcomes},
            "kills": self._kills(),
            self.besides.name: {**self.besides.facts, "good": self.besides.good},
        }

    def _kills(self) -> dict[str, dict[str, int]]:
        """{label of a fault: {part: how often it was injected}}."""
        labels = dict.fromkeys(fault for each in self.outcomes for fault in each.faults)
        return {
            label: {each.name: each.hits[label] for each in self.outcomes if label in each.hits} for label in labels
        }

    def __str__(self) -> str:
        """The matrix, the counts, what is wrong, and the verdict of all."""
        names = [each.name for each in self.outcomes]
        kills = [[label, *(str(counts.get(name, "")) for name in names)] for label, counts in self._kills().items()]
        counts = [[what, *(str(getattr(each.verdict, what)) for each in self.outcomes)] for what in _COUNTS]
        rows = [[what, *(each.rows.get(what, "") for each in self.outcomes)] for what in self._row_names()]
        spoken = [[what.replace("_", " "), *cells] for what, *cells in [*counts, *rows]]
        wrong = [f"{each.name}: {text}" for each in self.outcomes for text in each.wrong]
        lines = [*_aligned([["SIGKILL to", *names], *kills]), "", *_aligned([["messages", *names], *spoken]), *wrong]
        verdict = "PROVEN" if self.proven else "NOT PROVEN"
        return "\n".join([f"seed {self.seed}: {self.filled}", *lines, *self.besides.lines, verdict])

    def _row_names(self) -> list[str]:
        return list(dict.fromkeys(what for each in self.outcomes for what in each.rows))


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
