"""The two counters for claiming ids (hazard block-claimed-twice): ledger ids as they are needed, producer ids in
blocks."""

from oncelog.core.records.id_claim import Counter, CounterRecord, decode_counter, encode_counter
from oncelog.metadata_store.records.json_records import decoded
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession, Versioned, WriteResult, create_or_write


class CounterStore:
    def __init__(self, session: StoreSession, counter: Counter) -> None:
        self.name = counter.value
        self._session = session
        self._path = f"{paths.IDS}/{counter.value}"

    async def read(self) -> Versioned[CounterRecord] | None:
        """The record after a sync; None if nothing was ever claimed. Raises StoreUnavailable, CorruptEntry."""
        node = await self._session.read(self._path)
        return None if node is None else Versioned(decoded("a counter record", node.data, decode_counter), node.version)

    async def write(self, record: CounterRecord, *, version: int) -> WriteResult:
        """One compare-and-set from `version`; ABSENT_VERSION creates. Raises NotFound if there is no cluster."""
        return await create_or_write(self._session, self._path, encode_counter(record), version=version)
