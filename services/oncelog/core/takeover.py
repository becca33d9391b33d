"""Taking a topic over: marks B, C and D.

A is done: the record names this owner. E (the new ledger) is the topic's own, by the same machine that rolls.

    B  LOG         the log's last ledger is fenced, recovered and closed
    C  CLAIM       the cursor's record is read, and
       CLAIMING    written with this owner_epoch, so that no zombie can add a ledger to it
       CURSOR      the cursor's last ledger is fenced, recovered and closed
       SNAPSHOT    its entries are read; without a complete snapshot, those of the ledger before it, and so on
    D  REPLAY      the log after the snapshot is folded, entry by entry
       DONE | FAILED

Rules: the order B, C, D is the rule (a snapshot read before the log is fenced leaves a hole when the old owner trims in
between). Replay begins exactly after the snapshot, in its very ledger, or stops; an unreadable entry of the log stops
it with its name. A snapshot is worth only time: what of the cursor cannot be recovered or read falls back to the
snapshot before it and a longer replay. FAILED tells the topic to read its record again before it says so.
"""

from dataclasses import dataclass
from enum import Enum

from oncelog.core.batch import Buffer, Checksum
from oncelog.core.dedup_cursor import LoadedSnapshot
from oncelog.core.dedup_snapshot import SnapshotReader
from oncelog.core.dedup_state import DedupState
from oncelog.core.entry import body_of, decode_entry, peek_header
from oncelog.core.errors import CorruptEntry, InvalidBatch, LogHole
from oncelog.core.ids import BEFORE_ALL, EntryId, LedgerId, OwnerEpoch, Position
from oncelog.core.ledger_metadata import LedgerMetadata, LedgerState
from oncelog.core.ledger_recovery import (
    LedgerRead,
    LedgerRecovered,
    LedgerRecovery,
    LedgerWritten,
    MemberFenced,
    ReadLedger,
    RecoveryAdded,
    RecoveryEffect,
    RecoveryFailed,
    RecoveryReadAnswered,
)
from oncelog.core.store_status import WriteStatus
from oncelog.core.topic_record import CursorRecord, TopicRecord

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CursorRecordRead:
    """The dedup cursor's record after a sync; None: there is none. version: of the znode."""

    record: CursorRecord | None
    version: int


@dataclass(frozen=True, slots=True)
class CursorRecordWritten:
    status: WriteStatus
    version: int


@dataclass(frozen=True, slots=True)
class EntriesRead:
    """Consecutive entries of a CLOSED ledger, in order, whole or cut behind the id deltas (as asked)."""

    ledger_id: LedgerId
    entries: list[tuple[EntryId, Buffer]]


@dataclass(frozen=True, slots=True)
class EntryUnreadable:
    """No member could give this entry; reason names what each said."""

    ledger_id: LedgerId
    entry_id: EntryId
    reason: str


@dataclass(frozen=True, slots=True)
class CursorGivenUp:
    """The cursor's last ledger was not recovered in time. An older snapshot costs nothing but a longer replay."""


TakeoverEvent = (
    CursorGivenUp
    | CursorRecordRead
    | CursorRecordWritten
    | EntriesRead
    | EntryUnreadable
    | LedgerRead
    | LedgerWritten
    | MemberFenced
    | RecoveryReadAnswered
    | RecoveryAdded
)

# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadCursorRecord:
    pass


@dataclass(frozen=True, slots=True)
class WriteCursorRecord:
    """version -1: create."""

    record: CursorRecord
    version: int


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """Read first..last of a CLOSED ledger from any member, in order. heads_only: payloads may be cut off."""

    metadata: LedgerMetadata
    first: EntryId
    last: EntryId
    heads_only: bool


