"""The newest entries of the topics' logs in memory, so that readers at the end of a log ask no storage node.

    budget = CacheBudget(64 << 20)          # one for the process
    cache = EntryCache(budget)              # one for each topic

Entries are added in log order and evicted oldest first. All topics share the budget, so memory does not grow with the
number of topics. An entry is kept in the pieces in which it was sent: nothing is copied to cache it. The cache also
holds entries that are not confirmed; read streams stop at last_add_confirmed.
"""

from bisect import bisect_left
from collections import deque
from typing import NamedTuple

from oncelog.core.formats.batch import Buffer
from oncelog.core.ids import EntryId, LedgerId

Parts = tuple[Buffer, Buffer]
_Key = tuple[LedgerId, EntryId]


class _Kept(NamedTuple):
    cache: "EntryCache"
    key: _Key


class CacheBudget:
    """bytes_max: headers and bodies of all caches together. The newest entry is always kept."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self._order: deque[_Kept] = deque()
        #: entries of `_order` whose cache was cleared
        self._stale = 0

    def take(self, cache: "EntryCache", key: _Key, size: int) -> None:
        """Account for a new entry of `size` bytes, and evict the oldest entries that exceed the budget."""
        self._order.append(_Kept(cache, key))
        self.bytes += size
        while self.bytes > self.bytes_max and len(self._order) > 1:
            oldest = self._order.popleft()
            size = oldest.cache.drop(oldest.key)
            self.bytes -= size
            self._stale -= not size

    def give_back(self, size: int, entries: int) -> None:
        """A cache was cleared. Its entries leave `_order` later, so that clearing costs no more than filling."""
        self.bytes -= size
        self._stale += entries
        if self._stale * 2 > len(self._order):
            self._order = deque(kept for kept in self._order if kept.cache.holds(kept.key))
            self._stale = 0


class EntryCache:
    """The entries of one topic. bytes: their share of the budget."""

    def __init__(self, budget: CacheBudget) -> None:
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._budget = budget
        self._entries: dict[_Key, Parts] = {}

    def put(self, ledger_id: LedgerId, entry_id: EntryId, parts: Parts) -> None:
        key = (ledger_id, entry_id)
        size = len(parts[0]) + len(parts[1])
        self._entries[key] = parts
        self.bytes += size
        self._budget.take(self, key, size)

    def drop(self, key: _Key) -> int:
        """Remove an entry and return its size; 0 if it is not cached."""
        gone = self._entries.pop(key, None)
        if gone is None:
            return 0
        size = len(gone[0]) + len(gone[1])
        self.bytes -= size
        return size

    def holds(self, key: _Key) -> bool:
        return key in self._entries

    def get(self, ledger_id: LedgerId, entry_id: EntryId) -> Parts | None:
        return self._entries.get((ledger_id, entry_id))

    def consecutive(self, ledger_id: LedgerId, first: EntryId, last: EntryId, *, bytes_max: int) -> list[Parts]:
        """Consecutive entries from `first` to at most `last`, about `bytes_max`; empty if `first` is not cached."""
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

    def last_uncached(self, ledger_id: LedgerId, first: EntryId, last: EntryId) -> EntryId:
        """The last entry of first .. last before those in the cache, which are the newest; first - 1: all are."""
        entries = range(first, last + 1)
        return EntryId(first - 1 + bisect_left(entries, True, key=lambda entry: (ledger_id, entry) in self._entries))

    def clear(self) -> None:
        size, entries = self.bytes, len(self._entries)
        self._entries.clear()
        self.bytes = 0
        self._budget.give_back(size, entries)
