"""Ledger metadata in ZooKeeper: one node per ledger, changed only by versioned compare-and-set."""

import asyncio
from collections.abc import Sequence

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.topic_record import DEDUP_CURSOR
from oncelog.core.ids import LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, decode_ledger, encode_ledger
from oncelog.core.node.node_ledger import LedgerOrigin, was_deleted
from oncelog.core.records.id_claim import Counter
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.json_records import decoded
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import (
    DeleteStep,
    StoreSession,
    Versioned,
    WriteResult,
    Znode,
    create_or_write,
)

#: Records that are deleted in one transaction.
DELETIONS_MAX = 100
#: For a reader that asks for the record of a ledger again.
RECORD_TIMEOUT_MS = 2_000


class LedgerStore:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def read(self, ledger_id: LedgerId, *, timeout_ms: int | None = None) -> Versioned[LedgerMetadata] | None:
        """The record after a sync; None if it does not exist. Raises StoreUnavailable, CorruptEntry."""
        path = paths.ledger(ledger_id)
        return _stored(path, await self._session.read(path, timeout_ms=timeout_ms))

    async def record(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        """As `read`, without the version: for readers of entries, which wait for a limited time."""
        stored = await self.read(ledger_id, timeout_ms=RECORD_TIMEOUT_MS)
        return None if stored is None else stored.value

    async def read_unsynced(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata] | None:
        """Possibly an old record: for listings, and for readers, for whom CLOSED is final and OPEN means "not yet"."""
        path = paths.ledger(ledger_id)
        return _stored(path, await self._session.read_unsynced(path))

    async def write(self, metadata: LedgerMetadata, *, version: int) -> WriteResult:
        """One compare-and-set from `version`; ABSENT_VERSION creates."""
        path = paths.ledger(metadata.ledger_id)
        return await create_or_write(self._session, path, encode_ledger(metadata), version=version)

    async def ids(self) -> list[LedgerId]:
        """Every ledger that has a record, after a sync. Raises StoreUnavailable."""
        return [LedgerId(int(name)) for name in await self._session.children(paths.LEDGERS)]

    async def remove(self, ledger_id: LedgerId) -> None:
        """Delete the record in any state. Retries until it is gone. Raises StoreUnavailable."""
        while (node := await self._session.read(paths.ledger(ledger_id))) is not None:
            await self._session.delete(paths.ledger(ledger_id), version=node.version)

    async def delete(self, ledger_id: LedgerId, *, version: int) -> WriteStatus:
        return await self._session.delete(paths.ledger(ledger_id), version=version)

    async def delete_all(self, ledger_ids: Sequence[LedgerId]) -> int:
        """Delete these records in any state, many in one transaction. Returns how many there were.

        Raises StoreUnavailable: some may be left.
        """
        count = 0
        for start in range(0, len(ledger_ids), DELETIONS_MAX):
            some = [paths.ledger(ledger_id) for ledger_id in ledger_ids[start : start + DELETIONS_MAX]]
            nodes = await asyncio.gather(*map(self._session.read, some))
            steps = [DeleteStep(path, node.version) for path, node in zip(some, nodes, strict=True) if node is not None]
            count += len(steps)
            if steps and await self._session.transact(steps) is not WriteStatus.OK:
                # Repair has changed one of them meanwhile, or the answer is lost.
                for ledger_id in ledger_ids[start : start + DELETIONS_MAX]:
                    await self.remove(ledger_id)
        return count


def _stored(path: str, node: Znode | None) -> Versioned[LedgerMetadata] | None:
    if node is None:
        return None
    return Versioned(decoded("a ledger record", node.data, decode_ledger, path=path), node.version)


class LedgerLookup:
    """Answers a storage node about a ledger that it holds: its record, and what may be erased. Reads are synced."""

    def __init__(self, session: StoreSession, era: Era = FIRST_ERA) -> None:
        """era: of the records below the session's root."""
        self.era = era
        self._session = session
        self._counter = CounterStore(session, Counter.LEDGER, era)
        self._ledgers = LedgerStore(session)
        self._topics = TopicStore(session)
        self._cursors = CursorStore(session)

    async def read(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata] | None:
        """The ledger's record; None if it does not exist. Raises StoreUnavailable, CorruptEntry."""
        return await self._ledgers.read(ledger_id)

    async def write(self, metadata: LedgerMetadata, *, version: int) -> WriteResult:
        """One compare-and-set. Raises StoreUnavailable."""
        return await self._ledgers.write(metadata, version=version)

    async def ledger_counter(self) -> LedgerId:
        """The next id of a ledger: every ledger that exists has a lower one. Raises StoreUnavailable, CorruptEntry."""
        return LedgerId((await self._counter.read()).value.next)

    async def was_deleted(self, ledger_id: LedgerId, origin: LedgerOrigin) -> bool:
        """Whether a ledger whose record is missing was deleted. False also if nothing proves it.

        Raises StoreUnavailable, CorruptEntry.
        """
        tombstone = await self._session.read(paths.tombstone(origin.topic_id))
        if tombstone is not None:
            return was_deleted(ledger_id, deleted_below=LedgerId(0), topic_deleted=True)
        return was_deleted(ledger_id, deleted_below=await self.floor(origin), topic_deleted=False)

    async def has_snapshots(self, ledger_id: LedgerId, topic_id: TopicId) -> bool:
        """Whether the topic's cursor names the ledger. Raises StoreUnavailable, CorruptEntry."""
        return await self._lists(ledger_id, LedgerOrigin(topic_id, LedgerPurpose.DEDUP))

    async def knows(self, ledger_id: LedgerId, origin: LedgerOrigin) -> bool:
        """Whether ZooKeeper has seen the ledger: it has its record, lists it, or proves that it was deleted. A ledger
        is listed before anything is written to it, so one with entries that is unknown was written after this
        ZooKeeper's state. Only for ledgers of this era. Raises StoreUnavailable."""
        try:
            if await self.read(ledger_id) is not None or await self.was_deleted(ledger_id, origin):
                return True
            return await self._lists(ledger_id, origin)
        except CorruptEntry:
            return True  # what cannot be read exists: it is rebuilt alone

    async def _lists(self, ledger_id: LedgerId, origin: LedgerOrigin) -> bool:
        """Whether its topic's newest ledgers name it."""
        if origin.purpose is LedgerPurpose.DEDUP:
            cursor = await self._cursors.read(origin.topic_id, DEDUP_CURSOR)
            return cursor is not None and any(link.ledger_id == ledger_id for link in cursor.value.ledgers)
        topic = await self._topics.read(origin.topic_id)
        if topic is None:
            return False
        log = (link.ledger_id for link in topic.value.ledgers)
        return ledger_id in (log if origin.purpose is LedgerPurpose.LOG else topic.value.acks)

    async def floor(self, origin: LedgerOrigin) -> LedgerId:
        """`deleted_below` of this managed ledger; 0: there is no such record. Raises StoreUnavailable, CorruptEntry."""
        if origin.purpose is LedgerPurpose.DEDUP:
            cursor = await self._cursors.read(origin.topic_id, DEDUP_CURSOR)
            return LedgerId(0) if cursor is None else cursor.value.deleted_below
        topic = await self._topics.read(origin.topic_id)
        if topic is None:
            return LedgerId(0)
        record = topic.value
        return record.deleted_below if origin.purpose is LedgerPurpose.LOG else record.acks_deleted_below
