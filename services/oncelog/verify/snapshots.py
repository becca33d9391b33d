"""The newest complete snapshot of a topic, for a check of its log: which one it is, what it says, and whether the log
must have one. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from oncelog.core.formats.batch import Buffer, Checksum
from oncelog.core.formats.entry import EntryKind, body_of, peek_header
from oncelog.core.ids import BEFORE_ALL, EntryId, LedgerId, Position, ProducerId
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.producer_record import ProducerRow
from oncelog.core.publishing.producers import Producers
from oncelog.core.snapshots.dedup_format import SnapshotReader, decode_manifest
from oncelog.verify.owner_report import SnapshotDue
from oncelog.verify.producer_marks import ReportedProducer
from oncelog.verify.range_join import ALL, SNAPSHOT_RULE, LedgerFact, Share, require_within
from oncelog.verify.range_summary import Finding
from oncelog.verify.remembered import RememberedBatch

#: A log without a snapshot is damaged once it has this many times the entries after which a snapshot is due.
_OVERDUE_TIMES = 10


class ReportedSnapshot(NamedTuple):
    """A stored snapshot: the state as of `position`. remembered: its batches."""

    number: int
    position: Position
    next_index: int
    producers: Mapping[ProducerId, ReportedProducer]
    remembered: tuple[RememberedBatch, ...] = ()


class SnapshotSearch:
    """Looks for the newest complete snapshot at `end` or before it. Use: for each ledger of the cursor, the newest
    first, until `found`: `begin`, `feed` each of its entries, `unreadable` if one cannot be read, `conclude`.

    Attributes:
        newer: whether a snapshot was skipped because its position is later.
        findings: ledgers with entries that cannot be read.
        subscriptions: the chunks of the subscriptions in the snapshot, as of position `acks` of the ack log.
    """

    def __init__(
        self,
        checksum: Checksum,
        *,
        taken: int,
        end: Position | None = None,
        share: Share = ALL,
        kept_max: int | None = None,
    ) -> None:
        """taken: the newest snapshot that the owner had taken before the search, 0: none. end: None: of the whole log.
        share: whose producers and batches `found` has. kept_max: how many of both; None: any number."""
        self._checksum = checksum
        self.taken = taken
        self._end = end
        self._share = share
        self._kept_max = kept_max
        self._reader = SnapshotReader(checksum)
        self.found: ReportedSnapshot | None = None
        self.newer = False
        self.findings: list[Finding] = []
        self.subscriptions: list[Buffer] = []
        self.acks = BEFORE_ALL

    def begin(self) -> None:
        of_all = self._share == ALL
        self._reader = (
            SnapshotReader(self._checksum)
            if of_all
            else SnapshotReader(self._checksum, new_state=lambda _: _StateOfShare(self._share))
        )

    def feed(self, entry_id: EntryId, data: Buffer) -> None:
        """Raises CorruptEntry."""
        data = bytes(data)
        kind, body = peek_header(data).kind, body_of(data)
        later = kind == EntryKind.SNAPSHOT_MANIFEST and self._end is not None
        if later and self._end is not None and decode_manifest(body).position > self._end:
            self.newer = True
            return
        self._reader.feed(entry_id, kind, body)

    def unreadable(self, ledger_id: LedgerId, reason: str) -> None:
        text = f"ledger {ledger_id} of the snapshots cannot be read: {reason}"
        self.findings.append(Finding(SNAPSHOT_RULE, None, text))

    def conclude(self) -> None:
        """The ledger was read. Raises ShareTooLarge."""
        state, manifest = self._reader.state, self._reader.manifest
        if state is None or manifest is None:
            return
        known = state.producers
        if self._kept_max is not None:
            sizes = {each: 1 + len(one.recent_batches) for each, one in known.items()}
            require_within(self._share, sizes, self._kept_max)
        producers = {
            producer_id: ReportedProducer(one.name, one.mode, one.generation, one.persisted)
            for producer_id, one in known.items()
        }
        remembered = tuple(
            RememberedBatch(producer_id, recent.first, recent.last, recent.count, recent.position, recent.offset)
            for producer_id, one in known.items()
            for recent in one.recent_batches
        )
        self.found = ReportedSnapshot(manifest.number, manifest.position, manifest.next_index, producers, remembered)
        self.subscriptions, self.acks = self._reader.subscriptions, manifest.acks

    def problems(
        self, ledgers: Sequence[LedgerFact], due: SnapshotDue, *, blind: bool, entries: int, span_ms: int
    ) -> list[Finding]:
        """What is wrong with the snapshots of a log with these ledgers, beside their producers. blind: its beginning
        was trimmed. span_ms: between its first and its last entry."""
        found = self.found
        if found is not None:
            trouble = trouble_of(self.taken, found, newer=self.newer)
            return [*self.findings, *_of_topic(trouble), *misplaced(found.position, found.remembered, ledgers)]
        reason = trouble_of(self.taken, None, newer=self.newer)
        if reason is None and not self.newer and not self.findings:
            reason = _missing(due, blind=blind, entries=entries, span_ms=span_ms)
        return [*self.findings, *_of_topic(reason)]


def _of_topic(reason: str | None) -> list[Finding]:
    return [] if reason is None else [Finding(SNAPSHOT_RULE, None, reason)]


class _ProducersOfShare(Producers):
    """Of the others only the ids."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[ProducerId] = set()

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, pid: object) -> bool:
        return pid in self.ids


