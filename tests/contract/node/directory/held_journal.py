"""A journal on a real disk whose syncs a test can hold, count and fail, with its reports."""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from oncelog.core.errors import JournalFailed
from oncelog.log_storage.directory.replay import DirectoryReplay
from oncelog.log_storage.directory.segment_format import Body, SegmentRecord, StoredRecord
from oncelog.log_storage.directory.segment_writer import DiskCalls
from oncelog.log_storage.directory.storage_directory import StorageDirectory
from oncelog.log_storage.serve.journal import Journal
from tests.contract.node.directory.small_log import CLUSTER

WAIT_S = 30
NEVER_IDLE_MS = 3_600_000


class Disk:
    """The real disk, with a gate before each sync, and errors on demand."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        #: Syncs that were begun.
        self.entered = threading.Semaphore(0)
        self.sync_count = 0
        self.sync_error: OSError | None = None
        self.write_error: OSError | None = None
        #: Most bytes that one call writes.
        self.write_bytes_max: int | None = None

    def calls(self) -> DiskCalls:
        return DiskCalls(write=self._write, sync=self._sync)

    def _write(self, fd: int, parts: Sequence[Body], offset: int) -> int:
        if self.write_error is not None:
            raise self.write_error
        if self.write_bytes_max is None:
            return os.pwritev(fd, parts, offset)
        return os.pwrite(fd, b"".join(parts)[: self.write_bytes_max], offset)

    def _sync(self, fd: int) -> None:
        self.sync_count += 1
        self.entered.release()
        assert self.gate.wait(WAIT_S), "the test forgot to open the gate"
        if self.sync_error is not None:
            raise self.sync_error
        os.fdatasync(fd)

    async def until_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, True, WAIT_S), "no sync was begun"

    def forget(self) -> None:
        """Count syncs from here on."""
        while self.entered.acquire(blocking=False):
            pass
        self.sync_count = 0


class Node:
    """A journal and its reports."""

    def __init__(self, directory: StorageDirectory, disk: Disk, idle_ms: int) -> None:
        self.directory = directory
        self.disk = disk
        self.scanned: list[StoredRecord] = []
        taken = DirectoryReplay()
        for record in directory.scan():
            self.scanned.append(record._replace(body=bytes(record.body)))
            taken.take(record)
        self.index = taken.index
        self.synced: list[int] = []
        self.failed: list[JournalFailed] = []
        self._changed = asyncio.Event()
        self.journal = Journal(
            directory,
            taken.result(),
            loop=asyncio.get_running_loop(),
            on_synced=self._on_synced,
            on_failed=self._on_failed,
            disk=disk.calls(),
            idle_ms=idle_ms,
        )
        self.journal.begin()

    def _on_synced(self, lsn: int) -> None:
        self.synced.append(lsn)
        self._changed.set()

    def _on_failed(self, error: JournalFailed) -> None:
        self.failed.append(error)
        self._changed.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not reached():
                self._changed.clear()
                await self._changed.wait()

    async def until_synced(self, lsn: int) -> None:
        await self.until(lambda: self.journal.synced_lsn >= lsn)

    def read(self, record: SegmentRecord) -> bytes | None:
        return self.journal.read(ledger_id=record.ledger_id, entry_id=record.entry_id)


@contextlib.asynccontextmanager
async def started(
    path: Path, *, disk: Disk | None = None, idle_ms: int = NEVER_IDLE_MS, segment_bytes: int = 1 << 20
) -> AsyncIterator[Node]:
    directory = StorageDirectory.open(path, CLUSTER, segment_bytes=segment_bytes)
    node = Node(directory, disk or Disk(), idle_ms)
    node.disk.forget()
    try:
        yield node
    finally:
        node.disk.gate.set()
        async with asyncio.timeout(WAIT_S):
            await node.journal.close()
        directory.close()
