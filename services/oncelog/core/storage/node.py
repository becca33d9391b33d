"""One storage node: who may add to a ledger, what a fence stops, and when a request is answered.

    ordinary adds of one ledger
        UNCHECKED --first add: CheckLedger; frames are queued in order--> CHECKING
        CHECKING --OPEN with this incarnation as a member--> WRITABLE: queued and later adds are stored
        CHECKING --anything else--> UNCHECKED: NOT_WRITABLE (a zombie writer cannot create a ledger here again)
        any --fence: by request or by a fencing read--> FENCED, for ever: ordinary adds are refused at once
        any --LedgerRecordMissing, and a check proves the deletion--> deleted, after a tombstone in the journal
        any --LedgerRecordMissing, and a check finds no record and no proof--> kept: LedgerOrphaned

Rules
- Every call names the incarnation that it is meant for; any other incarnation refuses it. A wiped directory is another
  node.
- The journal is first in, first out. A fence is in force from the moment its record is handed over: earlier adds stand,
  and no ordinary add follows. A ledger that is unknown to the node can be fenced, too. `answers` delays each answer
  until it is durable.
- Recovery adds ignore the fence and the check: the recovering process set the fence, and closes the ledger itself.
- Entries arrive in any order and with gaps; `ledger` checks each entry by itself.
- A record counts as absent in ZooKeeper only after the sync that CheckLedger requests (hazards 2 and 19). A missing
  record alone never deletes a ledger (hazard 67, `ledger`).
Source: BookKeeper's bookie rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, assert_never

from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.batch import Buffer, Checksum
from oncelog.core.formats.entry import EntryHeader
from oncelog.core.ids import NO_ENTRY, Incarnation, LedgerId
from oncelog.core.ledger.member_status import AppendStatus, FenceState, ReadStatus
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.storage.answers import (
    AnswerAppend,
    AnswerFence,
    AnswerRead,
    FenceReceived,
    LedgerDeleted,
    LedgerOrphaned,
    PendingAnswer,
    ReadReceived,
    StorageAnswers,
)
from oncelog.core.storage.ledger import Entries, JournalRecord, LedgerOrigin, RecordKind, StorageIndex, StorageLedger

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppendReceived:
    """One frame: entries of any ledgers, each with its decoded header. call: identifies the client in the answers."""

    call: int
    target: Incarnation
    entries: Sequence[tuple[EntryHeader, Buffer]]
    recovery: bool = False


@dataclass(frozen=True, slots=True)
class LedgerChecked:
    """The response to the CheckLedger of this number. metadata None: there is no such record, after a sync.

    deleted: the record is missing, and `ledger.was_deleted` proves that the ledger was deleted.
    """

    ledger_id: LedgerId
    check: int
    metadata: LedgerMetadata | None
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class LedgerRecordMissing:
    """ZooKeeper seems to have no record of the ledger."""

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class Synced:
    """Every record up to `lsn` is durable and in the index."""

    lsn: int


@dataclass(frozen=True, slots=True)
class ReadOnlyChanged:
    """read_only: the disk is nearly full, and ordinary adds are refused."""

    read_only: bool


StorageEvent = (
    AppendReceived | FenceReceived | ReadReceived | LedgerChecked | LedgerRecordMissing | Synced | ReadOnlyChanged
)


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteJournal:
    """Write these records, in order, and sync them."""

    records: tuple[JournalRecord, ...]


@dataclass(frozen=True, slots=True)
class CheckLedger:
    """Read the ledger's record after a sync. If it is missing, look for a proof that the ledger was deleted.

    origin: the topic and purpose of the ledger. None while no entry of it is stored: then there is nothing to delete.
    """

    ledger_id: LedgerId
    check: int
    origin: LedgerOrigin | None = None


StorageEffect = WriteJournal | CheckLedger | AnswerAppend | AnswerFence | AnswerRead | LedgerDeleted | LedgerOrphaned


# --- the machine ------------------------------------------------------------------------------------------------------


class _Step(NamedTuple):
    """The result of one event."""

    effects: list[StorageEffect]
    records: list[JournalRecord]


class StoredLedgers(dict[LedgerId, StorageLedger]):
    """Every ledger that this node has a state of."""

    def of(self, ledger_id: LedgerId) -> StorageLedger:
        """The ledger; a new one if it is unknown."""
        ledger = self.get(ledger_id)
        if ledger is None:
            ledger = self[ledger_id] = StorageLedger(ledger_id)
        return ledger

    def fence_state(self, ledger_id: LedgerId) -> FenceState:
        """Whether the ledger takes ordinary adds here now. Changes nothing.

        A fence counts from the moment it is in force, even if it is not durable yet.
        """
        ledger = self.get(ledger_id)
        if ledger is None or ledger.deleting:
            return FenceState.UNKNOWN
        if ledger.fenced:
            return FenceState.FENCED
        return FenceState.HELD if ledger.writable else FenceState.UNKNOWN


class StorageNode:
    """All ledgers of one storage node. Before the first event, the restore methods replay the journal."""

    #: Bytes of entries that may wait for checks. Further adds are answered TOO_MANY_REQUESTS.
    queued_bytes_max: ClassVar[int] = 64 * 1024 * 1024
    answers_class: ClassVar[type[StorageAnswers]] = StorageAnswers

    def __init__(self, incarnation: Incarnation, index: StorageIndex, checksum: Checksum) -> None:
        self.incarnation = incarnation
        self._index = index
        self._checksum = checksum
        self.ledgers = StoredLedgers()
        self._answers = self.answers_class(index)
        self._queued_bytes = 0
        self._checks = 0
        self._read_only = False

    # --- start -------------------------------------------------------------------------------------------------------

    def restore_entry(self, header: EntryHeader, *, recovery: bool = False) -> None:
        """The journal holds this entry, synced. recovery: as a RECOVERY_ADD."""
        ledger = self.ledgers.of(header.ledger_id)
        ledger.writable = ledger.writable or not recovery
        ledger.note_stored(header)

    def restore_fence(self, ledger_id: LedgerId) -> None:
        """The journal holds a fence of this ledger, synced."""
        self.ledgers.of(ledger_id).fenced = True

    def restore_deletion(self, ledger_id: LedgerId) -> None:
        """The journal holds a tombstone: its earlier records of the ledger are deleted."""
        self.ledgers.pop(ledger_id, None)

    # --- events ------------------------------------------------------------------------------------------------------

    def handle(self, event: StorageEvent) -> list[StorageEffect]:
        step = _Step([], [])
        match event:
            case AppendReceived():
                self._append(event, step)
            case Synced():
                step.effects.extend(self._answers.settle(event.lsn))
                for effect in step.effects:
                    if isinstance(effect, LedgerDeleted) and self.ledgers[effect.ledger_id].idle:
                        del self.ledgers[effect.ledger_id]
            case FenceReceived():
                self._fence_received(event, step)
            case ReadReceived():
                self._read_received(event, step)
            case LedgerChecked():
                self._ledger_checked(event, step)
            case LedgerRecordMissing():
                self._ledger_record_missing(event.ledger_id, step)
            case ReadOnlyChanged():
                self._read_only = event.read_only
            case _:
                assert_never(event)
        if step.records:
            step.effects.append(WriteJournal(tuple(step.records)))
        return step.effects

    # --- adds --------------------------------------------------------------------------------------------------------

    def _append(self, event: AppendReceived, step: _Step) -> None:
        frame: dict[LedgerId, list[tuple[EntryHeader, Buffer]]] = {}
        for entry in event.entries:
            frame.setdefault(entry[0].ledger_id, []).append(entry)
        for ledger_id, entries in frame.items():
            if event.target != self.incarnation:
                step.effects.append(_refused(event.call, ledger_id, entries, AppendStatus.WRONG_INCARNATION))
                continue
            ledger = self.ledgers.of(ledger_id)
            if ledger.deleting:
                step.effects.append(_refused(event.call, ledger_id, entries, AppendStatus.NOT_WRITABLE))
            elif event.recovery:
                self._store(event.call, ledger, entries, RecordKind.RECOVERY_ADD, step)
            else:
                self._add(event.call, ledger, entries, step)
            self._forget_if_empty(ledger)

    def _add(self, call: int, ledger: StorageLedger, entries: Entries, step: _Step) -> None:
        """Ordinary adds of one ledger: refused, queued or stored."""
        refusal = self._refusal(ledger)
        if refusal is not None:
            step.effects.append(_refused(call, ledger.ledger_id, entries, refusal))
        elif self._needs_check(ledger):
            self._queue(call, ledger, entries, step)
        else:
            self._store(call, ledger, entries, RecordKind.ADD, step)

    def _refusal(self, ledger: StorageLedger) -> AppendStatus | None:
        """Why ordinary adds are refused before they are examined; None if they are not."""
        if ledger.fenced:
            return AppendStatus.FENCED
        return AppendStatus.READ_ONLY if self._read_only else None

    def _needs_check(self, ledger: StorageLedger) -> bool:
        """Whether ordinary adds must wait until the ledger's record was read (hazard 2)."""
        return not ledger.writable

    def _queue(self, call: int, ledger: StorageLedger, entries: Entries, step: _Step) -> None:
        queued_bytes = sum(len(data) for _, data in entries)
        if self._queued_bytes + queued_bytes > self.queued_bytes_max:
            step.effects.append(_refused(call, ledger.ledger_id, entries, AppendStatus.TOO_MANY_REQUESTS))
            return
        self._queued_bytes += queued_bytes
        ledger.queued.append((call, entries))
        self._check(ledger, step)

    def _store(self, call: int, ledger: StorageLedger, entries: Entries, kind: RecordKind, step: _Step) -> None:
        held, fresh, synced, corrupt, conflicting = ledger.store(
            entries, kind, step.records, lsn=self._answers.lsn + 1, index=self._index, checksum=self._checksum
        )
        self._answers.lsn += len(fresh)
        if corrupt:
            step.effects.append(AnswerAppend(call, ledger.ledger_id, corrupt, AppendStatus.CORRUPT))
        if conflicting:
            step.effects.append(AnswerAppend(call, ledger.ledger_id, conflicting, AppendStatus.CONFLICTING))
        if held:
            answer = AnswerAppend(call, ledger.ledger_id, held, AppendStatus.OK)
            lsn = self._answers.synced if synced else self._answers.lsn
            step.effects.extend(self._answers.answer_when_synced(PendingAnswer(lsn, ledger, fresh, answer)))

    # --- fences and reads --------------------------------------------------------------------------------------------

    def _fence(self, ledger: StorageLedger, step: _Step) -> None:
        if not ledger.fenced:
            ledger.fenced = True
            ledger.fence_lsn = self._answers.write(step.records, RecordKind.FENCE, ledger.ledger_id)

    def _fence_received(self, event: FenceReceived, step: _Step) -> None:
        if event.target != self.incarnation:
            wrong = ReadStatus.WRONG_INCARNATION
            step.effects.append(AnswerFence(event.call, event.ledger_id, NO_ENTRY, NO_ENTRY, wrong))
            return
        ledger = self.ledgers.of(event.ledger_id)
        self._fence(ledger, step)
        step.effects.extend(
            self._answers.answer_when_synced(PendingAnswer(self._answers.lsn_for(ledger.fence_lsn), ledger, (), event))
        )

    def _read_received(self, event: ReadReceived, step: _Step) -> None:
        if event.target != self.incarnation:
            wrong = ReadStatus.WRONG_INCARNATION
            step.effects.append(AnswerRead(event.call, event.ledger_id, (), (), NO_ENTRY, NO_ENTRY, wrong))
            return
        ledger = self.ledgers.get(event.ledger_id) or StorageLedger(event.ledger_id)
        if event.fence:
            ledger = self.ledgers.of(event.ledger_id)
            self._fence(ledger, step)
        beyond = event.first + event.count
        on_its_way = any(event.first <= entry_id < beyond for entry_id in ledger.pending)
        lsn = self._answers.lsn if on_its_way else self._answers.lsn_for(ledger.fence_lsn)
        step.effects.extend(self._answers.answer_when_synced(PendingAnswer(lsn, ledger, (), event)))

    # --- the check ---------------------------------------------------------------------------------------------------

    def _check(self, ledger: StorageLedger, step: _Step) -> None:
        if ledger.check == 0:
            self._checks += 1
            ledger.check = self._checks
            step.effects.append(CheckLedger(ledger.ledger_id, ledger.check, ledger.origin))

    def _ledger_record_missing(self, ledger_id: LedgerId, step: _Step) -> None:
        ledger = self.ledgers.get(ledger_id)
        # A check in progress may have begun before the origin was known. The next garbage collection decides.
        if ledger is not None and not ledger.deleting and ledger.check == 0:
            ledger.collect = True
            self._check(ledger, step)

    def _ledger_checked(self, event: LedgerChecked, step: _Step) -> None:
        ledger = self.ledgers.get(event.ledger_id)
        if ledger is None or ledger.check != event.check:
            return
        metadata = event.metadata
        missing = ledger.collect and metadata is None
        queued, ledger.queued = ledger.queued, []
        ledger.check, ledger.collect = 0, False
        open_here = (
            metadata is not None
            and metadata.state is LedgerState.OPEN
            and self.incarnation in metadata.members
            and metadata.ledger_id == ledger.ledger_id
        )
        ledger.writable = ledger.writable or open_here
        for call, entries in queued:
            self._queued_bytes -= sum(len(data) for _, data in entries)
            if open_here or ledger.fenced:
                self._add(call, ledger, entries, step)
            else:
                step.effects.append(_refused(call, ledger.ledger_id, entries, AppendStatus.NOT_WRITABLE))
        if missing and event.deleted:
            self._delete(ledger.ledger_id, step)
        else:
            if missing and ledger.origin is not None:
                step.effects.append(LedgerOrphaned(ledger.ledger_id))
            self._forget_if_empty(ledger)

    def _delete(self, ledger_id: LedgerId, step: _Step) -> None:
        """Records after the tombstone belong to a new state of the ledger."""
        ledger = self.ledgers[ledger_id] = StorageLedger(ledger_id, deleting=True)
        lsn = self._answers.write(step.records, RecordKind.LEDGER_ERASED, ledger_id)
        step.effects.extend(self._answers.answer_when_synced(PendingAnswer(lsn, ledger, (), LedgerDeleted(ledger_id))))

    def _forget_if_empty(self, ledger: StorageLedger) -> None:
        """Refused adds to unknown ledgers leave no state behind."""
        if ledger.idle and self._index.last_entry(ledger.ledger_id) is None:
            self.ledgers.pop(ledger.ledger_id, None)

    def check_invariants(self) -> None:
        """Raises InvariantViolated if this machine contradicts itself."""
        self._answers.check_invariants()
        queued_bytes = 0
        for ledger in self.ledgers.values():
            if ledger.queued and ledger.check == 0:
                raise InvariantViolated(f"adds of ledger {ledger.ledger_id} are queued without a check")
            if ledger.fence_lsn and not ledger.fenced:
                raise InvariantViolated(f"the fence of ledger {ledger.ledger_id} was taken back")
            queued_bytes += sum(len(data) for _, entries in ledger.queued for _, data in entries)
        if queued_bytes != self._queued_bytes:
            raise InvariantViolated(f"{queued_bytes} bytes are queued, but {self._queued_bytes} were counted")


def _refused(call: int, ledger_id: LedgerId, entries: Entries, status: AppendStatus) -> AnswerAppend:
    return AnswerAppend(call, ledger_id, [header.entry_id for header, _ in entries], status)
