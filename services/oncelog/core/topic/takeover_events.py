"""What a takeover hears, asks for and tells its topic."""

from dataclasses import dataclass

from oncelog.core.dedup.cursor import LoadedSnapshot
from oncelog.core.dedup.state import DedupState
from oncelog.core.errors import LogHole
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.topic_record import CursorRecord
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.recovery import (
    LedgerRead,
    LedgerWritten,
    MemberFenced,
    RecoveryAdded,
    RecoveryEffect,
    RecoveryReadAnswered,
)
from oncelog.core.ledger.recovery_range import MemberAnswers
from oncelog.core.store_status import WriteStatus

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
    """No member could give this entry; reason names what each said, and so does `members`."""

    ledger_id: LedgerId
    entry_id: EntryId
    reason: str
    members: MemberAnswers = ()


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The timer of a StartTimer with this key has expired."""

    key: str


TakeoverEvent = (
    CursorRecordRead
    | CursorRecordWritten
    | EntriesRead
    | EntryUnreadable
    | LedgerRead
    | LedgerWritten
    | MemberFenced
    | RecoveryReadAnswered
    | RecoveryAdded
    | TimerFired
)

# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Post TimerFired(key) after so many milliseconds."""

    key: str
    after_ms: int


@dataclass(frozen=True, slots=True)
class CursorRecoveryTimedOut:
    """Effect, for logs: the cursor's last ledger was not recovered in time, so an older snapshot is used."""

    ledger_id: LedgerId


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
    """Read first..last of a CLOSED ledger from any member, in order. headers_only: payloads may be cut off."""

    metadata: LedgerMetadata
    first: EntryId
    last: EntryId
    headers_only: bool


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
    """Something that must exist does not, or cannot be read.

    code: of the error that says so. ledger_id, entry_id: where, as far as known. members: (storage node, what it
    answered about that entry).
    """

    reason: str
    code: str = LogHole.code
    ledger_id: LedgerId | None = None
    entry_id: EntryId | None = None
    members: MemberAnswers = ()


TakeoverEffect = (
    StartTimer | CursorRecoveryTimedOut | ReadCursorRecord | WriteCursorRecord | ReadEntries | RecoveryEffect
)
TakeoverNews = Marked | TakenOver | TakeoverFailed
