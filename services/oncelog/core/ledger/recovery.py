"""Ledger recovery: closes a ledger whose writer is gone, without losing an acknowledged entry.

    NEW --start--> LOOKING (read the record) --OPEN--> MARKING (CAS to IN_RECOVERY) --OK--> FENCING
    LOOKING --IN_RECOVERY--> FENCING         --CLOSED--> RECOVERED
    MARKING --CONFLICT | UNKNOWN--> LOOKING
    FENCING --Qw-Qa+1 members fenced--> COPYING: ranges of ids, from the highest last_add_confirmed (LAC) on
            per id: a valid copy -> recoverable · Qw-Qa+1 explicit negatives and no copy -> the end · else wait
            per range: the recoverable entries are written back verbatim, each until Qa members confirmed it
    COPYING --end found, all before it confirmed--> CLOSING (CAS to CLOSED at the end)
    CLOSING --OK--> RECOVERED                --CONFLICT | UNKNOWN--> REREADING
    REREADING --CLOSED--> RECOVERED (adopted) --IN_RECOVERY--> CLOSING on the new version
    any --a record or an acknowledged entry is missing, or no decision is possible--> FAILED

Rules
- A member that has erased its copy proves nothing about an entry (hazard answer-of-a-former-member). It erased after
  the record was CLOSED, so the record is read again: repair may have replaced the members that this recovery asks.
- Any number of recoveries may run at the same time. The first CLOSED record stands, and the others adopt it. An entry
  that was never acknowledged may be kept or dropped, but only once: that compare-and-set decides.
- Recovery reads fence, too, so that a "missing" remains true. Recovery waits for no more members than the quorums
  require: one hung member blocks nothing. `recovery_range` decides about the ids.
- The record of a ledger that an operator has given up names the members that are given up. They are not asked: when all
  others are fenced, the ledger is read from its beginning, and it ends before the first entry of which none of them has
  a valid copy. What is written back needs as many of them as the ack quorum, or all.
- Each member's LAC counts only if what it holds is the topic's: an id that was given twice may lead to the ledger of
  another topic there (hazard ledger-id-given-twice).
- The entry at LAC is read only for its cumulative length: it is acknowledged and is not written back.
- Members are static, and the shell calls exactly the incarnations that the record names: a wiped node never answers for
  its former incarnation. The shell repeats each request until it is answered or this recovery ends. A newer
  RecoveryRead to a member replaces the older one.
Source: BookKeeper's LedgerRecoveryOp without ensemble changes; its issues 2614 (recovery reads must fence), 2615, 1067.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol, assert_never

from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.batch import Checksum
from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata, LedgerState
from oncelog.core.ledger.quorum import coverage, fence_suffices
from oncelog.core.ledger.recovery_range import MemberAnswers, RecoveryProblem, RecoveryRange
from oncelog.core.records.records import ReadRecord, RecordRead, RecordWritten, WriteRecord
from oncelog.core.records.status import WriteStatus

#: Entries per request. The tail after LAC is at most the writer's window of unacknowledged entries.
RANGE_ENTRIES = 64


# --- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecoveryStarted:
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class MemberFenced:
    """The member's fence is durable. last_entry, last_add_confirmed: -1 if it holds nothing of the ledger. topic_id: of
    what it holds; None if nothing, or from a node that does not say it."""

    ledger_id: LedgerId
    member: Incarnation
    last_entry: EntryId
    last_add_confirmed: EntryId
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True)
class RecoveryReadAnswered:
    """The response to the RecoveryRead of the same member and `first`. It may cover only the first ids of the range.

    found: whole entries. missing: certainly never stored there. unreadable: stored there, or perhaps, but damaged.
    """

    ledger_id: LedgerId
    member: Incarnation
    first: EntryId
    found: Mapping[EntryId, bytes]
    missing: frozenset[EntryId]
    unreadable: frozenset[EntryId] = frozenset()


@dataclass(frozen=True, slots=True)
class RecoveryAdded:
    """The member answered for entries of a RecoveryAdd. ok: durable there; otherwise they are refused permanently."""

    ledger_id: LedgerId
    member: Incarnation
    entry_ids: tuple[EntryId, ...]
    ok: bool


@dataclass(frozen=True, slots=True)
class MemberErased:
    """The member has erased its copy of the ledger. This is neither a copy nor a negative of any entry."""

    ledger_id: LedgerId
    member: Incarnation


LedgerRecordEvent = RecordRead[LedgerKey, LedgerMetadata] | RecordWritten[LedgerKey, LedgerMetadata]
RecoveryEvent = RecoveryStarted | LedgerRecordEvent | MemberFenced | RecoveryReadAnswered | RecoveryAdded | MemberErased


# --- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FenceMember:
    ledger_id: LedgerId
    member: Incarnation


@dataclass(frozen=True, slots=True)
class RecoveryRead:
    """Read ids first .. first + count - 1 from a member with a fencing read."""

    ledger_id: LedgerId
    member: Incarnation
    first: EntryId
    count: int


@dataclass(frozen=True, slots=True)
class RecoveryAdd:
    """Add the original bytes unchanged; the fence does not stop these adds."""

    ledger_id: LedgerId
    member: Incarnation
    entries: tuple[tuple[EntryId, bytes], ...]


@dataclass(frozen=True, slots=True)
class LedgerRecovered:
    """The ledger is CLOSED. metadata: as stored at `version`."""

    ledger_id: LedgerId
    metadata: LedgerMetadata
    version: int


@dataclass(frozen=True, slots=True)
class RecoveryFailed:
    """Nothing was decided: the record stays IN_RECOVERY, and a later recovery may succeed.

    entry_id: the entry that cannot be decided. members: what each member answered about it.
    """

    ledger_id: LedgerId
    reason: str
    entry_id: EntryId | None = None
    members: MemberAnswers = ()


LedgerRecordEffect = ReadRecord[LedgerKey] | WriteRecord[LedgerKey, LedgerMetadata]
RecoveryEffect = LedgerRecordEffect | FenceMember | RecoveryRead | RecoveryAdd | LedgerRecovered | RecoveryFailed


class _OfLedger(Protocol):
    @property
    def ledger_id(self) -> LedgerId: ...


def ledger_of(event: LedgerRecordEvent | _OfLedger) -> LedgerId:
    """The ledger that an event is about."""
    return event.key.ledger_id if isinstance(event, RecordRead | RecordWritten) else event.ledger_id


# --- the machine ----------------------------------------------------------------------------------------------------


class RecoveryPhase(Enum):
    NEW = "new"
    LOOKING = "looking"
    MARKING = "marking"
    FENCING = "fencing"
    COPYING = "copying"
    CLOSING = "closing"
    REREADING = "rereading"
    RECOVERED = "recovered"
    FAILED = "failed"


_READING = (RecoveryPhase.LOOKING, RecoveryPhase.REREADING)
_WRITING = (RecoveryPhase.MARKING, RecoveryPhase.CLOSING)
_ASKING = (RecoveryPhase.FENCING, RecoveryPhase.COPYING)
_ENDED = (RecoveryPhase.RECOVERED, RecoveryPhase.FAILED)


class LedgerRecovery:
    """Recovers and closes one ledger; `phase` ends as RECOVERED or FAILED."""

    def __init__(self, ledger_id: LedgerId, checksum: Checksum, *, range_entries: int = RANGE_ENTRIES) -> None:
        self.ledger_id = ledger_id
        self._key = LedgerKey(ledger_id)
        self.phase = RecoveryPhase.NEW
        self._checksum = checksum
        self._range_entries = range_entries
        #: the record as last read or written, with its version
        self._metadata: LedgerMetadata | None = None
        self._version = -1
        #: the record that is being written
        self._writing: LedgerMetadata | None = None
        #: whether this recovery goes on without the members that are given up
        self._gives_up = False
        #: {durably fenced member: its last_add_confirmed}
        self._fenced: dict[Incarnation, EntryId] = {}
        #: the highest last_add_confirmed when enough members were fenced
        self._lac = NO_ENTRY
        self._range: RecoveryRange | None = None
        #: (end, cumulative length) of the entries known to be in the log; the record is closed with it
        self._tail: tuple[EntryId, int] = (NO_ENTRY, 0)

    def start(self) -> list[RecoveryEffect]:
        """The same as to handle RecoveryStarted."""
        return self.handle(RecoveryStarted(self.ledger_id))

    def handle(self, event: RecoveryEvent) -> list[RecoveryEffect]:
        """Take one event. Late, foreign and repeated events change nothing."""
        if ledger_of(event) != self.ledger_id or self.phase in _ENDED:
            return []
        match event:
            case RecoveryStarted():
                return self._look(RecoveryPhase.LOOKING) if self.phase is RecoveryPhase.NEW else []
            case RecordRead():
                return self._ledger_read(event) if self.phase in _READING else self._read_again(event)
            case RecordWritten():
                return self._ledger_written(event) if self.phase in _WRITING else []
            case MemberFenced():
                return self._member_fenced(event) if self.phase is RecoveryPhase.FENCING else []
            case RecoveryReadAnswered():
                return self._read_answered(event) if self.phase is RecoveryPhase.COPYING else []
            case RecoveryAdded():
                return self._added(event) if self.phase is RecoveryPhase.COPYING else []
            case MemberErased():
                return [ReadRecord(self._key)] if self.phase in _ASKING else []
            case _:
                assert_never(event)

    # --- the record --------------------------------------------------------------------------------------------------

    def _look(self, phase: RecoveryPhase) -> list[RecoveryEffect]:
        self.phase = phase
        return [ReadRecord(self._key)]

    def _ledger_read(self, event: RecordRead[LedgerKey, LedgerMetadata]) -> list[RecoveryEffect]:
        metadata = event.value
        if metadata is None:
            return self._fail(f"ledger {self.ledger_id} has no record")
        self._version = event.version
        if metadata.state is LedgerState.CLOSED:
            return self._recovered(metadata)
        if self.phase is RecoveryPhase.REREADING:
            if metadata.state is not LedgerState.IN_RECOVERY:
                return self._fail(f"ledger {self.ledger_id} went back to state {metadata.state.value}")
            return self._close(metadata)
        self._metadata = metadata
        if metadata.state is LedgerState.IN_RECOVERY:
            return self._fence()
        self.phase = RecoveryPhase.MARKING
        return self._write(metadata.in_recovery())

    def _read_again(self, event: RecordRead[LedgerKey, LedgerMetadata]) -> list[RecoveryEffect]:
        """The response to a read beside the requests to members. CLOSED is final, whenever it was read."""
        metadata = event.value
        if self.phase not in _ASKING or metadata is None:
            return []
        if metadata.state is LedgerState.CLOSED:
            self._version = event.version
            return self._recovered(metadata)
        known = self._known()
        same = (metadata.given_up_by, metadata.given_up) == (known.given_up_by, known.given_up)
        if event.version <= self._version or same:
            return []
        self._version, self._metadata = event.version, metadata
        return self._fence()

    def look(self) -> list[RecoveryEffect]:
        """Read the record again, because members do not answer: an operator may have ended the ledger."""
        return [ReadRecord(self._key)] if self.phase in _ASKING else []

    def _ledger_written(self, event: RecordWritten[LedgerKey, LedgerMetadata]) -> list[RecoveryEffect]:
        """Take the answer to the present write. The ledger's writer in this process, if it has lost the topic and taken
        it over again, may still get the answer to its own: it would look as if this recovery had closed the ledger."""
        if event.value != self._writing:
            return []
        marking = self.phase is RecoveryPhase.MARKING
        if event.status is not WriteStatus.OK:
            return self._look(RecoveryPhase.LOOKING if marking else RecoveryPhase.REREADING)
        self._version = event.version
        if not marking:
            return self._recovered(event.value)
        self._metadata = event.value
        return self._fence()

    def _write(self, metadata: LedgerMetadata) -> list[RecoveryEffect]:
        self._writing = metadata
        return [WriteRecord(self._key, metadata, self._version)]

    def _close(self, metadata: LedgerMetadata) -> list[RecoveryEffect]:
        self.phase = RecoveryPhase.CLOSING
        self._metadata = metadata
        self._range = None
        return self._write(self._closed(metadata))

    def _closed(self, metadata: LedgerMetadata) -> LedgerMetadata:
        end, length = self._tail
        if not self._gives_up:
            metadata = replace(metadata, given_up_by="", given_up=())  # all that was acknowledged is there
        return metadata.closed(end=end, length=length)

    def _recovered(self, metadata: LedgerMetadata) -> list[RecoveryEffect]:
        self.phase = RecoveryPhase.RECOVERED
        self._metadata = metadata
        self._range = None
        return [LedgerRecovered(self.ledger_id, metadata, self._version)]

    def _fail(self, reason: str) -> list[RecoveryEffect]:
        self.phase = RecoveryPhase.FAILED
        self._range = None
        return [RecoveryFailed(self.ledger_id, reason)]

    def _undecidable(self, problem: RecoveryProblem) -> list[RecoveryEffect]:
        self._fail(problem.reason)
        return [RecoveryFailed(self.ledger_id, *problem)]

    def waits_for(self) -> MemberAnswers:
        """The members that have not answered the current step, and what was requested from them."""
        if self._metadata is None or self.phase not in _ASKING:
            return ()
        if self._range is not None:
            return self._range.waits_for()
        return tuple((m, "was asked to fence the ledger") for m in self._metadata.members if m not in self._fenced)

    def cannot_end(self, able: Container[Incarnation]) -> bool:
        """Whether fewer than Qw-Qa+1 members can still answer the current step, of which only `able` ones do.

        A member that is fenced already has answered, but its entries are still to be read.
        """
        if self._metadata is None or self.phase not in _ASKING:
            return False
        fenced = self._fenced if self.phase is RecoveryPhase.FENCING else ()
        count = sum(member in able or member in fenced for member in self._metadata.survivors)
        if self._gives_up:
            return count < len(self._metadata.survivors)
        return count < coverage(write_quorum=self._metadata.write_quorum, ack_quorum=self._metadata.ack_quorum)

    def _known(self) -> LedgerMetadata:
        if self._metadata is None:
            raise InvariantViolated(f"recovery of ledger {self.ledger_id} is {self.phase.value} without a record")
        return self._metadata

    # --- the fence ---------------------------------------------------------------------------------------------------

    def _fence(self) -> list[RecoveryEffect]:
        metadata = self._known()
        self.phase = RecoveryPhase.FENCING
        self._gives_up = bool(metadata.given_up_by)
        self._fenced, self._range = {}, None
        if not metadata.survivors:
            return self._close(metadata)
        return [FenceMember(self.ledger_id, member) for member in metadata.survivors]

    def _member_fenced(self, event: MemberFenced) -> list[RecoveryEffect]:
        metadata = self._known()
        if event.member not in metadata.survivors:
            return []
        foreign = event.topic_id not in (None, metadata.topic_id)
        self._fenced[event.member] = NO_ENTRY if foreign else event.last_add_confirmed
        if not self._fence_suffices(metadata):
            return []
        self._lac = max(self._fenced.values())
        self.phase = RecoveryPhase.COPYING
        return self._examine(EntryId(0 if self._gives_up else max(self._lac, 0)))

    def _fence_suffices(self, metadata: LedgerMetadata) -> bool:
        if self._gives_up:
            return all(member in self._fenced for member in metadata.survivors)
        return fence_suffices(len(self._fenced), write_quorum=metadata.write_quorum, ack_quorum=metadata.ack_quorum)

    # --- the entries -------------------------------------------------------------------------------------------------

    def _examine(self, first: EntryId) -> list[RecoveryEffect]:
        metadata, count = self._asked(), self._range_entries
        self._range = RecoveryRange(
            metadata, first=first, count=count, last_add_confirmed=self._lac, checksum=self._checksum
        )
        return [RecoveryRead(self.ledger_id, member, first, count) for member in metadata.members]

    def _asked(self) -> LedgerMetadata:
        """The record, without the members that are given up."""
        metadata = self._known()
        if not self._gives_up:
            return metadata
        survivors = metadata.survivors
        return replace(metadata, members=survivors, ack_quorum=min(metadata.ack_quorum, len(survivors)))

    def _read_answered(self, event: RecoveryReadAnswered) -> list[RecoveryEffect]:
        examined = self._range
        if examined is None or not examined.awaits(event.member, event.first):
            return []
        decided = examined.decided
        examined.take(event.member, found=event.found, missing=event.missing, unreadable=event.unreadable)
        if examined.problem is not None:
            return self._undecidable(examined.problem)
        if examined.decided:
            return [] if decided else self._write_back(examined)
        rest = examined.rest(event.member)
        return [] if rest is None else [RecoveryRead(self.ledger_id, event.member, *rest)]

    def _write_back(self, examined: RecoveryRange) -> list[RecoveryEffect]:
        if examined.last is not None:
            self._tail = examined.last
        entries = examined.entries()
        if not entries:
            return self._confirmed(examined)
        return [RecoveryAdd(self.ledger_id, member, entries) for member in self._asked().members]

    def _added(self, event: RecoveryAdded) -> list[RecoveryEffect]:
        examined = self._range
        if examined is None or not examined.decided:
            return []
        examined.confirm(event.member, event.entry_ids, ok=event.ok)
        if examined.problem is not None:
            return self._undecidable(examined.problem)
        return self._confirmed(examined) if examined.confirmed else []

    def _confirmed(self, examined: RecoveryRange) -> list[RecoveryEffect]:
        """Every entry of the range has its ack quorum: continue with the next range, or close if the ledger ends
        here."""
        return self._close(self._known()) if examined.ends_ledger else self._examine(examined.beyond)

    def check_invariants(self) -> None:
        """Raises InvariantViolated if this machine contradicts itself."""
        if self.phase in (RecoveryPhase.COPYING, RecoveryPhase.CLOSING, RecoveryPhase.REREADING):
            metadata = self._known()
            if not self._fence_suffices(metadata):
                raise InvariantViolated(
                    f"ledger {self.ledger_id} is {self.phase.value}, but too few members are fenced"
                )
            if any(member not in metadata.members for member in self._fenced):
                raise InvariantViolated(f"ledger {self.ledger_id}: a node that is no member was counted as fenced")
        closing = self.phase in (RecoveryPhase.CLOSING, RecoveryPhase.REREADING)
        if closing and not self._gives_up and self._tail[0] < self._lac:
            raise InvariantViolated(f"ledger {self.ledger_id} would end below its last_add_confirmed {self._lac}")
        if (self._range is None) is (self.phase is RecoveryPhase.COPYING):
            raise InvariantViolated(f"ledger {self.ledger_id} is {self.phase.value}, which does not fit its range")
        if self._range is not None:
            self._range.check_invariants()
