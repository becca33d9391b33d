"""Repair of one CLOSED ledger: every member holds every entry 0..end again, proved by reading it from the disk.

    LOOK     synced read: CLOSED, and named by its topic
    JOIN     compare-and-set joining = D, and not whole      (only when a member is replaced)
    COPY     ranges of ids 0..end: every live member and D read the range back (VerifyCopy); what a node lacks is copied
             to it from any sound copy, bytes verbatim, and read back again (ATTEST)
    RESTORE  ids without a source: the topic's owner stores again what it has in memory; silent: STUCK
    PROVE    none there, either: every registered node is asked, twice; all negative: compare-and-set `lost`
    SWAP     compare-and-set from JOIN's version: old member -> D
    REVIEW   the nodes that were filled clear their damage
    WHOLE    every member has attested 0..end: compare-and-set
    conflict or UNKNOWN -> LOOK      no source for an id, not proved lost -> STUCK, without a swap

Rules
- `joining` is in the record before the first byte is copied (hazard copy-erased-before-joining); the swap is a
  compare-and-set from that version, with the old and the new member (59). A repair never creates a record, and nothing
  unlisted is touched (58).
- JOIN clears `whole`, so no copy is erased until every member of the new list has attested (55).
- An id counts as copied when the target has read it back. A swap needs every id 0..end, except lost ones (56). What a
  target already holds is not copied again, so a repair resumes where the former one stopped.
- Without a member to replace, the live members are filled in place. A joining node that is no longer needed leaves the
  record only with `whole`; it may hold the only copy of an entry until then. For the same reason, a joining node that
  is absent and not retired is exchanged only if the live members hold every id between them. So is one that holds the
  ledger of another topic under this id: it would refuse each copy for ever (hazard ledger-id-given-twice).
- Sound copies that differ freeze the ledger (60).
- An id is lost only if, under one version and in each of two rounds, every member and the joining node answered
  missing or unreadable, or is retired and not registered, and every registered node answered and has no sound copy.
  ERASED and silence of a member prove nothing, and neither does a round if a node registers or leaves before the end
  of the proof (78). A sound copy that comes back takes the id out of `lost`.
- Each effect except RepairFinished is answered by one event, always; a deadline that passes is an answer, too.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, assert_never

from oncelog.core.errors import InvariantViolated
from oncelog.core.ids import EntryId, Incarnation
from oncelog.core.ledger.member_status import CopyState
from oncelog.core.ledger.metadata import EntryRange, LedgerKey, LedgerMetadata, LedgerState
from oncelog.core.ledger.storage_nodes import StorageNodes
from oncelog.core.records.records import ReadRecord, RecordWritten, WriteRecord
from oncelog.core.records.status import WriteStatus
from oncelog.core.repair.copies import joined, without
from oncelog.core.repair.copy_pass import CopyPass
from oncelog.core.repair.events import (
    CopyOutcome,
    CopyVerified,
    EntriesCopied,
    EntriesRestored,
    LedgerReviewed,
    OwnerMemory,
    RepairEffect,
    RepairEvent,
    RepairFinished,
    RepairJob,
    RepairLimits,
    RepairNodesChanged,
    RepairRecordRead,
    RepairResult,
    RepairStarted,
    RestoreEntries,
    ReviewLedger,
)
from oncelog.core.repair.lost_proof import LostProof


class LedgerRepair:
    """One job. The caller drops the object after RepairFinished, or at any time."""

    #: reads of the record before the repair gives up with CONFLICT
    looks_max: ClassVar[int] = 8

    def __init__(self, job: RepairJob, nodes: StorageNodes, limits: RepairLimits | None = None) -> None:
        self.job = job
        self.finished = False
        self.record: LedgerMetadata | None = None
        self._nodes = nodes
        self._limits = limits or RepairLimits()
        self._version = -1
        self._looks = 0
        #: the member to swap in this pass
        self._old: Incarnation | None = None
        #: the record that is being written, and what follows
        self._writing: tuple[LedgerMetadata, Callable[[], None]] | None = None
        self._copying: CopyPass | None = None
        self._proof: LostProof | None = None
        #: whether the topic's owner was asked for entries without a source, since it last had any; whether it is asked
        self._owner_asked, self._restoring = False, False
        #: whether holders of lost entries were asked since the record was read
        self._lost_asked = False
        #: the joining node, if it refused copies because it holds another ledger under this id
        self._conflicting: Incarnation | None = None
        self._copied_before = 0
        self._reviewing: dict[Incarnation, None] = {}
        self._effects: list[RepairEffect] = []

    def _emit(self, effect: RepairEffect) -> None:
        self._effects.append(effect)

    @property
    def entries_total(self) -> int:
        return 0 if self.record is None else self.record.end + 1

    @property
    def entries_copied(self) -> int:
        return self._copied_before + (0 if self._copying is None else self._copying.entries_copied)

    @property
    def next_entry(self) -> EntryId:
        """The lowest id that is not yet examined; for progress."""
        return EntryId(0) if self._copying is None else self._copying.next_entry

    def handle(self, event: RepairEvent) -> list[RepairEffect]:
        if not self.finished:
            match event:
                case RepairStarted():
                    self._look()
                case RepairNodesChanged():
                    self._nodes_changed(event.nodes)
                case RepairRecordRead():
                    self._record_read(event)
                case RecordWritten():
                    self._record_written(event)
                case CopyVerified() if self._proof is not None:
                    self._proof.handle(event)
                    self._proof_ended()
                case CopyVerified() | EntriesCopied():
                    self._copied(event)
                case LedgerReviewed():
                    self._ledger_reviewed(event)
                case EntriesRestored():
                    self._entries_restored(event)
                case _:
                    assert_never(event)
        effects, self._effects = self._effects, []
        return effects

    def check_invariants(self) -> None:
        """Raises InvariantViolated."""
        record, copying = self.record, self._copying
        if record is None or copying is None:
            return
        for target in copying.copying:
            if target not in record.members and target != record.joining:
                raise InvariantViolated(f"ledger {self.job.ledger_id} is copied to {target}, which its record omits")
            if record.state is not LedgerState.CLOSED or record.verified:
                raise InvariantViolated(f"ledger {self.job.ledger_id} is copied; its record: {record}")

    def _nodes_changed(self, nodes: StorageNodes) -> None:
        self._nodes = nodes
        if self._proof is not None:
            self._proof.nodes_changed(nodes)
        if self._copying is not None:
            self._copying.nodes = nodes
            self._copying.stopped = self._copying.stopped or (self._old is not None and self._has_returned())

    # --- the record ---------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._looks += 1
        self._end_pass()
        if self._looks > self.looks_max:
            self._finish(RepairResult.CONFLICT)
        else:
            self._effects.append(ReadRecord(LedgerKey(self.job.ledger_id)))

    def _record_read(self, event: RepairRecordRead) -> None:
        self.record, self._version = event.record, event.version
        self._lost_asked = False
        if event.record is None or not event.listed or event.record.state is not LedgerState.CLOSED:
            self._finish(RepairResult.GONE)
        else:
            self._decide()

    def _current(self) -> LedgerMetadata:
        if self.record is None:
            raise InvariantViolated(f"ledger {self.job.ledger_id}: no record was read")
        return self.record

    def _write(self, record: LedgerMetadata, then: Callable[[], None]) -> None:
        self._writing = (record, then)
        self._effects.append(WriteRecord(LedgerKey(record.ledger_id), record, self._version))

    def _record_written(self, event: RecordWritten[LedgerKey, LedgerMetadata]) -> None:
        if self._writing is None:
            return
        (record, then), self._writing = self._writing, None
        if event.status is not WriteStatus.OK:
            self._look()
            return
        self.record, self._version = record, event.version
        then()

    def _finish(self, result: RepairResult, waiting_for: Sequence[Incarnation] = ()) -> None:
        self.finished = True
        unavailable: tuple[EntryRange, ...] = ()
        if result is RepairResult.STUCK and self._copying is not None:
            unavailable = without(joined(self._copying.unsourced), self._current().lost)
        finished = RepairFinished(
            self.job.ledger_id, result, self.record, self._version, unavailable, tuple(waiting_for)
        )
        self._effects.append(finished)

    # --- LOOK and JOIN ------------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        """What to do under the record at hand, which is CLOSED: it was just read, or written by this repair."""
        record = self._current()
        self._old = self._member_to_replace(record)
        damaged = any(node in record.members for node in self.job.damaged)
        if record.frozen:
            self._finish(RepairResult.FROZEN)
        elif record.lost and not self._lost_asked:
            self._lost_asked = True
            self._proof = LostProof(record, self._nodes, record.lost, self._limits, self._emit)
            self._proof.start()
            self._proof_ended()
        elif record.verified and not damaged and self._old is None and record.joining is None:
            self._finish(RepairResult.WHOLE)
        elif record.verified:
            self._clear_whole(record)
        elif self._old is None or record.joining is None or self._fit(record.joining, record):
            self._join(record)
        elif self._nodes[record.joining].never_returns:
            self._write(self._exchanged(record), self._decide)
        else:
            self._begin_pass(())  # may the joining node be exchanged?

    def _member_to_replace(self, record: LedgerMetadata) -> Incarnation | None:
        old = self.job.replace
        if old is None or old not in record.members:
            return None
        if self._has_returned():
            return None
        continued = record.joining is not None and self._fit(record.joining, record)
        return old if continued or self._fit(self.job.target, record) else None

    def _has_returned(self) -> bool:
        """Whether the member to replace was only absent, and is back (hazard flapping-node)."""
        return self.job.absent and self.job.replace in self._nodes.registered

    def _fit(self, node: Incarnation | None, record: LedgerMetadata) -> bool:
        in_service = node is not None and self._nodes[node].in_service
        return in_service and node not in record.members and node != self._conflicting

    def _clear_whole(self, record: LedgerMetadata) -> None:
        """Together with JOIN if a node joins now: no copy is erased until every member has attested again."""
        record = record.mark_damaged()
        if self._old is not None and record.joining is None and self.job.target is not None:
            record = record.join(self.job.target)
        self._write(record, self._decide)

    def _join(self, record: LedgerMetadata) -> None:
        live = [m for m in record.members if m in self._nodes.registered and m != self._old]
        if self._old is None:
            self._begin_pass(live)
        elif record.joining is not None:
            self._begin_pass((*live, record.joining))
        elif self.job.target is not None:
            self._write(record.join(self.job.target), self._decide)

    def _exchanged(self, record: LedgerMetadata) -> LedgerMetadata:
        record = record.drop_joining()
        return record if self.job.target is None else record.join(self.job.target)

    # --- COPY, ATTEST and PROVE ---------------------------------------------------------------------------------------

    def _begin_pass(self, targets: Sequence[Incarnation]) -> None:
        self._end_pass()
        if not self._nodes.registered:
            self._finish(RepairResult.WAITING, self._current().members)
            return
        self._copying = CopyPass(self._current(), self._nodes, targets, self._limits, self._emit)
        self._copying.start()
        self._pass_ended()

    def _end_pass(self) -> None:
        if self._copying is not None:
            self._copied_before += self._copying.entries_copied
        self._copying = None
        self._proof = None

    def _copied(self, event: CopyVerified | EntriesCopied) -> None:
        if self._copying is not None and not self._copying.ended:
            self._copying.handle(event)
            self._pass_ended()

    def _pass_ended(self) -> None:
        copying, record = self._copying, self._current()
        if copying is None or not copying.ended:
            return
        if copying.differing is not None:
            self._write(record.freeze(), lambda: self._finish(RepairResult.FROZEN))
        elif CopyOutcome.NOT_NAMED in copying.failed.values():
            self._look()
        elif copying.stopped:
            self._decide()
        elif not copying.targets and self._old is not None:
            self._exchange_joining(record, copying)
        elif copying.unsourced and not self._owner_asked:
            self._ask_owner(record, copying)
        elif copying.unsourced:
            self._proof = LostProof(record, self._nodes, joined(copying.unsourced), self._limits, self._emit)
            self._proof.start()
            self._proof_ended()
        else:
            self._swap()

    def _ask_owner(self, record: LedgerMetadata, copying: CopyPass) -> None:
        """Before the proof, so that nothing comes between the proof and the write."""
        self._owner_asked = True
        named = (*record.members, record.joining)
        able = (node for node in named if node in self._nodes.registered and node not in copying.failed)
        target = next(able, None)
        if target is None:
            self._pass_ended()
            return
        self._restoring = True
        self._emit(RestoreEntries(target, record.ledger_id, record.topic_id, tuple(joined(copying.unsourced))))

    def _entries_restored(self, event: EntriesRestored) -> None:
        if not self._restoring:
            return
        self._restoring = False
        match event.outcome:
            case OwnerMemory.RESTORED:
                self._owner_asked = False
                self._look()  # there is a source
            case OwnerMemory.NOTHING:
                self._pass_ended()
            case OwnerMemory.SILENT:
                self._finish(RepairResult.STUCK, () if event.owner is None else (event.owner,))

    def _exchange_joining(self, record: LedgerMetadata, copying: CopyPass) -> None:
        """The joining node is absent, or holds another ledger. It leaves the record only if the other nodes hold every
        id between them."""
        if copying.unsourced and record.joining is not None:
            self._finish(RepairResult.STUCK, (record.joining,))
        else:
            self._write(self._exchanged(record), self._decide)

    def _proof_ended(self) -> None:
        proof, record = self._proof, self._current()
        if proof is None or not proof.ended:
            return
        self._proof = None
        if self._copying is None:  # the proof asked for lost entries
            if proof.found:
                self._write(record.mark_lost(without(record.lost, proof.found)), self._decide)
            else:
                self._decide()
        elif proof.found and not self._copying.targets:
            self._finish(RepairResult.WAITING, record.members)  # there is a source, and nothing to fill
        elif proof.found or proof.disturbed:
            self._look()  # a source has come back, or other nodes were registered meanwhile
        else:
            self._record_lost(record, proof)

    def _record_lost(self, record: LedgerMetadata, proof: LostProof) -> None:
        """Write what is proved lost, from the version under which it was proved, and go on if nothing is undecided."""

        def then() -> None:
            if proof.undecided:
                self._finish(RepairResult.STUCK, tuple(proof.waiting_for))
            else:
                self._swap()

        lost = joined((*record.lost, *without(proof.ranges, proof.undecided)))
        if lost == record.lost:
            then()
        else:
            self._write(record.mark_lost(lost), then)

    # --- SWAP, REVIEW and WHOLE ---------------------------------------------------------------------------------------

    def _swap(self) -> None:
        record, old, copying = self._current(), self._old, self._copying
        if old is None or copying is None or record.joining is None:
            self._review()
        elif self._has_returned():
            self._decide()
        elif record.joining in copying.failed:
            self._joining_not_filled(record, copying, record.joining)
        else:
            self._write(record.swap(old), self._review)

    def _joining_not_filled(self, record: LedgerMetadata, copying: CopyPass, joining: Incarnation) -> None:
        if copying.failed[joining] is CopyOutcome.TARGET_CONFLICTS:
            self._conflicting = joining
            if self._fit(self.job.target, record):
                self._decide()
                return
        self._finish(self._failure(joining), (joining,))

    def _failure(self, node: Incarnation) -> RepairResult:
        failed = {} if self._copying is None else self._copying.failed
        refused = failed.get(node) is CopyOutcome.TARGET_REFUSED
        return RepairResult.TARGET_REFUSED if refused else RepairResult.TARGET_FAILED

    def _review(self) -> None:
        """The members that were filled, or that reported damage, clear it when they hold every entry 0..end: not while
        entries are lost."""
        copying = self._copying
        targets = (
            []
            if copying is None or self._current().lost
            else [node for node in copying.targets if node not in copying.failed]
        )
        filled = {} if copying is None else copying.filled
        for node in targets:
            if node in self._current().members and (node in filled or node in self.job.damaged):
                self._reviewing[node] = None
        self._effects += [ReviewLedger(node, self.job.ledger_id) for node in self._reviewing]
        if not self._reviewing:
            self._end()

    def _ledger_reviewed(self, event: LedgerReviewed) -> None:
        if event.node not in self._reviewing or self._copying is None:
            return
        del self._reviewing[event.node]
        if event.state is not CopyState.HELD:
            self._copying.failed[event.node] = CopyOutcome.TARGET_FAILED
        if not self._reviewing:
            self._end()

    def _end(self) -> None:
        record, copying = self._current(), self._copying
        attested = [] if copying is None else [node for node in copying.targets if node not in copying.failed]
        others = tuple(member for member in record.members if member not in attested)
        refused = [member for member in others if self._failure(member) is RepairResult.TARGET_REFUSED]
        if others and record.end >= 0:
            self._finish(RepairResult.TARGET_REFUSED if refused else RepairResult.WAITING, others)
        elif record.lost:
            self._finish(RepairResult.LOST)
        else:
            self._write(record.drop_joining().mark_verified(), lambda: self._finish(RepairResult.WHOLE))
