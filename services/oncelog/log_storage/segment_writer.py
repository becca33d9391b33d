"""Writes groups at the end of one segment. Used by one thread at a time: the journal's.

The file has its full size from the start (fallocate), so running out of disk shows when a segment is made and hardly
ever in the middle of a write. A small group is written together with zeros for the next megabyte: a sync of blocks
that were written before needs no commit of the file system's own journal and takes half the time (0.15 against 0.25
ms for 4 KiB). A large group writes no zeros: it would pay for the same megabyte twice.

What was synced a while ago is dropped from the page cache: it is hardly ever read again from here, and a log that
flows through the cache takes fresh pages for every byte, which costs more processor time than writing them does, and
pushes out what others need.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from oncelog.log_storage.segments import (
    GROUP_ALIGN,
    SEAL,
    SEAL_BYTES,
    Body,
    RecordLocation,
    SegmentHeader,
    SegmentRecord,
    encode_group,
)

IOV_MAX = min(1024, os.sysconf("SC_IOV_MAX"))
ZERO_AHEAD_BYTES = 1024 * 1024
ZERO_AHEAD_GROUP_BYTES_MAX = ZERO_AHEAD_BYTES // 2
_ZEROS = bytes(ZERO_AHEAD_BYTES)
#: Synced bytes that stay in the page cache, for recoveries and readers close to the end; dropped in steps.
CACHED_BYTES = 64 * 1024 * 1024
CACHE_STEP_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DiskCalls:
    """The calls of the journal; a value, so that a test can make them fail, wait or fall short.

    A failure of the first two ends the journal. advise(fd, offset, length, what) is a hint.
    """

    write: Callable[[int, Sequence[Body], int], int] = os.pwritev
    sync: Callable[[int], None] = os.fdatasync
    advise: Callable[[int, int, int, int], None] = os.posix_fadvise


_SYSTEM = DiskCalls()


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

    def __init__(self, fd: int, header: SegmentHeader, path: Path, *, offset: int) -> None:
        self._fd = fd
        self._header = header
        self._written_until = offset
        self._dropped_until = 0
        self.path = path
        #: Where the next group goes; everything before it is synced, or `write_group` was not followed by `sync` yet.
        self.offset = offset

    @property
    def segment_id(self) -> int:
        return self._header.segment_id

    def has_room(self, group_bytes: int) -> bool:
        """Whether a group of that total size fits and leaves room for the seal."""
        return self.offset + group_bytes + SEAL_BYTES <= self._header.file_bytes

    def write_group(self, records: Sequence[SegmentRecord], disk: DiskCalls) -> list[RecordLocation]:
        """Write one group; it counts only after `sync`. Raises OSError: then the segment is not to be written again."""
        segment_id = self._header.segment_id
        group = encode_group(records, seed=self._header.seed, offset=self.offset)
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
        return [
            RecordLocation(segment_id, offset, len(record.body))
            for record, offset in zip(records, group.offsets, strict=True)
        ]

    def sync(self, disk: DiskCalls) -> None:
        """Raises OSError: nothing may be concluded after it, the kernel may have dropped the pages and says so once."""
        disk.sync(self._fd)
        self._drop_pages(self.offset - CACHED_BYTES, disk)

    def _drop_pages(self, until: int, disk: DiskCalls) -> None:
        """A hint: whatever becomes of it, nothing is lost by it."""
        if until - self._dropped_until >= CACHE_STEP_BYTES:
            disk.advise(self._fd, self._dropped_until, until - self._dropped_until, os.POSIX_FADV_DONTNEED)
            self._dropped_until = until

    def write_watermark(self, disk: DiskCalls) -> None:
        """Vouch for everything before; durable when it returns."""
        self.write_group([], disk)
        self.sync(disk)

    def seal(self, disk: DiskCalls) -> None:
        """Write the last group; durable when it returns."""
        self.write_group([SegmentRecord(SEAL, 0, 0)], disk)
        self.sync(disk)

    def close(self, disk: DiskCalls = _SYSTEM) -> None:
        """Nothing more is written here, so none of it stays in the page cache."""
        self._drop_pages(self.offset, disk)
        os.close(self._fd)
