"""The replay: what a node holds, from the records of its directory. The order of the files does not matter.

Compaction moves old records into new files, so a tombstone can come before or after the records that it erases. The
numbers of the records decide (hazard compaction-order):

- A tombstone erases the entries of its ledger with lower numbers, and no others.
- Of two records of one entry, the one with the higher number is used: a damaged entry may have been stored again.
- A ledger is in limbo if it is below the last LIMBO record's id and was not cleared by a record with a higher number.
- Fences stay. Of the eras the one with the highest number of its record counts.
- Of two notes of one path the one with the higher order stays, whatever their numbers (`core.formats.note`).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from oncelog.core.era import Era
from oncelog.core.formats.entry import HEADER_BYTES, EntryHeader, peek_header
from oncelog.core.ids import LedgerId
from oncelog.core.node.era import EraState, StoredEra
from oncelog.core.node.node_ledger import LedgerOrigin, RecordKind
from oncelog.log_storage.directory.control_records import ControlRecords
from oncelog.log_storage.directory.index import LedgerEntries, LedgerIndex
from oncelog.log_storage.directory.segment_format import ENTRY_KINDS, StoredRecord
from oncelog.log_storage.directory.segment_writer import SYSTEM, DiskCalls
from oncelog.log_storage.directory.storage_directory import StorageDirectory

_LAST_ADD_CONFIRMED = struct.Struct("<q")
_LAST_ADD_CONFIRMED_AT = 24


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay. limbo_below: every ledger below it is in limbo unless it is in limbo_cleared; 0: none."""

    index: LedgerIndex
    control: ControlRecords
    #: of each ledger with entries: the first bytes of the entry with the highest last_add_confirmed, and whether an
    #: ordinary add is held
    heads: list[tuple[bytes, bool]]
    fenced: set[LedgerId]
    #: {ledger with a tombstone: its origin, unless it is deleted}; entries that were stored later may be held again
    erased: dict[LedgerId, LedgerOrigin | None]
    #: those of the erased ledgers that are known to be deleted
    deleted: set[LedgerId]
    limbo_below: LedgerId
    limbo_cleared: set[LedgerId]
    era: StoredEra

    def entries(self) -> Iterator[tuple[EntryHeader, bool]]:
        """`heads`, decoded. Raises CorruptEntry if an intact record of an entry is no entry."""
        for head, writable in self.heads:
            yield peek_header(head), writable


@dataclass(slots=True)
class _Ledger:
    """numbers: the number of the record of each entry, in place of its location."""

    numbers: LedgerEntries = field(default_factory=LedgerEntries)
    last_add_confirmed: int = -2
    #: the first bytes of the entry with that last_add_confirmed
    head: bytes = b""
    #: the highest number of an ordinary add
    add_number: int = 0


class DirectoryReplay:
    """Takes the records of a scan one by one."""

    def __init__(self) -> None:
        self.index = LedgerIndex()
        self.control = ControlRecords()
        self._ledgers: dict[int, _Ledger] = {}
        #: {erased ledger: the origin that its last tombstone names}
        self._origins: dict[int, LedgerOrigin | None] = {}
        #: {number of an ERA record: what it says}
        self._eras: dict[int, StoredEra] = {0: StoredEra()}

    def take(self, record: StoredRecord) -> None:
        if record.kind in ENTRY_KINDS:
            self.control.note_stored(record.ledger_id, record.location.segment_id)
            self._take_entry(record)
            return
        if record.kind is RecordKind.NOTE:
            self.index.put_note(record.body, record.location)
            return
        kind, ledger_id, entry_id, number, location, body = record
        self.control.note(kind, ledger_id, entry_id, number, location.segment_id, body)
        if record.kind is RecordKind.LEDGER_ERASED:
            if record.number == self.control.tombstones[record.ledger_id]:
                self._origins[record.ledger_id] = LedgerOrigin.decode(record.body)
            self._erase(record.ledger_id, self.control.tombstones[record.ledger_id])
        elif record.kind is RecordKind.ERA:
            era = Era(record.ledger_id, bytes(record.body).decode())
            self._eras[record.number] = StoredEra(era, EraState(record.entry_id))

    def _take_entry(self, record: StoredRecord) -> None:
        kind, ledger_id, entry_id, number, location, body = record
        if number < self.control.tombstones.get(ledger_id, 0):
            return
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            ledger = self._ledgers[ledger_id] = _Ledger()
        if kind is RecordKind.ADD:
            ledger.add_number = max(ledger.add_number, number)
        known = ledger.numbers.put(entry_id, number, 0)
        if known is not None and known[0] > number:
            ledger.numbers.put(entry_id, known[0], 0)
            return
        self.index.put(ledger_id, entry_id, location)
        if len(body) >= HEADER_BYTES:
            (confirmed,) = _LAST_ADD_CONFIRMED.unpack_from(body, _LAST_ADD_CONFIRMED_AT)
            if confirmed > ledger.last_add_confirmed:
                ledger.last_add_confirmed, ledger.head = confirmed, bytes(body[:HEADER_BYTES])

    def _erase(self, ledger_id: int, number: int) -> None:
        """Forget the entries with lower numbers. Those with higher ones were stored after the tombstone."""
        ledger = self._ledgers.pop(ledger_id, None)
        if ledger is None:
            return
        places = dict(self.index.entries(ledger_id))
        self.index.drop(ledger_id)
        kept = _Ledger(last_add_confirmed=ledger.last_add_confirmed, head=ledger.head, add_number=ledger.add_number)
        for run in ledger.numbers.runs:
            for entry_id, entry_number in enumerate(run.places, run.first):
                if entry_number > number:
                    kept.numbers.put(entry_id, entry_number, 0)
                    self.index.put(ledger_id, entry_id, places[entry_id])
        if kept.numbers.count:
            self._ledgers[ledger_id] = kept

    def result(self) -> Replayed:
        """After the last record."""
        control = self.control
        heads = [
            (ledger.head, ledger.add_number > control.tombstones.get(ledger_id, 0))
            for ledger_id, ledger in sorted(self._ledgers.items())
        ]
        return Replayed(
            self.index,
            control,
            heads,
            {LedgerId(ledger_id) for ledger_id in control.fences},
            {LedgerId(each): None if each in control.deleted else self._origins[each] for each in control.tombstones},
            {LedgerId(ledger_id) for ledger_id in control.deleted},
            LedgerId(
                max(
                    control.limbo_below,
                    *(each.limbo_below for number, each in self._eras.items() if number >= control.limbo_over_number),
                    0,
                )
            ),
            # A tombstone ends limbo, too: all that the holes may have held of its ledger has lower numbers.
            {
                LedgerId(ledger_id)
                for ended in (control.cleared, control.tombstones)
                for ledger_id, number in ended.items()
                if number > control.limbo_since
            },
            self._eras[max(self._eras)],
        )


def replay(directory: StorageDirectory, disk: DiskCalls = SYSTEM) -> Replayed:
    """Scan the directory."""
    taken = DirectoryReplay()
    for record in directory.scan(disk):
        taken.take(record)
    return taken.result()
