"""The ledgers that topics and their cursors list, kept current with few reads, for the repairer's queue.

A ledger that no list names is not touched (hazard 58). As in the listing of ledgers, what is read here decides nothing:
before it changes anything, a repair reads the lists again after a sync.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.topic_record import DEDUP_CURSOR
from oncelog.core.ids import LedgerId, TopicId
from oncelog.core.ledger.next_ledger import LedgerPurpose
from oncelog.core.repair.queue_events import ChainRecorded
from oncelog.stores.cursor_store import CursorStore
from oncelog.stores.topic_store import TopicStore

#: Topics that one refresh reads again, in addition to those with new ledgers; and how many are read concurrently.
TOPICS_MAX = 500
READS_AT_ONCE_MAX = 32


class ChainListing:
    """The lists of all topics that have ledgers."""

    def __init__(self, topics: TopicStore, cursors: CursorStore) -> None:
        self._topics = topics
        self._cursors = cursors
        #: known topics in the order in which they are read again
        self._turn: deque[TopicId] = deque()
        self._known: set[TopicId] = set()
        self.names: dict[TopicId, str] = {}

    async def refresh(self, changed: Iterable[TopicId]) -> list[ChainRecorded]:
        """Read the lists of the topics whose ledgers have changed, and some others. Raises StoreUnavailable."""
        due = list(dict.fromkeys(changed))
        others = [self._turn.popleft() for _ in range(min(TOPICS_MAX, len(self._turn)))]
        wanted = list(dict.fromkeys((*due, *others)))
        try:
            found: list[ChainRecorded] = []
            for start in range(0, len(wanted), READS_AT_ONCE_MAX):
                some = wanted[start : start + READS_AT_ONCE_MAX]
                for chains in await asyncio.gather(*map(self._read, some)):
                    found += chains
        finally:
            self._turn.extend(topic_id for topic_id in others if topic_id in self._known)
        for topic_id in due:
            if topic_id in self.names and topic_id not in self._known:
                self._known.add(topic_id)
                self._turn.append(topic_id)
        return found

    async def _read(self, topic_id: TopicId) -> list[ChainRecorded]:
        """Both lists of a topic; empty ones if it was deleted. A record that cannot be read changes nothing."""
        try:
            topic = await self._topics.read(topic_id)
            cursor = None if topic is None else await self._cursors.read(topic_id, DEDUP_CURSOR)
        except CorruptEntry:
            return []
        if topic is None:
            self._known.discard(topic_id)
            self.names.pop(topic_id, None)
            return [ChainRecorded(topic_id, LedgerPurpose.LOG, ()), ChainRecorded(topic_id, LedgerPurpose.DEDUP, ())]
        self.names[topic_id] = topic.value.name
        log: tuple[LedgerId, ...] = tuple(link.ledger_id for link in topic.value.ledgers)
        dedup = () if cursor is None else tuple(link.ledger_id for link in cursor.value.ledgers)
        owner = topic.value.owner
        return [
            ChainRecorded(topic_id, LedgerPurpose.LOG, log, owner),
            ChainRecorded(topic_id, LedgerPurpose.DEDUP, dedup, owner),
        ]
