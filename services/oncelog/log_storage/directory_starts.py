"""Whether a directory went back in time, and whether another process serves a copy of it (hazards 81, 82).

    starts.json              {starts, start_id, former_id, crc32c}, in the directory: its last start, and the one before
    /storage_ends/<node>     {starts, start_id, segment_id, offset}: the newest start, and up to where its journal was
                             synced, noted every second

A directory that was restored from an older copy, or lost the end of its last segment, looks like one that never had
more: what it lacks it would report as missing, and fences that it forgot would not hold. So it is compared with what
was noted outside of it.

Rules
1. A start is of the past if the record has another start than the last two of the directory, or if the journal ends
   below the noted end: a hole, so all ledgers are in limbo.
2. Limbo is durable before the directory gets the id of the new start, and that before the record has it. So an
   interrupted start is neither taken for the past, nor does it hide one.
3. Each start writes its id into the record by compare-and-set. A process that finds another id there ends: a copy of
   its directory was started.
4. What was synced within the last second before a crash may not be noted yet. A directory that lost only that, although
   it was synced, is not recognized; `oncelog storage mark-restored` marks one.
"""

import asyncio
import json
import logging
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from crc32c import crc32c

from oncelog.core.coordination.id_claim import ABSENT_VERSION
from oncelog.core.errors import CorruptEntry, StorageDirectoryRefused, StoreUnavailable
from oncelog.core.ids import Incarnation
from oncelog.core.store_status import WriteStatus
from oncelog.log_storage.identity import write_durably
from oncelog.stores.registry import JournalEnd, Registry, StorageEnd
from oncelog.stores.store_session import Versioned

logger = logging.getLogger(__name__)

STARTS = "starts.json"
#: How often the synced end is noted.
NOTE_INTERVAL_S = 1.0
#: The last start of a directory that was marked as restored: no record names it.
RESTORED = "restored"


@dataclass(frozen=True, slots=True)
class LastStart:
    """What `starts.json` holds."""

    starts: int = 0
    start_id: str = ""
    former_id: str = ""

    def encode(self) -> bytes:
        fields: dict[str, int | str] = asdict(self)
        return json.dumps({**fields, "crc32c": _checksum(fields)}).encode() + b"\n"

    @classmethod
    def read(cls, path: Path) -> "LastStart":
        """An unreadable file, or none, counts as no start: if any was noted, this is then a start of the past."""
        try:
            fields = json.loads((path / STARTS).read_bytes())
            checksum = fields.pop("crc32c")
            return cls(**fields) if checksum == _checksum(fields) else cls()
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return cls()


def _checksum(fields: dict[str, int | str]) -> int:
    return crc32c(json.dumps(fields, sort_keys=True).encode())


def mark_restored(path: Path) -> None:
    """The next start puts all ledgers into limbo. The directory is locked by the caller. Raises OSError."""
    write_durably(path, STARTS, LastStart(start_id=RESTORED, former_id=RESTORED).encode())


class DirectoryStarts:
    """The starts of one directory, seen by one of them: `look`, replay the directory, `begin`, `watch`, `end`."""

    def __init__(
        self, path: Path, incarnation: Incarnation, registry: Registry, *, on_superseded: Callable[[str], None]
    ) -> None:
        """on_superseded: called with a message when a copy of the directory was started."""
        self._path = path
        self._incarnation = incarnation
        self._registry = registry
        self._on_superseded = on_superseded
        self._stored: Versioned[StorageEnd] | None = None
        self._begun: StorageEnd | None = None
        #: why this directory is one of the past; empty: nothing says so
        self.past = ""
        #: up to where its journal was synced, as noted
        self.known_end = JournalEnd(0, 0)

    async def look(self) -> None:
        """Compare the directory with the record. Raises StoreUnavailable."""
        last, self._stored = LastStart.read(self._path), await self._read()
        if last.start_id == RESTORED:
            self.past = "it was marked as restored"
        if self._stored is not None:
            noted = self._stored.value
            self.known_end = noted.end
            if not self.past and noted.start_id not in {last.start_id, last.former_id}:
                self.past = f"it is from start {last.starts}, and the cluster knows of {noted.starts} starts"

    async def begin(self, end: JournalEnd) -> None:
        """Note this start. Limbo, if there is any, is durable. Raises StorageDirectoryRefused, StoreUnavailable."""
        last, stored = LastStart.read(self._path), self._stored
        noted = StorageEnd(0, last.start_id, end) if stored is None else stored.value
        starts = max(last.starts, noted.starts) + 1
        begun = StorageEnd(starts, uuid.uuid4().hex, end)
        file = LastStart(starts, begun.start_id, noted.start_id)
        await asyncio.to_thread(write_durably, self._path, STARTS, file.encode())
        while not await self._write(begun):
            pass  # each attempt waits for the store
        if self._superseded:
            raise StorageDirectoryRefused(self._copied())

    async def watch(self, synced_end: Callable[[], JournalEnd]) -> None:
        """Never return: note the synced end, and see whether another process has started."""
        while True:
            await asyncio.sleep(NOTE_INTERVAL_S)
            await self.note(synced_end())
            if self._superseded:
                self._on_superseded(self._copied())
                return

    async def note(self, end: JournalEnd) -> None:
        """One attempt."""
        if self._begun is None or self._superseded:
            return
        try:
            found = await self._registry.read_end_unsynced(self._incarnation)
            if found is not None and self._stored is not None and found.version > self._stored.version:
                self._stored = found
            elif end != self._begun.end:
                await self._write(StorageEnd(self._begun.starts, self._begun.start_id, end))
        except (StoreUnavailable, CorruptEntry) as error:
            logger.info("could not note how far the journal is synced; will retry: %s", error.message)

    @property
    def _superseded(self) -> bool:
        begun, stored = self._begun, self._stored
        return begun is not None and stored is not None and stored.value.start_id != begun.start_id

    async def _write(self, end: StorageEnd) -> bool:
        """One compare-and-set, after which the record is read unless it succeeded. False: the outcome is unknown."""
        version = ABSENT_VERSION if self._stored is None else self._stored.version
        written = await self._registry.write_end(self._incarnation, end, version=version)
        if written.status is WriteStatus.OK:
            self._stored = Versioned(end, written.version)
        else:
            self._stored = await self._read()
            if written.status is WriteStatus.UNKNOWN and (self._stored is None or self._stored.version == version):
                return False
        self._begun = end
        return True

    async def _read(self) -> Versioned[StorageEnd] | None:
        try:
            return await self._registry.read_end(self._incarnation)
        except CorruptEntry as error:
            raise StorageDirectoryRefused(f"{self._path}: {error.message}", incarnation=self._incarnation) from error

    def _copied(self) -> str:
        return (
            f"{self._path}: another process has started with a copy of this directory (storage node "
            f"{self._incarnation}), and only one may serve it: this process ends. Stop one of the two; the other one "
            "is repaired where it lacks something. To start a new node, give it an empty directory"
        )
