"""What the records of a storage node's journal say, in memory: the entries that it holds, and the state of its core.

The tests of the core and the simulation's storage nodes have their journals on this.
"""

from oncelog.core.era import Era
from oncelog.core.formats.entry import peek_header
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.node.era import EraState, StoredEra
from oncelog.core.node.node import StorageNode
from oncelog.core.node.node_ledger import ENTRY_KINDS, JournalRecord, LedgerOrigin, RecordKind

#: The CRC32C of an entry stands at bytes 4 to 8 of its header.
_CRC = slice(4, 8)


class Index:
    """Entries by ledger and id: the core's StorageIndex."""

    def __init__(self, damaged: dict[tuple[LedgerId, EntryId], None]) -> None:
        """damaged: entries that the medium has spoiled."""
        #: {ledger: {entry: bytes}}
        self.entries: dict[LedgerId, dict[EntryId, bytes]] = {}
        self.damaged = damaged

    def put(self, record: JournalRecord) -> None:
        """Add a record that was just synced. A new copy replaces a damaged one."""
        self.restore(record)
        if record.kind in ENTRY_KINDS:
            self.damaged.pop((record.ledger_id, record.entry_id), None)

    def restore(self, record: JournalRecord) -> None:
        """Add a record of an earlier life. What was damaged stays damaged."""
        if record.kind in ENTRY_KINDS:
            self.entries.setdefault(record.ledger_id, {})[record.entry_id] = bytes(record.data)
        elif record.kind is RecordKind.LEDGER_ERASED:
            self.entries.pop(record.ledger_id, None)

    def contains(self, ledger_id: LedgerId, entry_id: EntryId) -> bool:
        return entry_id in self.entries.get(ledger_id, ())

    def last_entry(self, ledger_id: LedgerId) -> int | None:
        return max(self.entries.get(ledger_id, ()), default=None)

    def count_up_to(self, ledger_id: LedgerId, end: EntryId) -> int:
        return sum(entry_id <= end for entry_id in self.entries.get(ledger_id, ()))

    def entry_crc(self, ledger_id: LedgerId, entry_id: EntryId) -> int | None:
        data = self.read(ledger_id, entry_id)
        return None if data is None else int.from_bytes(data[_CRC], "little")

    def read(self, ledger_id: LedgerId, entry_id: EntryId) -> bytes | None:
        """The bytes of a held entry, None where they cannot be read."""
        if (ledger_id, entry_id) in self.damaged:
            return None
        return self.entries.get(ledger_id, {}).get(entry_id)


def restore(node: StorageNode, record: JournalRecord) -> None:
    """Restore what one record says about the node, in the order of the journal."""
    match record.kind:
        case RecordKind.FENCE:
            node.restore_fence(record.ledger_id)
        case RecordKind.LEDGER_ERASED:
            node.restore_erasure(record.ledger_id, LedgerOrigin.decode(record.data))
        case RecordKind.LIMBO if record.ledger_id:
            node.restore_limbo(record.ledger_id)
        case RecordKind.LIMBO:
            node.ledgers.limbo.over()
        case RecordKind.LIMBO_CLEARED:
            node.restore_limbo_cleared(record.ledger_id)
        case RecordKind.ERA:
            stored = StoredEra(Era(record.ledger_id, bytes(record.data).decode()), EraState(record.entry_id))
            node.restore_era(stored)
            node.restore_limbo(stored.limbo_below)
        case RecordKind.FLOOR:
            chain = LedgerOrigin.decode(record.data)
            assert chain is not None
            node.restore_floor(chain, record.ledger_id)
        case _:
            node.restore_entry(peek_header(record.data), ordinary=record.kind is RecordKind.ADD)
