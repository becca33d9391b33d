"""What a storage node asks ZooKeeper about a ledger that it holds: its record, and whether it was deleted."""

from oncelog.core.formats.topic_record import DEDUP_CURSOR
from oncelog.core.ids import LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.next_ledger import LedgerPurpose
from oncelog.core.storage.ledger import LedgerOrigin, was_deleted
from oncelog.stores import paths
from oncelog.stores.cursor_store import CursorStore
from oncelog.stores.ledger_store import LedgerStore
from oncelog.stores.store_session import StoreSession
from oncelog.stores.topic_store import TopicStore


class LedgerLookup:
    """Every read comes after a sync."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session
        self._ledgers = LedgerStore(session)
        self._topics = TopicStore(session)
        self._cursors = CursorStore(session)

    async def read(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        """The ledger's record; None: it does not exist. Raises StoreUnavailable, CorruptEntry."""
        stored = await self._ledgers.read(ledger_id)
        return None if stored is None else stored.value

    async def was_deleted(self, ledger_id: LedgerId, origin: LedgerOrigin) -> bool:
        """Whether a ledger whose record is missing was deleted; False also when nothing tells.

        Raises StoreUnavailable, CorruptEntry.
        """
        tombstone = await self._session.read(paths.tombstone(origin.topic_id))
        if tombstone is not None:
            return was_deleted(ledger_id, listed=(), topic_deleted=True)
        return was_deleted(ledger_id, listed=await self._listed(origin), topic_deleted=False)

    async def _listed(self, origin: LedgerOrigin) -> list[LedgerId]:
        """The ids in the record of this managed ledger, ascending; none where there is no such record."""
        if origin.purpose is LedgerPurpose.LOG:
            topic = await self._topics.read(origin.topic_id)
            return [] if topic is None else [link.ledger_id for link in topic.value.ledgers]
        cursor = await self._cursors.read(origin.topic_id, DEDUP_CURSOR)
        return [] if cursor is None else [link.ledger_id for link in cursor.value.ledgers]
