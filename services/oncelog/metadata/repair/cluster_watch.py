"""Keeps a repair queue (`core.repair.repair_queue`) current: ledgers, lists of topics, storage nodes, damage.

Every replica derives the same queue, so every replica can report the state of storage. The elected one repairs.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from oncelog.core.errors import NotFound
from oncelog.core.ids import Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.repair.emptied import may_need
from oncelog.core.repair.node_removal import MayReplace, may_replace
from oncelog.core.repair.queue_events import (
    AssessmentsDue,
    ClusterSeen,
    DamageReported,
    LedgerRecorded,
    LedgerRemoved,
    RepairSettings,
)
from oncelog.core.repair.repair_queue import RepairQueue
from oncelog.metadata.repair.chain_listing import ChainListing
from oncelog.metadata.repair.storage_nodes_reader import StorageNodesReader, StorageSeen
from oncelog.metadata_store.records.ledger_listing import LedgerListing
from oncelog.metadata_store.session.store_session import Versioned

#: Records that are taken, and lists of which the ledgers are assessed, before others get a turn: some milliseconds.
RECORDS_AT_ONCE = 500
CHAINS_AT_ONCE = 64


#: {ledger: what its record alone says of entries that are gone}
Losses = dict[LedgerId, object]


class ClusterWatch:
    """`refresh` reads what has changed. One caller at a time reads; the others wait for it."""

    def __init__(
        self,
        listing: LedgerListing,
        chains: ChainListing,
        view: StorageNodesReader,
        settings: RepairSettings,
        *,
        owners: Callable[[], Sequence[Incarnation]],
        now_ms: Callable[[], int],
        restored_below: LedgerId = LedgerId(0),
    ) -> None:
        """owners: the live topic owners. now_ms: a monotonic clock. restored_below: a restore may have written the
        records of lower ledgers."""
        self.queue = RepairQueue(settings)
        self.seen = StorageSeen({}, {})
        self._listing = listing
        self._chains = chains
        self._view = view
        self._owners = owners
        self._now_ms = now_ms
        self._restored_below = restored_below
        #: {retired node: the first refresh of the listing behind a look that has shown it as retired}
        self._retired_in: dict[Incarnation, int] = {}
        #: {ledger: its topic}, for ledgers whose record is gone
        self._topic_of: dict[LedgerId, TopicId] = {}
        #: ledgers whose record has changed, not taken yet, and the topics of those that were: a look may be cancelled
        self._changes: deque[LedgerId] = deque()
        self._topics: dict[TopicId, None] = {}
        self._lock = asyncio.Lock()
        #: when the last look began, and when this process last changed what a look shows
        self._looked_ms: int | None = None
        self._changed_ms = now_ms() - 1

    def changed(self) -> None:
        """A storage node was changed through this process: no look of before is enough."""
        self._changed_ms = self._now_ms()

    async def refresh(self, *, within_ms: int = 0) -> StorageSeen:
        """Bring the queue up to date. within_ms: a look that is not older than this is enough. Raises
        StoreUnavailable."""
        async with self._lock:
            looked_ms = self._looked_ms
            if looked_ms is not None and looked_ms > self._changed_ms and self._now_ms() - looked_ms < within_ms:
                return self.seen
            began_ms = self._now_ms()
            seen = await self._view.look()
            await self._listing.refresh()
            for node, cookie in seen.cookies.items():
                if cookie.is_replaced:
                    self._retired_in.setdefault(node, self._listing.rounds)
            self._changes.extend(self._listing.take_changes())
            await self._take_changes()
            before, self.seen = self.seen, seen
            views = tuple(seen.nodes.views.values())
            self.queue.handle(ClusterSeen(views, tuple(self._owners()), self._now_ms()))
            for node, ledgers in sorted(seen.damaged.items()):
                if ledgers != before.damaged.get(node):
                    self.queue.handle(DamageReported(node, tuple(sorted(ledgers))))
            while self.queue.behind:
                await asyncio.sleep(0)
                self.queue.handle(AssessmentsDue())
            self._looked_ms = began_ms
            return seen

    async def _take_changes(self) -> None:
        for count in range(len(self._changes)):
            if count % RECORDS_AT_ONCE == 0:
                # The first look takes all of them, and this process answers clients meanwhile.
                await asyncio.sleep(0)
            self._take(self._changes.popleft())
        topics, self._topics = self._topics, {}
        for count, chain in enumerate(await self._chains.refresh(topics)):
            self.queue.handle(chain)
            if count % CHAINS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _take(self, ledger_id: LedgerId) -> None:
        stored: Versioned[LedgerMetadata] | None = self._listing.records.get(ledger_id)
        if stored is not None:
            self._topic_of[ledger_id] = stored.value.topic_id
            self._topics[stored.value.topic_id] = None
            self.queue.handle(LedgerRecorded(*stored))
        else:
            self.queue.handle(LedgerRemoved(ledger_id))
            topic_id = self._topic_of.pop(ledger_id, None)
            if topic_id is not None:
                self._topics[topic_id] = None

    async def record(self, ledger_id: LedgerId) -> LedgerMetadata:
        """One record after a sync. Raises NotFound, StoreUnavailable, CorruptEntry."""
        stored = await self._listing.refresh_one(ledger_id)
        if stored is None:
            raise NotFound(f"ledger {ledger_id} does not exist: list the ledgers", ledger_id=ledger_id)
        return stored.value

    def seen_record(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        """The record as of the last refresh; None: there was none, or it is corrupt."""
        stored = self._listing.records.get(ledger_id)
        return None if stored is None else stored.value

    def unlisted(self) -> list[LedgerMetadata]:
        """The records of ledgers that no list named when it was last read, by id."""
        return [record for record in self.records() if self.queue.assessment(record.ledger_id) is None]

    def records(self) -> list[LedgerMetadata]:
        """Every record as of the last refresh, by id; also of ledgers that no topic lists."""
        return [self._listing.records[one].value for one in sorted(self._listing.records)]

    def losses(self) -> Losses:
        """Of all records as of the last refresh. What is given up of an open ledger is of this era only."""
        found = (record for record, _ in self._listing.records.values() if record.state is LedgerState.CLOSED)
        return {
            each.ledger_id: (each.lost, each.frozen, each.given_up_by, each.given_up)
            for each in found
            if each.lost or each.frozen or each.given_up_by
        }

    def may_replace(self, node: Incarnation) -> MayReplace:
        """As of the last refresh, which asked each registered node for its damage: silence is a reason against it."""
        return may_replace(node, self.queue.naming(node), self.queue.nodes, self.queue.damaged)

    async def is_emptied(self, node: Incarnation) -> bool:
        """Whether this retired node is emptied (`core.repair.emptied`). Raises StoreUnavailable."""
        if self.queue.naming(node) or self.queue.lacks_records:
            return False
        async with self._lock:
            retired_in = self._retired_in.get(node)
            if retired_in is None or not self._listing.has_read_all_since(retired_in):
                return False
            for count, (record, _) in enumerate(list(self._listing.records.values())):
                if count % RECORDS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                needed = may_need(record, node, restored_below=self._restored_below)
                if needed and not await self._chains.is_unlisted(record):
                    return False
            return True

    def name_of(self, topic_id: TopicId) -> str:
        """Empty for a topic that was not read yet, or was deleted."""
        return self._chains.names.get(topic_id, "")
