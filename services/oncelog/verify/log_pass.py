"""One reading of a whole log, entry by entry, in bounded memory: its entries are folded in ranges that are joined at
once, and sums are kept of the producers of one share. Pure.

A log with more producers is read again for each further share. What does not depend on a producer's sums is found by
the first reading.
"""

from collections.abc import Mapping, Sequence

from oncelog.core.formats.batch import Buffer, Checksum
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.ids import BEFORE_ALL, Position, ProducerId, TopicId
from oncelog.verify.owner_report import LiveMap
from oncelog.verify.producer_marks import MarksComparison
from oncelog.verify.range_fold import RangeFold
from oncelog.verify.range_join import (
    IdPlaces,
    JoinedLog,
    LedgerFact,
    Share,
    check_chain,
    join_range,
    looked_for,
    require_within,
)
from oncelog.verify.range_summary import RangeSummary
from oncelog.verify.remembered import by_position
from oncelog.verify.snapshots import ReportedSnapshot, misplaced
from oncelog.verify.stored_log import parse_entry, parse_head
from oncelog.verify.topic_check import TopicCheck, compare_live, compare_snapshot, conclude
from oncelog.verify.violation import Violation

#: Entries of one range, which bounds the memory.
RANGE_ENTRIES = 10_000


class LogPass:
    """Use: `take` or `lose` each entry in order; `compare_live` whenever the log was read up to the position of a
    report of the owner; at last `conclude`."""

    def __init__(
        self,
        topic_id: TopicId,
        *,
        share: Share,
        again: bool,
        blind: bool,
        modes: Mapping[ProducerId, SequenceMode],
        snapshot: ReportedSnapshot | None,
        checksum: Checksum,
        kept_max: int,
        range_entries: int = RANGE_ENTRIES,
    ) -> None:
        """again: not the first reading. blind: the beginning of the log was trimmed. modes: of producers whose grants
        may be trimmed. snapshot: with the producers of the share. kept_max: producers of which sums are kept."""
        self._topic_id = topic_id
        self._checksum = checksum
        self._kept_max, self._range_entries = kept_max, range_entries
        self._snapshot = snapshot
        self._remembered = by_position(snapshot.remembered if snapshot else ())
        self.joined = JoinedLog(blind=blind, modes=modes, share=share, again=again)
        self.live = MarksComparison()
        #: None: the log has no entry at the snapshot's position
        self.snapshot: MarksComparison | None = None
        self.position = BEFORE_ALL
        self.entries = 0
        #: the ledgers of each range, which the check of the chain needs
        self._chain: list[RangeSummary] = []
        self._fold = RangeFold(topic_id, self._remembered)
        self._folded = 0

    def take(self, position: Position, data: Buffer) -> None:
        """The first reading takes whole entries, another one what `parse_head` takes. Raises ShareTooLarge."""
        try:
            if self.joined.again:
                entry = parse_head(data, position)
            else:
                entry = parse_entry(bytes(data), position, self._checksum, keeps_values=False)
            self._fold.add(entry)
        except Violation as violation:
            self._fold.lose(position, "digest", str(violation))
        self._passed(position)

    def lose(self, position: Position, reason: str) -> None:
        """An entry that no storage node gives. Raises ShareTooLarge."""
        self._fold.lose(position, "unreadable", reason)
        self._passed(position)

    def _passed(self, position: Position) -> None:
        self.position = position
        self.entries += 1
        self._folded += 1
        if self._snapshot is not None and position == self._snapshot.position:
            self._join()
            self.snapshot = compare_snapshot(self.joined, self._snapshot)
        elif self._folded == self._range_entries:
            self._join()

    def _join(self) -> None:
        if self._folded:
            summary, self._fold = self._fold.summary, RangeFold(self._topic_id, self._remembered)
            self._folded = 0
            join_range(self.joined, summary)
            if not self.joined.again:
                self._chain.append(RangeSummary(ledgers=summary.ledgers))
        if len(self.joined.producers) > self._kept_max:
            require_within(self.joined.share, dict.fromkeys(self.joined.producers, 1), self._kept_max)

    def compare_live(self, live: LiveMap, share: Share) -> None:
        """share: of which producers of this reading `live` is; the others are left out."""
        self._join()
        mine = self.joined.share
        own = {each: one for each, one in live.producers.items() if each in mine}
        through = [each for each in (share.through, mine.through) if each is not None]
        part = Share(max(share.after, mine.after), min(through, default=None))
        self.live.add(compare_live(self.joined, live._replace(producers=own), part))

    def looked_for(self) -> dict[int, set[int]]:
        """{producer id: ids} that must be searched for in the whole log before `conclude`."""
        self._join()
        return looked_for(self.joined.low)

    def conclude(self, facts: Sequence[LedgerFact], places: IdPlaces) -> TopicCheck:
        """facts: of the ledgers up to the last entry. places: of what was `looked_for`."""
        self._join()
        chain = [] if self.joined.again else check_chain(self._chain, facts)
        snapshot = self._snapshot
        if snapshot is not None:
            chain += misplaced(snapshot.position, snapshot.remembered, facts)
        return conclude(self.joined, chain, live=self.live, snapshot=self.snapshot, places=places, end=self.position)

    @property
    def span_ms(self) -> int:
        """Between the first entry that was read and the last one, by the clocks of the owners."""
        totals = self.joined.totals
        return (totals.last_ms or 0) - (totals.first_ms or 0)

    def snapshot_unread(self, first: Position) -> str:
        """Why the snapshot was not compared; empty: it was, there is none, or it is older than what is kept. first: of
        the entries of the log."""
        snapshot = self._snapshot
        if snapshot is None or self.snapshot is not None or snapshot.position < first:
            return ""
        return f"snapshot {snapshot.number} has the position {snapshot.position}, where the log has no entry"
