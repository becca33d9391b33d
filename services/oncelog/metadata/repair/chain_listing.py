"""The ledgers that topics and their cursors list, kept current with few reads, for the repairer's queue.

A ledger that no list names is not touched (hazard repair-of-an-open-ledger). As in the listing of ledgers, what is read
here decides nothing: before it changes anything, a repair reads the lists again after a sync.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.topic_record import DEDUP_CURSOR, CursorRecord, TopicRecord
from oncelog.core.ids import LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.repair.queue_events import ChainRecorded
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.topic_store import TopicStore

#: Topics that one refresh reads again, in addition to those with new ledgers: a fifth of them, because each read is two
#: requests to ZooKeeper, within these bounds.
TURNS = 5
TOPICS_MIN = 50
TOPICS_MAX = 500
#: After how many listed ledgers a refresh reads no further topic; and how many are read concurrently.
LEDGERS_MAX = 10_000
READS_AT_ONCE_MAX = 32


class ChainListing:
    """The lists of all topics that have ledgers."""

    def __init__(self, topics: TopicStore, cursors: CursorStore) -> None:
        self._topics = topics
        self._cursors = cursors
        #: known topics in the order in which they are read again
        self._turn: deque[TopicId] = deque()
        self._known: set[TopicId] = set()
        #: {topic: ledgers in its lists}
        self._sizes: dict[TopicId, int] = {}
        #: topics whose ledgers have changed since they were read
        self._due: dict[TopicId, None] = {}
        self.names: dict[TopicId, str] = {}
        #: {topic: {page: its ledgers}}: pages never change
        self._pages: dict[TopicId, dict[LedgerId, tuple[LedgerId, ...]]] = {}

    async def refresh(self, changed: Iterable[TopicId]) -> list[ChainRecorded]:
        """Read the lists of the topics whose ledgers have changed, and some others. Raises StoreUnavailable; the next
        call then reads these topics, too."""
        self._due.update(dict.fromkeys(changed))
        due = list(self._due)
        others = self._others()
        wanted = list(dict.fromkeys((*due, *others)))
        try:
            found: list[ChainRecorded] = []
            unreadable: set[TopicId] = set()
            for start in range(0, len(wanted), READS_AT_ONCE_MAX):
                some = wanted[start : start + READS_AT_ONCE_MAX]
                for topic_id, chains in zip(some, await asyncio.gather(*map(self.read, some)), strict=True):
                    found += chains
                    if not chains:
                        unreadable.add(topic_id)
        finally:
            self._turn.extend(topic_id for topic_id in others if topic_id in self._known)
        for topic_id in due:
            self._due.pop(topic_id, None)
            # One that cannot be read is read again in turn: its record may be mended.
            if (topic_id in self.names or topic_id in unreadable) and topic_id not in self._known:
                self._known.add(topic_id)
                self._turn.append(topic_id)
        return found

    def _others(self) -> list[TopicId]:
        """Topics whose turn it is: at least one, and the lists of all of them are read in bounded time."""
        others: list[TopicId] = []
        left = LEDGERS_MAX
        count_max = min(TOPICS_MAX, max(TOPICS_MIN, -(-len(self._turn) // TURNS)))
        while self._turn and left > 0 and len(others) < count_max:
            others.append(self._turn.popleft())
            left -= self._sizes.get(others[-1], 0)
        return others

    async def ledgers(self, topic_id: TopicId) -> frozenset[LedgerId]:
        """What `read` finds, of all lists together."""
        return frozenset(ledger_id for chain in await self.read(topic_id) for ledger_id in chain.ledgers)

    async def is_unlisted(self, record: LedgerMetadata) -> bool:
        """Whether no list names the ledger now, after a sync: it was trimmed, or nothing was ever written to it. Raises
        StoreUnavailable."""
        chains = await self.read(record.topic_id)
        return bool(chains) and not any(record.ledger_id in chain.ledgers for chain in chains)

    async def read(self, topic_id: TopicId) -> list[ChainRecorded]:
        """All lists of a topic, after a sync; empty ones if it was deleted. A record that cannot be read changes
        nothing."""
        try:
            topic = await self._topics.read(topic_id)
            cursor = None if topic is None else await self._cursors.read(topic_id, DEDUP_CURSOR)
            log = () if topic is None else await self._log(topic.value)
        except CorruptEntry:
            return []
        if topic is None:
            self._known.discard(topic_id)
            self._pages.pop(topic_id, None)
            self.names.pop(topic_id, None)
            self._sizes.pop(topic_id, None)
            return [ChainRecorded(topic_id, purpose, ()) for purpose in LedgerPurpose]
        self.names[topic_id] = topic.value.name
        snapshots = CursorRecord(OwnerEpoch(0)) if cursor is None else cursor.value
        dedup = tuple(link.ledger_id for link in snapshots.ledgers)
        self._sizes[topic_id] = len(log) + len(dedup) + len(topic.value.acks)
        owner, epoch = topic.value.owner, topic.value.owner_epoch
        floors = topic.value.deleted_below, topic.value.acks_deleted_below
        return [
            ChainRecorded(topic_id, LedgerPurpose.LOG, log, owner, floors[0], epoch),
            ChainRecorded(topic_id, LedgerPurpose.DEDUP, dedup, owner, snapshots.deleted_below, snapshots.owner_epoch),
            ChainRecorded(topic_id, LedgerPurpose.ACKS, topic.value.acks, owner, floors[1], epoch),
        ]

    async def _log(self, record: TopicRecord) -> tuple[LedgerId, ...]:
        """The ledgers of the log, with those in pages. A page that was trimmed meanwhile is left out.

        Raises StoreUnavailable, CorruptEntry.
        """
        topic_id = record.topic_id
        known = self._pages.get(topic_id, {})
        missing = [link.name for link in record.pages if link.name not in known]
        read = await self._topics.pages.read_all(topic_id, missing)
        known = {link.name: known[link.name] for link in record.pages if link.name in known}
        known |= {name: tuple(each.ledger_id for each in page.ledgers) for name, page in read.items()}
        if known:
            self._pages[topic_id] = known
        else:
            self._pages.pop(topic_id, None)
        listed: list[LedgerId] = []
        for link in record.pages:
            ledgers = known.get(link.name, ())
            listed += ledgers[len(ledgers) - link.ledgers :] if ledgers else ()
        return (*listed, *(link.ledger_id for link in record.ledgers))
