"""The checks and reviews of a ledger: what its record in ZooKeeper means for the copy on this node.

    idle --an add needs the record--> READING: CheckLedger            --LedgerChecked--> the queued adds are decided
    idle --ReviewReceived--> READING: CheckLedger                     --LedgerChecked--> one of

        CLOSED, names this node; the copy is in limbo or damaged, or the record is whole and the copy is not complete
                --> VERIFYING: VerifyLedger reads 0..end from the disk
            the record is whole: what is missing is damage, because this node has attested it before (hazard
            verified-copy-is-missing)
            everything is held and sound, except what is proved lost --> a fence and LIMBO_CLEARED, synced --> idle,
            not in limbo, not damaged
            anything else --> idle
        CLOSED and whole, not frozen, does not name this node --> TOUCHING: every call for the ledger is refused
            TouchRecord (the record unchanged, from the version that was read) OK --> ERASING
            CONFLICT or UNKNOWN --> idle, nothing is refused
        no record, and ZooKeeper proves that the ledger was deleted --> ERASING
            LEDGER_ERASED synced --> idle, erased: adds and reads are answered ERASED, the fence stays
        the same, and the copy was erased before --> ERASING: the tombstone then says that the ledger is deleted, and
            compaction drops it with all that is left of the ledger
        no record and no proof, or the record of another topic's ledger with this id (hazard ledger-id-given-twice)
                --> LedgerOrphaned, idle: the entries are kept (hazard missing-record-is-no-deletion)
        anything else --> idle

Rules
- One check of a ledger at a time. A review that arrives during a check waits for the next check, because the record may
  have changed since it was read.
- A copy that the record does not name goes only after this node's own compare-and-set on that record, and refuses every
  call from before the compare-and-set until the tombstone is synced (hazard copy-erased-before-joining). So a repairer
  that named this node in the meantime either makes the compare-and-set fail, or finds its own to fail.
- A ledger that was trimmed is erased behind a record of its chain's floor, which outlives the tombstone: without
  ZooKeeper nothing else tells a trimmed ledger from a lost one (hazard trimmed-or-lost).
- An entry that the record names as lost may be missing when limbo ends: every node was asked for it, and readers are
  told. Not the lost end of a log or ack log before an operator has given it up: if ZooKeeper is lost, too, a recovery
  would end the ledger earlier, unless limbo keeps it from doing so (hazard lost-end-is-forgotten).
- The end of limbo writes a fence: the ledger is CLOSED, and the lost records may have held its fence (hazard
  damaged-fence).
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import CopyState, FenceState, ReadStatus
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata, LedgerState
from oncelog.core.node.answers import Answer, LedgerErased, LimboCleared, PendingAnswer, StorageAnswers
from oncelog.core.node.era import StoredEra
from oncelog.core.node.limbo import Limbo
from oncelog.core.node.node_ledger import (
    DELETED,
    NOT_DELETED,
    JournalRecord,
    LedgerOrigin,
    RecordKind,
    StorageIndex,
    StorageLedger,
)
from oncelog.core.records.status import WriteStatus


@dataclass(frozen=True, slots=True)
class ReviewReceived:
    """Read the ledger's record, and act on it. The answer comes when that is done."""

    call: int
    target: Incarnation
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class LedgerChecked:
    """The response to the CheckLedger of this number. metadata None: there is no such record, after a sync.

    deleted: the record is missing, and `ledger.was_deleted` proves that the ledger was deleted. snapshot: entries are
    lost, and the ledger has snapshots: another one is as good, so nothing depends on where it ends.
    floor: of the ledger's chain, if it proved the deletion and may be written down; else 0.
    """

    ledger_id: LedgerId
    check: int
    metadata: LedgerMetadata | None
    version: int = -1
    deleted: bool = False
    snapshot: bool = False
    floor: LedgerId = LedgerId(0)


