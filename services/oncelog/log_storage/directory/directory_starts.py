"""Whether a directory went back in time, and whether another process serves a copy of it (hazards directory-went-back,
copied-directory).

    starts.json              {starts, start_id, former_id, crc32c}, in the directory: its last start, and the one before
    /storage_ends/<node>     {starts, start_id, segment_id, offset}: the newest start, and up to where its journal was
                             synced, noted every second
    noted.json               {era, version}, in the directory: of that record, as it was written last

The rules are in `core.node.starts`. Besides
- Each start writes its id into the record by compare-and-set.
- Nobody else writes the record. So a running process writes over one that cannot be read, and a start does so from
  limbo. One that is missing only an operator has written anew (`REBUILT`): ZooKeeper may be an older one.
- What was synced within the last second before a crash may not be noted yet, nor what was synced while ZooKeeper was
  away. A directory that lost only that, although it was synced, is not recognized; `oncelog storage mark-restored`
  marks one.
"""

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import CorruptEntry, StorageDirectoryRefused, StoreUnavailable
from oncelog.core.formats.record_fields import FURTHER, built
from oncelog.core.ids import Incarnation
from oncelog.core.node import starts
from oncelog.core.node.starts import RESTORED, JournalEnd, LastStart, StorageEnd
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.log_storage.directory.identity import write_durably, write_whole
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import Versioned

logger = logging.getLogger(__name__)

STARTS = "starts.json"
NOTED = "noted.json"
#: How often the synced end is noted.
NOTE_INTERVAL_S = 1.0
#: How often a start looks whether another process is still registered for its directory.
LOOK_INTERVAL_S = 0.25


def encode_start(start: LastStart) -> bytes:
    fields: dict[str, object] = {**start.further, **asdict(start)}
    del fields[FURTHER]
    return json.dumps({**fields, "crc32c": _checksum(fields)}).encode() + b"\n"


def read_start(path: Path) -> LastStart:
    """An unreadable file, or none, counts as no start: if any was noted, this is then a start of the past."""
    try:
        fields = json.loads((path / STARTS).read_bytes())
        checksum = fields.pop("crc32c")
        return built(LastStart, fields) if checksum == _checksum(fields) else LastStart()
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return LastStart()


def _checksum(fields: dict[str, object]) -> int:
    return crc32c(json.dumps(fields, sort_keys=True).encode())


def mark_restored(path: Path) -> None:
    """The next start puts all ledgers into limbo. The directory is locked by the caller. Raises OSError."""
    write_durably(path, STARTS, encode_start(LastStart(start_id=RESTORED, former_id=RESTORED)))


def _note_written(path: Path, era: Era, version: int) -> None:
    """ZooKeeper's record of this directory has this version. Not synced: after a power cut it proves less."""
    fields = {"era": era.number, "version": version}
    write_whole(path, NOTED, json.dumps(fields).encode(), synced=False)


class Written(NamedTuple):
    """The version of its record in ZooKeeper that a directory has written last, and the number of the era of that."""

    era: int
    version: int


