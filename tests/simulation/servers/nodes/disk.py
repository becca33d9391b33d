"""A storage node's directory: a journal. A crash may lose records that were not synced.

What survives of the unsynced tail is a prefix of any length; the record at the cut may be torn: reading stops there.
What is read back after a crash is synced again before the node serves, for it may live in the page cache alone.
"""

import random
from dataclasses import dataclass

from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.node.node_ledger import ENTRY_KINDS, JournalRecord, RecordKind
from oncelog.core.node.starts import JournalEnd, LastStart


@dataclass(frozen=True, slots=True)
class DirectoryCopy:
    """A directory as of an earlier time."""

    records: tuple[JournalRecord, ...]
    last_start: LastStart
    end: JournalEnd


class Disk:
    """The records of one incarnation's directory, in order of writing."""

    def __init__(self) -> None:
        self.records: list[JournalRecord] = []
        #: records at the front that no crash can take
        self.synced = 0
        self.torn = False
        #: what the directory notes of its last start
        self.last_start = LastStart()
        #: records that a fault took from the middle: the journal ends where it did
        self.gaps = 0
        #: it was restored, and no start has begun since
        self.went_back = False
        #: records of a topic that the store does not know, by identity: the oracles leave them out
        self.foreign: dict[int, LedgerId] = {}
        #: synced records that a fault took away
        self.taken: list[JournalRecord] = []
        #: (ledger, entry) of what the medium has spoiled
        self.damaged: dict[tuple[LedgerId, EntryId], None] = {}
        self._durable = _Durable(self.records)

    def write(self, records: tuple[JournalRecord, ...]) -> None:
        self.records += records

    def sync(self, count: int) -> None:
        self.synced = max(self.synced, count)

    def crash(self, rng: random.Random) -> int:
        """Lose a suffix of the unsynced records. Returns how many were lost."""
        unsynced = len(self.records) - self.synced
        if unsynced <= 0:
            return 0
        kept = self.synced + rng.randint(0, unsynced)
        lost = len(self.records) - kept
        self.torn = lost > 0 and rng.random() < 0.5
        # A torn record fails its checksum: it is the first of the lost ones, and nothing behind it is read.
        del self.records[kept:]
        return lost

    def reopen(self) -> None:
        """The journal is read at a start, and its tail synced before anything is served."""
        self.torn = False
        self.synced = len(self.records)

    @property
    def end(self) -> JournalEnd:
        """Up to where a scan reads the journal."""
        return JournalEnd(0, len(self.records) + self.gaps)

    @property
    def synced_end(self) -> JournalEnd:
        return JournalEnd(0, self.synced + self.gaps)

    def copy(self) -> DirectoryCopy:
        return DirectoryCopy(tuple(self.records), self.last_start, self.end)

    def go_back(self, copy: DirectoryCopy, *, whole: bool) -> list[JournalRecord]:
        """Restore a copy; not whole: only the journal's end is lost, and the rest is of today. Returns what is lost."""
        kept = dict.fromkeys(map(id, copy.records))
        lost = [record for record in self.records if id(record) not in kept]
        self.taken += lost
        self.records, self.synced = list(copy.records), len(copy.records)
        self.gaps, self.went_back = copy.end.offset - len(copy.records), True
        if whole:
            self.last_start = copy.last_start
        return lost

    def take(self, lost: list[JournalRecord]) -> None:
        """Records vanish from the middle."""
        self.taken += lost
        gone = dict.fromkeys(map(id, lost))
        self.records = [record for record in self.records if id(record) not in gone]
        self.gaps += len(lost)

    def has_foreign(self, ledger_id: LedgerId) -> bool:
        """Whether the directory has a ledger of another topic with this id."""
        return ledger_id in self.foreign.values()

    def ever_held(self, ledger_id: LedgerId) -> dict[EntryId, bytes]:
        """`held`, and what a fault took away."""
        taken = [
            r for r in self.taken if r.ledger_id == ledger_id and r.kind in ENTRY_KINDS and id(r) not in self.foreign
        ]
        return {record.entry_id: bytes(record.data) for record in taken} | self.held(ledger_id)

    def held(self, ledger_id: LedgerId) -> dict[EntryId, bytes]:
        """{entry: bytes} of one ledger that would certainly survive a crash at this moment."""
        if self._durable.records is not self.records:  # a fault has replaced them
            self._durable = _Durable(self.records)
        return self._durable.held(ledger_id, self.synced, self.foreign)


class _Durable:
    """The entries of the synced records, of which each is looked at once: the oracles ask at every step.

    Synced records stay as they are in their list.
    """

    def __init__(self, records: list[JournalRecord]) -> None:
        self.records = records
        self._read = 0
        self._entries: dict[LedgerId, dict[EntryId, bytes]] = {}

    def held(self, ledger_id: LedgerId, synced: int, foreign: dict[int, LedgerId]) -> dict[EntryId, bytes]:
        if synced > self._read:
            for record in self.records[self._read : synced]:
                if record.kind is RecordKind.LEDGER_ERASED:
                    self._entries.pop(record.ledger_id, None)
                elif record.kind in ENTRY_KINDS and id(record) not in foreign:
                    self._entries.setdefault(record.ledger_id, {})[record.entry_id] = bytes(record.data)
            self._read = synced
        return dict(self._entries.get(ledger_id, ()))
