"""Idempotency keys: read, written by compare-and-set, and refused while Redis may have lost keys.

Every call is guarded by the state that was found when Redis and the cluster's record were last read together. When a
script reports that the guard does not hold, both are read again and the call is repeated, because it did nothing.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from uuid import uuid4

from oncelog.core.errors import IdempotencyUnavailable
from oncelog.core.formats.record_fields import rest
from oncelog.core.http_publish.idempotency import RETRY
from oncelog.core.http_publish.key_dataset import DatasetRecord, InstallMarker, RecordDataset, RefuseKeys, check_dataset
from oncelog.core.http_publish.key_record import FoundKey, KeyRecord, decode_key_record, encode_key_record
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.keys.idempotency_backend import Guard, Holder, KeyReply, KeyServer
from oncelog.metadata_store.records.json_records import decode_record, encode_record
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession, Versioned, WriteResult, create_or_write

logger = logging.getLogger(__name__)

#: Attempts before a call gives up: each settles one difference, and other processes may settle it first.
_LOOKS_MAX = 10
#: Nobody uses it: other keys begin with the id of a topic.
_CHECKED_KEY = "check"
#: For this long the last refusal is repeated without reading again.
_REFUSAL_S = 1.0


class DatasetStore:
    """The cluster's record, in ZooKeeper, of the data set in Redis that holds the keys."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def read(self) -> Versioned[DatasetRecord] | None:
        """The record after a sync; None if no key was ever stored. Raises StoreUnavailable, CorruptEntry."""
        node = await self._session.read(paths.KEY_DATASET)
        return None if node is None else Versioned(decode_dataset(node.data), node.version)

    async def note(self) -> None:
        """Return when the record is noted: another process may have written it. Raises StoreUnavailable."""
        await self._session.note([paths.KEY_DATASET])

    async def write(self, record: DatasetRecord, *, version: int) -> WriteResult:
        """One compare-and-set; ABSENT_VERSION creates."""
        return await create_or_write(self._session, paths.KEY_DATASET, _encode_dataset(record), version=version)


def _encode_dataset(record: DatasetRecord) -> bytes:
    fields = {"replicated": record.replicated, "lost_at_ms": record.lost_at_ms}
    return encode_record({**record.further, "marker": record.marker, "run": record.run, **fields})


def decode_dataset(data: bytes) -> DatasetRecord:
    def build(fields: dict[str, object]) -> DatasetRecord:
        marker, run = str(fields["marker"]), str(fields["run"])
        further = rest(fields, ("format", "marker", "run", "replicated", "lost_at_ms"))
        return DatasetRecord(marker, run, bool(fields["replicated"]), int(str(fields["lost_at_ms"])), further)

    return decode_record(data, "the record of the keys' data", build, path=paths.KEY_DATASET)


