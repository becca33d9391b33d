"""The marks that a joined log gives, held against what somebody tells of the same place: a live map, a snapshot."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.formats.entry import SequenceMode
from oncelog.core.ids import Generation, ProducerId, SequenceId
from oncelog.verify.range_join import JoinedProducer
from oncelog.verify.range_summary import Finding


class ReportedProducer(NamedTuple):
    """One producer, as it is told."""

    name: str
    mode: SequenceMode
    generation: Generation
    mark: SequenceId


@dataclass(slots=True)
class MarksComparison:
    """How many producers are equal to what is told. at_least: not wholly seen, and not against it. untold: of the log,
    beyond those that are told. unseen: told, of a part of the log that is gone."""

    findings: list[Finding] = field(default_factory=list)
    equal: int = 0
    at_least: int = 0
    not_listed: int = 0
    unseen: int = 0

    @property
    def whole(self) -> bool:
        """Whether every producer was compared exactly."""
        return not (self.at_least or self.not_listed or self.unseen)


def compare_marks(
    known: Mapping[ProducerId, JoinedProducer],
    told: Mapping[ProducerId, ReportedProducer],
    *,
    rule: str,
    lists_all: bool,
    blind: bool,
) -> MarksComparison:
    """rule: who tells, "live map" or "snapshot". all_told: it lists every producer that it has. blind: something of the
    log before was not seen."""
    compared = MarksComparison()

    def find(text: str) -> None:
        compared.findings.append(Finding(rule, None, text))

    for producer_id, producer in known.items():
        its = told.get(producer_id)
        if its is None:
            if lists_all:
                find(f"{producer.name!r} ({producer_id}) has the mark {producer.mark} in the log, and is not there")
            else:
                compared.not_listed += 1
            continue
        wrong = _difference(producer, its)
        if wrong:
            find(f"{its.name!r} ({producer_id}) {wrong}")
        elif producer.sure:
            compared.equal += 1
        else:
            compared.at_least += 1
    for producer_id, its in told.items():
        if producer_id in known:
            continue
        if blind:
            compared.unseen += 1
        else:
            find(f"{its.name!r} ({producer_id}) has the mark {its.mark} there, and is not in the log")
    return compared


def _difference(producer: JoinedProducer, its: ReportedProducer) -> str:
    """What is told and contradicts the log; empty: nothing."""
    if producer.name and producer.name != its.name:
        return f"is {producer.name!r} in the log"
    if producer.mode is not None and producer.mode != its.mode:
        return f"is {its.mode.name.lower()} there, {producer.mode.name.lower()} in the log"
    for what, theirs, ours in (("mark", its.mark, producer.mark), ("generation", its.generation, producer.generation)):
        if theirs < ours or (producer.sure and theirs != ours):
            return f"has the {what} {theirs} there, {ours} in the log"
    return ""
