"""Finds ledgers whose records are missing in ZooKeeper, and has the node erase those that were deleted.

Rules
- A missing record is only a reason to look. The core erases a ledger when its topic's records prove that it was trimmed
  or that the topic was deleted (`core.storage.ledger`); everything else is kept and reported (hazard 67).
- A missing record is acted on only after two looks in a row, an interval apart, each after a sync. A leader of
  ZooKeeper that was cut off answers a sync for a while, and does not know what was created since (hazard 2).
- A ZooKeeper that is not this cluster's, or is empty, proves nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from oncelog.core.errors import OncelogError
from oncelog.core.ids import LedgerId
from oncelog.core.storage.node import LedgerRecordMissing
from oncelog.log_storage.node_runner import NodeRunner

logger = logging.getLogger(__name__)

#: The ledgers that have a record in this cluster, after a sync. Raises StoreUnavailable, NotFound, WrongCluster.
ListLedgers = Callable[[], Awaitable[Collection[LedgerId]]]


class GarbageCollector:
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
        """Have the node check the ledgers that had no record at the last look and have none now."""
        try:
            listed = set(await self._list_ledgers())
        except OncelogError as error:
            self._missed = set()
            logger.warning("the ledgers cannot be listed, none is erased: %s", error.message)
            return
        self._runner.counts.orphaned -= listed
        missed = {LedgerId(held) for held in self._runner.index.entries.ledgers()} - listed
        for ledger_id in sorted(missed & self._missed):
            self._runner.handle(LedgerRecordMissing(ledger_id))
        self._missed = missed
