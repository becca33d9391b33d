"""One topic, judged from the summaries of its ranges, the cluster's record of its ledgers, its owner's live map and its
last snapshot. Pure but for `look`, which is asked only where something is wrong."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.ids import BEFORE_ALL, Position, ProducerId
from oncelog.verify.marks import Compared, Told, compare_marks
from oncelog.verify.range_join import Joined, LedgerFact, Places, check_chain, join_range, judge_low, looked_for
from oncelog.verify.range_summary import Finding, RangeSummary
from oncelog.verify.remembered import Remembered

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
Look = Callable[[dict[int, set[int]]], Places]


class LiveMap(NamedTuple):
    """What the owner knows as of exactly `position`. all_told: `producers` are all that it has."""

    position: Position
    next_index: int
    producers: Mapping[ProducerId, Told]
    all_told: bool


class SnapshotTold(NamedTuple):
    """A stored snapshot: the state as of exactly `position`, which is the last entry of a range, the `after`-th; None:
    the log does not reach back to it. remembered: the batches that it has of its producers."""

    number: int
    position: Position
    next_index: int
    producers: Mapping[ProducerId, Told]
    after: int | None
    remembered: tuple[Remembered, ...] = ()


@dataclass(slots=True)
class Judged:
    """findings: in the order of the log. snapshot None: there is none, or it was not compared."""

    joined: Joined
    findings: list[Finding]
    findings_count: int
    live: Compared
    snapshot: Compared | None

    def count_of(self, check: str) -> int:
        """Findings kept of one of CHECKS."""
        return sum(finding.rule in CHECKS[check] for finding in self.findings)


def judge_topic(
    summaries: Sequence[RangeSummary],
    facts: Sequence[LedgerFact],
    *,
    from_start: bool,
    live: LiveMap,
    snapshot: SnapshotTold | None,
    look: Look,
) -> Judged:
    """summaries: of ranges that follow each other, up to the position of `live`. from_start False: it was trimmed."""
    modes = {producer_id: told.mode for producer_id, told in live.producers.items()}
    joined = Joined(blind=not from_start, modes=modes)
    compared: Compared | None = None
    for number, summary in enumerate(summaries):
        join_range(joined, summary)
        if snapshot is not None and number == snapshot.after:
            compared = _held(joined, "snapshot", snapshot.position, snapshot.next_index, snapshot.producers)
    for producer_id, told in live.producers.items():
        known = joined.producers.get(producer_id)
        if known is not None and not known.name:
            known.name = told.name  # its grant was trimmed away
    lively = _held(joined, "live map", live.position, live.next_index, live.producers, all_told=live.all_told)
    found = [*joined.findings, *check_chain(summaries, facts), *lively.findings]
    found += compared.findings if compared else []
    if joined.low:
        found += judge_low(joined, look(looked_for(joined.low)))
    hidden = joined.findings_count - len(joined.findings) + joined.low_unlisted
    end = Position(live.position.ledger_id, live.position.entry_id)
    return Judged(joined, sorted(found, key=lambda one: one.position or end), len(found) + hidden, lively, compared)


def _held(
    joined: Joined,
    rule: str,
    position: Position,
    next_index: int,
    producers: Mapping[ProducerId, Told],
    *,
    all_told: bool = True,
) -> Compared:
    """What is told as of `position` against the log up to there."""
    compared = compare_marks(joined.producers, producers, rule=rule, all_told=all_told, blind=joined.blind)
    last = joined.last
    at = BEFORE_ALL if last is None else Position(last.ledger_id, last.last)
    if at != position:
        compared.findings.append(Finding(rule, None, f"it is as of {position}, the log was read up to {at}"))
    read = 0 if last is None else last.next_index
    if read is not None and read != next_index:
        text = f"the next message there is number {next_index}, in the log {read}"
        compared.findings.append(Finding(rule, None, text))
    return compared
