"""A storage node's core over a small disk that syncs on request, and helpers for requests to it."""

from oncelog.core.formats.entry import peek_header
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import AppendStatus, CopyState, ReadStatus
from oncelog.core.node.answers import AnswerAppend, AnswerRead, ReadReceived
from oncelog.core.node.node import AppendReceived, StorageEffect, StorageEvent, StorageNode, Synced, WriteJournal
from oncelog.core.node.node_ledger import JournalRecord, RecordKind
from oncelog.core.node.review import AnswerReview, CheckLedger, LedgerChecked, ReviewReceived
from tests.core.ledger.recovery_world import LEDGER, OPEN, A, checksum, entry
from tests.core.node.stored_records import Index, restore

E0, E1, E2 = entry(0), entry(1), entry(2, last_add_confirmed=0)
OTHER = LedgerId(9)
NONE = EntryId(-1)


class Disk:
    """A node over a journal that syncs on request. The node restarts from the synced entries."""

    def __init__(self, node_class: type[StorageNode] = StorageNode) -> None:
        self.node_class = node_class
        self.synced: list[JournalRecord] = []
        self.unsynced: list[JournalRecord] = []
        self.start()

    def start(self) -> None:
        """Restart after a crash. Entries that were not synced are lost."""
        self.index = Index({})
        self.node = self.node_class(A, self.index, checksum)
        self.unsynced = []
        self.lsn_base = len(self.synced)
        for record in self.synced:
            self.index.restore(record)
            restore(self.node, record)

    def find_hole(self, below: LedgerId) -> None:
        """Restart with a hole in the directory. The LIMBO record is synced before anything is served."""
        self.synced.append(JournalRecord(0, RecordKind.LIMBO, below, EntryId(0), b""))
        self.start()

    def handle(self, event: StorageEvent) -> list[StorageEffect]:
        """Handle the event and write the journal. Returns the other effects."""
        effects = self.node.handle(event)
        self.node.check_invariants()
        for effect in effects:
            if isinstance(effect, WriteJournal):
                self.unsynced += effect.records
                numbers = [record.lsn for record in effect.records]
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
                assert numbers[-1] == len(self.synced) - self.lsn_base + len(self.unsynced)
        return [effect for effect in effects if not isinstance(effect, WriteJournal)]

    def sync(self, count: int | None = None) -> list[StorageEffect]:
        done = self.unsynced[:count]
        del self.unsynced[: len(done)]
        self.synced += done
        for record in done:
            self.index.put(record)
        return self.handle(Synced(len(self.synced) - self.lsn_base))


def append(
    call: int, *entries: bytes, target: Incarnation = A, recovery: bool = False, repair: bool = False
) -> AppendReceived:
    return AppendReceived(call, target, [(peek_header(data), data) for data in entries], recovery, repair)


def answer(call: int, status: AppendStatus, *entry_ids: int, ledger_id: LedgerId = LEDGER) -> AnswerAppend:
    return AnswerAppend(call, ledger_id, [EntryId(entry_id) for entry_id in entry_ids], status)


def read(call: int, first: int, count: int, *, fence: bool = False) -> ReadReceived:
    return ReadReceived(call, A, LEDGER, EntryId(first), count, fence)


def read_answer(
    call: int,
    present: list[int],
    missing: list[int],
    last: int = -1,
    lac: int = -1,
    *,
    unreadable: tuple[int, ...] = (),
) -> AnswerRead:
    ids = tuple(map(EntryId, present)), tuple(map(EntryId, missing))
    unread = tuple(map(EntryId, unreadable))
    return AnswerRead(call, LEDGER, *ids, EntryId(last), EntryId(lac), ReadStatus.OK, unread)


def erased_answer(call: int) -> AnswerRead:
    return AnswerRead(call, LEDGER, (), (), NONE, NONE, ReadStatus.ERASED)


def review(call: int) -> ReviewReceived:
    return ReviewReceived(call, A, LEDGER)


def reviewed(call: int, state: CopyState) -> AnswerReview:
    return AnswerReview(call, LEDGER, state, ReadStatus.OK)


def writable() -> Disk:
    """A node that holds entry 0 of the ledger, synced, and accepts more adds of its writer."""
    disk = Disk()
    assert disk.handle(append(1, E0)) == [CheckLedger(LEDGER, 1)]
    assert disk.handle(LedgerChecked(LEDGER, 1, OPEN)) == []
    assert disk.sync() == [answer(1, AppendStatus.OK, 0)]
    return disk
