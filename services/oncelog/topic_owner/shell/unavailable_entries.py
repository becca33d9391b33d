"""The entries that readers of one topic could not get because no live storage node has them, for its statistics."""

import time
from collections.abc import Callable

from oncelog.core.errors import LedgerUnavailable
from oncelog.core.ids import LedgerId
from oncelog.storage_client.reader import missing_entries

#: A reader asks again every few seconds. What no reader reported for so long is not shown any more.
SHOWN_FOR_S = 60.0


class UnavailableEntries:
    """clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: {ledger: (the newest error, when it came)}
        self._errors: dict[int, tuple[LedgerUnavailable, float]] = {}

    def failed(self, error: LedgerUnavailable) -> None:
        """A reader could not get these entries."""
        ledger_id = error.details.get("ledger_id")
        if isinstance(ledger_id, int):
            self._errors[ledger_id] = (error, self._clock())

    def answered(self, ledger_id: LedgerId) -> None:
        """A storage node gave entries of this ledger."""
        self._errors.pop(ledger_id, None)

    def as_json(self) -> list[dict[str, object]]:
        """ledger_id, first, last, and the storage nodes that are waited for."""
        since_s = self._clock() - SHOWN_FOR_S
        self._errors = {ledger_id: each for ledger_id, each in self._errors.items() if each[1] >= since_s}
        shown = []
        for ledger_id, (error, _) in sorted(self._errors.items()):
            first, last, waiting_for = missing_entries(error)
            shown.append({"ledger_id": ledger_id, "first": first, "last": last, "waiting_for": list(waiting_for)})
        return shown
