"""The scan of a segment when a node starts. It goes on behind what it cannot read, and notes the hole.

Everything acknowledged was synced, and the next write after that sync confirms it: the header of the next group, the
durability marker that follows when nothing else is written, the `previous_end` of the next segment, or the seal. So:

- Damage before a valid group header is a hole, and the scan continues at that header. The records of a damaged group
  whose own checksums are right are used.
- The last segment: with nothing valid after the scan's end, the rest is a torn write and is cut.
- A segment with a successor must be intact up to the successor's `previous_end`, and sealed there. The seal may be
  missing only while the successor holds no group: the roll was interrupted between creating the one and sealing the
  other.
- A segment whose successor was removed or is damaged must be sealed.
- A sector that the disk does not give back is a hole wherever it is, also at the end: it may have held the marker.
- An intact record of an unknown kind is no damage: a newer version has written it, and this one does not start.
"""

import os
from collections.abc import Iterator

from crc32c import crc32c

from oncelog.core.errors import StorageDirectoryRefused
from oncelog.log_storage.directory.holes import Hole
from oncelog.log_storage.directory.segment_format import (
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
    decode_group_header,
    record_kind,
)
from oncelog.log_storage.directory.segment_writer import SYSTEM, DiskCalls

SCAN_BYTES = 4 * 1024 * 1024
#: After a failed read, the sectors that can be read are used.
SECTOR_BYTES = 4096


