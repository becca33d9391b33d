"""Everything that the core of a topic asks its shell to do: one union, and the list that one event fills.

All parts of a topic emit their effects into the same list, so that no part passes on what another one asks for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from oncelog.core.chain.managed_ledger import LedgerEffect
from oncelog.core.chain.ownership import OwnershipEffect
from oncelog.core.chain.replay import ReadEntries, TakeoverFailed
from oncelog.core.delivery.events import ConsumerEffect
from oncelog.core.errors import OncelogError
from oncelog.core.formats.opening import Granted, Leased, ProducerInstance
from oncelog.core.formats.outcome import Outcome
from oncelog.core.formats.topic_record import CursorRecord
from oncelog.core.ids import Generation, LedgerId, Position, SessionNumber
from oncelog.core.ledger.recovery import FenceMember, LedgerRecordEffect, RecoveryAdd, RecoveryRead
from oncelog.core.records.records import CursorKey, PageKey, ReadRecord, WriteRecord

# --- producers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    session: SessionNumber
    request: int
    result: Outcome | OncelogError


@dataclass(frozen=True, slots=True)
class AnswerBatches:
    answers: tuple[BatchAnswer, ...]


@dataclass(frozen=True, slots=True)
class EndSession:
    """Nothing more is answered on this session."""

    session: SessionNumber
    error: OncelogError


@dataclass(frozen=True, slots=True)
class NameWanted:
    """Another client wants the name of this session, which a gateway has opened for a client of its own: is that client
    there? NameHeld or SessionClosed follows, or nothing."""

    session: SessionNumber


@dataclass(frozen=True, slots=True)
class ReadEntryIds:
    """Read the ids of the batch in this entry; comes back as EntryIdsRead."""

    position: Position


@dataclass(frozen=True, slots=True)
class AnswerOpen:
    """The answer to the ProducerOpening of this call. Leased: it asked for a lease."""

    call: int
    result: Granted | Leased | OncelogError


@dataclass(frozen=True, slots=True)
class AllocateProducerId:
    """Allocate an id that was never given to anyone; comes back as ProducerIdAllocated or ProducerIdRefused."""

    allocation: int


@dataclass(frozen=True, slots=True)
class ExplainDelay:
    """Requests to open have waited too long for a topic that does not serve; comes back as OpeningsDelayed."""


@dataclass(frozen=True, slots=True)
class NotifyDedupToggled:
    """Deduplication is enabled or disabled from here on: notify every open session."""

    enabled: bool


@dataclass(frozen=True, slots=True)
class ChunksOrphaned:
    """For metrics: so many chunks with so many bytes of a value never become a message."""

    chunks: int
    value_bytes: int


# --- the log and the dedup cursor -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LastAddConfirmed:
    """Readers may go up to `position`."""

    position: Position


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """For logs and counters: the snapshot at `position` is durable."""

    number: int
    position: Position
    producers: int
    is_base: bool
    #: batches evicted from memory since the last snapshot
    evicted: int = 0


# --- taking over and ending -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadLedgerEnds:
    """Read the ends of these CLOSED ledgers of the log, and post them as LedgerEndsRead, in parts."""

    ledger_ids: tuple[LedgerId, ...]


@dataclass(frozen=True, slots=True)
class ReadStoredTimes:
    """Read when these messages of the log were stored, and post it as StoredTimesRead."""

    indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeletePages:
    """The ledgers below this id were trimmed: delete the records of those in pages, and then the pages."""

    below: LedgerId


@dataclass(frozen=True, slots=True)
class CheckClock:
    """Write a record to ZooKeeper, or use such a write of this process from less than a minute ago."""


@dataclass(frozen=True, slots=True)
class AnswerTruncate:
    """The answer to TruncateRequested and TrimBelowRequested. first_index: of the topic now."""

    call: int
    first_index: int
    error: OncelogError | None = None


@dataclass(frozen=True, slots=True)
class LogTrimmed:
    """Ledgers have left the log: for metrics. message_bytes: of their entries with messages."""

    ledgers: int
    messages: int
    message_bytes: int


@dataclass(frozen=True, slots=True)
class PublishingSwitched:
    """A backlog quota holds or refuses publishing from here on, or no longer: for logs. action: "held" or "refused";
    None: open again. subscription: whose backlog exceeds the quota."""

    action: str | None
    subscription: str | None


@dataclass(frozen=True, slots=True)
class SessionFenced:
    """A newer instance has taken the name of a connected producer, whose session ends: for logs. former: that producer.
    role, peer: of the newer one."""

    name: str
    former: ProducerInstance
    former_peer: str
    generation: Generation
    role: str
    peer: str


@dataclass(frozen=True, slots=True)
class StartTopicTimer:
    """Post TopicTimerFired(key) after so many milliseconds."""

    key: str
    after_ms: int


class TakeoverPhase(Enum):
    """The phases of a takeover, in order."""

    #: until this process has learned that the topic is assigned to it
    ACQUIRE = "acquire"
    #: the log's last ledger is fenced, recovered and closed
    RECOVER = "recover"
    #: the dedup cursor is claimed, and its newest complete snapshot is read
    LOAD_SNAPSHOT = "load_snapshot"
    #: the log after the snapshot is folded
    REPLAY = "replay"
    #: a new ledger is linked, and the topic is served
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class TakeoverPhaseEnded:
    """For traces. count: recovered entries, producers of the snapshot, or replayed entries; else 0. last_append_ms:
    when the last replayed entry was appended, by the clock of its owner; None: none was replayed."""

    phase: TakeoverPhase
    count: int = 0
    last_append_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CursorRecoveryTimedOut:
    """For logs: the cursor's last ledger was not recovered in time, so an older snapshot is used."""

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class Served:
    """The owner serves from here on. log_end: last position taken over."""

    log_end: Position


