"""Compares the producers of a log with those that a live map or a snapshot reports for the same position."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.formats.entry import SequenceMode
from oncelog.core.ids import Generation, ProducerId, SequenceId
from oncelog.verify.range_join import JoinedProducer
from oncelog.verify.range_summary import Finding


class ReportedProducer(NamedTuple):
    """One producer in a live map or a snapshot."""

    name: str
    mode: SequenceMode
    generation: Generation
    mark: SequenceId


@dataclass(slots=True)
class MarksComparison:
    """equal: number of producers that are equal. at_least: compatible, but not fully read. not_listed: in the log and
    not in the report. unseen: in the report, and only in a trimmed part of the log."""

    findings: list[Finding] = field(default_factory=list)
    equal: int = 0
    at_least: int = 0
    not_listed: int = 0
    unseen: int = 0

    def add(self, other: "MarksComparison") -> None:
        """The comparison with a further part of the same report."""
        self.findings += other.findings
        self.equal += other.equal
        self.at_least += other.at_least
        self.not_listed += other.not_listed
        self.unseen += other.unseen

    @property
    def whole(self) -> bool:
        """Whether every producer was compared exactly."""
        return not (self.at_least or self.not_listed or self.unseen)


def compare_marks(
    known: Mapping[ProducerId, JoinedProducer],
    reported: Mapping[ProducerId, ReportedProducer],
    *,
    rule: str,
    lists_all: bool,
    blind: bool,
) -> MarksComparison:
    """rule: "live map" or "snapshot". lists_all: the report lists all its producers. blind: a part of the log before
    could not be read."""
    compared = MarksComparison()

    def find(text: str) -> None:
        compared.findings.append(Finding(rule, None, text))

    for producer_id, producer in known.items():
        theirs = reported.get(producer_id)
        if theirs is None:
            if lists_all:
                find(f"{producer.name!r} ({producer_id}) has the mark {producer.mark} in the log and is not reported")
            else:
                compared.not_listed += 1
            continue
        wrong = _difference(producer, theirs)
        if wrong:
            find(f"{theirs.name!r} ({producer_id}) {wrong}")
        elif producer.sure:
            compared.equal += 1
        else:
            compared.at_least += 1
    for producer_id, theirs in reported.items():
        if producer_id in known:
            continue
        if blind:
            compared.unseen += 1
        else:
            find(f"{theirs.name!r} ({producer_id}) has the mark {theirs.mark} in the report and is not in the log")
    return compared


def _difference(producer: JoinedProducer, reported: ReportedProducer) -> str:
    """How the report contradicts the log; empty if it does not."""
    if producer.name and producer.name != reported.name:
        return f"is {producer.name!r} in the log"
    if producer.mode is not None and producer.mode != reported.mode:
        return f"is {reported.mode.name.lower()} in the report, {producer.mode.name.lower()} in the log"
    for what, theirs, ours in (
        ("mark", reported.mark, producer.mark),
        ("generation", reported.generation, producer.generation),
    ):
        if theirs < ours or (producer.sure and theirs != ours):
            return f"has the {what} {theirs} in the report, {ours} in the log"
    return ""
