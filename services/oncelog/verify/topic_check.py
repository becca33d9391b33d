"""One topic, judged from the summaries of its ranges, the cluster's record of its ledgers, its owner's live map and its
last snapshot. Pure but for `look`, which is asked only where something is wrong."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.ids import BEFORE_ALL, Position, ProducerId
from oncelog.verify.producer_marks import MarksComparison, ReportedProducer, compare_marks
from oncelog.verify.range_join import (
    IdPlaces,
    JoinedLog,
    LedgerFact,
    check_chain,
    check_low_ids,
    join_range,
    looked_for,
)
from oncelog.verify.range_summary import Finding, RangeSummary
from oncelog.verify.remembered import RememberedBatch

#: Which rules each check of a report stands for, in its order.
CHECKS: Mapping[str, tuple[str, ...]] = {
    "once": ("once",),
    "order": ("order",),
    "contiguous": ("hole",),
    "producers": ("names", "grants", "generations", "fencing", "grant's mark", "skipped"),
    "base_index": ("base_index", "count"),
    "digests": ("digest", "unreadable"),
    "copies": ("copies",),
    "chain": ("chain", "positions", "ledger length", "confirmed", "owner epoch", "topic"),
    "live map": ("live map",),
    "snapshot": ("snapshot",),
}

#: {producer id: ids} -> {(producer id, id): where they are stored}
Look = Callable[[dict[int, set[int]]], IdPlaces]


class LiveMap(NamedTuple):
    """What the owner knows as of exactly `position`. all_told: `producers` are all that it has."""

    position: Position
    next_index: int
    producers: Mapping[ProducerId, ReportedProducer]
    lists_all: bool


class ReportedSnapshot(NamedTuple):
    """A stored snapshot: the state as of exactly `position`, which is the last entry of a range, the `after`-th; None:
    the log does not reach back to it. remembered: the batches that it has of its producers."""

    number: int
    position: Position
    next_index: int
    producers: Mapping[ProducerId, ReportedProducer]
    after: int | None
    remembered: tuple[RememberedBatch, ...] = ()


@dataclass(slots=True)
class TopicCheck:
    """findings: in the order of the log. snapshot None: there is none, or it was not compared."""

    joined: JoinedLog
    findings: list[Finding]
    findings_count: int
    live: MarksComparison
    snapshot: MarksComparison | None

    def count_of(self, check: str) -> int:
        """Findings kept of one of CHECKS."""
        return sum(finding.rule in CHECKS[check] for finding in self.findings)


def check_topic(
    summaries: Sequence[RangeSummary],
    facts: Sequence[LedgerFact],
    *,
    from_start: bool,
    live: LiveMap,
    snapshot: ReportedSnapshot | None,
    look: Look,
) -> TopicCheck:
    """summaries: of ranges that follow each other, up to the position of `live`. from_start False: it was trimmed."""
    modes = {producer_id: told.mode for producer_id, told in live.producers.items()}
    joined = JoinedLog(blind=not from_start, modes=modes)
    compared: MarksComparison | None = None
    for number, summary in enumerate(summaries):
        join_range(joined, summary)
        if snapshot is not None and number == snapshot.after:
            compared = _held(joined, "snapshot", snapshot.position, snapshot.next_index, snapshot.producers)
    for producer_id, told in live.producers.items():
        known = joined.producers.get(producer_id)
        if known is not None and not known.name:
            known.name = told.name  # its grant was trimmed away
    lively = _held(joined, "live map", live.position, live.next_index, live.producers, lists_all=live.lists_all)
    found = [*joined.findings, *check_chain(summaries, facts), *lively.findings]
    found += compared.findings if compared else []
    if joined.low:
        found += check_low_ids(joined, look(looked_for(joined.low)))
    hidden = joined.findings_count - len(joined.findings) + joined.low_unlisted
    end = Position(live.position.ledger_id, live.position.entry_id)
    return TopicCheck(joined, sorted(found, key=lambda one: one.position or end), len(found) + hidden, lively, compared)


def _held(
    joined: JoinedLog,
    rule: str,
    position: Position,
    next_index: int,
    producers: Mapping[ProducerId, ReportedProducer],
    *,
    lists_all: bool = True,
) -> MarksComparison:
    """What is told as of `position` against the log up to there."""
    compared = compare_marks(joined.producers, producers, rule=rule, lists_all=lists_all, blind=joined.blind)
    last = joined.last
    at = BEFORE_ALL if last is None else Position(last.ledger_id, last.last)
    if at != position:
        compared.findings.append(Finding(rule, None, f"it is as of {position}, the log was read up to {at}"))
    read = 0 if last is None else last.next_index
    if read is not None and read != next_index:
        text = f"the next message there is number {next_index}, in the log {read}"
        compared.findings.append(Finding(rule, None, text))
    return compared
