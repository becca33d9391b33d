"""The job, the events and the effects of the repair of one ledger. Each effect but the last is answered by one event,
always: a deadline that passes is an answer, too."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.member_status import CopyState
from oncelog.core.ledger.metadata import EntryRange, LedgerKey, LedgerMetadata
from oncelog.core.ledger.storage_nodes import StorageNodes
from oncelog.core.records.records import ReadRecord, RecordWritten, WriteRecord


@dataclass(frozen=True, slots=True)
class RepairJob:
    """replace: the member to swap; None: fill the members in place. target: the node that replaces it, unless the
    record names a joining node already. absent: `replace` is only absent, and the swap stops when it returns (57).
    damaged: members that reported damage in this ledger."""

    ledger_id: LedgerId
    replace: Incarnation | None = None
    target: Incarnation | None = None
    absent: bool = False
    damaged: tuple[Incarnation, ...] = ()


@dataclass(frozen=True, slots=True)
class RepairLimits:
    """entries_max: ids of one range. bytes_max: of one CopyEntries; the shell may stop before it, too."""

    entries_max: int = 1000
    bytes_max: int = 4 * 1024 * 1024


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RepairStarted:
    """The first event."""


@dataclass(frozen=True, slots=True)
class RepairNodesChanged:
    """The storage nodes as they are now."""

    nodes: StorageNodes


@dataclass(frozen=True, slots=True)
class RepairRecordRead:
    """The response to ReadRecord. The shell then reads the record of the topic or cursor that should list the ledger.
    record None: there is none. listed: that record names the ledger."""

    record: LedgerMetadata | None
    version: int
    listed: bool = True


class VerifyStatus(Enum):
    """ANSWERED: the node has read its copies. ERASED: it erased its copy of the ledger. SILENT: no usable answer, for
    example a timeout or another incarnation."""

    ANSWERED = "answered"
    ERASED = "erased"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class CopyVerified:
    """The response to VerifyCopy. It covers first .. next_entry - 1 and may be shorter than requested.

    checksums: one for each covered id, valid only for ids that are neither missing nor unreadable.
    """

    node: Incarnation
    first: EntryId
    status: VerifyStatus = VerifyStatus.ANSWERED
    next_entry: EntryId = EntryId(0)
    checksums: Sequence[int] = ()
    missing: Sequence[EntryId] = ()
    unreadable: Sequence[EntryId] = ()


class CopyOutcome(Enum):
    """DONE: `copied` is durable at the target; fewer than requested because of bytes_max. SOURCE_FAILED: the first id
    after `copied` could not be read soundly, or the source did not answer. TARGET_FAILED: the target did not answer, or
    is another incarnation. TARGET_REFUSED: it is full. TARGET_CONFLICTS: it holds something else under this ledger id,
    and keeps it. NOT_NAMED: it does not find itself in the ledger's record."""

    DONE = "done"
    SOURCE_FAILED = "source_failed"
    TARGET_FAILED = "target_failed"
    TARGET_REFUSED = "target_refused"
    TARGET_CONFLICTS = "target_conflicts"
    NOT_NAMED = "not_named"


@dataclass(frozen=True, slots=True)
class EntriesCopied:
    """The response to CopyEntries. copied: those of the requested ids that the target acknowledged."""

    source: Incarnation
    target: Incarnation
    copied: Sequence[EntryId]
    outcome: CopyOutcome = CopyOutcome.DONE


@dataclass(frozen=True, slots=True)
class LedgerReviewed:
    """The response to ReviewLedger. state None: no answer."""

    node: Incarnation
    state: CopyState | None


class OwnerMemory(Enum):
    """RESTORED: some entries were stored again. NOTHING: the topic has no owner, or its owner has none of them.
    SILENT: the owner may have some; it, or the target, did not answer."""

    RESTORED = "restored"
    NOTHING = "nothing"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class EntriesRestored:
    """The response to RestoreEntries. owner: the one that was asked, if the topic has one."""

    outcome: OwnerMemory
    owner: Incarnation | None = None


RepairEvent = (
    RepairStarted
    | RepairNodesChanged
    | RepairRecordRead
    | RecordWritten[LedgerKey, LedgerMetadata]
    | CopyVerified
    | EntriesCopied
    | LedgerReviewed
    | EntriesRestored
)


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VerifyCopy:
    """Ask the node to read first .. first + count - 1 back from its disk. Answered by one CopyVerified, always."""

    node: Incarnation
    ledger_id: LedgerId
    first: EntryId
    count: int
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class CopyEntries:
    """Read these ids from the source and append them to the target as repair adds, bytes verbatim, at most `bytes_max`
    bytes at a time (at least one entry)."""

    source: Incarnation
    target: Incarnation
    ledger_id: LedgerId
    ids: tuple[EntryId, ...]
    bytes_max: int
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class ReviewLedger:
    """Ask the node to read the ledger's record and to clear its damage if everything is held again."""

    node: Incarnation
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class RestoreEntries:
    """Ask the topic's owner for these entries, which no storage node could give, and append to the target, as repair
    adds, what the owner has in memory. Answered by one EntriesRestored, always."""

    target: Incarnation
    ledger_id: LedgerId
    topic_id: TopicId
    ranges: tuple[EntryRange, ...]


class RepairResult(Enum):
    """WHOLE: every member has attested 0..end. WAITING: what could be done is done; some members do not answer.
    STUCK: entries without a source, which are not proved lost. LOST: as WHOLE, except for lost entries. TARGET_FAILED,
    TARGET_REFUSED: `waiting_for` names the node that could not be filled. GONE: the ledger is unlisted, not CLOSED, or
    has no record. CONFLICT: the record changed again and again."""

    WHOLE = "whole"
    WAITING = "waiting"
    STUCK = "stuck"
    LOST = "lost"
    FROZEN = "frozen"
    TARGET_FAILED = "target_failed"
    TARGET_REFUSED = "target_refused"
    GONE = "gone"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class RepairFinished:
    """The last effect. record, version: as last read or written. unavailable: entries without a source. waiting_for:
    the nodes whose return could help."""

    ledger_id: LedgerId
    result: RepairResult
    record: LedgerMetadata | None = None
    version: int = -1
    unavailable: tuple[EntryRange, ...] = ()
    waiting_for: tuple[Incarnation, ...] = ()


#: The effects that are answered.
RepairRequest = (
    ReadRecord[LedgerKey] | WriteRecord[LedgerKey, LedgerMetadata] | VerifyCopy | CopyEntries | ReviewLedger
    | RestoreEntries
)  # fmt: skip
RepairEffect = RepairRequest | RepairFinished
