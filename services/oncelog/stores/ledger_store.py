"""Ledger metadata in ZooKeeper: one node a ledger, changed by versioned compare-and-set alone."""

from oncelog.core.ids import LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, decode_ledger, encode_ledger
from oncelog.core.store_status import WriteStatus
from oncelog.stores import paths
from oncelog.stores.json_record import noted
from oncelog.stores.store_session import StoreSession, Versioned, WriteResult, Znode


class LedgerStore:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def create(self, metadata: LedgerMetadata) -> WriteStatus:
        """CONFLICT: the ledger exists; a read tells by its topic and members whether it is one's own."""
        return await self._session.create(paths.ledger(metadata.ledger_id), encode_ledger(metadata))

    async def read(self, ledger_id: LedgerId, *, timeout_ms: int | None = None) -> Versioned[LedgerMetadata] | None:
        """The record after a sync; None: it does not exist. Raises StoreUnavailable, CorruptEntry."""
        return _stored(await self._session.read(paths.ledger(ledger_id), timeout_ms=timeout_ms))

    async def read_unsynced(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata] | None:
        """Perhaps an old record: for listings, and for readers, to whom CLOSED is final and OPEN only "not yet"."""
        return _stored(await self._session.read_unsynced(paths.ledger(ledger_id)))

    async def write(self, metadata: LedgerMetadata, *, version: int) -> WriteResult:
        return await self._session.write(paths.ledger(metadata.ledger_id), encode_ledger(metadata), version=version)

    async def ids(self) -> list[LedgerId]:
        """Every ledger that has a record, after a sync. Raises StoreUnavailable."""
        return [LedgerId(int(name)) for name in await self._session.children(paths.LEDGERS)]

    async def remove(self, ledger_id: LedgerId) -> None:
        """Delete the record whatever it says; tried until it is gone. Raises StoreUnavailable."""
        while (node := await self._session.read(paths.ledger(ledger_id))) is not None:
            await self._session.delete(paths.ledger(ledger_id), version=node.version)

    async def delete(self, ledger_id: LedgerId, *, version: int) -> WriteStatus:
        return await self._session.delete(paths.ledger(ledger_id), version=version)


def _stored(node: Znode | None) -> Versioned[LedgerMetadata] | None:
    return None if node is None else Versioned(noted("a ledger record", node.data, decode_ledger), node.version)
