"""The page cache: bytes that were synced a while ago are dropped from it, and no others."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from oncelog.log_storage.directory.segment_format import FIRST_GROUP, Body, SegmentHeader
from oncelog.log_storage.directory.segment_writer import CACHE_STEP_BYTES, CACHED_BYTES, DiskCalls, SegmentWriter
from oncelog.log_storage.directory.storage_directory import StorageDirectory
from tests.contract.node.directory.small_log import CLUSTER, add

MIB = 1 << 20
FILE_BYTES = CACHED_BYTES + 8 * CACHE_STEP_BYTES


class Disk:
    """Accepts every write and stores nothing. Records the advice about pages, and the synced offset at that time."""

    def __init__(self) -> None:
        self.written_until = 0
        self.synced_until = 0
        #: (from, until, advice, synced until)
        self.advised: list[tuple[int, int, int, int]] = []
        self.calls = DiskCalls(self._write, self._sync, self._advise)

    def _write(self, _fd: int, parts: Sequence[Body], offset: int) -> int:
        written = sum(map(len, parts))
        self.written_until = offset + written
        return written

    def _sync(self, _fd: int) -> None:
        self.synced_until = self.written_until

    def _advise(self, _fd: int, offset: int, length: int, what: int) -> None:
        self.advised.append((offset, offset + length, what, self.synced_until))


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[SegmentWriter]:
    """At the beginning of a segment that has room for the cached bytes, and for some steps more."""
    path = tmp_path / "segment"
    header = SegmentHeader(bytes(16), bytes(16), 1, previous_end=0, file_bytes=FILE_BYTES)
    writer = SegmentWriter(os.open(path, os.O_RDWR | os.O_CREAT), header, path, offset=FIRST_GROUP)
    yield writer
    writer.close()


def write(writer: SegmentWriter, until: int, disk: Disk) -> None:
    """Write groups of a megabyte, each synced, up to that offset."""
    while writer.offset < until:
        writer.write_group([add(1, 0, size=MIB)], disk.calls)
        writer.sync(disk.calls)


def test_recent_bytes_stay_in_the_page_cache(writer: SegmentWriter, disk: Disk) -> None:
    """Recoveries and readers near the end read it from memory."""
    write(writer, CACHED_BYTES + CACHE_STEP_BYTES - 2 * MIB, disk)
    assert disk.advised == []


def test_old_bytes_are_dropped_once_and_in_steps(writer: SegmentWriter, disk: Disk) -> None:
    """From the beginning without a gap, never the bytes to keep, and not page by page, which would cost many calls."""
    write(writer, FILE_BYTES - 4 * MIB, disk)
    assert len(disk.advised) >= 6
    behind = 0
    for begins, ends, what, synced_until in disk.advised:
        assert (begins, what) == (behind, os.POSIX_FADV_DONTNEED)
        assert ends - begins >= CACHE_STEP_BYTES
        assert ends <= synced_until - CACHED_BYTES
        behind = ends
    assert writer.offset - behind < CACHED_BYTES + CACHE_STEP_BYTES + 2 * MIB, "the rest follows in time"


def test_full_segment_is_dropped_completely(tmp_path: Path, disk: Disk) -> None:
    """No more data is written to it, so later reads use the disk."""
    path = tmp_path / "segment"
    header = SegmentHeader(bytes(16), bytes(16), 1, previous_end=0, file_bytes=FILE_BYTES)
    writer = SegmentWriter(os.open(path, os.O_RDWR | os.O_CREAT), header, path, offset=FIRST_GROUP)
    write(writer, 8 * MIB, disk)
    writer.close(disk.calls)
    assert [(begins, ends) for begins, ends, _, _ in disk.advised] == [(0, writer.offset)]


def test_roll_drops_the_full_segment_from_the_page_cache(tmp_path: Path) -> None:
    """With real files: otherwise each segment would stay until other pages evict it."""
    disk = Disk()
    calls = DiskCalls(advise=disk.calls.advise)
    directory = StorageDirectory.open(tmp_path / "node", CLUSTER, segment_bytes=8 * MIB)
    assert list(directory.scan()) == []
    full = directory.settle(calls)
    for entry in range(5):
        full.write_group([add(1, entry, size=MIB)], calls)
        full.sync(calls)
    directory.roll(full, calls, group_bytes=MIB).close()
    directory.close()
    assert [(begins, ends) for begins, ends, _, _ in disk.advised] == [(0, full.offset)]
