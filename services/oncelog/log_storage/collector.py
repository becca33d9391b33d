"""Finds ledgers whose records are gone from ZooKeeper, and has the node drop their entries.

Rules
- Whoever may remove a ledger's record (its topic's owner behind a trim, whoever deletes the topic) has made sure that
  nobody will ask for it. So a record that is gone is the order to drop the entries; there is no other.
- Absence is believed only after two looks in a row, an interval apart, each behind a sync: a leader of ZooKeeper that
  was cut off answers a sync for a while, and does not know what was created since. The core then reads the one record
  again before it writes the tombstone (hazard 2).
- A ZooKeeper that is not this cluster's, or is empty, proves nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from oncelog.core.errors import OncelogError
from oncelog.core.ids import LedgerId
from oncelog.core.storage_node import LedgerCollected
from oncelog.log_storage.node_runner import NodeRunner

logger = logging.getLogger(__name__)

#: The ledgers that have a record in this cluster, after a sync. Raises StoreUnavailable, NotFound, WrongCluster.
ListLedgers = Callable[[], Awaitable[Collection[LedgerId]]]


class Collector:
    """Looks now and then; `watch` never returns."""

    def __init__(self, runner: NodeRunner, list_ledgers: ListLedgers, *, interval_ms: int) -> None:
        self._runner = runner
        self._list_ledgers = list_ledgers
        self._interval_ms = interval_ms
        #: held here, and without a record at the last look
        self._missed: set[LedgerId] = set()

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            await self.look()

    async def look(self) -> None:
        """Drop what had no record the last time and has none now."""
        try:
            listed = set(await self._list_ledgers())
        except OncelogError as error:
            self._missed = set()
            logger.warning("the ledgers cannot be listed, none is dropped: %s", error.message)
            return
        missed = {LedgerId(held) for held in self._runner.index.entries.ledgers()} - listed
        for ledger_id in sorted(missed & self._missed):
            self._runner.handle(LedgerCollected(ledger_id))
        self._missed = missed
