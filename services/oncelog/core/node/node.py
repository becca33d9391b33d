"""One storage node: who may add to a ledger, what a fence stops, and when a request is answered.

    ordinary adds of one ledger
        UNCHECKED --first add: CheckLedger; frames are queued in order--> CHECKING
        CHECKING --OPEN with this incarnation as a member--> WRITABLE: queued and later adds are stored
        CHECKING --anything else--> UNCHECKED: NOT_WRITABLE (a zombie writer cannot create a ledger here again)
        any --fence: by request or by a fencing read--> FENCED, for ever: ordinary adds are refused at once
        any --a start with a hole in the directory--> LIMBO: READ_ONLY, until the ledger is whole here (`limbo`)
        any --a review finds that the copy is not needed--> ERASED, after a tombstone in the journal (`review`)
        any --a new era is stored--> NOT_WRITABLE for ever: the writer is of a former era (`era`)
    repair adds of one ledger
        UNCHECKED --first add: CheckLedger; frames are queued--> CHECKING
        CHECKING --CLOSED with this incarnation as a member or joining--> ids up to the end are stored
        CHECKING --anything else--> UNCHECKED: NOT_WRITABLE
        ERASED --a repair add is stored--> a new life of the copy: its records have higher numbers than the tombstone

Rules
- Every call names the incarnation that it is meant for; any other incarnation refuses it. A wiped directory is another
  node.
- The journal is first in, first out. A fence is in force from the moment its record is handed over: earlier adds stand,
  and no ordinary add follows. A ledger that is unknown to the node can be fenced, too. `answers` delays each answer
  until it is durable.
- Recovery adds ignore the fence and the check: the recovering process set the fence, and closes the ledger itself.
- Repair adds ignore the fence, but stop before the reserve of disk space that recoveries and fences need (hazard
  reserve-used-by-repair).
- Adds of callers of another era than the node's are NOT_WRITABLE, of any kind (hazard era-at-one-node).
- Entries arrive in any order and with gaps; `ledger` checks each entry by itself.
- A record counts as absent in ZooKeeper only after the sync that CheckLedger requests (hazards former-incarnation and
  repeated-add-not-synced). A missing record alone never deletes a ledger (hazard missing-record-is-no-deletion,
  `ledger`).
- Records have numbers that ascend over the whole life of the directory, and compaction copies records under their own
  numbers. The restore methods take the records in the order of their numbers, or what is left of them (hazard
  compaction-order).
Source: BookKeeper's bookie rules.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, assert_never

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.batch import Buffer, Checksum
from oncelog.core.formats.entry import EntryHeader
from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import AppendStatus, CopyState, ReadStatus
from oncelog.core.node.answers import (
    AnswerAppend,
    AnswerFence,
    AnswerRead,
    FenceReceived,
    LedgerErased,
    LimboCleared,
    PendingAnswer,
    ReadReceived,
    StorageAnswers,
)
from oncelog.core.node.era import AnswerEra, EraRaised, EraReceived, StoredEra
from oncelog.core.node.node_era import NodeEra
from oncelog.core.node.node_ledger import (
    Entries,
    JournalRecord,
    LedgerOrigin,
    RecordKind,
    StorageIndex,
    StorageLedger,
)
from oncelog.core.node.review import (
    AllReviewed,
    AnswerReview,
    LedgerChecked,
    LedgerReviews,
    LedgerVerified,
    RecordTouched,
    ReviewEffect,
    ReviewReceived,
    StoredLedgers,
)

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppendReceived:
    """One frame: entries of any ledgers, each with its decoded header. call: identifies the client in the answers.
    era: of the client, as its stream began."""

    call: int
    target: Incarnation
    entries: Sequence[tuple[EntryHeader, Buffer]]
    recovery: bool = False
    repair: bool = False
    era: Era = FIRST_ERA


@dataclass(frozen=True, slots=True)
class Synced:
    """Every record up to `lsn` is durable and in the index."""

    lsn: int


@dataclass(frozen=True, slots=True)
class ReadOnlyChanged:
    """read_only: the disk is nearly full, and ordinary adds are refused. repairs_refused: so are repair adds."""

    read_only: bool
    repairs_refused: bool = False


@dataclass(frozen=True, slots=True)
class DamageFound:
    """A read found that these entries, which are stored here, are damaged."""

    ledger_id: LedgerId
    entry_ids: tuple[EntryId, ...]


@dataclass(frozen=True, slots=True)
class RecordsOpened:
    """From now on checks read the records of this era in ZooKeeper."""

    era: Era


StorageEvent = (
    AppendReceived
    | EraReceived
    | RecordsOpened
    | FenceReceived
    | ReadReceived
    | ReviewReceived
    | LedgerChecked
    | LedgerVerified
    | RecordTouched
    | AllReviewed
    | Synced
    | ReadOnlyChanged
    | DamageFound
)


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteJournal:
    """Write these records, in order, and sync them."""

    records: tuple[JournalRecord, ...]


StorageEffect = WriteJournal | EraRaised | ReviewEffect


# --- the machine ------------------------------------------------------------------------------------------------------


class _Step(NamedTuple):
    """The result of one event."""

    effects: list[StorageEffect]
    records: list[JournalRecord]


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
        self._answers = self.answers_class(index, self.ledgers.limbo)
        self._reviews = LedgerReviews(incarnation, index, self.ledgers, self._answers)
        self._queued_bytes = 0
        self._read_only = False
        self._repairs_refused = False
        self._era = NodeEra(self.ledgers, self._answers)

    # --- start -------------------------------------------------------------------------------------------------------

    def restore_entry(self, header: EntryHeader, *, ordinary: bool) -> None:
        """The journal holds this entry, synced. ordinary: as an ADD."""
        ledger = self.ledgers.of(header.ledger_id)
        ledger.erased = False
        ledger.writable = ledger.writable or ordinary
        ledger.note_stored(header)

    def restore_fence(self, ledger_id: LedgerId) -> None:
        """The journal holds a fence of this ledger, synced. A tombstone is a fence, too."""
        if ledger_id in self.ledgers or ledger_id not in self.ledgers.tombstones:
            self.ledgers.of(ledger_id).fenced = True

    def restore_erasure(self, ledger_id: LedgerId, origin: LedgerOrigin | None = None) -> None:
        """The journal holds a tombstone: the earlier records of the ledger are erased. origin: of the tombstone."""
        self.ledgers.pop(ledger_id, None)
        self.ledgers.tombstones[ledger_id] = origin
        self.ledgers.limbo.end(ledger_id)

    def forget_deleted(self, ledger_ids: Iterable[LedgerId]) -> None:
        """The directory holds nothing of these deleted ledgers any more, not even a tombstone."""
        for ledger_id in ledger_ids:
            ledger = self.ledgers.get(ledger_id)
            if ledger is None or (ledger.erased and ledger.idle):
                self.ledgers.tombstones.pop(ledger_id, None)
                self.ledgers.pop(ledger_id, None)

    def restore_limbo(self, below: LedgerId) -> None:
        """The journal holds a LIMBO record: the lower ledgers are in limbo. Also after the scan found a new hole."""
        self.ledgers.limbo.begin(below)

    def restore_floor(self, chain: LedgerOrigin, below: LedgerId) -> None:
        """The journal holds a FLOOR record: copies were erased by this floor."""
        self.ledgers.floors[chain] = max(below, self.ledgers.floors.get(chain, LedgerId(0)))

    def restore_limbo_cleared(self, ledger_id: LedgerId) -> None:
        """The journal holds a LIMBO_CLEARED record."""
        self.ledgers.limbo.end(ledger_id)

    def restore_era(self, stored: StoredEra) -> None:
        """The journal holds this ERA record, and no newer one."""
        self.ledgers.era = stored

    # --- events ------------------------------------------------------------------------------------------------------

    def handle(self, event: StorageEvent) -> list[StorageEffect]:
        step = _Step([], [])
        reviews = self._reviews
        match event:
            case AppendReceived():
                self._append(event, step)
            case Synced():
                self._synced(event, step)
            case FenceReceived():
                self._fence_received(event, step)
            case ReadReceived():
                self._read_received(event, step)
            case EraReceived():
                self._era_received(event, step)
            case RecordsOpened():
                self._era.records = event.era
            case ReviewReceived():
                self._review_received(event, step)
            case LedgerChecked() | LedgerVerified() | RecordTouched() if not self._era.records_count:
                step.effects.extend(reviews.abandon(event.ledger_id, event.check))
                self._forget_if_empty(event.ledger_id)
            case LedgerChecked():
                self._ledger_checked(event, step)
            case LedgerVerified():
                step.effects.extend(reviews.verified(event, step.records))
            case RecordTouched():
                step.effects.extend(reviews.touched(event, step.records))
            case AllReviewed():
                if self._era.records_count:
                    reviews.all_reviewed(event, step.records)
            case ReadOnlyChanged():
                self._read_only, self._repairs_refused = event.read_only, event.repairs_refused
            case DamageFound():
                ledger = self.ledgers.get(event.ledger_id)
                if ledger is not None and not self._answers.is_erased(ledger):
                    held = (e for e in event.entry_ids if self._index.contains(event.ledger_id, e))
                    ledger.damaged.update(dict.fromkeys(held))
            case _:
                assert_never(event)
        if isinstance(event, LedgerVerified | RecordTouched):
            self._forget_if_empty(event.ledger_id)
        if step.records:
            step.effects.append(WriteJournal(tuple(step.records)))
        return step.effects

    def copy_state(self, ledger_id: LedgerId) -> CopyState:
        """What this node has of the ledger now. Changes nothing."""
        return self._reviews.state(ledger_id)

    def _synced(self, event: Synced, step: _Step) -> None:
        for answer in self._answers.settle(event.lsn):
            step.effects.append(answer)
            match answer:
                case LedgerErased(ledger_id, deleted):
                    step.effects.extend(self._reviews.erased(ledger_id, deleted=deleted))
                    self._forget_if_empty(ledger_id)
                case LimboCleared(ledger_id):
                    step.effects.extend(self._reviews.limbo_cleared(ledger_id))
                case _:
                    pass

    # --- adds --------------------------------------------------------------------------------------------------------

    def _append(self, event: AppendReceived, step: _Step) -> None:
        frame: dict[LedgerId, list[tuple[EntryHeader, Buffer]]] = {}
        for entry in event.entries:
            frame.setdefault(entry[0].ledger_id, []).append(entry)
        for ledger_id, entries in frame.items():
            if event.target != self.incarnation:
                step.effects.append(_refused(event.call, ledger_id, entries, AppendStatus.WRONG_INCARNATION))
                continue
            if event.era != self.era:
                step.effects.append(_refused(event.call, ledger_id, entries, AppendStatus.NOT_WRITABLE))
                continue
            kind = (
                RecordKind.REPAIR_ADD if event.repair else RecordKind.RECOVERY_ADD if event.recovery else RecordKind.ADD
            )
            self._add(event.call, self.ledgers.of(ledger_id), kind, entries, step)
            self._forget_if_empty(ledger_id)

    def _add(self, call: int, ledger: StorageLedger, kind: RecordKind, entries: Entries, step: _Step) -> None:
        """Adds of one ledger: refused, queued or stored."""
        refusal = self._refusal(ledger, kind)
        if refusal is not None:
            step.effects.append(_refused(call, ledger.ledger_id, entries, refusal))
        elif self._needs_check(ledger, kind):
            if self._era.records_count:
                self._queue(call, ledger, kind, entries, step)
            else:
                step.effects.append(_refused(call, ledger.ledger_id, entries, AppendStatus.NOT_WRITABLE))
        else:
            self._store(call, ledger, entries, kind, step)

    def _refusal(self, ledger: StorageLedger, kind: RecordKind) -> AppendStatus | None:
        """Why adds are refused before they are examined; None if they are not."""
        if ledger.erasing:
            return AppendStatus.ERASED
        if kind is RecordKind.REPAIR_ADD:
            return AppendStatus.READ_ONLY if self._read_only or self._repairs_refused else None
        if self._answers.is_erased(ledger):
            return AppendStatus.ERASED
        if kind is RecordKind.RECOVERY_ADD:
            return None
        if ledger.fenced:
            return AppendStatus.FENCED
        if ledger.ledger_id < self.era.first_id:
            return AppendStatus.NOT_WRITABLE
        return AppendStatus.READ_ONLY if self._read_only or self._in_limbo(ledger) else None

    def _in_limbo(self, ledger: StorageLedger) -> bool:
        """Whether a lost record may forbid ordinary adds (hazard damaged-fence)."""
        return self.ledgers.limbo.covers(ledger.ledger_id)

    def _needs_check(self, ledger: StorageLedger, kind: RecordKind) -> bool:
        """Whether adds must wait until the ledger's record was read: ordinary ones (hazard former-incarnation) and
        repair's."""
        if kind is RecordKind.REPAIR_ADD:
            return ledger.repair_end is None
        return kind is RecordKind.ADD and not ledger.writable

    def _queue(self, call: int, ledger: StorageLedger, kind: RecordKind, entries: Entries, step: _Step) -> None:
        queued_bytes = sum(len(data) for _, data in entries)
        if self._queued_bytes + queued_bytes > self.queued_bytes_max:
            step.effects.append(_refused(call, ledger.ledger_id, entries, AppendStatus.TOO_MANY_REQUESTS))
            return
        self._queued_bytes += queued_bytes
        ledger.queued.append((call, kind, entries))
        step.effects.extend(self._reviews.check(ledger))

    def _store(self, call: int, ledger: StorageLedger, entries: Entries, kind: RecordKind, step: _Step) -> None:
        if kind is RecordKind.REPAIR_ADD and ledger.repair_end is not None:
            above = [each for each in entries if each[0].entry_id > ledger.repair_end]
            if above:
                step.effects.append(_refused(call, ledger.ledger_id, above, AppendStatus.NOT_WRITABLE))
                entries = [each for each in entries if each[0].entry_id <= ledger.repair_end]
        held, fresh, synced, corrupt, conflicting = ledger.store(
            entries, kind, step.records, lsn=self._answers.lsn + 1, index=self._index, checksum=self._checksum
        )
        self._answers.lsn += len(fresh)
        ledger.erased = ledger.erased and not fresh
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
        if not ledger.erasing:
            self._answers.write_fence(step.records, ledger)

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
        self._forget_if_empty(event.ledger_id)

    def _read_received(self, event: ReadReceived, step: _Step) -> None:
        if event.target != self.incarnation:
            wrong = ReadStatus.WRONG_INCARNATION
            step.effects.append(AnswerRead(event.call, event.ledger_id, (), (), NO_ENTRY, NO_ENTRY, wrong))
            return
        ledger = self.ledgers.peek(event.ledger_id)
        if event.fence:
            ledger = self.ledgers.of(event.ledger_id)
            self._fence(ledger, step)
        beyond = event.first + event.count
        on_its_way = any(event.first <= entry_id < beyond for entry_id in ledger.pending)
        lsn = self._answers.lsn if on_its_way else self._answers.lsn_for(ledger.fence_lsn)
        step.effects.extend(self._answers.answer_when_synced(PendingAnswer(lsn, ledger, (), event)))
        self._forget_if_empty(event.ledger_id)

    # --- the era -----------------------------------------------------------------------------------------------------

    @property
    def era(self) -> Era:
        """Which this node has stored, perhaps not yet durably."""
        return self._era.now

    @property
    def durable_era(self) -> Era:
        return self._era.durable

    def _era_received(self, event: EraReceived, step: _Step) -> None:
        former = self.era
        if event.target != self.incarnation:
            step.effects.append(AnswerEra(event.call, former, ReadStatus.WRONG_INCARNATION))
            return
        step.effects.extend(self._era.received(event, step.records))
        if self.era != former:
            self._leave_era(step)
            step.effects.append(EraRaised(self.era))

    def _leave_era(self, step: _Step) -> None:
        """What waits for a check was sent in the former era, and what checks have found was of its records."""
        for ledger in self.ledgers.values():
            ledger.repair_end = ledger.named = None
            queued, ledger.queued = ledger.queued, []
            for call, _, entries in queued:
                self._queued_bytes -= sum(len(data) for _, data in entries)
                step.effects.append(_refused(call, ledger.ledger_id, entries, AppendStatus.NOT_WRITABLE))

    def _review_received(self, event: ReviewReceived, step: _Step) -> None:
        if self._era.records_count or event.target != self.incarnation:
            step.effects.extend(self._reviews.received(event))
            return
        state = self.copy_state(event.ledger_id)
        step.effects.append(AnswerReview(event.call, event.ledger_id, state, ReadStatus.OK))

    # --- the check ---------------------------------------------------------------------------------------------------

    def _ledger_checked(self, event: LedgerChecked, step: _Step) -> None:
        ledger = self._reviews.take_record(event)
        if ledger is None:
            return
        queued, ledger.queued = ledger.queued, []
        for call, kind, entries in queued:
            self._queued_bytes -= sum(len(data) for _, data in entries)
            if self._refusal(ledger, kind) is None and self._needs_check(ledger, kind):
                step.effects.append(_refused(call, ledger.ledger_id, entries, AppendStatus.NOT_WRITABLE))
            else:
                self._add(call, ledger, kind, entries, step)
        step.effects.extend(self._reviews.decide(ledger, event, step.records))
        self._forget_if_empty(ledger.ledger_id)

    def _forget_if_empty(self, ledger_id: LedgerId) -> None:
        """Refused adds to unknown ledgers leave no state behind. An erased ledger has its tombstone only."""
        ledger = self.ledgers.get(ledger_id)
        if ledger is None or not ledger.idle:
            return
        lacking = (ledger.named and self._in_limbo(ledger)) or bool(ledger.damaged)
        if ledger.erased or not (lacking or self._index.last_entry(ledger_id) is not None):
            del self.ledgers[ledger_id]

    def check_invariants(self) -> None:
        """Raises InvariantViolated if this machine contradicts itself."""
        self._answers.check_invariants()
        queued_bytes = 0
        for ledger in self.ledgers.values():
            if ledger.queued:
                queued_bytes += sum(len(data) for _, _, entries in ledger.queued for _, data in entries)
                if ledger.check == 0:
                    raise InvariantViolated(f"adds of ledger {ledger.ledger_id} are queued without a check")
            if ledger.fence_lsn and not ledger.fenced:
                raise InvariantViolated(f"the fence of ledger {ledger.ledger_id} was taken back")
            if ledger.erasing and ledger.check == 0:
                raise InvariantViolated(f"ledger {ledger.ledger_id} is being erased without a check")
            if ledger.erased and not (ledger.fenced and ledger.ledger_id in self.ledgers.tombstones):
                raise InvariantViolated(f"the erased ledger {ledger.ledger_id} has lost its fence")
        if queued_bytes != self._queued_bytes:
            raise InvariantViolated(f"{queued_bytes} bytes are queued, but {self._queued_bytes} were counted")


def _refused(call: int, ledger_id: LedgerId, entries: Entries, status: AppendStatus) -> AnswerAppend:
    return AnswerAppend(call, ledger_id, [header.entry_id for header, _ in entries], status)
