"""The newest entries of a topic's log in memory, so that readers at the tail ask no storage node.

Entries come in log order and leave from the front, by bytes. An entry is kept as the parts it was sent in: nothing is
copied to cache it. The cache knows nothing of what is confirmed; its readers go no further than they may.
"""

from collections import deque

from oncelog.core.batch import Buffer
from oncelog.core.ids import EntryId, LedgerId

Parts = tuple[Buffer, Buffer]


class EntryCache:
    """bytes_max: of headers and bodies; one entry is always kept."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._entries: dict[tuple[LedgerId, EntryId], Parts] = {}
        self._order: deque[tuple[LedgerId, EntryId]] = deque()

    def put(self, ledger_id: LedgerId, entry_id: EntryId, parts: Parts) -> None:
        key = (ledger_id, entry_id)
        self._entries[key] = parts
        self._order.append(key)
        self.bytes += len(parts[0]) + len(parts[1])
        while self.bytes > self.bytes_max and len(self._order) > 1:
            gone = self._entries.pop(self._order.popleft())
            self.bytes -= len(gone[0]) + len(gone[1])

    def get(self, ledger_id: LedgerId, entry_id: EntryId) -> Parts | None:
        return self._entries.get((ledger_id, entry_id))

    def run(self, ledger_id: LedgerId, first: EntryId, last: EntryId, *, bytes_max: int) -> list[Parts]:
        """Consecutive entries from `first`, at most up to `last` and about `bytes_max`; empty when the first is not
        here."""
        found: list[Parts] = []
        size = 0
        entries = self._entries
        for entry_id in range(first, last + 1):
            parts = entries.get((ledger_id, EntryId(entry_id)))
            if parts is None:
                break
            found.append(parts)
            size += len(parts[0]) + len(parts[1])
            if size >= bytes_max:
                break
        self.hits += len(found)
        self.misses += not found
        return found

    def clear(self) -> None:
        self._entries.clear()
        self._order.clear()
        self.bytes = 0
