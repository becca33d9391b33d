"""The check of one topic: the summaries of its ranges, the cluster's record of its ledgers, the live map of its owner
and its last snapshot. Pure except for `look`, which is called only if an id is stored twice or out of order."""

from collections.abc import Callable, Iterable, Mapping, Sequence
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

#: The rules of each check in a report, in the order of the report.
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
    "subscriptions": ("subscriptions",),
}

#: {producer id: ids} -> {(producer id, id): where they are stored}
Look = Callable[[dict[int, set[int]]], IdPlaces]


class LiveMap(NamedTuple):
    """The producers of the owner as of `position`. lists_all: `producers` is complete."""

    position: Position
    next_index: int
    producers: Mapping[ProducerId, ReportedProducer]
    lists_all: bool


class ReportedSnapshot(NamedTuple):
    """A stored snapshot: the state as of `position`, the last entry of range number `after`. after None: the log
    before it was trimmed. remembered: its batches."""

    number: int
    position: Position
    next_index: int
    producers: Mapping[ProducerId, ReportedProducer]
    after: int | None
    remembered: tuple[RememberedBatch, ...] = ()


@dataclass(slots=True)
class TopicCheck:
    """findings: in the order of the log. snapshot: None if there is none, or it was not compared."""

    joined: JoinedLog
    findings: list[Finding]
    findings_count: int
    live: MarksComparison
    snapshot: MarksComparison | None

    def count_of(self, check: str) -> int:
        """The number of kept findings of one of CHECKS."""
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
    """summaries: of consecutive ranges, up to the position of `live`. from_start False: the log was trimmed."""
    modes = {producer_id: reported.mode for producer_id, reported in live.producers.items()}
    joined = JoinedLog(blind=not from_start, modes=modes)
    compared: MarksComparison | None = None
    for number, summary in enumerate(summaries):
        join_range(joined, summary)
        if snapshot is not None and number == snapshot.after:
            compared = _compare_report(joined, "snapshot", snapshot.position, snapshot.next_index, snapshot.producers)
    places = look(looked_for(joined.low)) if joined.low else {}
    return conclude(joined, summaries, facts, live=live, snapshot=compared, places=places)


def conclude(
    joined: JoinedLog,
    summaries: Iterable[RangeSummary],
    facts: Sequence[LedgerFact],
    *,
    live: LiveMap,
    snapshot: MarksComparison | None,
    places: IdPlaces,
) -> TopicCheck:
    """The check of a log that is joined. summaries: only their `ledgers` count. places: of `looked_for(joined.low)`."""
    for producer_id, reported in live.producers.items():
        known = joined.producers.get(producer_id)
        if known is not None and not known.name:
            known.name = reported.name  # its grant was trimmed away
    live_comparison = _compare_report(
        joined, "live map", live.position, live.next_index, live.producers, lists_all=live.lists_all
    )
    found = [*joined.findings, *check_chain(summaries, facts), *live_comparison.findings]
    found += snapshot.findings if snapshot else []
    found += check_low_ids(joined, places)
    hidden = joined.findings_count - len(joined.findings) + joined.low_unlisted
    end = Position(live.position.ledger_id, live.position.entry_id)
    return TopicCheck(
        joined, sorted(found, key=lambda one: one.position or end), len(found) + hidden, live_comparison, snapshot
    )


def _compare_report(
    joined: JoinedLog,
    rule: str,
    position: Position,
    next_index: int,
    producers: Mapping[ProducerId, ReportedProducer],
    *,
    lists_all: bool = True,
) -> MarksComparison:
    """Compare a report as of `position` with the log up to there."""
    compared = compare_marks(joined.producers, producers, rule=rule, lists_all=lists_all, blind=joined.blind)
    last = joined.last
    at = BEFORE_ALL if last is None else Position(last.ledger_id, last.last)
    if at != position:
        compared.findings.append(Finding(rule, None, f"its position is {position}, but the log was read up to {at}"))
    read = 0 if last is None else last.next_index
    if read is not None and read != next_index:
        text = f"its next message has index {next_index}, in the log {read}"
        compared.findings.append(Finding(rule, None, text))
    return compared