def read_written(path: Path) -> Written | None:
    """None: the directory does not know. Reads a file."""
    try:
        fields = json.loads((path / NOTED).read_bytes())
        return Written(int(fields["era"]), int(fields["version"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


async def refuse_older_than_written(path: Path, incarnation: Incarnation, registry: Registry, era: Era) -> None:
    """Each second the node writes to its record in ZooKeeper, and nobody else does. If the record has a lower version
    than the node has written, ZooKeeper has gone back, whatever ids it has given since (hazard
    ids-hide-an-older-zookeeper). Raises StorageDirectoryRefused, StoreUnavailable."""
    written = read_written(path)
    if written is None or written.era != era.number:
        return
    stored = await registry.end_version(incarnation)
    if stored is not None and stored < written.version:
        raise StorageDirectoryRefused(_older(path, incarnation, stored, written.version), incarnation=incarnation)


def _older(path: Path, incarnation: Incarnation, stored: int, written: int) -> str:
    older = f"{path}: ZooKeeper is older than the data: its record of this storage node"
    if stored == ABSENT_VERSION:
        return (
            f"{older} is missing, and the node has written version {written}. Keep all directories as they are. If all "
            "other storage nodes serve, only this record is lost: write it anew by `oncelog admin backup rebuild "
            f"{paths.storage_end(incarnation)}`. Otherwise stop the topic owners, and restore all records by `oncelog "
            "admin backup restore`"
        )
    return (
        f"{older} has version {stored}, and the node has written version {written}. ZooKeeper was restored from an "
        "older backup. Stop the topic owners, keep all directories as they are, and restore a ZooKeeper that is not "
        "older than they are, or its records by `oncelog admin backup restore`"
    )


def _is_lower(found: Versioned[StorageEnd] | None, known: Versioned[StorageEnd] | None) -> bool:
    return known is not None and (found is None or found.version < known.version)


class DirectoryStarts:
    """The starts of one directory, seen by one of them: `look`, replay the directory, `begin`, `watch`, `end`."""

    def __init__(
        self,
        path: Path,
        incarnation: Incarnation,
        registry: Registry,
        *,
        on_superseded: Callable[[str], None],
        era: Era = FIRST_ERA,
    ) -> None:
        """on_superseded: called with a message when a copy of the directory was started, or ZooKeeper has gone back.
        era: of the registry."""
        self._era = era
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

    async def wait_for_other(self, address: str, *, wait_ms: int) -> None:
        """Return once no other process is registered for this directory. address: of this process.

        A process that was killed is registered until its session ends. Raises StorageDirectoryRefused if another one is
        registered for longer than wait_ms, StoreUnavailable.
        """
        deadline_s = time.monotonic() + wait_ms / 1000
        said = False
        while True:
            other = (await self._registry.storage_nodes.live()).get(self._incarnation)
            registered = None if other is None else f"{other.host}:{other.port}"
            if not starts.served_elsewhere(registered, address):
                return
            if time.monotonic() > deadline_s:
                raise StorageDirectoryRefused(
                    f"{self._path}: storage node {self._incarnation} is served at {registered}, and this process would "
                    f"serve it at {address}: this directory, or that one, is a copy, and only one may be served. To "
                    "use this one, stop the other process; to start a new node, give it an empty directory"
                )
            if not said:
                fields = {"incarnation": self._incarnation, "address": registered}
                logger.warning("waiting until no other process serves this storage node", extra={"fields": fields})
                said = True
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def look(self) -> None:
        """Compare the directory with the record. Raises StoreUnavailable, and StorageDirectoryRefused for a record of a
        newer version.

        A record that cannot be read shows no start, so this one is taken for one of the past. It writes the record
        anew.
        """
        try:
            self._stored = await self._registry.read_end(self._incarnation)
        except CorruptEntry as error:
            version = await self._registry.damaged_end(self._incarnation)
            if version is None:
                raise StorageDirectoryRefused(
                    f"{self._path}: {error.message}", incarnation=self._incarnation
                ) from error
            self._stored = Versioned(StorageEnd(0, "", JournalEnd(0, 0)), version)
            self.past = f"what ZooKeeper has noted of it cannot be read ({error.message})"
            return
        noted = None if self._stored is None else self._stored.value
        self.past = starts.why_past(read_start(self._path), noted)
        self.known_end = self.known_end if noted is None else noted.end

    async def begin(self, end: JournalEnd) -> None:
        """Note this start. Limbo, if there is any, is durable. Raises StorageDirectoryRefused, StoreUnavailable."""
        noted = None if self._stored is None else self._stored.value
        file, begun = starts.next_start(read_start(self._path), noted, uuid.uuid4().hex, end)
        await asyncio.to_thread(write_durably, self._path, STARTS, encode_start(file))
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
            elif end != self._begun.end or _is_lower(found, self._stored):
                await self._write(replace(self._begun, end=end))  # it fails in an older ZooKeeper
        except CorruptEntry as error:
            await self._write_over(error, end)
        except StoreUnavailable as error:
            logger.info("could not note how far the journal is synced; will retry: %s", error.message)

    async def _write_over(self, error: CorruptEntry, end: JournalEnd) -> None:
        """What somebody has written over the record of this process. Raises StorageDirectoryRefused if ZooKeeper is
        older, too."""
        assert self._begun is not None, "it has noted its start"
        former = ABSENT_VERSION if self._stored is None else self._stored.version
        try:
            version = await self._registry.damaged_end(self._incarnation)
            if version is None:
                logger.info("could not note how far the journal is synced; will retry: %s", error.message)
                return
            if version > former:
                self._stored = Versioned(self._begun, version)
            logger.warning("the record of this node's journal is written over: %s", error.message)
            await self._write(replace(self._begun, end=end))
        except StoreUnavailable as unavailable:
            logger.info("could not note how far the journal is synced; will retry: %s", unavailable.message)

    @property
    def _superseded(self) -> bool:
        noted = None if self._stored is None else self._stored.value
        return self._begun is not None and starts.is_superseded(self._begun, noted)

    async def _write(self, end: StorageEnd) -> bool:
        """One compare-and-set, after which the record is read unless it succeeded. False: the outcome is unknown."""
        version = ABSENT_VERSION if self._stored is None else self._stored.version
        written = await self._registry.write_end(self._incarnation, end, version=version)
        if written.status is WriteStatus.OK:
            self._stored = Versioned(end, written.version)
            try:
                await asyncio.to_thread(_note_written, self._path, self._era, written.version)
            except OSError as error:  # a full disk: the file proves less, and the node goes on
                logger.warning("could not keep what was written to ZooKeeper: %s", error)
        else:
            self._stored = await self._read()
            stored = ABSENT_VERSION if self._stored is None else self._stored.version
            if self._begun is not None and stored < version:
                self._on_superseded(_older(self._path, self._incarnation, stored, version))
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
