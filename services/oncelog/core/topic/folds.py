"""What the entries of a topic's three chains mean to a takeover: the log, the ack log, and the snapshots.

A snapshot only saves time. If none of a ledger is complete, or the ledger cannot be read, those of the ledger before it
count, and a longer replay follows. What was complete before damage counts.
"""

from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.chain.replay import ChainFold, EntriesUnavailable, TakeoverFailed
from oncelog.core.errors import CorruptEntry, LedgerUnavailable, LogHole
from oncelog.core.formats.batch import Buffer, Checksum
from oncelog.core.formats.entry import EntryHeader, body_of, decode_entry, peek_header
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import BEFORE_ALL, NO_ENTRY, EntryId, LedgerId, Position
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.snapshots.ack_snapshot import restore_subscriptions
from oncelog.core.snapshots.dedup_format import SnapshotReader
from oncelog.core.snapshots.taken_over import LoadedSnapshot, NewestSnapshot


class LogFold(ChainFold):
    """The producers. state: of the snapshot, until the replay begins. unavailable: entries of a newer snapshot that
    no node has."""

    headers_only = True

    def __init__(self, record: TopicRecord, state: DedupState) -> None:
        self.state = state
        self.unavailable: EntriesUnavailable | None = None
        #: of the last entry that was folded
        self.last_append_ms: int | None = None
        self.deleted_below = record.deleted_below
        self.restored = record.given_up_behind is not None

    @property
    def position(self) -> Position:
        return self.state.position

    def cannot_begin(self, first: LedgerLink | None) -> TakeoverFailed | None:
        if self.position != BEFORE_ALL:
            # A ledger that all kept snapshots cover as a whole may have been deleted: no replay begins in it. The next
            # one, if nothing was ever written to it, is in no list after a restore.
            deleted = self.deleted_below > self.position.ledger_id
            covered = deleted and (first is None or first.base_index == self.state.next_index)
            return None if covered else super().cannot_begin(first)
        if self.restored and self.no_snapshots:
            return None
        if self.deleted_below:
            # They held grants at least, also if no message was in them: the names, ids and generations of producers.
            reason = f"the log does not begin with its first ledger: ledgers below {self.deleted_below} were deleted"
        elif first is not None and first.base_index:
            reason = f"the log begins with message {first.base_index}, not with the first"
        else:
            return None
        reason = f"no snapshot can be read, and {reason}"
        missing = self.unavailable
        if missing is None:
            return TakeoverFailed(reason)
        members = tuple((member, "is waited for") for member in missing.waiting_for)
        return TakeoverFailed(
            f"{reason}; {missing.reason}", LedgerUnavailable.code, missing.ledger_id, missing.first, members
        )

    def begin_ledger(self, link: LedgerLink) -> str | None:
        if self.restored and link.base_index > self.state.next_index:
            self.state.skip_given_up(Position(link.ledger_id, NO_ENTRY))
        if self.state.begin_ledger(link.base_index):
            return None
        return f"ledger {link.ledger_id} begins at message {link.base_index}, the log before it ends elsewhere"

    def fold(self, metadata: LedgerMetadata, following: EntryId, data: Buffer) -> EntryHeader:
        """Control entries do not move the index, so the index cannot show that one is missing."""
        header = peek_header(data)
        expected = Position(metadata.ledger_id, following)
        if header.position != expected:
            raise LogHole(f"{expected} was to follow, the bytes say {header.position}")
        self.state.fold(header, data)
        self.last_append_ms = header.append_time_ms
        return header

    def pass_over(self, last: Position) -> None:
        self.state.skip_given_up(last)


class AckFold(ChainFold):
    """The subscriptions. state: of the snapshot, until the replay begins."""

    of_chain = " of the ack log"

    def __init__(self, record: TopicRecord, checksum: Checksum) -> None:
        self.state = SubscriptionsState()
        self.deleted_below = record.acks_deleted_below
        self.restored = record.given_up_behind is not None
        self._checksum = checksum

    @property
    def position(self) -> Position:
        return self.state.position

    def cannot_begin(self, first: LedgerLink | None) -> TakeoverFailed | None:
        if self.position != BEFORE_ALL or not self.deleted_below or (self.restored and self.no_snapshots):
            return super().cannot_begin(first)
        reason = "no snapshot of the subscriptions can be read, and the ack log does not begin with its first ledger"
        return TakeoverFailed(f"{reason}: ledgers below {self.deleted_below} were deleted")

    def fold(self, metadata: LedgerMetadata, following: EntryId, data: Buffer) -> EntryHeader:
        header = _decoded(metadata, following, data, self._checksum)
        self.state.fold(header, body_of(data))
        return header

    def pass_over(self, last: Position) -> None:
        self.state.pass_over(last)


class SnapshotFold(ChainFold):
    """The newest snapshot that is complete and can be read. state, subscriptions: as it says; empty without one."""

    alternatives = True

    def __init__(self, checksum: Checksum, recent_bytes_max: int) -> None:
        self.state = DedupState(recent_bytes_max)
        self.subscriptions = SubscriptionsState()
        self.loaded: LoadedSnapshot | None = None
        self._checksum, self._recent_bytes_max = checksum, recent_bytes_max
        self._ledger_id = LedgerId(-1)
        self._reader = SnapshotReader(checksum, recent_bytes_max)
        #: when the newest complete snapshot of this ledger was written
        self._taken_ms = 0

    def begin_ledger(self, link: LedgerLink) -> str | None:
        self._ledger_id = link.ledger_id
        self._reader = SnapshotReader(self._checksum, self._recent_bytes_max)
        return None

    def fold(self, metadata: LedgerMetadata, following: EntryId, data: Buffer) -> EntryHeader:
        header = _decoded(metadata, following, data, self._checksum)
        former = self._reader.manifest
        self._reader.feed(following, header.kind, body_of(data))
        if self._reader.manifest is not former:
            self._taken_ms = header.append_time_ms
        return header

    def end_ledger(self) -> bool:
        reader = self._reader
        if reader.state is None or reader.manifest is None or reader.base is None:
            return False
        try:
            self.subscriptions = restore_subscriptions(reader.subscriptions, reader.manifest.acks)
        except CorruptEntry:
            return False
        self.state = reader.state
        self.loaded = LoadedSnapshot(
            reader.manifest.number, self._ledger_id, reader.base.position, reader.base.acks,
            NewestSnapshot(reader.manifest.position, self._taken_ms),
        )  # fmt: skip
        return True


def _decoded(metadata: LedgerMetadata, entry_id: EntryId, data: Buffer, checksum: Checksum) -> EntryHeader:
    return decode_entry(
        data, ledger_id=metadata.ledger_id, entry_id=entry_id, checksum=checksum, topic_id=metadata.topic_id
    )
