"""A listing of all ledger records that is cheap to keep current, for the repairer and the reports about storage.

    listing = LedgerListing(session)
    await listing.refresh(reads_max=2_000)     # the first call reads every record
    listing.records                            # {ledger id: its record}

Rules
- The listing decides nothing. Before it acts, its user reads the one record again after a sync, and its write names the
  version of that read (hazard late-repairer).
- ZooKeeper has no request for the versions of many nodes. So a refresh reads every new ledger, and of the known ones at
  most `reads_max`: first in turn those that are expected to change (open, or not yet whole), then in turn the others,
  a fifth of each at a time where there are many. With 100,000 whole ledgers a refresh is one list of names and a few
  thousand reads.
- A record that cannot be read is left out and counted by its decoder; its id is in `unreadable`.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator

from oncelog.core.errors import CorruptEntry
from oncelog.core.ids import LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.session.store_session import StoreSession, Versioned

#: Records read at once.
READS_AT_ONCE_MAX = 64
#: Records that a refresh reads again, in addition to the new ones: of each kind a fifth, but some hundred at least.
#: Each of thousands of idle topics has an OPEN ledger, whose record says the same for minutes.
READS_MAX = 2_000
READS_MIN = 200
TURNS = 5


class LedgerListing:
    """Refreshed by one caller at a time; other callers wait for that refresh."""

    def __init__(self, session: StoreSession) -> None:
        self._store = LedgerStore(session)
        #: {ledger id: its record as last read}, in no particular order
        self.records: dict[LedgerId, Versioned[LedgerMetadata]] = {}
        self.unreadable: set[LedgerId] = set()
        #: ledgers whose record was added, changed or removed since `take_changes`
        self._changes: set[LedgerId] = set()
        #: known ledgers in the order in which they are read again
        self._changing: deque[LedgerId] = deque()
        self._settled: deque[LedgerId] = deque()
        #: whether a refresh has read every ledger once
        self.complete = False
        #: how many refreshes have begun; and {ledger: in which one its record was read last}
        self.rounds = 0
        self._read_in: dict[LedgerId, int] = {}
        self._lock = asyncio.Lock()

    def take_changes(self) -> list[LedgerId]:
        """The ledgers whose record was added, changed or removed since the last call, ascending."""
        changes, self._changes = self._changes, set()
        return sorted(changes)

    async def refresh(self, *, reads_max: int = READS_MAX) -> None:
        """Read the new ledgers, and some of the known ones again. Raises StoreUnavailable."""
        async with self._lock:
            self.rounds += 1
            ids = set(await self._store.ids())
            for gone in self.records.keys() - ids:
                self._drop(gone)
            self.unreadable &= ids
            new = ids - self.records.keys() - self.unreadable
            await self._read(sorted(new))
            for turn, count_max in ((self._changing, reads_max), (self._settled, max(reads_max // 4, 1))):
                count = min(count_max, max(READS_MIN, -(-len(turn) // TURNS)))
                await self._read(self._next(turn, ids, new, count))
            self.complete = True

    def has_read_all_since(self, refresh: int) -> bool:
        """Whether this refresh, by its number, and later ones have read every record that there is."""
        return not self.unreadable and all(self._read_in[one] >= refresh for one in self.records)

    async def refresh_one(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata] | None:
        """Read one record after a sync; None if it does not exist. Raises StoreUnavailable, CorruptEntry."""
        stored = await self._store.read(ledger_id)
        if stored is None:
            self._drop(ledger_id)
        else:
            if ledger_id not in self.records:
                self._changing.append(ledger_id)
            self._take(ledger_id, stored)
            self._read_in[ledger_id] = self.rounds
        return stored

    def _next(self, turn: deque[LedgerId], ids: set[LedgerId], new: set[LedgerId], count: int) -> list[LedgerId]:
        """The next ids of this queue. Each is queued again when it has been read."""
        taken: list[LedgerId] = []
        seen: set[LedgerId] = set()
        for _ in range(len(turn)):
            if len(taken) >= count:
                break
            ledger_id = turn.popleft()
            if ledger_id not in ids or ledger_id in seen:
                continue
            seen.add(ledger_id)
            if ledger_id in new:
                turn.append(ledger_id)  # it was read a moment ago
            else:
                taken.append(ledger_id)
        return taken

    async def _read(self, ids: Iterable[LedgerId]) -> None:
        for some in _groups(ids, READS_AT_ONCE_MAX):
            # The names were synced on this connection, so these reads need no sync.
            await asyncio.gather(*(self._read_one(ledger_id) for ledger_id in some))

    async def _read_one(self, ledger_id: LedgerId) -> None:
        try:
            stored = await self._store.read_unsynced(ledger_id)
        except CorruptEntry:
            self._drop(ledger_id)
            self.unreadable.add(ledger_id)
            self._changing.append(ledger_id)
            return
        if stored is None:
            self._drop(ledger_id)
            return
        self._take(ledger_id, stored)
        self._read_in[ledger_id] = self.rounds
        (self._settled if _settled(stored.value) else self._changing).append(ledger_id)

    def _drop(self, ledger_id: LedgerId) -> None:
        self._read_in.pop(ledger_id, None)
        if self.records.pop(ledger_id, None) is not None:
            self._changes.add(ledger_id)

    def _take(self, ledger_id: LedgerId, stored: Versioned[LedgerMetadata]) -> None:
        known = self.records.get(ledger_id)
        if known is None or known.version < stored.version:
            self.records[ledger_id] = stored
            self._changes.add(ledger_id)
        self.unreadable.discard(ledger_id)


def _settled(metadata: LedgerMetadata) -> bool:
    """Whether the record changes only after a failure."""
    return metadata.state is LedgerState.CLOSED and metadata.verified and metadata.joining is None


def _groups(ids: Iterable[LedgerId], size: int) -> Iterator[list[LedgerId]]:
    group: list[LedgerId] = []
    for one in ids:
        group.append(one)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
