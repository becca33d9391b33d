"""A storage directory under compaction, and what it holds, for tests that crash it at every step."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry
from oncelog.core.ids import LedgerId
from oncelog.core.node.node_ledger import RecordKind
from oncelog.log_storage.directory.replay import Replayed, replay
from oncelog.log_storage.directory.segment_format import Body, SegmentRecord
from oncelog.log_storage.directory.segment_reader import SegmentReader
from oncelog.log_storage.directory.segment_writer import DiskCalls
from oncelog.log_storage.directory.storage_directory import StorageDirectory
from oncelog.log_storage.serve.journal import Journal
from oncelog.log_storage.upkeep.compactor import Compactor
from tests.contract.node.directory.small_log import CLUSTER

SEGMENT_BYTES = 8192
WAIT_S = 60
LEDGER_COUNTER = 1000


class State(NamedTuple):
    """What a start finds."""

    entries: dict[int, dict[int, bytes]]
    fenced: set[int]
    erased: set[int]
    limbo_below: int
    limbo_cleared: set[int]


def state_of(directory: StorageDirectory, replayed: Replayed) -> State:
    """Reads every entry. Raises CorruptEntry."""
    reader = SegmentReader(directory)
    index = replayed.index
    entries = {
        ledger_id: {
            entry_id: reader.read(location, ledger_id=ledger_id, entry_id=entry_id)
            for entry_id, location in index.entries(ledger_id)
        }
        for ledger_id in index.ledgers()
    }
    reader.close()
    return State(entries, {*replayed.fenced}, {*replayed.erased}, replayed.limbo_below, {*replayed.limbo_cleared})


class Compacted:
    """A journal with a compactor."""

    def __init__(
        self,
        directory: StorageDirectory,
        disk: DiskCalls,
        holes_settled: Callable[[], bool],
        forgotten: Callable[[Sequence[LedgerId]], None],
    ) -> None:
        self.directory = directory
        replayed = replay(directory)
        if directory.new_holes:
            directory.enter_limbo(LEDGER_COUNTER)
        self._synced = asyncio.Event()
        self._removal_synced = asyncio.Event()
        disk = replace(disk, step=self._step(disk.step))
        self.journal = Journal(
            directory,
            replayed,
            loop=asyncio.get_running_loop(),
            on_synced=lambda _: self._synced.set(),
            on_failed=_fail,
            disk=disk,
            idle_ms=3_600_000,
        )
        self.journal.begin()
        self.compactor = Compactor(directory, self.journal, holes_settled=holes_settled, forgotten=forgotten, disk=disk)

    def _step(self, step: Callable[[str], None]) -> Callable[[str], None]:
        """For steps on the event loop."""

        def stepped(name: str) -> None:
            step(name)
            if name == "removal synced":
                self._removal_synced.set()

        return stepped

    async def write(self, *records: SegmentRecord) -> None:
        """Each record is a group of its own, and durable at the end."""
        for record in records:
            lsn = self.journal.append_many([record])
            async with asyncio.timeout(WAIT_S):
                while self.journal.synced_lsn < lsn:
                    self._synced.clear()
                    await self._synced.wait()

    async def compact(self) -> int:
        """Returns the number of segments."""
        async with asyncio.timeout(WAIT_S):
            return await self.compactor.compact()

    async def until_removal_is_synced(self) -> None:
        """A segment is copied, and its removal is written down."""
        async with asyncio.timeout(WAIT_S):
            await self._removal_synced.wait()

    def entries(self) -> dict[int, dict[int, bytes | None]]:
        """As a reader of the running node sees them; None: unreadable."""
        found: dict[int, dict[int, bytes | None]] = {}
        for ledger_id in self.journal.index.ledgers():
            for entry_id, _ in self.journal.index.entries(ledger_id):
                try:
                    body = self.journal.read(ledger_id=ledger_id, entry_id=entry_id)
                except CorruptEntry:
                    body = None
                found.setdefault(ledger_id, {})[entry_id] = body
        return found


def _fail(error: Exception) -> None:
    raise AssertionError("the journal failed") from error


@contextlib.asynccontextmanager
async def compacted(
    path: Path,
    *,
    disk: DiskCalls | None = None,
    holes_settled: Callable[[], bool] = lambda: False,
    forgotten: Callable[[Sequence[LedgerId]], None] = lambda _: None,
) -> AsyncIterator[Compacted]:
    directory = StorageDirectory.open(path, CLUSTER, segment_bytes=SEGMENT_BYTES)
    node = Compacted(directory, disk or DiskCalls(), holes_settled, forgotten)
    try:
        yield node
    finally:
        async with asyncio.timeout(WAIT_S):
            await node.journal.close()
        directory.close()


def found(path: Path) -> State:
    """What a start finds that changes nothing."""
    directory = StorageDirectory.open(path, CLUSTER, segment_bytes=SEGMENT_BYTES)
    try:
        replayed = replay(directory)
        assert directory.new_holes == (), directory.new_holes
        return state_of(directory, replayed)
    finally:
        directory.close()


def erased(ledger_id: int, *, deleted: bool = True) -> SegmentRecord:
    return SegmentRecord(RecordKind.LEDGER_ERASED, ledger_id, int(deleted))


def fence(ledger_id: int) -> SegmentRecord:
    return SegmentRecord(RecordKind.FENCE, ledger_id, 0)


class ImageDisk:
    """The real disk. Before each sync and at each step it copies the directory as a power cut would leave it."""

    def __init__(self, path: Path, images: Path) -> None:
        self._path = path
        self._images = images
        self.taking = False
        #: [(what happened, image)]
        self.taken: list[tuple[str, Path]] = []
        #: {fd: [(file, offset, bytes before the write)]} of what is not synced
        self._unsynced: dict[int, list[tuple[Path, int, bytes]]] = {}
        self._files: dict[str, bytes] = {}

    def calls(self) -> DiskCalls:
        return DiskCalls(write=self._write, sync=self._sync, step=self._step)

    def _write(self, fd: int, parts: Sequence[Body], offset: int) -> int:
        file = Path(f"/proc/self/fd/{fd}").readlink()
        data = b"".join(parts)
        self._unsynced.setdefault(fd, []).append((file, offset, os.pread(fd, len(data), offset)))
        return os.pwrite(fd, data, offset)

    def _sync(self, fd: int) -> None:
        self._take("before a sync")
        os.fdatasync(fd)
        self._unsynced.pop(fd, None)
        self._take("after a sync")

    def _step(self, name: str) -> None:
        self._take(name)
        if name == "unlinked" and self.taking:
            # The directory is not synced: after a power cut the file may be there again.
            image = self._take("unlink undone")
            for file, data in self._files.items():
                if not (image / "segments" / file).exists():
                    (image / "segments" / file).write_bytes(data)
        self._files = {file.name: file.read_bytes() for file in (self._path / "segments").glob("*.seg")}

    def _take(self, what: str) -> Path:
        image = self._images / f"{len(self.taken):03d}"
        if self.taking:
            shutil.copytree(self._path, image)
            for writes in self._unsynced.values():
                for file, offset, before in reversed(writes):
                    copy = image / "segments" / file.name
                    if copy.exists():
                        with copy.open("r+b") as handle:
                            handle.seek(offset)
                            handle.write(before)
            self.taken.append((what, image))
        return image