# --- news for the topic -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Marked:
    """A mark of the takeover was passed, for traces: B, C or D, with a count of what it handled."""

    mark: str
    count: int


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The whole state, up to the end of the log. loaded: the snapshot it began from."""

    state: DedupState
    cursor: CursorRecord
    cursor_version: int
    loaded: LoadedSnapshot | None
    replayed_entries: int


@dataclass(frozen=True, slots=True)
class TakeoverFailed:
    """Something that must exist does not, or cannot be read."""

    reason: str


TakeoverEffect = ReadCursorRecord | WriteCursorRecord | ReadEntries | RecoveryEffect
TakeoverNews = Marked | TakenOver | TakeoverFailed
_Out = list[TakeoverEffect | TakeoverNews]


class TakeoverState(Enum):
    LOG = "B"
    CLAIM = "C claim"
    CLAIMING = "C claiming"
    CURSOR = "C recovery"
    SNAPSHOT = "C snapshot"
    REPLAY = "D"
    DONE = "done"
    FAILED = "failed"


class Takeover:
    """One attempt for one epoch; a fresh one starts at B again."""

    def __init__(self, record: TopicRecord, *, checksum: Checksum) -> None:
        self.record = record
        self.state = TakeoverState.LOG
        self.checksum = checksum
        self.cursor: tuple[CursorRecord, int] = (CursorRecord(record.owner_epoch), -1)
        self.fold = DedupState()
        self.loaded: LoadedSnapshot | None = None
        self.replayed_entries = 0
        self._recovery: LedgerRecovery | None = None
        #: cursor ledgers still to be tried, or log ledgers still to be replayed, the next one last
        self._ledgers: list[LedgerId] = []
        #: (ledger being read, its next and last entry, the snapshot reader when it is the cursor's)
        self._reading: tuple[LedgerMetadata, EntryId, SnapshotReader | None] | None = None

    def start(self) -> _Out:
        if not self.record.ledgers:
            return [Marked("B", 0), *self._claim()]
        return self._recover(self.record.ledgers[-1].ledger_id)

    def _recover(self, ledger_id: LedgerId) -> _Out:
        self._recovery = LedgerRecovery(ledger_id, checksum=self.checksum)
        return self._step(self._recovery.start())

    def handle(self, event: TakeoverEvent) -> _Out:
        """Take one completion; those of another ledger or step are late and ignored."""
        if self.state in (TakeoverState.DONE, TakeoverState.FAILED):
            return []
        match event:
            case CursorGivenUp():
                return self._next_cursor_ledger() if self.state is TakeoverState.CURSOR else []
            case CursorRecordRead():
                return self._cursor_read(event)
            case CursorRecordWritten():
                return self._cursor_written(event)
            case EntriesRead():
                return self._entries_read(event)
            case EntryUnreadable():
                return self._unreadable(event)
            case LedgerRead() if self._recovery is None:
                return self._ledger_read(event)
            case _:
                return self._step(self._recovery.handle(event)) if self._recovery is not None else []

    def _step(self, effects: list[RecoveryEffect | LedgerRecovered | RecoveryFailed]) -> _Out:
        out: _Out = []
        for effect in effects:
            if isinstance(effect, LedgerRecovered):
                self._recovery = None
                out += self._recovered(effect.metadata)
            elif isinstance(effect, RecoveryFailed):
                self._recovery = None
                out += self._fail(effect.reason) if self.state is TakeoverState.LOG else self._next_cursor_ledger()
            else:
                out.append(effect)
        return out

    def _recovered(self, metadata: LedgerMetadata) -> _Out:
        if self.state is TakeoverState.LOG:
            return [Marked("B", metadata.end + 1), *self._claim()]
        return self._read_snapshot(metadata)

    def _fail(self, reason: str) -> _Out:
        self.state = TakeoverState.FAILED
        self._recovery = None
        return [TakeoverFailed(reason)]

    # --- C: the cursor ------------------------------------------------------------------------------------------------

    def _claim(self) -> _Out:
        self.state = TakeoverState.CLAIM
        return [ReadCursorRecord()]

    def _cursor_read(self, event: CursorRecordRead) -> _Out:
        if self.state is not TakeoverState.CLAIM:
            return []
        mine = self.record.owner_epoch
        found = event.record if event.record is not None else CursorRecord(OwnerEpoch(0))
        if found.owner_epoch > mine:
            return self._fail(f"the dedup cursor belongs to owner_epoch {found.owner_epoch}, above {mine}")
        if event.record is not None and found.owner_epoch == mine:
            self.cursor = (found, event.version)
            return self._claimed()
        claimed = CursorRecord(mine, found.ledgers)
        self.cursor = (claimed, event.version)
        self.state = TakeoverState.CLAIMING
        return [WriteCursorRecord(claimed, event.version if event.record is not None else -1)]

    def _cursor_written(self, event: CursorRecordWritten) -> _Out:
        if self.state is not TakeoverState.CLAIMING:
            return []
        if event.status is not WriteStatus.OK:
            return self._claim()
        self.cursor = (self.cursor[0], event.version)
        return self._claimed()

    def _claimed(self) -> _Out:
        self._ledgers = [link.ledger_id for link in self.cursor[0].ledgers]
        if not self._ledgers:
            return self._replay()
        self.state = TakeoverState.CURSOR
        return self._recover(self._ledgers.pop())

    def _next_cursor_ledger(self) -> _Out:
        self._recovery = None
        self.state = TakeoverState.SNAPSHOT
        return [ReadLedger(self._ledgers.pop())] if self._ledgers else self._replay()

    def _read_snapshot(self, metadata: LedgerMetadata) -> _Out:
        self.state = TakeoverState.SNAPSHOT
        if metadata.end < 0:
            return self._next_cursor_ledger()
        self._reading = (metadata, EntryId(0), SnapshotReader(self.checksum))
        return [ReadEntries(metadata, EntryId(0), metadata.end, heads_only=False)]

    def _snapshot_entries(self, metadata: LedgerMetadata, reader: SnapshotReader, event: EntriesRead) -> _Out:
        try:
            for entry_id, data in event.entries:
                header = decode_entry(data, ledger_id=metadata.ledger_id, entry_id=entry_id, checksum=self.checksum)
                reader.feed(entry_id, header.kind, body_of(data))
        except CorruptEntry:
            # What was complete before it counts; without that, the older base and a longer replay.
            return self._snapshot_done(metadata, reader)
        if event.entries[-1][0] < metadata.end:
            self._reading = (metadata, EntryId(event.entries[-1][0] + 1), reader)
            return []
        return self._snapshot_done(metadata, reader)

    def _snapshot_done(self, metadata: LedgerMetadata, reader: SnapshotReader) -> _Out:
        self._reading = None
        if reader.state is None or reader.manifest is None or reader.base is None:
            return self._next_cursor_ledger()
        self.fold = reader.state
        self.loaded = LoadedSnapshot(reader.manifest.number, metadata.ledger_id, reader.base.position)
        return self._replay()

    # --- D: the log ---------------------------------------------------------------------------------------------------

    def _replay(self) -> _Out:
        self.state = TakeoverState.REPLAY
        position = self.fold.position
        links = [link for link in self.record.ledgers if link.ledger_id >= position.ledger_id]
        if position != BEFORE_ALL and not (links and links[0].ledger_id == position.ledger_id):
            return self._fail(
                f"the snapshot ends at {position}, and the topic's list does not hold that ledger any more"
            )
        if position == BEFORE_ALL and links and links[0].base_index != 0:
            return self._fail(
                f"no snapshot can be read, and the log begins with message {links[0].base_index}, not with the first"
            )
        self._ledgers = [link.ledger_id for link in reversed(links)]
        producers = len(self.fold.producers)
        return [Marked("C", producers), *self._next_log_ledger()]

    def _next_log_ledger(self) -> _Out:
        if self._ledgers:
            return [ReadLedger(self._ledgers[-1])]
        self.state = TakeoverState.DONE
        record, version = self.cursor
        done = TakenOver(self.fold, record, version, self.loaded, self.replayed_entries)
        return [Marked("D", self.replayed_entries), done]

    def _ledger_read(self, event: LedgerRead) -> _Out:
        if self.state is TakeoverState.SNAPSHOT and self._reading is None:
            if event.metadata is None or event.metadata.state is not LedgerState.CLOSED:
                return self._next_cursor_ledger()
            return self._read_snapshot(event.metadata)
        if self.state is not TakeoverState.REPLAY or not self._ledgers or event.ledger_id != self._ledgers[-1]:
            return []
        metadata = event.metadata
        if metadata is None:
            return self._fail(f"ledger {event.ledger_id} is in the topic's list and has no record")
        if metadata.state is not LedgerState.CLOSED:
            return self._fail(f"ledger {event.ledger_id} is {metadata.state.value} behind a recovered one")
        position = self.fold.position
        first = EntryId(position.entry_id + 1 if position.ledger_id == metadata.ledger_id else 0)
        link = next(link for link in self.record.ledgers if link.ledger_id == metadata.ledger_id)
        if first == 0 and link.base_index != self.fold.next_index:
            return self._fail(
                f"ledger {link.ledger_id} begins at message {link.base_index}, the log before it ends elsewhere"
            )
        self._ledgers.pop()
        if first > metadata.end + 1:
            return self._fail(f"the snapshot ends at {position}, beyond the end {metadata.end} of that ledger")
        if first > metadata.end:
            return self._next_log_ledger()
        self._reading = (metadata, first, None)
        return [ReadEntries(metadata, first, metadata.end, heads_only=True)]

    def _entries_read(self, event: EntriesRead) -> _Out:
        if self._reading is None or event.ledger_id != self._reading[0].ledger_id or not event.entries:
            return []
        metadata, following, reader = self._reading
        if event.entries[0][0] != following:
            return []
        if reader is not None:
            return self._snapshot_entries(metadata, reader, event)
        for _, data in event.entries:
            try:
                _fold_next(self.fold, Position(metadata.ledger_id, following), data)
            except (CorruptEntry, LogHole, InvalidBatch) as error:
                return self._fail(f"entry {metadata.ledger_id}:{following} cannot be replayed: {error.message}")
            following = EntryId(following + 1)
        self.replayed_entries += len(event.entries)
        if following <= metadata.end:
            self._reading = (metadata, following, None)
            return []
        self._reading = None
        return self._next_log_ledger()

    def _unreadable(self, event: EntryUnreadable) -> _Out:
        if self._reading is None or event.ledger_id != self._reading[0].ledger_id:
            return []
        metadata, _, reader = self._reading
        if reader is not None:
            return self._snapshot_done(metadata, reader)
        return self._fail(f"entry {event.ledger_id}:{event.entry_id} cannot be read: {event.reason}")


def _fold_next(fold: DedupState, following: Position, data: Buffer) -> None:
    """Fold one entry in if it is the one that follows: control entries move no index that could show a hole."""
    header = peek_header(data)
    if header.position != following:
        raise LogHole(f"{following} was to follow, the bytes say {header.position}")
    fold.fold(header, data)
