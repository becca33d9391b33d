"""On a full disk the journal goes on in the space that was kept: tombstones and copies need space (hazard
reserve-used-by-repair)."""

import errno
import os
from pathlib import Path

import pytest

from oncelog.log_storage.directory.segment_writer import DiskCalls
from oncelog.log_storage.directory.spare_space import SPARE
from oncelog.log_storage.directory.storage_directory import StorageDirectory
from tests.contract.node.directory.small_log import CLUSTER, DISK, add, as_found, replay, segment_files, write_groups


class FullDisk:
    """No new segment fits, unless the spare file was given up."""

    def __init__(self, path: Path) -> None:
        self._spare = path / "segments" / SPARE
        self.calls = DiskCalls(allocate=self._allocate)

    def _allocate(self, fd: int, offset: int, length: int) -> None:
        if self._spare.exists() or not any(self._spare.parent.glob("*.tmp")):
            raise OSError(errno.ENOSPC, "No space left on device")
        os.posix_fallocate(fd, offset, length)


@pytest.mark.hazard("reserve-used-by-repair")
def test_full_disk_uses_the_space_that_was_kept(tmp_path: Path) -> None:
    """Once: the next roll fails, because nothing is kept any more."""
    path = tmp_path / "node"
    records = [add(7, entry, size=3000) for entry in range(5)]
    write_groups(path, [[record] for record in records[:3]])
    assert (path / "segments" / SPARE).stat().st_size == 8192
    disk = FullDisk(path).calls
    directory = StorageDirectory.open(path, CLUSTER, segment_bytes=8192)
    list(directory.scan())
    before = len(segment_files(path))
    segment = directory.roll(directory.settle(DISK), disk, group_bytes=4096)
    assert len(segment_files(path)) == before + 1
    assert not (path / "segments" / SPARE).exists(), "the disk is still full"
    segment.write_group([records[3]], DISK)
    segment.sync(DISK)
    segment.close()
    directory.close()
    assert replay(path) == as_found(records[:4])


def test_spare_space_is_kept_again_when_the_disk_has_it(tmp_path: Path) -> None:
    """At the next roll."""
    path = tmp_path / "node"
    write_groups(path, [[add(7, entry, size=3000)] for entry in range(3)])
    (path / "segments" / SPARE).unlink()
    write_groups(path, [[add(7, entry, size=3000)] for entry in range(3, 6)])
    assert (path / "segments" / SPARE).exists()
