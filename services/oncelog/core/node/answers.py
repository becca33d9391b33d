"""When a storage node answers: only after the records that the answer depends on are synced.

    record handed to the journal (lsn n) --settle(n or above)--> the answers that wait for it are given, in order

Rules
- The answer to an add depends on the records of its entries, including repeated ones; the answer to a fence on the
  fence; a fencing read on the fence; and every read on those of the requested entries that are not yet on the disk.
- What is present and what is missing is looked up when the answer is given, not when the request arrives. For a fencing
  read that is after the fence, so a "missing" remains true. Only the index decides that an entry is missing, and only
  outside of limbo: in limbo an entry that is not found is unreadable (`limbo`).
- What is damaged is not read again, but for a recovery: of a ledger that is not CLOSED no review looks whether its
  entries can be read again, and this copy may be the last one.
- Reads and fences of an erased copy, or of one that is being erased, are answered ERASED, which proves nothing
  (hazard answer-of-a-former-member).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from oncelog.core.errors import InvariantViolated
from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.member_status import AppendStatus, ReadStatus
from oncelog.core.node.era import AnswerEra
from oncelog.core.node.limbo import Limbo
from oncelog.core.node.node_ledger import JournalRecord, RecordKind, StorageIndex, StorageLedger

#: A read is answered for at most this many ids. The reader requests ids that an answer does not name again.
READ_ENTRIES_MAX = 1024


@dataclass(frozen=True, slots=True)
class FenceReceived:
    call: int
    target: Incarnation
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class ReadReceived:
    """Ids first .. first + count - 1. fence: fence the ledger before the answer."""

    call: int
    target: Incarnation
    ledger_id: LedgerId
    first: EntryId
    count: int
    fence: bool = False


@dataclass(frozen=True, slots=True)
class AnswerAppend:
    """entry_ids: all with the same outcome."""

    call: int
    ledger_id: LedgerId
    entry_ids: list[EntryId]
    status: AppendStatus


@dataclass(frozen=True, slots=True)
class AnswerFence:
    """last_entry, last_add_confirmed: -1 if no entry is held. topic_id: of the entries that are held, if any."""

    call: int
    ledger_id: LedgerId
    last_entry: EntryId
    last_add_confirmed: EntryId
    status: ReadStatus
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True)
class AnswerRead:
    """present: to be read from the disk, or reported unreadable. missing: explicit negatives.

    unreadable: known to be damaged, or not found in limbo. A recovery has the damaged ones in `present`.
    """

    call: int
    ledger_id: LedgerId
    present: tuple[EntryId, ...]
    missing: tuple[EntryId, ...]
    last_entry: EntryId
    last_add_confirmed: EntryId
    status: ReadStatus
    unreadable: tuple[EntryId, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerErased:
    """The tombstone is durable: drop the ledger from the index. deleted: not only this copy, the ledger is deleted."""

    ledger_id: LedgerId
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class LimboCleared:
    """The LIMBO_CLEARED record is durable: the ledger is not in limbo any more."""

    ledger_id: LedgerId


Answer = AnswerAppend | AnswerFence | AnswerRead | AnswerEra | LedgerErased | LimboCleared


class PendingAnswer(NamedTuple):
    """An answer that waits for `lsn`. fresh: those of its entries that are pending until then.

    reply: the answer itself, or the request whose answer is looked up when the records are synced.
    """

    lsn: int
    ledger: StorageLedger
    fresh: Sequence[EntryId]
    reply: AnswerAppend | AnswerEra | FenceReceived | ReadReceived | LedgerErased | LimboCleared | None


class StorageAnswers:
    """Counts the journal's records and keeps the answers that wait for them."""

    def __init__(self, index: StorageIndex, limbo: Limbo) -> None:
        #: the last record handed to the journal, and the last record known to be synced
        self.lsn = 0
        self.synced = 0
        self._index = index
        self._limbo = limbo
        #: ascending by lsn
        self._waiting: deque[PendingAnswer] = deque()

    def write(
        self,
        records: list[JournalRecord],
        kind: RecordKind,
        ledger_id: LedgerId,
        entry_id: EntryId = EntryId(0),
        data: bytes = b"",
    ) -> int:
        """Hand a record without an entry to the journal; returns its lsn."""
        self.lsn += 1
        records.append(JournalRecord(self.lsn, kind, ledger_id, entry_id, data))
        return self.lsn

    def write_fence(self, records: list[JournalRecord], ledger: StorageLedger) -> None:
        """Fence the ledger, unless it is fenced already."""
        if not ledger.fenced:
            ledger.fenced = True
            ledger.fence_lsn = self.write(records, RecordKind.FENCE, ledger.ledger_id)

    def is_erased(self, ledger: StorageLedger) -> bool:
        """Whether every call is answered ERASED. A hole may have hidden a later life of an erased copy."""
        return ledger.erasing or (ledger.erased and not self._limbo.covers(ledger.ledger_id))

    def may_answer(self, lsn: int) -> bool:
        """Whether an answer that depends on the records up to `lsn` may be given."""
        return lsn <= self.synced

    def lsn_for(self, lsn: int) -> int:
        """The lsn to wait for, so that `lsn` is synced and answers wait in the order of their lsn."""
        return self.synced if lsn <= self.synced else self.lsn

    def answer_when_synced(self, waiting: PendingAnswer) -> list[Answer]:
        """Answer now if the records are synced; otherwise when they are."""
        if not self.may_answer(waiting.lsn):
            self._waiting.append(waiting)
            return []
        if waiting.fresh:
            self._waiting.append(waiting._replace(reply=None))
        return self._answer(waiting)

    def settle(self, lsn: int) -> list[Answer]:
        """Records up to `lsn` are durable and in the index: give the answers that waited for them."""
        if lsn > self.lsn:
            raise InvariantViolated(f"the journal synced record {lsn}, but only {self.lsn} were handed to it")
        self.synced = max(self.synced, lsn)
        waiting = self._waiting
        answers: list[Answer] = []
        while waiting and waiting[0].lsn <= self.synced:
            settled = waiting.popleft()
            for entry_id in settled.fresh:
                del settled.ledger.pending[entry_id]
                settled.ledger.damaged.pop(entry_id, None)
            answers += self._answer(settled)
        return answers

    def _answer(self, waiting: PendingAnswer) -> list[Answer]:
        reply, ledger = waiting.reply, waiting.ledger
        match reply:
            case None:
                return []
            case AnswerAppend() | AnswerEra() | LedgerErased() | LimboCleared():
                return [reply]
            case FenceReceived():
                if self.is_erased(ledger):
                    return [AnswerFence(reply.call, reply.ledger_id, NO_ENTRY, NO_ENTRY, ReadStatus.ERASED)]
                last, lac = self._last_entry(ledger), ledger.last_add_confirmed
                topic_id = ledger.origin and ledger.origin.topic_id
                return [AnswerFence(reply.call, reply.ledger_id, last, lac, ReadStatus.OK, topic_id)]
            case ReadReceived():
                return [self._read(reply, ledger)]
            case _:
                assert_never(reply)

    def _read(self, event: ReadReceived, ledger: StorageLedger) -> AnswerRead:
        if self.is_erased(ledger):
            return AnswerRead(event.call, event.ledger_id, (), (), NO_ENTRY, NO_ENTRY, ReadStatus.ERASED)
        present: list[EntryId] = []
        unreadable: list[EntryId] = []
        missing = unreadable if self._limbo.covers(event.ledger_id) else list[EntryId]()
        for number in range(event.first, event.first + min(event.count, READ_ENTRIES_MAX)):
            entry_id = EntryId(number)
            if entry_id not in ledger.damaged:
                (present if self._index.contains(event.ledger_id, entry_id) else missing).append(entry_id)
            else:
                again = event.fence and self._index.contains(event.ledger_id, entry_id)
                (present if again else unreadable).append(entry_id)
        return AnswerRead(
            event.call,
            event.ledger_id,
            tuple(present),
            () if missing is unreadable else tuple(missing),
            self._last_entry(ledger),
            ledger.last_add_confirmed,
            ReadStatus.OK,
            tuple(unreadable),
        )

    def _last_entry(self, ledger: StorageLedger) -> EntryId:
        last = self._index.last_entry(ledger.ledger_id)
        return NO_ENTRY if last is None else EntryId(last)

    def check_invariants(self) -> None:
        """Raises InvariantViolated if this machine contradicts itself."""
        if not self._waiting:
            return
        before, fresh = self._waiting[0].lsn, 0
        pending: dict[int, int] = {}
        for lsn, ledger, entry_ids, _ in self._waiting:
            if lsn < before:
                raise InvariantViolated("answers wait out of order")
            before = lsn
            fresh += len(entry_ids)
            pending[id(ledger)] = len(ledger.pending)
        if not self.synced < self._waiting[0].lsn <= self._waiting[-1].lsn <= self.lsn:
            raise InvariantViolated("an answer waits for a record that is already synced, or was never written")
        if fresh != sum(pending.values()):
            raise InvariantViolated("an entry is pending, but no answer waits for it")