class SegmentScan:
    """Reads one segment from its first group on, up to the seal, or up to where nothing valid follows.

    Use: exhaust `records()`, then look at the attributes.
    """

    def __init__(self, fd: int, header: SegmentHeader, disk: DiskCalls = SYSTEM) -> None:
        self._fd = fd
        self._disk = disk
        self._header = header
        self._file_bytes = os.fstat(fd).st_size
        #: [start, end] of what the disk did not give back, ascending
        self._unreadable: list[list[int]] = []
        #: The offset after the last intact group.
        self.end = FIRST_GROUP
        #: Offset of the last intact group that has records and no intact group after it; None if all are confirmed.
        self.unconfirmed: int | None = None
        self.sealed = False
        self.holes: list[Hole] = []
        #: the highest number of a record
        self.last_number = 0

    def records(self) -> Iterator[StoredRecord]:
        """All records whose checksums are right, in the order of the file, without the seal.

        Raises StorageDirectoryRefused for a record that only a newer version knows.
        """
        window, base = b"", 0
        file_bytes, seed = self._header.file_bytes, self._header.seed
        offset = FIRST_GROUP
        while not self.sealed and offset + GROUP_ALIGN <= file_bytes:
            if offset + GROUP_ALIGN > base + len(window):
                window, base = self._read(offset, SCAN_BYTES), offset
            group = decode_group_header(window, offset - base, seed=seed, offset=offset)
            if group is not None and offset + group.total_bytes > file_bytes:
                group = None
            records: list[StoredRecord] = []
            damage: str | None = "group header"
            if group is not None:
                if offset + group.total_bytes > base + len(window):
                    window, base = self._read(offset, max(SCAN_BYTES, group.total_bytes)), offset
                records, damage = self._decode(window, offset - base, offset, group)
            if damage is None and group is not None:
                self.end = offset + group.total_bytes
                self.unconfirmed = offset if records else None
                offset = self.end
            else:
                behind = self._next_group(offset)
                if behind is None:
                    break
                self.holes.append(Hole(self._header.segment_id, offset, behind, damage or ""))
                self.end, self.unconfirmed = behind, None
                offset = behind
            for record in records:
                self.last_number = max(self.last_number, record.number)
            yield from records
        self._note_what_is_missing()

    def _decode(self, window: bytes, at: int, offset: int, group: GroupHeader) -> tuple[list[StoredRecord], str | None]:
        """The sound records of a group with an intact header, and the first damage. Sets `sealed`."""
        view = memoryview(window)
        seed, segment_id, unpack = self._header.seed, self._header.segment_id, RECORD.unpack_from
        position, end, shift = at + GROUP.size, at + GROUP.size + group.group_bytes, offset - at
        records: list[StoredRecord] = []
        damage: str | None = None
        for count in range(group.record_count):
            if position + RECORD.size > end:
                return records, damage or "group without its last records"
            checksum, length, kind_number, ledger_id, entry_id, number = unpack(window, position)
            body_at = position + RECORD.size
            behind = body_at + length
            kind = record_kind(kind_number)
            seals = kind_number == SEAL and group.record_count == 1
            intact = behind <= end and checksum == crc32c(view[position + 4 : behind], seed)
            if intact and kind is None and kind_number != SEAL:
                raise StorageDirectoryRefused(
                    f"segment {segment_id}, offset {position + shift}: a record of kind {kind_number}, which a newer "
                    "version of Oncelog has written: start that version again, or a newer one. Nothing was changed"
                )
            if not intact or not (kind is not None or seals):
                name = kind.name if kind else "SEAL" if kind_number == SEAL else f"kind {kind_number}"
                damage = damage or (
                    f"record {count} of {group.record_count} of a group, labelled {name} of ledger {ledger_id}, "
                    f"entry {entry_id}"
                )
                if behind > end:
                    return records, damage
            elif kind is not None:
                location = RecordLocation(segment_id, position + shift, length)
                records.append(StoredRecord(kind, ledger_id, entry_id, number, location, view[body_at:behind]))
            else:
                self.sealed = True
            position = behind
        return records, damage if position == end else damage or "group with other records than its header states"

    def _next_group(self, offset: int) -> int | None:
        """The offset of the first valid group header behind `offset`."""
        for window, start in self._windows(offset):
            for found in self._groups(window, start):
                if found > offset:
                    return found
        return None

    def _note_what_is_missing(self) -> None:
        """Add to the holes what the disk or the file does not have, as far as it may have held groups."""
        segment_id, stated = self._header.segment_id, self._header.file_bytes
        used = self.end if self.sealed else stated
        if self._file_bytes < used:
            self.holes.append(Hole(segment_id, self._file_bytes, stated, "the file was cut"))
        elif self._file_bytes > stated:
            self.holes.append(Hole(segment_id, stated, self._file_bytes, "the file is longer than it was created"))
        for start, end in self._unreadable:
            if start < used:
                self.holes.append(Hole(segment_id, start, end, "the disk cannot read it"))

    def holds_group(self) -> bool:
        """Whether a valid group header exists anywhere in the segment."""
        return any(True for window, offset in self._windows(FIRST_GROUP) for _ in self._groups(window, offset))

    def dirty_tail(self) -> list[tuple[int, int]]:
        """(offset, size) of the ranges after the end of the scan that are not zero."""
        zeros = bytes(SCAN_BYTES)
        return [(offset, len(window)) for window, offset in self._windows(self.end) if window != zeros[: len(window)]]

    def _windows(self, offset: int) -> Iterator[tuple[bytes, int]]:
        """All from the offset on, but for what was allocated and never written: the rest of a new segment."""
        for start, end in self._disk.written(self._fd, offset):
            for at in range(start, min(end, self._header.file_bytes), SCAN_BYTES):
                yield self._read(at, min(SCAN_BYTES, end - at)), at

    def _groups(self, window: bytes, offset: int) -> Iterator[int]:
        """Offsets of the valid group headers in a window that begins at `offset`, a multiple of 512."""
        at = window.find(GROUP_MAGIC)
        while at >= 0:
            whole = at % GROUP_ALIGN == 0 and at + GROUP.size <= len(window)
            if whole and decode_group_header(window, at, seed=self._header.seed, offset=offset + at) is not None:
                yield offset + at
            at = window.find(GROUP_MAGIC, at + 1)

    def _read(self, offset: int, size: int) -> bytes:
        """The bytes; zeros in place of what the disk or the file does not have."""
        size = min(size, self._header.file_bytes - offset)
        try:
            data = self._disk.read(self._fd, size, offset)
        except OSError:
            if offset // SECTOR_BYTES == (offset + size - 1) // SECTOR_BYTES:
                self._note_unreadable(offset, offset + size)
                return bytes(size)
            middle = (offset + size // 2) // SECTOR_BYTES * SECTOR_BYTES
            if middle <= offset:
                middle = offset // SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES
            return self._read(offset, middle - offset) + self._read(middle, offset + size - middle)
        return data if len(data) == size else data + bytes(size - len(data))

    def _note_unreadable(self, start: int, end: int) -> None:
        for known in self._unreadable:
            if known[0] <= start <= known[1]:
                known[1] = max(known[1], end)
                return
        self._unreadable.append([start, end])


def missing_end(scan: SegmentScan, header: SegmentHeader, successor: SegmentHeader | None) -> Hole | None:
    """After a complete scan of a segment that is not the last: the hole at its end, if there is one.

    successor: the header of the next segment, if it is intact and that segment holds a group or has a successor itself.
    """
    segment_id = header.segment_id
    if successor is None:
        return None if scan.sealed else Hole(segment_id, scan.end, header.file_bytes, "the seal is missing")
    end = successor.previous_end
    if scan.sealed and scan.end == end + SEAL_BYTES:
        return None
    if scan.end > end:
        return Hole(segment_id, end, scan.end, "groups behind the end that the next segment states")
    return Hole(segment_id, scan.end, end + SEAL_BYTES, "the next segment states a later end, or the seal is missing")
