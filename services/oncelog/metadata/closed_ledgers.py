"""Records of ledgers, read from ZooKeeper once they are CLOSED, and no further time.

A CLOSED record never changes: its end, length and members are final. So a copy is right for ever, and whoever plans a
read of a topic with thousands of ledgers, as Spark does for each micro-batch, costs ZooKeeper a read for each ledger
that is not CLOSED yet. Whether a topic still has a ledger is said by the topic's record, which is read each time.

A copy is found by ledger id and topic id, and is the newest of at most `ledgers_max`: the one that was asked for least
recently goes first.
"""

from typing import Protocol

from oncelog.core.ids import LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.stores.store_session import Stored

#: Of some 700 bytes each.
LEDGERS_MAX = 50_000


class Records(Protocol):
    """What is used of `LedgerStore`."""

    async def read(self, ledger_id: LedgerId) -> Stored[LedgerMetadata] | None: ...


class ClosedLedgers:
    """Of one metadata process."""

    def __init__(self, records: Records, *, ledgers_max: int = LEDGERS_MAX) -> None:
        self._records = records
        self._ledgers_max = ledgers_max
        #: in the order in which they were asked for, the oldest first
        self._closed: dict[tuple[TopicId, LedgerId], LedgerMetadata] = {}

    async def read(self, topic_id: TopicId, ledger_id: LedgerId) -> LedgerMetadata | None:
        """The record; None: it does not exist. Raises StoreUnavailable, CorruptEntry."""
        key = (topic_id, ledger_id)
        known = self._closed.pop(key, None)
        if known is None:
            stored = await self._records.read(ledger_id)
            if stored is None or stored.value.state is not LedgerState.CLOSED:
                return None if stored is None else stored.value
            known = stored.value
        self._closed[key] = known
        while len(self._closed) > self._ledgers_max:
            del self._closed[next(iter(self._closed))]
        return known
