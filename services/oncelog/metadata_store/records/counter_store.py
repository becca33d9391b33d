"""The two counters for claiming ids (hazard block-claimed-twice): ledger ids as they are needed, producer ids in
blocks."""

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import CorruptEntry
from oncelog.core.records.id_claim import Counter, CounterRecord, decode_counter, encode_counter
from oncelog.metadata_store.records.json_records import decoded
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession, Versioned, WriteResult, create_or_write

#: What to do with a counter that no record of its era can be.
REBUILD = "restore the records again with `oncelog admin backup restore`"


class CounterStore:
    def __init__(self, session: StoreSession, counter: Counter, era: Era = FIRST_ERA) -> None:
        """era: of the records below the session's root."""
        self.name = counter.value
        self._era = era
        self._session = session
        self._path = f"{paths.IDS}/{counter.value}"

    async def read(self) -> Versioned[CounterRecord] | None:
        """The record after a sync; None if nothing was ever claimed. Raises StoreUnavailable, CorruptEntry.

        In a later era the restore has written it, above all ids of former eras. A lower one, or none, would give these
        again (hazard ids-again).
        """
        node = await self._session.read(self._path)
        stored = None
        if node is not None:
            record = decoded("a counter record", node.data, self._decode, path=self._path)
            stored = Versioned(record, node.version)
        if stored is None and self._era != FIRST_ERA:
            raise CorruptEntry(f"there is no counter {self.name} of era {self._era.number} in ZooKeeper; {REBUILD}")
        return stored

    def _decode(self, data: bytes) -> CounterRecord:
        record = decode_counter(data)
        if record.next < self._era.first_id:
            raise CorruptEntry(
                f"the counter {self.name} in ZooKeeper is {record.next}, and the ids of era {self._era.number} begin "
                f"at {self._era.first_id}: ids of former eras would be given again; {REBUILD}"
            )
        return record

    async def write(self, record: CounterRecord, *, version: int) -> WriteResult:
        """One compare-and-set from `version`; ABSENT_VERSION creates. Raises NotFound if there is no cluster."""
        return await create_or_write(self._session, self._path, encode_counter(record), version=version)
