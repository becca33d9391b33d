"""Removes the records of ledgers that their owner has left and that no list names.

An owner trims by one compare-and-set, which takes ledgers from the list and raises the floor, and removes their records
afterwards. It creates the record of the next ledger before it links it. If the answer to such a write is lost, or the
owner ends in between, nobody else knows of the ledger. An open one keeps its members in limbo after their directories
went back in time: nobody closes it, so nothing shows that they lack none of it (hazard prepared-ledger-is-left).

`core.repair.unlisted` says which records can go. Each is read again before that, and then the lists of its topic, each
after a sync; the removal names the version that was read. Once the deletion of a topic has ended, all that are left of
it can go. A topic that has no live owner, and a ledger that its last one may have left, is placed: only the epoch of
another owner proves that nobody links the ledger any more.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from oncelog.core.errors import CorruptEntry
from oncelog.core.ids import Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.records.status import WriteStatus
from oncelog.core.repair.queue_events import ChainRecorded
from oncelog.core.repair.unlisted import can_go
from oncelog.metadata.repair.chain_listing import ChainListing
from oncelog.metadata_store.records.deletion_store import DeletionStore
from oncelog.metadata_store.records.ledger_store import LedgerStore

logger = logging.getLogger(__name__)

#: Rounds of repair between two looks.
ROUNDS = 30
#: Records that one look reads again, of CLOSED ledgers and of others: many empty CLOSED ones may wait for a floor.
READS_MAX = 200


class UnlistedRecords:
    """Of the elected replica."""

    def __init__(
        self,
        ledgers: LedgerStore,
        chains: ChainListing,
        deletions: DeletionStore,
        *,
        owners: Callable[[], Sequence[Incarnation]],
    ) -> None:
        """owners: the live topic owners."""
        self._ledgers = ledgers
        self._chains = chains
        self._deletions = deletions
        self._owners = owners
        self._rounds = 0
        #: where the next look goes on: at CLOSED ledgers, and at others
        self._after = {True: LedgerId(-1), False: LedgerId(-1)}
        self.removed = 0

    async def look(self, unlisted: Callable[[], Iterable[LedgerMetadata]]) -> list[TopicId]:
        """At the first of each ROUNDS calls, look at some records that no list named when it was last read, in
        ascending order. Returns the topics to be placed. Raises StoreUnavailable."""
        begins = self._rounds % ROUNDS == 0
        self._rounds += 1
        if not begins:
            return []
        to_place: dict[TopicId, None] = {}
        known = list(unlisted())
        for closed in (False, True):
            of_state = [each.ledger_id for each in known if (each.state is LedgerState.CLOSED) is closed]
            due = [ledger_id for ledger_id in of_state if ledger_id > self._after[closed]][:READS_MAX]
            for ledger_id in due:
                record = await self._remove(ledger_id)
                if record is not None:
                    to_place[record.topic_id] = None
            self._after[closed] = due[-1] if len(due) == READS_MAX else LedgerId(-1)
        return list(to_place)

    async def _remove(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        """Remove the record if it can go. Returns it if a placement of its topic is needed first."""
        try:
            stored = await self._ledgers.read(ledger_id)
        except CorruptEntry:
            return None
        if stored is None:
            return None
        record = stored.value
        chains = await self._chains.read(record.topic_id)
        if not can_go(record, chains) and not await self._deletions.has_ended(record.topic_id):
            return record if self._was_left(record, chains) else None
        if await self._ledgers.delete(ledger_id, version=stored.version) is WriteStatus.OK:
            self.removed += 1
            fields = {"ledger_id": ledger_id, "topic_id": record.topic_id, "state": record.state.value}
            logger.info("removed the record of a ledger that no list names", extra={"fields": fields})
        return None

    def _was_left(self, record: LedgerMetadata, chains: Sequence[ChainRecorded]) -> bool:
        """Whether the last owner of the topic may have left the ledger: it is gone, and the topic has no other one."""
        if record.state is LedgerState.CLOSED or any(record.ledger_id in chain.ledgers for chain in chains):
            return False
        owners = self._owners()
        return any(chain.owner_epoch > 0 for chain in chains) and all(chain.owner not in owners for chain in chains)
