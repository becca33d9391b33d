"""Pulsar's rule for the acknowledgements of a shared subscription, as its broker has it (ManagedCursorImpl).

The broker keeps them in memory, and writes the whole state as one entry:

- Writes are limited to one a second (managedLedgerDefaultMarkDeleteRateLimit). An acknowledgement that comes in between
  is answered as if it were written. It is written with a later one, or a minute later; no history waits for that.
- Of the acknowledged messages behind the first unacknowledged one, the state has those of whole ledgers: a ledger is
  left out if the ledgers before it have more acknowledged messages than the limit. That is
  managedLedgerMaxUnackedRangesToPersist, in the default format (persistIndividualAckAsLongArray).
- PIP-299's pause, if it is switched on, begins when the ranges of acknowledged messages are more than the same limit,
  and ends when they are not. No new messages are delivered meanwhile. A broker that starts delivers until the first
  acknowledgement.

Pulsar's limit is 200,000; here it is small, so that a history is short. Each message is an entry of its own.
"""

from collections.abc import Mapping
from itertools import groupby

RANGES_MAX = 3
WRITES_PER_S = 1.0


class WriteLimit:
    """As Guava's RateLimiter, which the broker uses: what was not used for a second may be used at once."""

    def __init__(self, now_s: float) -> None:
        self._next_s = now_s
        self._unused = 0.0

    def allows(self, now_s: float) -> bool:
        """Whether a write may be made now, and is made."""
        if now_s > self._next_s:
            self._unused = min(1.0, self._unused + (now_s - self._next_s) * WRITES_PER_S)
            self._next_s = now_s
        if self._next_s > now_s:
            return False
        used = min(1.0, self._unused)
        self._unused -= used
        self._next_s += (1.0 - used) / WRITES_PER_S
        return True


class PulsarCursor:
    """Of one subscription that begins with the first message of its topic, from the start of a broker on.

    paused: new messages are withheld.
    """

    def __init__(self, now_s: float) -> None:
        self.paused = False
        #: {number of a message in the topic: its ledger}
        self._acknowledged: dict[int, int] = {}
        self._limit = WriteLimit(now_s)

    def acknowledged(self, messages: Mapping[int, int], now_s: float) -> frozenset[int] | None:
        """Messages are acknowledged. messages: {number in the topic: ledger}. Returns the acknowledged messages of the
        state that is written now; None: none is written."""
        self._acknowledged |= messages
        ordered = sorted(self._acknowledged)
        first = next((number for number, each in enumerate(ordered) if number != each), len(ordered))
        behind = ordered[first:]
        ranges = sum(number - 1 not in self._acknowledged for number in behind)
        self.paused = ranges > RANGES_MAX
        if not self._limit.allows(now_s):
            return None
        written = set(ordered[:first])
        count = 0
        for _ledger, group in groupby(behind, self._acknowledged.__getitem__):
            numbers = list(group)
            if count <= RANGES_MAX:
                written.update(numbers)
            count += len(numbers)
        return frozenset(written)
