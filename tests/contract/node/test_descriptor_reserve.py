"""The journal can roll to its next segment even if connections use every file descriptor."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncelog.log_storage.directory.descriptor_reserve import RESERVED, DescriptorReserve
from oncelog.log_storage.directory.segment_format import group_total
from oncelog.log_storage.directory.storage_directory import StorageDirectory
from oncelog.runtime.descriptors import connections_within, raise_limit
from tests.contract.node.directory.small_log import CLUSTER, DISK, add, as_found, replay


@contextmanager
def limit_of_files(soft: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def no_descriptors_left() -> Iterator[list[int]]:
    """Open every descriptor that this process may have, as idle connections would."""
    taken: list[int] = []
    with limit_of_files(max(int(each.name) for each in Path("/proc/self/fd").iterdir()) + 50):
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        try:
            yield taken
        finally:
            for fd in taken:
                os.close(fd)


def test_segment_rolls_without_a_free_descriptor(tmp_path: Path) -> None:
    """Without the reserve EMFILE looked like a failed disk, and the storage node ended."""
    path = tmp_path / "node"
    directory = StorageDirectory.open(path, CLUSTER, segment_bytes=8192)
    list(directory.scan())
    segment = directory.settle(DISK)
    records = [add(1, number, 3_000) for number in range(12)]
    with no_descriptors_left():
        for record in records:
            if not segment.has_room(group_total([record])):
                segment = directory.roll(segment, DISK, group_bytes=group_total([record]))
            segment.write_group([record], DISK)
            segment.sync(DISK)
    assert len(directory.segment_ids) > 3
    directory.confirm_end(segment, DISK).close()
    directory.close()
    assert replay(path) == as_found(records)


def test_reserve_is_refilled_when_descriptors_are_free_again(tmp_path: Path) -> None:
    """The next roll needs it again."""
    reserve = DescriptorReserve()
    for _ in range(2):
        with no_descriptors_left() as taken:
            opened = [reserve.open(tmp_path, os.O_RDONLY) for _ in range(RESERVED)]
            with pytest.raises(OSError, match="Too many open files"):
                os.open(os.devnull, os.O_RDONLY)
            assert taken
        for fd in opened:
            os.close(fd)
        reserve.refill()
    reserve.close()


def test_other_errors_than_missing_descriptors_are_raised(tmp_path: Path) -> None:
    """The journal must see errors of the disk or the path."""
    reserve = DescriptorReserve()
    with pytest.raises(FileNotFoundError):
        reserve.open(tmp_path / "missing" / "file", os.O_RDONLY)
    reserve.close()


def test_connections_get_at_most_half_of_the_descriptors() -> None:
    """The rest is for files, and the process raises its limit to the system's maximum."""
    with limit_of_files(256):
        assert (connections_within(10_000), connections_within(5)) == (128, 5)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        assert raise_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
