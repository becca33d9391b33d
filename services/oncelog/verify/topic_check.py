"""The check of one topic: the summaries of its ranges, the cluster's record of its ledgers, the live map of its owner
and its last snapshot. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oncelog.core.formats.entry import SequenceMode
from oncelog.core.ids import BEFORE_ALL, Position, ProducerId
from oncelog.verify.owner_report import LiveMap, SnapshotDue
from oncelog.verify.producer_marks import MarksComparison, compare_marks
from oncelog.verify.range_join import (
    ALL,
    SNAPSHOT_RULE,
    IdPlaces,
    JoinedLog,
    LedgerFact,
    Share,
    check_chain,
    check_low_ids,
    join_range,
    require_within,
)
from oncelog.verify.range_summary import Finding, RangeSummary
from oncelog.verify.snapshots import ReportedSnapshot, SnapshotSearch

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


class LogJoin:
    """Joins the ranges of a log, and compares it with its owner and its newest snapshot.

    Use: `add` the summary of each range in order, one of which ends with the snapshot's position; `compare_live` when
    the log was joined up to the position of a report; `conclude` at the end.
    """

    def __init__(
        self,
        snapshots: SnapshotSearch | None,
        *,
        blind: bool,
        modes: Mapping[ProducerId, SequenceMode],
        share: Share = ALL,
        again: bool = False,
        kept_max: int | None = None,
    ) -> None:
        """snapshots: None: they are not known. blind: the beginning of the log was trimmed. modes: of producers whose
        grants may be trimmed. share, again: as in JoinedLog. kept_max: producers of which sums are kept; None: all."""
        self.joined = JoinedLog(blind=blind, modes=modes, share=share, again=again)
        self._trimmed = blind
        self._snapshots = snapshots
        self._kept_max = kept_max
        self._live = MarksComparison()
        #: None: no range has ended with its position
        self._snapshot: MarksComparison | None = None
        #: the ledgers of each range, which the check of the chain needs
        self._chain: list[RangeSummary] = []

    @property
    def snapshot(self) -> ReportedSnapshot | None:
        return None if self._snapshots is None else self._snapshots.found

    def add(self, summary: RangeSummary, end: Position) -> None:
        """end: of its last entry. Raises ShareTooLarge."""
        join_range(self.joined, summary)
        if not self.joined.again:
            self._chain.append(RangeSummary(ledgers=summary.ledgers))
        if self.snapshot is not None and end == self.snapshot.position:
            self._snapshot = _compare_snapshot(self.joined, self.snapshot)
        if self._kept_max is not None and len(self.joined.producers) > self._kept_max:
            require_within(self.joined.share, dict.fromkeys(self.joined.producers, 1), self._kept_max)

    def compare_live(self, live: LiveMap, share: Share = ALL) -> None:
        """share: of which producers `live` is. Those that are not of this reading are left out."""
        mine = self.joined.share
        own = {each: one for each, one in live.producers.items() if each in mine}
        through = [each for each in (share.through, mine.through) if each is not None]
        part = Share(max(share.after, mine.after), min(through, default=None))
        self._live.add(_compare_live(self.joined, live._replace(producers=own), part))

    def conclude(self, facts: Sequence[LedgerFact], places: IdPlaces, due: SnapshotDue) -> TopicCheck:
        """facts: of the ledgers up to the last entry. places: of `looked_for(joined.low)`."""
        joined, totals = self.joined, self.joined.totals
        found = [*joined.findings, *self._live.findings]
        found += [] if joined.again else check_chain(self._chain, facts)
        found += [] if self._snapshot is None else self._snapshot.findings
        if self._snapshots is not None:
            span_ms = (totals.last_ms or 0) - (totals.first_ms or 0)
            found += self._snapshots.problems(facts, due, blind=self._trimmed, entries=totals.entries, span_ms=span_ms)
        found += check_low_ids(joined, places)
        hidden = joined.findings_count - len(joined.findings) + joined.low_unlisted
        last = joined.last
        end = BEFORE_ALL if last is None else Position(last.ledger_id, last.last)
        found.sort(key=lambda one: one.position or end)
        return TopicCheck(joined, found, len(found) + hidden, self._live, self._snapshot)


def _compare_snapshot(joined: JoinedLog, snapshot: ReportedSnapshot) -> MarksComparison:
    """joined: up to the snapshot's position."""
    compared = compare_marks(
        joined.producers, snapshot.producers, rule=SNAPSHOT_RULE, lists_all=True, blind=joined.blind
    )
    return _compare_end(joined, compared, SNAPSHOT_RULE, snapshot.position, snapshot.next_index)


def _compare_live(joined: JoinedLog, live: LiveMap, share: Share) -> MarksComparison:
    """joined: up to the position of `live`. share: of which producers `live` is."""
    for producer_id, reported in live.producers.items():
        known = joined.producers.get(producer_id)
        if known is not None and not known.name:
            known.name = reported.name  # its grant was trimmed away
    known_of = {each: one for each, one in joined.producers.items() if each in share}
    compared = compare_marks(known_of, live.producers, rule="live map", lists_all=live.lists_all, blind=joined.blind)
    return _compare_end(joined, compared, "live map", live.position, live.next_index)


def _compare_end(
    joined: JoinedLog, compared: MarksComparison, rule: str, position: Position, next_index: int
) -> MarksComparison:
    """Compare the end of a report with that of the log that was read."""
    last = joined.last
    if last is None and joined.blind:
        return compared  # the whole log was trimmed
    at = BEFORE_ALL if last is None else Position(last.ledger_id, last.last)
    if at != position:
        compared.findings.append(Finding(rule, None, f"its position is {position}, but the log was read up to {at}"))
    read = 0 if last is None else last.next_index
    if read is not None and read != next_index:
        text = f"its next message has index {next_index}, in the log {read}"
        compared.findings.append(Finding(rule, None, text))
    return compared