class KeyStore:
    """window_ms: how long a key is kept after each write. now_ms: the wall clock, which all processes share."""

    def __init__(self, server: KeyServer, datasets: DatasetStore, *, window_ms: int, now_ms: Callable[[], int]) -> None:
        self._server = server
        self._datasets = datasets
        self._window_ms = window_ms
        self._now_ms = now_ms
        self._guard: Guard | None = None
        self._looking = asyncio.Lock()
        #: (time on the loop until which it is repeated, the refusal)
        self._refusal: tuple[float, IdempotencyUnavailable] | None = None

    async def check(self) -> None:
        """Check Redis now, by a read. Raises IdempotencyUnavailable, StoreUnavailable: the reason why keys are
        refused."""
        await self._guarded(lambda guard: self._server.read(guard, _CHECKED_KEY))

    async def read(self, key: str) -> FoundKey | None:
        """None if the key was not used within its window. Raises IdempotencyUnavailable, StoreUnavailable."""
        reply = await self._guarded(lambda guard: self._server.read(guard, key))
        return _found(reply.value)

    async def write(
        self, key: str, record: KeyRecord, *, replaces: bytes | None, lease: Holder | None = None
    ) -> tuple[WriteStatus, FoundKey | None]:
        """Write if there is no record, or replace the record with those bytes. CONFLICT comes with the present record.

        lease: taken with the write. Raises IdempotencyUnavailable, StoreUnavailable: nothing was written.
        """
        value = encode_key_record(record)
        reply = await self._guarded(
            lambda guard: self._server.write(
                guard, key, value, replaces=replaces, window_ms=self._window_ms, lease=lease
            )
        )
        return reply.status, _found(reply.value)

    def of(self, key: str, *, lease_ms: int) -> "StoredKey":
        """This key alone. lease_ms: of the holder of its claim."""
        return StoredKey(self, key, lease_ms)

    async def renew(self, lease: Holder) -> None:
        await self._server.renew(lease)

    async def drop(self, name: str) -> None:
        await self._server.drop(name)

    async def holds(self, name: str) -> bool:
        return await self._server.holds(name)

    async def close(self) -> None:
        await self._server.close()

    async def _guarded(self, call: Callable[[Guard], Awaitable[KeyReply]]) -> KeyReply:
        for _ in range(_LOOKS_MAX):
            guard = await self._believed()
            reply = await call(guard)
            if reply.holds:
                if self._guard is not None and self._guard.marker == guard.marker:
                    self._guard = self._guard._replace(writes=max(self._guard.writes, reply.writes))
                return reply
            if self._guard is not None and self._guard[:2] == guard[:2]:
                self._guard = self._guard._replace(run="")  # read again, but remember what was seen
        raise IdempotencyUnavailable(f"the state of Redis keeps changing{RETRY}")

    async def _believed(self) -> Guard:
        """The guard of the next call."""
        async with self._looking:
            if self._guard is not None and self._guard.run:
                return self._guard
            if self._refusal is not None and asyncio.get_running_loop().time() < self._refusal[0]:
                raise self._refusal[1]
            try:
                self._guard = await self._look()
            except IdempotencyUnavailable as error:
                self._refusal = (asyncio.get_running_loop().time() + _REFUSAL_S, error)
                raise
            self._refusal = None
            return self._guard

    async def _look(self) -> Guard:
        await self._server.check_settings()
        for _ in range(_LOOKS_MAX):
            stored = await self._datasets.read()
            found = await self._server.look()
            record = None if stored is None else stored.value
            before = self._guard
            seen = before.writes if before is not None and record is not None and before.marker == record.marker else 0
            verdict = check_dataset(record, found, writes_seen=seen, now_ms=self._now_ms(), window_ms=self._window_ms)
            match verdict:
                case InstallMarker(replaces):
                    await self._server.install(uuid4().hex, replaces=replaces)
                case RecordDataset(noted, lost):
                    if lost:
                        logger.error(
                            "Redis has lost idempotency keys: publishing with keys is refused for one window",
                            extra={"fields": {"window_ms": self._window_ms}},
                        )
                    await self._datasets.write(noted, version=ABSENT_VERSION if stored is None else stored.version)
                case RefuseKeys(for_ms):
                    left_s = math.ceil(for_ms / 1000)
                    message = (
                        f"Redis has lost idempotency keys; publishing with keys is refused for another {left_s} s, "
                        "until the window of every lost key has passed: use a producer name with sequence ids, or wait"
                    )
                    raise IdempotencyUnavailable(message, retry_after_s=left_s)
                case _:
                    assert record is not None, "keys are served only with a record"
                    await self._datasets.note()
                    return Guard(record.marker, found.run, max(seen, found.writes), record.replicated)
        raise IdempotencyUnavailable(f"the state of Redis keeps changing{RETRY}")


class StoredKey:
    """One key, as `core.http_publish.idempotency` awaits it."""

    def __init__(self, store: KeyStore, key: str, lease_ms: int) -> None:
        self._store, self._key, self._lease_ms = store, key, lease_ms

    async def read(self) -> FoundKey | None:
        return await self._store.read(self._key)

    async def write(self, record: KeyRecord, *, replaces: bytes | None) -> tuple[WriteStatus, FoundKey | None]:
        lease = Holder(record.claim.producer_name, self._lease_ms) if record.answer is None else None
        return await self._store.write(self._key, record, replaces=replaces, lease=lease)

    async def has_live_holder(self, producer_name: str) -> bool:
        return await self._store.holds(producer_name)


def _found(value: bytes | None) -> FoundKey | None:
    return None if value is None else FoundKey(decode_key_record(value), value)
