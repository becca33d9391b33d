"""What the records without an entry state, and which of them compaction must copy.

Rules (hazards compaction-skips-damage-65)
- The last tombstone of a ledger stays. That of a deleted ledger goes when no other file holds a record of the ledger.
- The fence of a ledger stays until the ledger is deleted. Then no recovery and no repair asks for it again.
- When the tombstone of a deleted ledger has gone with its file, nothing is kept of the ledger (`forget`).
- Of the FLOOR records of one chain the highest stays, for ever (hazard trimmed-or-lost).
- The last LIMBO record stays, with what was cleared after it. It lists every hole, also those of earlier ones.
- An ERA record stays for ever. If the node joined its era late, it is a LIMBO record of all former eras, too.
- A SEGMENT_REMOVED record stays until no lower segment has a file.
"""

from collections.abc import Iterable

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.node.era import EraState
from oncelog.core.node.node_ledger import DELETED, LedgerOrigin, RecordKind
from oncelog.log_storage.directory.segment_format import Body, StoredRecord

#: The kinds without an entry that concern one ledger.
OF_LEDGERS = frozenset({RecordKind.FENCE, RecordKind.LEDGER_ERASED, RecordKind.LIMBO_CLEARED})


class ControlRecords:
    """Of one directory. Numbers are those of records."""

    def __init__(self) -> None:
        #: {ledger_id: the highest number of a tombstone}
        self.tombstones: dict[int, int] = {}
        self.deleted: set[int] = set()
        self.fences: set[int] = set()
        self.limbo_number = 0
        self.limbo_below = 0
        #: the highest number of a LIMBO record that ends limbo
        self.limbo_over_number = 0
        #: the highest number of an ERA record that says JOINED_LATE
        self.joined_late_number = 0
        #: the eras of which the node has learned that their restore was committed, and the first one
        self.committed_eras = {FIRST_ERA}
        #: {ledger_id: the highest number of a LIMBO_CLEARED}
        self.cleared: dict[int, int] = {}
        #: {chain: (its floor, the number of that record)}
        self.floors: dict[LedgerOrigin, tuple[int, int]] = {}
        #: {segment_id: ledgers of which it holds records, needed or not}
        self._ledgers: dict[int, set[int]] = {}

    def note(
        self, kind: int, ledger_id: int, entry_id: int, number: int, segment_id: int = 0, body: Body = b""
    ) -> None:
        """A record without an entry is stored. segment_id 0: its place does not matter."""
        if segment_id and kind in OF_LEDGERS:
            self.note_stored(ledger_id, segment_id)
        if kind == RecordKind.FENCE:
            self.fences.add(ledger_id)
        elif kind == RecordKind.LEDGER_ERASED:
            self.tombstones[ledger_id] = max(number, self.tombstones.get(ledger_id, 0))
            if entry_id == DELETED:
                self.deleted.add(ledger_id)
        elif kind == RecordKind.LIMBO and number > self.limbo_number:
            self.limbo_number, self.limbo_below = number, ledger_id
            if not ledger_id:
                self.limbo_over_number = number
        elif kind == RecordKind.ERA and entry_id != EraState.CLAIMED:
            self.committed_eras.add(Era(ledger_id, bytes(body).decode()))
            if entry_id == EraState.JOINED_LATE:
                self.joined_late_number = max(number, self.joined_late_number)
        elif kind == RecordKind.LIMBO_CLEARED:
            self.cleared[ledger_id] = max(number, self.cleared.get(ledger_id, 0))
        elif kind == RecordKind.FLOOR and (chain := LedgerOrigin.decode(body)) is not None:
            self.floors[chain] = max((ledger_id, number), self.floors.get(chain, (0, 0)))

    @property
    def limbo_since(self) -> int:
        """The number of the last record that put ledgers into limbo: what was cleared before it does not count."""
        return max(self.limbo_number, self.joined_late_number)

    def proves(self, number: int) -> bool:
        """Whether the FLOOR record or tombstone of this number proves a deletion to a restore. Before this node learned
        of its era, it may have erased what the lists of this era still name: only the ZooKeeper of the former era had
        trimmed it (hazard deletion-in-a-former-era)."""
        return number > self.joined_late_number

    def was_deleted(self, ledger_id: int) -> bool:
        return ledger_id in self.deleted and self.proves(self.tombstones.get(ledger_id, 0))

    def note_stored(self, ledger_id: int, segment_id: int) -> None:
        """A record of the ledger is stored in that segment."""
        ledgers = self._ledgers.get(segment_id)
        if ledgers is None:
            ledgers = self._ledgers[segment_id] = set()
        ledgers.add(ledger_id)

    def segment_removed(self, segment_id: int) -> None:
        """Its file is gone, durably."""
        self._ledgers.pop(segment_id, None)

    def forget(self, ledger_ids: Iterable[int]) -> list[int]:
        """Deleted ledgers whose tombstones have gone. Returns those of which no file holds a record."""
        gone = [each for each in ledger_ids if not any(each in ledgers for ledgers in self._ledgers.values())]
        for ledger_id in gone:
            self.tombstones.pop(ledger_id, None)
            self.cleared.pop(ledger_id, None)
            self.deleted.discard(ledger_id)
            self.fences.discard(ledger_id)
        return gone

    def is_needed(self, record: StoredRecord, *, first_segment_id: int) -> bool:
        """Whether a record without an entry must be copied before its file goes."""
        ledger_id, number = record.ledger_id, record.number
        match record.kind:
            case RecordKind.FENCE:
                return ledger_id not in self.deleted
            case RecordKind.LEDGER_ERASED:
                if number < self.tombstones[ledger_id]:
                    return False
                elsewhere = (ledgers for at, ledgers in self._ledgers.items() if at != record.location.segment_id)
                return ledger_id not in self.deleted or any(ledger_id in ledgers for ledgers in elsewhere)
            case RecordKind.LIMBO:
                return number == self.limbo_number
            case RecordKind.LIMBO_CLEARED:
                last = number > self.limbo_since and number == self.cleared[ledger_id]
                return last and ledger_id not in self.deleted
            case RecordKind.FLOOR:
                chain = LedgerOrigin.decode(record.body)
                return chain is None or (ledger_id, number) == self.floors.get(chain)
            case RecordKind.ERA:
                return True
            case RecordKind.SEGMENT_REMOVED:
                return record.entry_id >= first_segment_id
            case _:
                return False