@dataclass(frozen=True, slots=True)
class TopicFailed:
    """The takeover failed and is retried later; nothing is served meanwhile."""

    failure: TakeoverFailed


@dataclass(frozen=True, slots=True)
class TopicDeposed:
    """This owner has lost the topic at this epoch."""

    reason: str


@dataclass(frozen=True, slots=True)
class TopicClosed:
    """This owner has closed the topic on request; the next owner needs no recovery where everything was drained."""


TopicEffect = (
    AnswerBatches | EndSession | NameWanted | ReadEntryIds | AnswerOpen | AllocateProducerId | ExplainDelay
    | NotifyDedupToggled | LastAddConfirmed | OwnershipEffect | ReadRecord[CursorKey | PageKey]
    | WriteRecord[CursorKey, CursorRecord]
    | SnapshotTaken | StartTopicTimer | ReadEntries | TakeoverPhaseEnded | CursorRecoveryTimedOut | Served | TopicFailed
    | TopicDeposed | TopicClosed | LedgerEffect | LedgerRecordEffect | FenceMember | RecoveryRead | RecoveryAdd
    | ConsumerEffect | ReadLedgerEnds | ReadStoredTimes | DeletePages | CheckClock | AnswerTruncate | LogTrimmed
    | ChunksOrphaned | PublishingSwitched | SessionFenced
)  # fmt: skip


@dataclass(slots=True)
class Step:
    """The event being handled: its time, and the effects so far. Shared by all parts of a topic."""

    now_ms: int = 0
    effects: list[TopicEffect] = field(default_factory=list)
    #: adds an effect of this step
    emit: Callable[[TopicEffect], None] = field(init=False)
    #: a refusal waits for a proof of ownership: the topic record is read at the end of the step
    reads_ownership: bool = False

    def __post_init__(self) -> None:
        self.emit = self.effects.append

    def take(self) -> list[TopicEffect]:
        """The effects of the step, which is over."""
        taken = self.effects.copy()
        self.effects.clear()
        return taken
