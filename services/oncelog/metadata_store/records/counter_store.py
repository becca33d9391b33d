"""The two counters for claiming ids (hazard block-claimed-twice): ledger ids as they are needed, producer ids in
blocks.

A cluster is created with both. So a counter that is missing was lost, and to begin anew would give ids a second time
(hazard lost-counter).
"""

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import CorruptEntry
from oncelog.core.ids import Incarnation
from oncelog.core.records.id_claim import FIRST_ID, Counter, CounterRecord, decode_counter, encode_counter
from oncelog.metadata_store.records.json_records import decoded
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession, Versioned, WriteResult, create_or_write

#: What to do with a counter that no record of its era can be.
REBUILD = "restore the records again with `oncelog admin backup restore`"


def lost_counter(name: str) -> str:
    """What to do with a counter that is missing. That of ledgers can be rebuilt above all ledgers that storage nodes
    hold; nothing says which ids of producers were given."""
    if name == Counter.LEDGER.value:
        return f"rebuild it with `oncelog admin backup rebuild {paths.IDS}/{name}`"
    return REBUILD


def new_counters() -> dict[str, bytes]:
    """{path: record} of a cluster that has given no id yet."""
    unclaimed = CounterRecord(FIRST_ID, Incarnation(""), "created with the cluster")
    return {f"{paths.IDS}/{counter.value}": encode_counter(unclaimed) for counter in Counter}


class CounterStore:
    def __init__(self, session: StoreSession, counter: Counter, era: Era = FIRST_ERA) -> None:
        """era: of the records below the session's root."""
        self.name = counter.value
        self._era = era
        self._session = session
        self._path = f"{paths.IDS}/{counter.value}"

    async def read(self) -> Versioned[CounterRecord]:
        """The record after a sync. Raises StoreUnavailable; CorruptEntry also if there is none.

        In a later era the restore has written it, above all ids of former eras. A lower one would give these again
        (hazard ids-again).
        """
        node = await self._session.read(self._path)
        if node is None:
            raise CorruptEntry(f"the counter {self._path} is missing in ZooKeeper; {lost_counter(self.name)}")
        return Versioned(decoded("a counter record", node.data, self._decode, path=self._path), node.version)

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
