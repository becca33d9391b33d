"""The check of one topic: the summaries of its ranges, the cluster's record of its ledgers, the live map of its owner
and its last snapshot. Pure except for `look`, which is called only if an id is stored twice or out of order."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from oncelog.core.ids import BEFORE_ALL, Position
from oncelog.verify.owner_report import LiveMap
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
    looked_for,
)
from oncelog.verify.range_summary import Finding, RangeSummary
from oncelog.verify.snapshots import ReportedSnapshot

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
            compared = compare_snapshot(joined, snapshot)
    compared_live = compare_live(joined, live)
    places = look(looked_for(joined.low)) if joined.low else {}
    return conclude(
        joined, check_chain(summaries, facts), live=compared_live, snapshot=compared, places=places, end=live.position
    )


def compare_snapshot(joined: JoinedLog, snapshot: ReportedSnapshot) -> MarksComparison:
    """joined: up to the snapshot's position."""
    compared = compare_marks(
        joined.producers, snapshot.producers, rule=SNAPSHOT_RULE, lists_all=True, blind=joined.blind
    )
    return _compare_end(joined, compared, SNAPSHOT_RULE, snapshot.position, snapshot.next_index)


def compare_live(joined: JoinedLog, live: LiveMap, share: Share = ALL) -> MarksComparison:
    """joined: up to the position of `live`. share: of which producers `live` is."""
    for producer_id, reported in live.producers.items():
        known = joined.producers.get(producer_id)
        if known is not None and not known.name:
            known.name = reported.name  # its grant was trimmed away
    known_of = {each: one for each, one in joined.producers.items() if each in share}
    compared = compare_marks(known_of, live.producers, rule="live map", lists_all=live.lists_all, blind=joined.blind)
    return _compare_end(joined, compared, "live map", live.position, live.next_index)


def conclude(
    joined: JoinedLog,
    chain: Iterable[Finding],
    *,
    live: MarksComparison,
    snapshot: MarksComparison | None,
    places: IdPlaces,
    end: Position,
) -> TopicCheck:
    """The check of a log that is joined up to `end`. chain: `check_chain`. places: of `looked_for(joined.low)`."""
    found = [*joined.findings, *chain, *live.findings]
    found += snapshot.findings if snapshot else []
    found += check_low_ids(joined, places)
    hidden = joined.findings_count - len(joined.findings) + joined.low_unlisted
    return TopicCheck(joined, sorted(found, key=lambda one: one.position or end), len(found) + hidden, live, snapshot)


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
