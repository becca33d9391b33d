"""Writes groups at the end of one segment. Used by one thread at a time: the journal's.

The file has its full size from the start (fallocate), so a full disk shows when a segment is created and hardly ever
during a write. A small group is written together with zeros for the next megabyte: the sync of blocks that were written
before needs no commit of the file system's own journal and takes half the time (0.15 instead of 0.25 ms for 4 KiB). A
large group writes no zeros, because it would write the same megabyte twice.

Bytes that were synced a while ago are dropped from the page cache: they are hardly ever read from it again. Writing
through the cache takes a fresh page for every byte, which costs more CPU time than the write itself, and evicts the
pages of others.
"""

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from oncelog.log_storage.directory.segment_format import (
    GROUP_ALIGN,
    SEAL,
    SEAL_BYTES,
    Body,
    EncodedGroup,
    RecordLocation,
    SegmentHeader,
    SegmentRecord,
    encode_group,
)

IOV_MAX = min(1024, os.sysconf("SC_IOV_MAX"))
ZERO_AHEAD_BYTES = 1024 * 1024
ZERO_AHEAD_GROUP_BYTES_MAX = ZERO_AHEAD_BYTES // 2
_ZEROS = bytes(ZERO_AHEAD_BYTES)
#: Synced bytes that stay in the page cache, for recoveries and for readers near the end; dropped in steps.
CACHED_BYTES = 64 * 1024 * 1024
CACHE_STEP_BYTES = 4 * 1024 * 1024


def _continue(_step: str) -> None:
    pass


def _written(fd: int, offset: int) -> list[tuple[int, int]]:
    # All ranges before any of them is read: a page in the cache counts as written, and reading reads ahead.
    size, ranges = os.fstat(fd).st_size, []
    while offset < size:
        try:
            start = os.lseek(fd, offset, os.SEEK_DATA)
            offset = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break
            # The file system cannot tell: what is there decides when it is read.
            start, offset = offset, size
        ranges.append((start, offset))
    return ranges


@dataclass(frozen=True, slots=True)
class DiskCalls:
    """The system calls of the journal, as a value, so that a test can make them fail, wait or write too little.

    A failure of write or sync ends the journal. What `read` cannot read is damage. advise is a hint.
    """

    write: Callable[[int, Sequence[Body], int], int] = os.pwritev
    sync: Callable[[int], None] = os.fdatasync
    #: (fd, offset, length, what)
    advise: Callable[[int, int, int, int], None] = os.posix_fadvise
    #: (fd, size, offset)
    read: Callable[[int, int, int], bytes] = os.pread
    #: (fd, offset); returns (start, end) of the ranges from the offset on that may hold anything but zeros, ascending
    written: Callable[[int, int], list[tuple[int, int]]] = _written
    #: (fd, offset, length)
    allocate: Callable[[int, int, int], None] = os.posix_fallocate
    #: called with the name of each durable step of a compaction, so that a test can stop there
    step: Callable[[str], None] = _continue


SYSTEM = DiskCalls()


class RecordNumbers:
    """The number of the next new record of a directory, for all of its segments."""

    __slots__ = ("next",)

    def __init__(self, first: int = 1) -> None:
        self.next = first


def write_all(disk: DiskCalls, fd: int, parts: Sequence[Body], offset: int) -> None:
    """Write all parts one after the other from `offset` on, in as few calls as the system allows. Raises OSError."""
    rest = list(parts)
    while rest:
        written = disk.write(fd, rest[:IOV_MAX], offset)
        offset += written
        done = 0
        while done < len(rest) and written >= len(rest[done]):
            written -= len(rest[done])
            done += 1
        del rest[:done]
        if written:
            rest[0] = memoryview(rest[0])[written:]


class SegmentWriter:
    """The open end of one segment."""

    def __init__(
        self, fd: int, header: SegmentHeader, path: Path, *, offset: int, numbers: RecordNumbers | None = None
    ) -> None:
        self._numbers = numbers or RecordNumbers()
        self._fd = fd
        self._header = header
        self._written_until = offset
        self._dropped_until = 0
        self.path = path
        #: Where the next group goes. Everything before it is synced, unless `write_group` was not yet followed by
        #: `sync`.
        self.offset = offset

    @property
    def segment_id(self) -> int:
        return self._header.segment_id

    @property
    def next_number(self) -> int:
        """The number that the next new record gets."""
        return self._numbers.next

    def has_room(self, group_bytes: int) -> bool:
        """Whether a group of that total size fits and leaves room for the seal."""
        return self.offset + group_bytes + SEAL_BYTES <= self._header.file_bytes

    def write_group(self, records: Sequence[SegmentRecord], disk: DiskCalls) -> list[RecordLocation]:
        """Write one group; it counts only after `sync`. Raises OSError: then the segment must not be written again."""
        group = self._write(records, self._numbers.next, disk)
        self._numbers.next = group.next_number
        segment_id = self._header.segment_id
        return [
            RecordLocation(segment_id, offset, len(record.body))
            for record, offset in zip(records, group.offsets, strict=True)
        ]

    def _write(self, records: Sequence[SegmentRecord], first_number: int, disk: DiskCalls) -> EncodedGroup:
        group = encode_group(records, seed=self._header.seed, offset=self.offset, first_number=first_number)
        end = self.offset + group.total_bytes
        assert end % GROUP_ALIGN == 0
        assert end <= self._header.file_bytes, "a group is never split over segments"
        parts = group.parts
        if end > self._written_until:
            ahead = min(ZERO_AHEAD_BYTES, self._header.file_bytes - end)
            if group.total_bytes <= ZERO_AHEAD_GROUP_BYTES_MAX and ahead:
                parts.append(_ZEROS if ahead == ZERO_AHEAD_BYTES else _ZEROS[:ahead])
                self._written_until = end + ahead
            else:
                self._written_until = end
        write_all(disk, self._fd, parts, self.offset)
        self.offset = end
        return group

    def sync(self, disk: DiskCalls) -> None:
        """Raises OSError: durability is then unknown, because the kernel may drop the pages and reports that only
        once."""
        disk.sync(self._fd)
        self._drop_pages(self.offset - CACHED_BYTES, disk)

    def _drop_pages(self, until: int, disk: DiskCalls) -> None:
        """A hint to the kernel; its failure loses nothing."""
        if until - self._dropped_until >= CACHE_STEP_BYTES:
            disk.advise(self._fd, self._dropped_until, until - self._dropped_until, os.POSIX_FADV_DONTNEED)
            self._dropped_until = until

    def write_durability_marker(self, disk: DiskCalls) -> None:
        """Confirm that everything before is durable; durable itself when it returns."""
        self.write_group([], disk)
        self.sync(disk)

    def seal(self, disk: DiskCalls) -> None:
        """Write the last group; durable when it returns."""
        self._write([SegmentRecord(SEAL, 0, 0)], 0, disk)
        self.sync(disk)

    def close(self, disk: DiskCalls = SYSTEM) -> None:
        """Close the file. Nothing more is written here, so none of it stays in the page cache."""
        self._drop_pages(self.offset, disk)
        os.close(self._fd)
