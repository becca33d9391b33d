"""One reading of a whole log, entry by entry, in bounded memory: its entries are folded in ranges that are joined at
once, and sums are kept of the producers of one share. Pure.

A log with more producers is read again for each further share. What does not depend on a producer's sums is found by
the first reading.
"""

from collections.abc import Sequence

from oncelog.core.formats.batch import Buffer, Checksum
from oncelog.core.ids import BEFORE_ALL, Position, TopicId
from oncelog.verify.owner_report import LiveMap, SnapshotDue
from oncelog.verify.range_fold import RangeFold
from oncelog.verify.range_join import IdPlaces, LedgerFact, Share, looked_for
from oncelog.verify.remembered import by_position
from oncelog.verify.stored_log import parse_entry, parse_head
from oncelog.verify.topic_check import LogJoin, TopicCheck
from oncelog.verify.violation import Violation

#: Entries of one range, which bounds the memory.
RANGE_ENTRIES = 10_000


class LogPass:
    """Use: `take` or `lose` each entry in order; `compare_live` whenever the log was read up to the position of a
    report of the owner; at last `conclude`."""

    def __init__(
        self, topic_id: TopicId, log: LogJoin, checksum: Checksum, *, range_entries: int = RANGE_ENTRIES
    ) -> None:
        self._topic_id = topic_id
        self._log = log
        self._checksum = checksum
        self._range_entries = range_entries
        self._remembered = by_position(log.snapshot.remembered if log.snapshot else ())
        self.joined = log.joined
        #: of the last entry
        self.position = BEFORE_ALL
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
        self._folded += 1
        snapshot = self._log.snapshot
        if self._folded == self._range_entries or (snapshot is not None and position == snapshot.position):
            self._join()

    def _join(self) -> None:
        if self._folded:
            summary, self._fold = self._fold.summary, RangeFold(self._topic_id, self._remembered)
            self._folded = 0
            self._log.add(summary, self.position)

    def compare_live(self, live: LiveMap, share: Share) -> None:
        """As LogJoin. Raises ShareTooLarge."""
        self._join()
        self._log.compare_live(live, share)

    def looked_for(self) -> dict[int, set[int]]:
        """{producer id: ids} that must be searched for in the whole log before `conclude`. Raises ShareTooLarge."""
        self._join()
        return looked_for(self.joined.low)

    def conclude(self, facts: Sequence[LedgerFact], places: IdPlaces, due: SnapshotDue) -> TopicCheck:
        """As LogJoin."""
        return self._log.conclude(facts, places, due)