@dataclass(frozen=True, slots=True)
class LedgerVerified:
    """The response to VerifyLedger: the ids of 0..end that are not held, and those that cannot be read."""

    ledger_id: LedgerId
    check: int
    missing: tuple[EntryId, ...] = ()
    unreadable: tuple[EntryId, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordTouched:
    """The response to TouchRecord."""

    ledger_id: LedgerId
    check: int
    status: WriteStatus


@dataclass(frozen=True, slots=True)
class CheckLedger:
    """Read the ledger's record after a sync. If it is missing, look for a proof that the ledger was deleted.

    origin: the topic and purpose of the ledger. None while no entry of it is stored: then there is nothing to delete.
    """

    ledger_id: LedgerId
    check: int
    origin: LedgerOrigin | None = None


@dataclass(frozen=True, slots=True)
class VerifyLedger:
    """Read the entries 0..end back from the disk."""

    ledger_id: LedgerId
    check: int
    end: EntryId


@dataclass(frozen=True, slots=True)
class TouchRecord:
    """Write the record back unchanged, by compare-and-set on the version that was read."""

    ledger_id: LedgerId
    check: int
    metadata: LedgerMetadata
    version: int


@dataclass(frozen=True, slots=True)
class AnswerReview:
    call: int
    ledger_id: LedgerId
    state: CopyState
    status: ReadStatus


@dataclass(frozen=True, slots=True)
class LedgerOrphaned:
    """The ledger's record is missing, but nothing proves that the ledger was deleted: its entries are kept."""

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class AllReviewed:
    """Every ledger that is held here or has a record was reviewed since the start. holes: the known ones of the
    directory, as a LIMBO record lists them."""

    holes: bytes


ReviewEffect = CheckLedger | VerifyLedger | TouchRecord | AnswerReview | LedgerOrphaned | Answer


class StoredLedgers(dict[LedgerId, StorageLedger]):
    """Every ledger that this node has a state of, and the tombstones."""

    def __init__(self) -> None:
        super().__init__()
        self.limbo = Limbo()
        self.era = StoredEra()
        #: {erased ledger: its origin; None: it is deleted, or its origin is not known}
        self.tombstones: dict[LedgerId, LedgerOrigin | None] = {}
        #: {chain: the highest floor by which copies were erased}; it outlives the tombstones of deleted ledgers
        self.floors: dict[LedgerOrigin, LedgerId] = {}

    def peek(self, ledger_id: LedgerId) -> StorageLedger:
        """The ledger; if it is unknown, a new one that is not kept. A tombstone is a fence, too."""
        erased = ledger_id in self.tombstones
        known = self.get(ledger_id)
        return known or StorageLedger(ledger_id, fenced=erased, erased=erased, origin=self.tombstones.get(ledger_id))

    def of(self, ledger_id: LedgerId) -> StorageLedger:
        """The ledger; a new one if it is unknown."""
        ledger = self[ledger_id] = self.peek(ledger_id)
        return ledger

    def fence_state(self, ledger_id: LedgerId) -> FenceState:
        """Whether the ledger takes ordinary adds here now. Changes nothing.

        A fence counts from the moment it is in force, even if it is not durable yet.
        """
        ledger = self.get(ledger_id)
        if ledger is None or ledger.erasing or ledger.erased:
            return FenceState.UNKNOWN
        if ledger.fenced or ledger_id < self.era.era.first_id:
            return FenceState.FENCED
        return FenceState.HELD if ledger.writable and not self.limbo.covers(ledger_id) else FenceState.UNKNOWN

    @property
    def in_limbo(self) -> list[LedgerId]:
        """The ledgers in limbo that this node has a state of and that their records may name, ascending."""
        if not self.limbo.below:
            return []
        return sorted(i for i, ledger in self.items() if ledger.named is not False and self.limbo.covers(i))

    @property
    def damaged(self) -> list[LedgerId]:
        """The ledgers with entries that could not be read, ascending."""
        return sorted(ledger_id for ledger_id, ledger in self.items() if ledger.damaged)

    @property
    def damaged_entries(self) -> int:
        """Entries that could not be read, and were not stored again."""
        return sum(len(ledger.damaged) for ledger in self.values())


class LedgerReviews:
    """The checks and reviews of all ledgers of a node."""

    def __init__(
        self, incarnation: Incarnation, index: StorageIndex, ledgers: StoredLedgers, answers: StorageAnswers
    ) -> None:
        self._incarnation = incarnation
        self._index = index
        self._ledgers = ledgers
        self._answers = answers
        self._checks = 0

    # --- the start of a check ----------------------------------------------------------------------------------------

    def received(self, event: ReviewReceived) -> list[ReviewEffect]:
        if event.target != self._incarnation:
            return [AnswerReview(event.call, event.ledger_id, CopyState.ABSENT, ReadStatus.WRONG_INCARNATION)]
        ledger_id, tombstones = event.ledger_id, self._ledgers.tombstones
        if ledger_id in tombstones and tombstones[ledger_id] is None and ledger_id not in self._ledgers:
            return [AnswerReview(event.call, ledger_id, self.state(ledger_id), ReadStatus.OK)]  # it is deleted
        ledger = self._ledgers.of(ledger_id)  # also of one that is unknown here: all of it may be lost
        ledger.next_reviews.append(event.call)
        return self.check(ledger)

    def check(self, ledger: StorageLedger) -> list[ReviewEffect]:
        """Begin a check, unless one is in progress."""
        if ledger.check:
            return []
        self._checks += 1
        ledger.check = self._checks
        ledger.reviews, ledger.next_reviews = ledger.next_reviews, []
        ledger.reviewing = bool(ledger.reviews)
        return [CheckLedger(ledger.ledger_id, ledger.check, ledger.origin)]

    def abandon(self, ledger_id: LedgerId, check: int) -> list[ReviewEffect]:
        """The response to a check belongs to the records of another era than the node's: nothing follows from it."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None or ledger.check != check:
            return []
        ledger.reviews, ledger.next_reviews = [*ledger.reviews, *ledger.next_reviews], []
        ledger.erasing, ledger.examined = False, {}
        return self._end(ledger)

    # --- the record --------------------------------------------------------------------------------------------------

    def take_record(self, event: LedgerChecked) -> StorageLedger | None:
        """Note what the record says of this node. None: the response belongs to an earlier check."""
        ledger = self._ledgers.get(event.ledger_id)
        if ledger is None or ledger.check != event.check:
            return None
        metadata, here = event.metadata, self._incarnation
        ledger.named = False
        ledger.repair_end = None
        if metadata is not None and metadata.ledger_id == ledger.ledger_id:
            ledger.named = metadata.names(here)
            if metadata.state is LedgerState.OPEN and here in metadata.members:
                ledger.writable = True
            elif metadata.state is LedgerState.CLOSED and ledger.named:
                ledger.repair_end = metadata.end
        return ledger

    def decide(self, ledger: StorageLedger, event: LedgerChecked, records: list[JournalRecord]) -> list[ReviewEffect]:
        """Act on the record, if this check is a review; otherwise the check ends."""
        metadata = event.metadata
        if not ledger.reviewing:
            return self._end(ledger)
        if metadata is None or not ledger.is_of(metadata.topic_id):
            holds, kept = self._holds_entries(ledger), self._ledgers.tombstones.get(ledger.ledger_id)
            deleted = metadata is None and event.deleted
            if (holds or kept is not None) and deleted:
                self._note_floor(ledger, event.floor, records)
                return self._erase(ledger, records, DELETED)
            orphaned = holds and not deleted
            return [LedgerOrphaned(ledger.ledger_id), *self._end(ledger)] if orphaned else self._end(ledger)
        if metadata.state is not LedgerState.CLOSED:
            return self._end(ledger)
        if ledger.named:
            attested = metadata.verified and not metadata.lost and self._incarnation in metadata.members
            lacks = attested and self._index.count_up_to(ledger.ledger_id, metadata.end) <= metadata.end
            if not (ledger.damaged or self._in_limbo(ledger) or lacks):
                return self._end(ledger)
            ledger.attested = attested
            ledger.lost = metadata.lost if event.snapshot else metadata.lost_for_sure
            if metadata.lost and not (ledger.lost or ledger.damaged):
                return self._end(ledger)  # its limbo cannot end yet
            ledger.examined = dict(ledger.damaged)
            return [VerifyLedger(ledger.ledger_id, ledger.check, metadata.end)]
        if self._may_go(metadata) and self._holds_entries(ledger):
            ledger.erasing = True
            return [TouchRecord(ledger.ledger_id, ledger.check, metadata, event.version)]
        return self._end(ledger)

    def _may_go(self, metadata: LedgerMetadata) -> bool:
        """Whether a copy that the record does not name is not needed (hazards replaced-member-erased-early and
        differing-copies)."""
        return metadata.verified and not metadata.frozen

    def _in_limbo(self, ledger: StorageLedger) -> bool:
        return self._ledgers.limbo.covers(ledger.ledger_id)

    def _holds_entries(self, ledger: StorageLedger) -> bool:
        return bool(ledger.pending) or self._index.last_entry(ledger.ledger_id) is not None

    # --- the end of limbo and damage ---------------------------------------------------------------------------------

    def verified(self, event: LedgerVerified, records: list[JournalRecord]) -> list[ReviewEffect]:
        ledger = self._ledgers.get(event.ledger_id)
        if ledger is None or ledger.check != event.check:
            return []
        # Damage that was found since the review began was perhaps not there yet when the entry was read.
        later = {entry_id: None for entry_id in ledger.damaged if entry_id not in ledger.examined}
        ledger.examined = {}
        ledger.damaged = later | dict.fromkeys(event.unreadable)
        if ledger.attested:
            ledger.damaged |= dict.fromkeys(event.missing)
        unknown = any(not _is_in(ledger.lost, entry_id) for entry_id in event.missing)
        if unknown or ledger.damaged or not self._in_limbo(ledger):
            return self._end(ledger)
        self._answers.write_fence(records, ledger)
        lsn = self._answers.write(records, RecordKind.LIMBO_CLEARED, ledger.ledger_id)
        cleared = LimboCleared(ledger.ledger_id)
        return [*self._answers.answer_when_synced(PendingAnswer(lsn, ledger, (), cleared))]

    def limbo_cleared(self, ledger_id: LedgerId) -> list[ReviewEffect]:
        """LIMBO_CLEARED is synced."""
        ledger = self._ledgers[ledger_id]
        self._ledgers.limbo.end(ledger_id)
        return self._end(ledger)

    def all_reviewed(self, event: AllReviewed, records: list[JournalRecord]) -> None:
        """If none is in limbo, the directory lacks nothing any more. In limbo it would count as missing for ever in a
        restore of ZooKeeper's records (hazard older-disk-is-missing)."""
        ledgers = self._ledgers
        if ledgers.limbo.below and not ledgers.in_limbo and not ledgers.damaged:
            self._answers.write(records, RecordKind.LIMBO, LedgerId(0), EntryId(0), event.holes)
            ledgers.limbo.over()

    # --- erasing -----------------------------------------------------------------------------------------------------

    def touched(self, event: RecordTouched, records: list[JournalRecord]) -> list[ReviewEffect]:
        ledger = self._ledgers.get(event.ledger_id)
        if ledger is None or ledger.check != event.check:
            return []
        if event.status is WriteStatus.OK:
            return self._erase(ledger, records, NOT_DELETED)
        ledger.erasing = False
        return self._end(ledger)

    def _note_floor(self, ledger: StorageLedger, floor: LedgerId, records: list[JournalRecord]) -> None:
        """Write down that the chain was trimmed, before anything is erased by it (hazard trimmed-or-lost)."""
        floors, chain = self._ledgers.floors, ledger.origin
        if chain is not None and floor > floors.get(chain, 0):
            floors[chain] = floor
            self._answers.write(records, RecordKind.FLOOR, floor, data=chain.encode())

    def _erase(self, ledger: StorageLedger, records: list[JournalRecord], why: EntryId) -> list[ReviewEffect]:
        ledger.erasing = True
        origin = b"" if why == DELETED or ledger.origin is None else ledger.origin.encode()
        lsn = self._answers.write(records, RecordKind.LEDGER_ERASED, ledger.ledger_id, why, origin)
        erased = LedgerErased(ledger.ledger_id, deleted=why == DELETED)
        return [*self._answers.answer_when_synced(PendingAnswer(lsn, ledger, (), erased))]

    def erased(self, ledger_id: LedgerId, *, deleted: bool) -> list[ReviewEffect]:
        """LEDGER_ERASED is synced. The fence stays, and with it last_add_confirmed and the origin."""
        ledger = self._ledgers[ledger_id]
        self._ledgers.tombstones[ledger_id] = None if deleted else ledger.origin
        self._ledgers.limbo.end(ledger_id)
        ledger.erasing, ledger.erased = False, True
        ledger.fenced, ledger.writable = True, False
        ledger.repair_end = None
        ledger.damaged.clear()
        return self._end(ledger)

    # --- the end of a check ------------------------------------------------------------------------------------------

    def _end(self, ledger: StorageLedger) -> list[ReviewEffect]:
        """Answer the reviews of this check; begin the next one if something waits for it."""
        state = self.state(ledger.ledger_id)
        answers = [AnswerReview(call, ledger.ledger_id, state, ReadStatus.OK) for call in ledger.reviews]
        ledger.check, ledger.reviewing, ledger.reviews = 0, False, []
        again = self.check(ledger) if ledger.next_reviews or ledger.queued else []
        return [*answers, *again]

    def state(self, ledger_id: LedgerId) -> CopyState:
        """What this node has of the ledger."""
        ledger = self._ledgers.peek(ledger_id)
        if self._in_limbo(ledger) and ledger.named is not False:
            return CopyState.LIMBO
        if self._answers.is_erased(ledger):
            return CopyState.ERASED
        if ledger.damaged:
            return CopyState.DAMAGED
        return CopyState.HELD if self._holds_entries(ledger) else CopyState.ABSENT


def _is_in(ranges: Sequence[EntryRange], entry_id: EntryId) -> bool:
    """ranges: ascending, not adjacent."""
    place = bisect_right(ranges, entry_id, key=attrgetter("first")) - 1
    return place >= 0 and entry_id <= ranges[place].last
