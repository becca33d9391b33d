"""Finds ledgers without a record in ZooKeeper, and lets the core delete those that were deleted.

Rules
- A missing record only causes a check. The core deletes a ledger if the records of its topic prove that it was trimmed,
  or that the topic was deleted (`core.storage.ledger`). Every other ledger is kept and reported (hazard 67).
- A missing record counts only after two listings in a row, one interval apart, each after a sync. A ZooKeeper leader
  that is cut off still answers a sync for a while, without the records created since (hazard 2).
- An empty ZooKeeper, or the ZooKeeper of another cluster, proves nothing.
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
    """Lists the ledgers periodically; `watch` never returns."""

    def __init__(self, runner: NodeRunner, list_ledgers: ListLedgers, *, interval_ms: int) -> None:
        self._runner = runner
        self._list_ledgers = list_ledgers
        self._interval_ms = interval_ms
        #: held here, but without a record in the last listing
        self._missing: set[LedgerId] = set()

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            await self.collect()

    async def collect(self) -> None:
        """Let the node check the ledgers that had no record in the last listing and in this one."""
        try:
            listed = set(await self._list_ledgers())
        except OncelogError as error:
            self._missing = set()
            logger.warning("cannot list the ledgers, so none is deleted: %s", error.message)
            return
        self._runner.counts.orphaned -= listed
        missing = {LedgerId(held) for held in self._runner.index.entries.ledgers()} - listed
        for ledger_id in sorted(missing & self._missing):
            self._runner.handle(LedgerRecordMissing(ledger_id))
        self._missing = missing
