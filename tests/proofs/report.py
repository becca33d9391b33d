"""The report of a proof: the matrix of kills, the counts of messages, and the verdict of each of its parts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.spark_proof.flights import Verdict

_COUNTS = ("wanted", "stored", "lost", "duplicated", "foreign", "out_of_order")


@dataclass(frozen=True, slots=True)
class Part:
    """A column of the tables. faults: labels of its faults, in the order of the matrix. rows: {what: text}, below the
    counts of messages. wrong: sentences."""

    name: str
    verdict: Verdict
    hits: Mapping[str, int]
    faults: Sequence[str]
    rows: Mapping[str, str]
    wrong: Sequence[str]


def kills_of(parts: Sequence[Part]) -> dict[str, dict[str, int]]:
    """{label of a fault: {part: how often it was injected}}."""
    labels = dict.fromkeys(fault for part in parts for fault in part.faults)
    return {fault: {part.name: part.hits[fault] for part in parts if fault in part.hits} for fault in labels}


def as_text(head: str, parts: Sequence[Part], tail: Iterable[str], *, proven: bool) -> str:
    """The matrix, the counts, what is wrong, and the verdict of all."""
    names = [part.name for part in parts]
    kills = [[fault, *(str(counts.get(name, "")) for name in names)] for fault, counts in kills_of(parts).items()]
    counts = [[what.replace("_", " "), *(str(getattr(part.verdict, what)) for part in parts)] for what in _COUNTS]
    rows = [[what, *(part.rows[what] for part in parts)] for what in (parts[0].rows if parts else ())]
    lines = [head, *_aligned([["SIGKILL to", *names], *kills]), "", *_aligned([["messages", *names], *counts, *rows])]
    wrong = [f"{part.name}: {text}" for part in parts for text in part.wrong]
    return "\n".join([*lines, *wrong, *tail, "PROVEN" if proven else "NOT PROVEN"])


def sent_and_refused(seed: int, filled: Any) -> str:
    return f"seed {seed}: {filled.sent} messages sent to the source, {filled.refused} of them refused as duplicates"


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