class _StateOfShare(DedupState):
    """The state in a snapshot, with the rows of some producers."""

    def __init__(self, share: Share) -> None:
        super().__init__()
        self.producers: _ProducersOfShare = _ProducersOfShare()
        self._share = share

    def restore(self, producers: Iterable[ProducerRow]) -> None:
        some = list(producers)
        for each in some:
            if each.row:
                self.producers.ids.add(each.producer_id)
            else:
                self.producers.ids.discard(each.producer_id)
        super().restore([each for each in some if each.producer_id in self._share])


def misplaced(
    snapshot: Position, remembered: Iterable[RememberedBatch], ledgers: Sequence[LedgerFact]
) -> list[Finding]:
    """Batches that a snapshot remembers at positions where the log has no entry, or behind the snapshot's own position;
    trimmed ledgers are ignored."""
    ends = {ledger.ledger_id: ledger.last for ledger in ledgers}
    first = ledgers[0].ledger_id if ledgers else LedgerId(0)
    found: list[Finding] = []
    for one in remembered:
        what = f"the snapshot remembers ids {one.first} to {one.last} of producer {one.producer_id} here"
        if one.position > snapshot:
            found.append(Finding(SNAPSHOT_RULE, one.position, f"{what}, behind its own position {snapshot}"))
        elif one.position.ledger_id >= first and one.position.entry_id > ends.get(one.position.ledger_id, EntryId(-1)):
            found.append(Finding(SNAPSHOT_RULE, one.position, f"{what}, and the log has no such entry"))
    return found


def _missing(due: SnapshotDue, *, blind: bool, entries: int, span_ms: int) -> str | None:
    """Why the log must have a snapshot although none can be read; None: it needs none.

    A takeover of a trimmed log needs a snapshot. And a topic owner takes one after a number of entries, or some time,
    at the latest: where the log is far beyond both, its snapshots are lost.
    """
    if blind:
        return "the log was trimmed, and no snapshot of the trimmed part can be read: no topic owner can take it over"
    overdue = entries > due.entries_max and span_ms > due.interval_ms
    if due.entries_max and (overdue or entries > _OVERDUE_TIMES * due.entries_max):
        return (
            f"the log has {entries} entries, a snapshot is due after {due.entries_max} entries or "
            f"{due.interval_ms} ms, but none can be read: its snapshots are lost"
        )
    return None


def trouble_of(number: int, found: ReportedSnapshot | None, *, newer: bool) -> str | None:
    """The problem, if the topic owner took snapshot `number`, and `found` is the newest that could be read."""
    if number == 0 or (found is not None and found.number >= number):
        return None
    if found is None and newer:
        return None  # later snapshots have replaced the one of this position
    readable = "none can be read" if found is None else f"the newest that can be read is {found.number}"
    return f"the topic owner has taken snapshot {number}, but {readable}"
