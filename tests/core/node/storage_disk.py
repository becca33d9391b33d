"""A storage node's core over a small disk that syncs on request, and helpers for requests to it."""

from oncelog.core.era import Era
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import peek_header
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import AppendStatus, CopyState, ReadStatus
from oncelog.core.node.answers import AnswerAppend, AnswerRead, ReadReceived
from oncelog.core.node.era import EraState, StoredEra
from oncelog.core.node.node import AppendReceived, StorageEffect, StorageEvent, StorageNode, Synced, WriteJournal
from oncelog.core.node.node_ledger import ENTRY_KINDS, JournalRecord, LedgerOrigin, RecordKind
from oncelog.core.node.review import AnswerReview, CheckLedger, LedgerChecked, ReviewReceived
from tests.core.ledger.recovery_world import LEDGER, OPEN, A, checksum, entry

E0, E1, E2 = entry(0), entry(1), entry(2, last_add_confirmed=0)
OTHER = LedgerId(9)
NONE = EntryId(-1)


class Index:
    """The entries on the disk: {ledger: {entry: bytes}}."""

    def __init__(self) -> None:
        self.held: dict[int, dict[int, Buffer]] = {}
        self.damaged: set[tuple[int, int]] = set()

    def contains(self, ledger_id: LedgerId, entry_id: EntryId) -> bool:
        return entry_id in self.held.get(ledger_id, {})

    def last_entry(self, ledger_id: LedgerId) -> int | None:
        return max(self.held.get(ledger_id, {}), default=None)

    def count_up_to(self, ledger_id: LedgerId, end: EntryId) -> int:
        return sum(entry_id <= end for entry_id in self.held.get(ledger_id, {}))

    def entry_crc(self, ledger_id: LedgerId, entry_id: EntryId) -> int | None:
        data = self.held[ledger_id][entry_id]
        return None if (ledger_id, entry_id) in self.damaged else int.from_bytes(bytes(data[4:8]), "little")


class Disk:
    """A node over a journal that syncs on request. The node restarts from the synced entries."""

    def __init__(self, node_class: type[StorageNode] = StorageNode) -> None:
        self.node_class = node_class
        self.synced: list[JournalRecord] = []
        self.unsynced: list[JournalRecord] = []
        self.start()

    def start(self) -> None:
        """Restart after a crash. Entries that were not synced are lost."""
        self.index = Index()
        self.node = self.node_class(A, self.index, checksum)
        self.unsynced = []
        self.lsn_base = len(self.synced)
        for record in self.synced:
            self._put(record)
            restore(self.node, record)

    def find_hole(self, below: LedgerId) -> None:
        """Restart with a hole in the directory. The LIMBO record is synced before anything is served."""
        self.synced.append(JournalRecord(0, RecordKind.LIMBO, below, EntryId(0), b""))
        self.start()

    def _put(self, record: JournalRecord) -> None:
        if record.kind in ENTRY_KINDS:
            self.index.held.setdefault(record.ledger_id, {})[record.entry_id] = record.data
        elif record.kind is RecordKind.LEDGER_ERASED:
            self.index.held.pop(record.ledger_id, None)

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
            self._put(record)
        return self.handle(Synced(len(self.synced) - self.lsn_base))


def restore(node: StorageNode, record: JournalRecord) -> None:
    """Restore one record of the journal."""
    match record.kind:
        case RecordKind.FENCE:
            node.restore_fence(record.ledger_id)
        case RecordKind.LEDGER_ERASED:
            node.restore_erasure(record.ledger_id, LedgerOrigin.decode(record.data))
        case RecordKind.LIMBO if record.ledger_id:
            node.restore_limbo(record.ledger_id)
        case RecordKind.LIMBO:
            node.ledgers.limbo.over()
        case RecordKind.ERA:
            stored = StoredEra(Era(record.ledger_id, bytes(record.data).decode()), EraState(record.entry_id))
            node.restore_era(stored)
            node.restore_limbo(stored.limbo_below)
        case RecordKind.LIMBO_CLEARED:
            node.restore_limbo_cleared(record.ledger_id)
        case RecordKind.FLOOR:
            chain = LedgerOrigin.decode(record.data)
            assert chain is not None
            node.restore_floor(chain, record.ledger_id)
        case _:
            node.restore_entry(peek_header(record.data), ordinary=record.kind is RecordKind.ADD)


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
