"""Reviews the ledgers of this node periodically: erases copies that are not needed, and ends limbo.

Rules
- A review is a synced read of the ledger's record, by which the core decides (`core.node.review`). This module only
  chooses which ledgers are reviewed, and when: what it reads without a sync may be old, and proves nothing.
- A ledger without a record is reviewed only after two listings in a row, one interval apart, each after a sync. A
  ZooKeeper leader that is cut off still answers a sync for a while, without the records created since (hazard
  former-incarnation).
- An empty ZooKeeper, or the ZooKeeper of another cluster, causes no review.
  One of which nothing is held is reviewed, too, if it is in limbo: its record was there when limbo began.
- The other ledgers are looked at one after another, at most LOOKS_MAX in an interval. One is reviewed if its record
  does not name this node, if the copy is in limbo or damaged and may be complete, or if its record is whole and the
  copy is not complete: that is damage (hazard verified-copy-is-missing).
- Listed ledgers of which nothing is held are looked at, too, as many: everything of them may have been lost here.
  A start in limbo looks at these first, and all at once. Before that the node does not know which ledgers it lacks: it
  must not report its damage, or another node would count as replaceable.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Protocol

from oncelog.core.errors import CorruptEntry, OncelogError
from oncelog.core.ids import LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.log_storage.serve.node_runner import NodeRunner
from oncelog.metadata_store.session.store_session import Versioned

logger = logging.getLogger(__name__)

#: Ledgers whose records are read in one interval.
LOOKS_MAX = 500
#: Ledgers that are looked at concurrently at a start in limbo, and the pause before that is tried again.
LOOKS_AT_ONCE = 64
RETRY_S = 1.0

#: The ledgers that have a record in this cluster, after a sync. Raises StoreUnavailable, NotFound, WrongCluster.
ListLedgers = Callable[[], Awaitable[Collection[LedgerId]]]


class ReadUnsynced(Protocol):
    """The ledger's record, possibly an old one. Raises StoreUnavailable, CorruptEntry."""

    def __call__(self, ledger_id: LedgerId, /) -> Awaitable[Versioned[LedgerMetadata] | None]: ...


class LedgerReviewer:
    """`watch` never returns."""

    def __init__(
        self, runner: NodeRunner, list_ledgers: ListLedgers, read_unsynced: ReadUnsynced, *, interval_ms: int
    ) -> None:
        self._runner = runner
        self._list_ledgers = list_ledgers
        self._read_unsynced = read_unsynced
        self._interval_ms = interval_ms
        #: held here, but without a record in the last listing
        self._missing: set[LedgerId] = set()
        #: where the next looks go on: at ledgers that are held, and at others
        self._after = {True: LedgerId(-1), False: LedgerId(-1)}
        #: of which all were looked at since the start
        self._passed: set[bool] = set()
        #: whether this node knows which ledgers it may lack
        self.damage_known = not runner.core.ledgers.limbo.below

    @property
    def all_whole(self) -> bool:
        """Whether no ledger of this node lacks entries because of damage: every ledger was looked at since the start.

        Then segments with holes may go (hazard compaction-skips-damage).
        """
        ledgers = self._runner.core.ledgers
        return len(self._passed) == len(self._after) and not ledgers.in_limbo and not ledgers.damaged

    async def watch(self) -> None:
        await self.find_lost()
        while not self.damage_known:
            await asyncio.sleep(RETRY_S)
            await self.find_lost()
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            await self.review()

    async def review(self) -> None:
        """One interval's reviews."""
        runner = self._runner
        try:
            listed = set(await self._list_ledgers())
        except OncelogError as error:
            self._missing = set()
            logger.warning("cannot list the ledgers, so none is reviewed: %s", error.message)
            return
        runner.counts.orphaned -= listed
        held = {LedgerId(ledger_id) for ledger_id in runner.index.entries.ledgers()}
        # An erased copy of a deleted ledger leaves a tombstone, until a review has proved the deletion.
        ledgers = runner.core.ledgers
        tombstones = {ledger_id for ledger_id, origin in ledgers.tombstones.items() if origin is not None}
        missing = (held | tombstones | set(ledgers.in_limbo)) - listed
        twice, self._missing = sorted(missing & self._missing), missing
        try:
            for ledger_id in twice:
                await runner.review(runner.incarnation, ledger_id)
            await self._look(sorted(held & listed), held=True)
            await self._look(sorted(listed - held), held=False)
            if self.all_whole:
                runner.all_reviewed()
        except OncelogError as error:
            logger.warning("cannot review the ledgers now; will retry: %s", error.message)

    async def find_lost(self) -> None:
        """Review the ledgers in limbo of which nothing is left here and whose records name this node."""
        if self.damage_known:
            return
        ledgers = self._runner.core.ledgers
        try:
            listed = await self._list_ledgers()
            unknown = iter([each for each in sorted(listed) if ledgers.limbo.covers(each) and each not in ledgers])
            async with asyncio.TaskGroup() as looks:
                for _ in range(LOOKS_AT_ONCE):
                    looks.create_task(self._review_named(unknown))
            self.damage_known = True
        except* OncelogError as errors:
            logger.warning("cannot look for lost ledgers now; will retry: %s", errors.exceptions[0])

    async def _review_named(self, ledgers: Iterator[LedgerId]) -> None:
        for ledger_id in ledgers:
            try:
                stored = await self._read_unsynced(ledger_id)
            except CorruptEntry:
                continue  # counted and logged; repair cannot read it either
            if stored is not None and stored.value.names(self._runner.incarnation) and not _is_empty(stored.value):
                await self._runner.review(self._runner.incarnation, ledger_id)

    async def _look(self, ledgers: list[LedgerId], *, held: bool) -> None:
        """Read the next records, and review the ledgers that need it. held: whether this node has some of them."""
        following = [ledger_id for ledger_id in ledgers if ledger_id > self._after[held]]
        for ledger_id in following[:LOOKS_MAX]:
            stored = await self._read_unsynced(ledger_id)
            if stored is not None and self._needs_review(stored.value):
                await self._runner.review(self._runner.incarnation, ledger_id)
            self._after[held] = ledger_id
        if len(following) <= LOOKS_MAX:
            self._after[held] = LedgerId(-1)
            self._passed.add(held)

    def _needs_review(self, metadata: LedgerMetadata) -> bool:
        runner, ledger_id = self._runner, metadata.ledger_id
        ledger = runner.core.ledgers.peek(ledger_id)
        closed = metadata.state is LedgerState.CLOSED
        if not metadata.names(runner.incarnation):
            return closed and metadata.verified and runner.index.entries.last_entry(ledger_id) is not None
        complete = runner.index.count_up_to(ledger_id, metadata.end) >= metadata.complete_count
        if runner.core.ledgers.limbo.covers(ledger_id):
            return ledger.named is None or (closed and complete)
        attested = metadata.verified and not metadata.lost and runner.incarnation in metadata.members
        return closed and (bool(ledger.damaged) or (attested and not complete))


def _is_empty(metadata: LedgerMetadata) -> bool:
    return metadata.state is LedgerState.CLOSED and metadata.end < 0
