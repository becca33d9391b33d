"""The scan of a segment when a node starts, and the decision about what does not verify.

Everything acknowledged was synced, and the next write after that sync confirms it: the header of the next group, the
durability marker that follows when nothing else is written, the `previous_end` of the next segment, or the seal. So:

- The last segment: with nothing valid after the scan's end, the rest is a torn write and is cut. A valid group header
  after the scan's end means lost data.
- A segment with a successor must be intact up to the successor's `previous_end`, and sealed there. The seal may be
  missing only while the successor holds no group: the roll was interrupted between creating the one and sealing the
  other.
- A sealed segment without a successor: the successor existed before the seal, so its file is lost.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c

from oncelog.log_storage.segment_format import (
    FIRST_GROUP,
    GROUP,
    GROUP_ALIGN,
    GROUP_MAGIC,
    RECORD,
    SEAL,
    SEAL_BYTES,
    GroupHeader,
    RecordLocation,
    SegmentHeader,
    StoredRecord,
    damaged,
    decode_group_header,
    record_kind,
)

SCAN_BYTES = 4 * 1024 * 1024


class SegmentScan:
    """Reads one segment from its first group on, up to the first offset where no intact group begins.

    Use: exhaust `records()`, then look at the attributes.
    """

    def __init__(self, fd: int, header: SegmentHeader, path: Path) -> None:
        self._fd = fd
        self._header = header
        self._path = path
        #: The offset after the last intact group.
        self.end = FIRST_GROUP
        #: Offset of the last intact group that has records and no intact group after it; None if all are confirmed.
        self.unconfirmed: int | None = None
        self.sealed = False
        #: What the scan stopped at, as far as the damaged bytes tell.
        self.stopped_at = "group header"

    def records(self) -> Iterator[StoredRecord]:
        """All records of the intact groups in order, without the seal. Raises DamagedSegment if a read fails."""
        window, base = b"", 0
        file_bytes, seed = self._header.file_bytes, self._header.seed
        while not self.sealed and self.end + GROUP_ALIGN <= file_bytes:
            offset = self.end
            if offset + GROUP_ALIGN > base + len(window):
                window, base = self._read(offset, SCAN_BYTES), offset
            group = decode_group_header(window, offset - base, seed=seed, offset=offset)
            if group is None or offset + group.total_bytes > file_bytes:
                return
            if offset + group.total_bytes > base + len(window):
                window, base = self._read(offset, max(SCAN_BYTES, group.total_bytes)), offset
            records = self._decode(window, offset - base, offset, group)
            if records is None:
                return
            self.end = offset + group.total_bytes
            self.unconfirmed = offset if records else None
            yield from records

    def _decode(self, window: bytes, at: int, offset: int, group: GroupHeader) -> list[StoredRecord] | None:
        """The records of a group with an intact header; None if one has a wrong checksum. Sets `sealed`."""
        view = memoryview(window)
        seed, segment_id, unpack = self._header.seed, self._header.segment_id, RECORD.unpack_from
        position, end, shift = at + GROUP.size, at + GROUP.size + group.group_bytes, offset - at
        records: list[StoredRecord] = []
        for _ in range(group.record_count):
            if position + RECORD.size > end:
                return None
            checksum, length, number, ledger_id, entry_id = unpack(window, position)
            behind = position + RECORD.size + length
            kind = record_kind(number)
            seals = number == SEAL and group.record_count == 1
            known = kind is not None or seals
            if behind > end or not known or checksum != crc32c(view[position + 4 : behind], seed):
                name = kind.name if kind else "SEAL" if number == SEAL else f"kind {number}"
                self.stopped_at = (
                    f"record {len(records)} of {group.record_count} of a group, labelled {name} "
                    f"of ledger {ledger_id}, entry {entry_id}"
                )
                return None
            if kind is not None:
                records.append(
                    StoredRecord(kind, ledger_id, entry_id, RecordLocation(segment_id, position + shift, length))
                )
            self.sealed = seals
            position = behind
        return records if position == end else None

    def holds_group(self) -> bool:
        """Whether an intact group header exists anywhere in the segment."""
        return any(True for window, offset in self._windows(FIRST_GROUP) for _ in self._groups(window, offset))

    def look_behind(self) -> tuple[int | None, list[tuple[int, int]]]:
        """What follows the end of the scan: (offset of a group header, [(offset, size) of what is not zero]).

        A group header confirms everything before it, so the header at which the scan stopped confirms nothing after it.
        """
        dirty: list[tuple[int, int]] = []
        zeros = bytes(SCAN_BYTES)
        for window, offset in self._windows(self.end):
            if window != zeros[: len(window)]:
                for found in self._groups(window, offset):
                    if found > self.end:
                        return found, dirty
                dirty.append((offset, len(window)))
        return None, dirty

    def _windows(self, offset: int) -> Iterator[tuple[bytes, int]]:
        while offset < self._header.file_bytes:
            window = self._read(offset, SCAN_BYTES)
            yield window, offset
            offset += len(window)

    def _groups(self, window: bytes, offset: int) -> Iterator[int]:
        """Offsets of the intact group headers in a window that begins at `offset`, a multiple of 512."""
        at = window.find(GROUP_MAGIC)
        while at >= 0:
            whole = at % GROUP_ALIGN == 0 and at + GROUP.size <= len(window)
            if whole and decode_group_header(window, at, seed=self._header.seed, offset=offset + at) is not None:
                yield offset + at
            at = window.find(GROUP_MAGIC, at + 1)

    def _read(self, offset: int, size: int) -> bytes:
        size = min(size, self._header.file_bytes - offset)
        try:
            data = os.pread(self._fd, size, offset)
        except OSError as error:
            raise damaged(self._path, offset=offset, what="unreadable", why=str(error)) from error
        if len(data) < size:
            raise damaged(
                self._path, offset=offset + len(data), what="end of file", why="the file was cut while it was read"
            )
        return data


def ranges_to_cut(scan: SegmentScan, path: Path) -> list[tuple[int, int]]:
    """After a complete scan of the last segment: (offset, size) of the ranges to cut. Raises DamagedSegment."""
    if scan.sealed:
        raise damaged(
            path, offset=scan.end, what="seal", why="the segment is sealed, but the file of the next one is missing"
        )
    later, dirty = scan.look_behind()
    if later is not None:
        raise damaged(path, offset=scan.end, what=scan.stopped_at, why=f"but a valid group follows at {later}")
    return dirty


def seal_is_due(scan: SegmentScan, path: Path, successor: SegmentHeader, *, successor_used: bool) -> bool:
    """After a complete scan of a segment with a successor: whether its seal must be written, possibly again.

    successor_used: the successor holds a group, or has a successor itself. Until then the seal may not be on the disk
    even if it can be read: see `StorageDirectory.settle`. Raises DamagedSegment.
    """
    end = successor.previous_end
    if scan.sealed and scan.end == end + SEAL_BYTES:
        return not successor_used
    if scan.end < end:
        raise damaged(path, offset=scan.end, what=scan.stopped_at, why=f"but the next segment confirms all below {end}")
    if scan.sealed or scan.end > end:
        raise damaged(path, offset=scan.end, what="seal", why=f"by the next segment, this one ends at {end}")
    if successor_used:
        raise damaged(path, offset=scan.end, what="seal", why="the next segment is in use")
    return True
