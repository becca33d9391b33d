"""Removes the records of trimmed ledgers that their owner has left.

An owner trims by one compare-and-set, which takes ledgers from the list and raises the floor, and removes their records
afterwards. If the answer to that write is lost, or the owner ends before it has removed the records, nobody else knows
of them.

A record is removed if, in this order and each after a sync,
- it is CLOSED: so it was listed once, because an owner writes only to ledgers that a list names;
- no list of its topic names it, and it is below the floor of one of them.
The ledger of an owner's next link is open, and is left alone. The removal names the version that was read.
"""

import logging
from collections.abc import Callable, Iterable

from oncelog.core.errors import CorruptEntry
from oncelog.core.ids import LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.repair.chain_listing import ChainListing
from oncelog.metadata_store.records.ledger_store import LedgerStore

logger = logging.getLogger(__name__)

INTERVAL_MS = 60_000
#: Records that one look reads again.
READS_MAX = 200


class TrimmedRecords:
    """Of the elected replica."""

    def __init__(self, ledgers: LedgerStore, chains: ChainListing, *, now_ms: Callable[[], int]) -> None:
        """now_ms: a monotonic clock."""
        self._ledgers = ledgers
        self._chains = chains
        self._now_ms = now_ms
        self._next_ms = 0
        #: where the next look goes on
        self._after = LedgerId(-1)
        self.removed = 0

    async def look(self, unlisted: Callable[[], Iterable[LedgerMetadata]]) -> None:
        """Once in a while, look at some records that no list named when it was last read, in ascending order. Raises
        StoreUnavailable."""
        if self._now_ms() < self._next_ms:
            return
        self._next_ms = self._now_ms() + INTERVAL_MS
        closed = [record for record in unlisted() if record.state is LedgerState.CLOSED]
        due = [record for record in closed if record.ledger_id > self._after][:READS_MAX]
        for record in due:
            await self._remove(record.ledger_id)
        self._after = due[-1].ledger_id if len(due) == READS_MAX else LedgerId(-1)

    async def _remove(self, ledger_id: LedgerId) -> None:
        try:
            stored = await self._ledgers.read(ledger_id)
        except CorruptEntry:
            return
        if stored is None or stored.value.state is not LedgerState.CLOSED:
            return
        chains = await self._chains.read(stored.value.topic_id)
        listed = any(ledger_id in chain.ledgers for chain in chains)
        if listed or ledger_id >= max((chain.deleted_below for chain in chains), default=LedgerId(0)):
            return
        if await self._ledgers.delete(ledger_id, version=stored.version) is WriteStatus.OK:
            self.removed += 1
            fields = {"ledger_id": ledger_id, "topic_id": stored.value.topic_id}
            logger.info("removed the record of a trimmed ledger", extra={"fields": fields})
