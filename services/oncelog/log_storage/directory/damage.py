"""The entries that this node holds but cannot read. Noted by reads, the scrubber and compaction; repaired by an add."""

import threading
from collections.abc import Callable


class KnownDamage:
    """Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: {ledger_id: entry ids}; no empty sets
        self._entries: dict[int, set[int]] = {}
        #: called with each entry that is noted for the first time, on the thread that found it
        self.on_noted: Callable[[int, int], object] | None = None

    def __bool__(self) -> bool:
        return bool(self._entries)

    def note(self, ledger_id: int, entry_id: int) -> None:
        with self._lock:
            entries = self._entries.setdefault(ledger_id, set())
            known = entry_id in entries
            entries.add(entry_id)
        if not known and self.on_noted is not None:
            self.on_noted(ledger_id, entry_id)

    def stored_again(self, ledger_id: int, entry_id: int) -> None:
        with self._lock:
            entries = self._entries.get(ledger_id)
            if entries is not None:
                entries.discard(entry_id)
                if not entries:
                    del self._entries[ledger_id]

    def erased(self, ledger_id: int) -> None:
        with self._lock:
            self._entries.pop(ledger_id, None)

    def of(self, ledger_id: int) -> frozenset[int]:
        """Entry ids."""
        with self._lock:
            return frozenset(self._entries.get(ledger_id, ()))

    def ledgers(self) -> dict[int, list[int]]:
        """{ledger_id: entry ids}, both ascending."""
        with self._lock:
            return {ledger_id: sorted(self._entries[ledger_id]) for ledger_id in sorted(self._entries)}
