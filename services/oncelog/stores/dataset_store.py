"""The cluster's record of the data in Redis that keys are kept in: what `core.http_publish.key_dataset` judges by."""

from oncelog.core.http_publish.key_dataset import DatasetRecord
from oncelog.stores import paths
from oncelog.stores.json_record import decode_record, encode_record
from oncelog.stores.store_session import StoreSession, Versioned, WriteResult, create_or_write


class DatasetStore:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def read(self) -> Versioned[DatasetRecord] | None:
        """The record after a sync; None: no key was ever kept. Raises StoreUnavailable, CorruptEntry."""
        node = await self._session.read(paths.KEY_DATASET)
        return None if node is None else Versioned(_decode(node.data), node.version)

    async def write(self, record: DatasetRecord, *, version: int) -> WriteResult:
        """One compare-and-set; ABSENT_VERSION creates."""
        return await create_or_write(self._session, paths.KEY_DATASET, _encode(record), version=version)


def _encode(record: DatasetRecord) -> bytes:
    fields = {"replicated": record.replicated, "lost_at_ms": record.lost_at_ms}
    return encode_record({"marker": record.marker, "run": record.run, **fields})


def _decode(data: bytes) -> DatasetRecord:
    def build(fields: dict[str, object]) -> DatasetRecord:
        marker, run = str(fields["marker"]), str(fields["run"])
        return DatasetRecord(marker, run, bool(fields["replicated"]), int(str(fields["lost_at_ms"])))

    return decode_record(data, "the record of the keys' data", build)
