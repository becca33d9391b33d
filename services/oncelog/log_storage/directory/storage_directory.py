"""The directory of one storage node: its segments, their recovery at start, and their removal.

    identity.json    the identity, see `identity`
    lock             held by flock while a process has the directory open; contains its pid, for operators
    segments/        <segment id, 16 hex digits>.seg; ids ascend from first_segment_id on and are never used again
                     spare: space that is given up for the next segment when the disk is full (hazard
                     reserve-used-by-repair)

Rules
1. An emptied directory is a new node, at any address.
2. Only an absent or empty directory is formatted: an identity with first_segment_id 0, then the first segment, then the
   identity with 1. While it is 0, nothing was ever stored, and the next start continues the formatting. A directory
   with files but no identity is refused, because it may hold someone's data.
3. A segment from first_segment_id on without a file was removed, if a SEGMENT_REMOVED record names it; else its file is
   lost, and that is a hole. The next segment is created before the one before it is sealed, so a seal without a
   successor means a lost file. `previous_end` of the successor says up to where its predecessor was synced.
4. Holes do not stop a start. A start that finds a new one is followed by a LIMBO record that lists all of them, and
   that is synced before anything else is written (hazard damaged-fence). A segment in which a hole was found is not
   written again.
5. To remove a segment: the copies of its live records are synced, then a SEGMENT_REMOVED record, then the file is
   unlinked, then the directory is synced (hazard removed-segment). A start finishes what was interrupted. When no lower
   segment has a file, first_segment_id rises, and the SEGMENT_REMOVED records of lower ids are not needed any more.
6. A roll that was interrupted is completed at the next start.
"""

import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from oncelog.core.errors import StorageDirectoryRefused
from oncelog.core.node.node_ledger import RecordKind
from oncelog.core.node.starts import JournalEnd, lost_end
from oncelog.core.placement.first_cluster import RESTORE
from oncelog.log_storage.directory.descriptor_reserve import DescriptorReserve
from oncelog.log_storage.directory.directory_lock import make_directory, refuse_foreign, take_lock
from oncelog.log_storage.directory.holes import WHOLE_FILE, Hole, decode_holes, encode_holes, new_holes
from oncelog.log_storage.directory.identity import (
    IDENTITY,
    NOT_FORMATTED,
    REPLACE,
    TEMPORARY,
    Identity,
    sync_directory,
    write_identity,
)
from oncelog.log_storage.directory.segment_format import (
    DURABILITY_MARKER_BYTES,
    FIRST_GROUP,
    GROUP_ALIGN,
    HEADER,
    SEAL_BYTES,
    SegmentHeader,
    SegmentRecord,
    StoredRecord,
    aligned,
    group_total,
)
from oncelog.log_storage.directory.segment_scan import SegmentScan, missing_end
from oncelog.log_storage.directory.segment_writer import SYSTEM, DiskCalls, RecordNumbers, SegmentWriter, write_all
from oncelog.log_storage.directory.spare_space import SPARE, allocate, keep_spare

SEGMENTS = "segments"
SEGMENT_BYTES = 256 * 1024 * 1024
#: Numbers left out after damage: a lost file that returns later may hold higher ones than the scan has found.
NUMBERS_LEFT_OUT = 1 << 32
_SEGMENT_NAME = re.compile(r"([0-9a-f]{16})\.seg")


def cluster_of(path: Path) -> str:
    """The cluster that the directory belongs to; "" if it is absent or empty. Raises StorageDirectoryRefused."""
    try:
        if not path.exists():
            return ""
        refuse_foreign(path)
        identity = path / IDENTITY
        return Identity.decode(identity.read_bytes(), identity).cluster_id if identity.exists() else ""
    except OSError as error:
        raise StorageDirectoryRefused(f"{path}: {error}; check the path, its permissions and the disk") from error


def format_bytes(path: Path, *, segment_bytes: int) -> int:
    """Bytes that the next start takes, to format the directory if it is absent or empty."""
    return 0 if (path / IDENTITY).exists() else segment_bytes


def roll_bytes(path: Path, *, segment_bytes: int) -> int:
    """Bytes that the next roll takes at once: a segment, and the spare space if it is not there."""
    return segment_bytes * (1 if (path / SEGMENTS / SPARE).exists() else 2)


class StorageDirectory:
    """An open, locked directory. Open it, exhaust `scan()`, `compare` it, enter limbo if it has new holes, give it to a
    journal that begins to write."""

    def __init__(self, path: Path, identity: Identity, lock_fd: int, *, segment_bytes: int) -> None:
        self.path = path
        self.identity = identity
        self.segment_bytes = segment_bytes
        self._lock_fd = lock_fd
        #: opened by a tool
        self._unchanged = False
        self._reserve = DescriptorReserve()
        #: {segment_id: its header}, ascending, never empty.
        self._headers: dict[int, SegmentHeader] = {}
        #: segments whose header is damaged; what `_headers` has of them is derived from the identity and the file
        self._headerless: set[int] = set()
        #: (fd, scan) of the last segment, once the scan is complete; consumed by `settle`.
        self._tail: tuple[int, SegmentScan] | None = None
        #: Whether `settle` must seal the last segment but one, for the first time or again.
        self._seal_last_but_one = False
        self._numbers = RecordNumbers()
        #: segments that a SEGMENT_REMOVED record names
        self._removed: set[int] = set()
        #: number of the last LIMBO record; 0: none
        self.limbo_number = 0
        #: every ledger below this id is in limbo, unless it was cleared since; 0: none
        self.limbo_below = 0
        #: the holes that the last LIMBO record lists
        self.known_holes: tuple[Hole, ...] = ()
        #: all holes, known and new, after the scan
        self.holes: tuple[Hole, ...] = ()
        #: up to where the last segment was read; durable once the directory is settled
        self.scanned_end = JournalEnd(0, 0)
        #: the holes that no LIMBO record lists: `enter_limbo` must be called before the directory is settled
        self.new_holes: tuple[Hole, ...] = ()
        self._limbo: SegmentRecord | None = None

    @classmethod
    def open(cls, path: Path, cluster_id: str, *, segment_bytes: int = SEGMENT_BYTES) -> "StorageDirectory":
        """Lock the directory and check its identity. Format it if it is absent or empty.

        cluster_id: a UUID, as hex. segment_bytes: the size of new segments; a larger group gets a larger segment.
        Raises StorageDirectoryRefused.
        """
        cluster_id = uuid.UUID(cluster_id).hex
        make_directory(path)
        refuse_foreign(path)
        lock_fd = take_lock(path)
        try:
            if not (path / IDENTITY).exists():
                identity = Identity(cluster_id, uuid.uuid4().hex, time.time_ns() // 1_000_000, NOT_FORMATTED)
                write_identity(path, identity)
            else:
                identity = Identity.decode((path / IDENTITY).read_bytes(), path / IDENTITY)
            if identity.cluster_id != cluster_id:
                raise StorageDirectoryRefused(
                    f"{path}: belongs to cluster {identity.cluster_id}, but ZooKeeper has cluster {cluster_id}: the "
                    "address or path of ZooKeeper is wrong, or it has lost its data and another cluster was created; "
                    f"keep this directory, and correct the address, or {RESTORE}; `oncelog storage "
                    f"inspect {path}` shows what the directory holds",
                    directory_cluster_id=identity.cluster_id,
                    cluster_id=cluster_id,
                )
        except BaseException:
            os.close(lock_fd)
            raise
        directory = cls(path, identity, lock_fd, segment_bytes=segment_bytes)
        try:
            if identity.first_segment_id == NOT_FORMATTED:
                directory._format()
            directory._load_headers(clean=True)
        except BaseException:
            directory.close()
            raise
        return directory

    @classmethod
    def open_stopped(cls, path: Path, identity: Identity) -> "StorageDirectory":
        """For tools: lock a directory whose process is stopped, and change nothing. Raises StorageDirectoryRefused."""
        directory = cls(path, identity, take_lock(path, write_pid=False), segment_bytes=SEGMENT_BYTES)
        directory._unchanged = True
        try:
            directory._load_headers(clean=False)
        except BaseException:
            directory.close()
            raise
        return directory

    def header(self, segment_id: int) -> SegmentHeader:
        return self._headers[segment_id]

    @property
    def segment_ids(self) -> list[int]:
        """Ascending, at least one."""
        return list(self._headers)

    def segment_path(self, segment_id: int) -> Path:
        return self.path / SEGMENTS / f"{segment_id:016x}.seg"

    def free_bytes(self) -> int:
        """Bytes that the file system has free for this process."""
        return shutil.disk_usage(self.path).free

    def roll_bytes(self) -> int:
        """Bytes that the next roll takes at once: a segment, and the spare space if it is not there."""
        return roll_bytes(self.path, segment_bytes=self.segment_bytes)

    def close(self) -> None:
        """Release the lock. Close the journal first."""
        if self._tail is not None:
            os.close(self._tail[0])
            self._tail = None
        self._reserve.close()
        os.close(self._lock_fd)

    # --- start -------------------------------------------------------------------------------------------------------

    def scan(self, disk: DiskCalls = SYSTEM) -> Iterator[StoredRecord]:
        """Every sound record of every segment in the order of the files, without seals. Reads only.

        The order of the records is that of their numbers: compaction changes the order of the files.
        """
        assert self._tail is None, "scan once, then settle"
        found: list[Hole] = []
        ids = self.segment_ids
        for segment_id in ids:
            header = self._headers[segment_id]
            fd = os.open(
                self.segment_path(segment_id), os.O_RDONLY if segment_id != ids[-1] or self._unchanged else os.O_RDWR
            )
            try:
                scan = SegmentScan(fd, header, disk)
                for record in scan.records():
                    self._note(record)
                    yield record
                self._numbers.next = max(self._numbers.next, scan.last_number + 1)
                if segment_id in self._headerless:
                    found.append(Hole(segment_id, 0, FIRST_GROUP, "segment header"))
                found += scan.holes
                if segment_id == ids[-1]:
                    self._tail = (fd, scan)
                    if scan.sealed:
                        found.append(Hole(segment_id + 1, 0, WHOLE_FILE, "the file is missing"))
                    elif _must_not_be_written(segment_id, found):
                        found.append(Hole(segment_id, scan.end, header.file_bytes, "behind damage"))
                else:
                    found += self._end_of(segment_id, scan, is_last_but_one=segment_id == ids[-2])
            finally:
                if self._tail is None:
                    os.close(fd)
        first = self.identity.first_segment_id
        missing = sorted(set(range(first, ids[-1])) - self._removed - set(ids))
        found += [Hole(segment_id, 0, WHOLE_FILE, "the file is missing") for segment_id in missing]
        self.holes = tuple(hole for hole in found if hole.segment_id not in self._removed)
        self.scanned_end = JournalEnd(ids[-1], 0 if self._tail is None else self._tail[1].end)
        self.new_holes = new_holes(self.holes, self.known_holes)

    def compare(self, known_end: JournalEnd, past: str) -> None:
        """After the scan, with what is known elsewhere: up to where the journal had been synced, and why the directory
        is one of the past by its starts ("": nothing says so). If it went back in time, that is a new hole."""
        reason = past or lost_end(self.scanned_end, known_end)
        if reason:
            # New, whatever is known: the copy may have been made when a former one of these holes was known already.
            lost = Hole(*self.scanned_end, WHOLE_FILE, f"the directory went back in time: {reason}")
            self.holes, self.new_holes = (*self.holes, lost), (*self.new_holes, lost)

    def enter_limbo(self, ledger_counter: int) -> None:
        """Every ledger below `ledger_counter` may have been lost in a new hole; `settle` makes that durable."""
        self._numbers.next += NUMBERS_LEFT_OUT
        self.limbo_below = max(self.limbo_below, ledger_counter)
        self.known_holes, self.new_holes = self.holes, ()
        self._limbo = SegmentRecord(RecordKind.LIMBO, self.limbo_below, 0, encode_holes(self.holes))

    def settle(self, disk: DiskCalls) -> SegmentWriter:
        """Make durable what the scan replayed, cut the torn end, complete a roll. Returns the writer to continue with.

        The last group is written again with its own bytes before the sync: if the previous process ended because a sync
        had failed, the kernel may hold those pages as clean although they are not on the disk. Raises OSError.
        """
        assert self._tail is not None, "scan() was not exhausted"
        assert not self.new_holes, "enter_limbo() was not called"
        (fd, scan), self._tail = self._tail, None
        last = self.segment_ids[-1]
        if self._seal_last_but_one:
            self._seal(last - 1, self._headers[last].previous_end, disk)
        if scan.sealed or _must_not_be_written(last, self.holes):
            os.close(fd)
            following = last + 2 if scan.sealed else last + 1
            writer = self._make_segment(
                disk, segment_id=following, previous_end=scan.end, group_bytes=self._limbo_bytes
            )
        else:
            for offset, size in scan.dirty_tail():
                write_all(disk, fd, [bytes(size)], offset)
            if scan.unconfirmed is not None:
                write_all(disk, fd, [os.pread(fd, scan.end - scan.unconfirmed, scan.unconfirmed)], scan.unconfirmed)
            disk.sync(fd)
            writer = SegmentWriter(
                fd, self._headers[last], self.segment_path(last), offset=scan.end, numbers=self._numbers
            )
            if scan.unconfirmed is not None:
                writer = self.confirm_end(writer, disk)
        return writer if self._limbo is None else self._write_limbo(writer, self._limbo, disk)

    @property
    def _limbo_bytes(self) -> int:
        return 0 if self._limbo is None else group_total([self._limbo])

    def _write_limbo(self, writer: SegmentWriter, limbo: SegmentRecord, disk: DiskCalls) -> SegmentWriter:
        if not writer.has_room(self._limbo_bytes):
            writer = self.roll(writer, disk, group_bytes=self._limbo_bytes)
        self.limbo_number = self._numbers.next
        writer.write_group([limbo], disk)
        writer.sync(disk)
        self._limbo = None
        return self.confirm_end(writer, disk)

    def _note(self, record: StoredRecord) -> None:
        """Remember what a record states about the directory itself."""
        if record.kind is RecordKind.SEGMENT_REMOVED:
            self._removed.add(record.entry_id)
        elif record.kind is RecordKind.LIMBO and record.number > self.limbo_number:
            self.limbo_number = record.number
            self.limbo_below = record.ledger_id
            self.known_holes = decode_holes(record.body)

    def _end_of(self, segment_id: int, scan: SegmentScan, *, is_last_but_one: bool) -> list[Hole]:
        """The hole at the end of a segment that is not the last. Notes whether its seal must be written."""
        header, following = self._headers[segment_id], segment_id + 1
        successor = None if following in self._headerless else self._headers.get(following)
        if is_last_but_one and successor is not None and not scan.holes and not self._holds_group(following):
            end = scan.end - SEAL_BYTES if scan.sealed else scan.end
            if end == successor.previous_end:
                # The seal may not be on the disk even if it can be read: see `settle`.
                self._seal_last_but_one = True
                return []
        hole = missing_end(scan, header, successor)
        return [] if hole is None else [hole]

    # --- writing -----------------------------------------------------------------------------------------------------

    def confirm_end(self, segment: SegmentWriter, disk: DiskCalls) -> SegmentWriter:
        """Confirm the synced end of the last segment. Returns the writer to continue with. Raises OSError."""
        if not segment.has_room(DURABILITY_MARKER_BYTES):
            return self.roll(segment, disk, group_bytes=0)
        segment.write_durability_marker(disk)
        return segment

    def roll(self, full: SegmentWriter, disk: DiskCalls, *, group_bytes: int) -> SegmentWriter:
        """Continue in a new segment that is large enough for a group of that total size. Raises OSError.

        The old segment is completely synced. The new one exists before the old one is sealed, so a seal without a
        successor means a lost file.
        """
        following = full.segment_id + 1
        successor = self._make_segment(disk, segment_id=following, previous_end=full.offset, group_bytes=group_bytes)
        try:
            full.seal(disk)
        except OSError:
            successor.close()
            raise
        full.close(disk)
        keep_spare(full.path.parent / SPARE, self.segment_bytes, self._reserve, disk)
        self._reserve.refill()
        return successor

    def _make_segment(self, disk: DiskCalls, *, segment_id: int, previous_end: int, group_bytes: int) -> SegmentWriter:
        """Create a segment, durable under its name. Raises OSError.

        It gets its name only when its header is durable. So a header with a wrong checksum is damage, not a torn start.
        """
        header = self._derived_header(
            segment_id, previous_end, aligned(max(self.segment_bytes, FIRST_GROUP + group_bytes + SEAL_BYTES))
        )
        path = self.segment_path(segment_id)
        temporary = path.with_suffix(TEMPORARY)
        fd = self._reserve.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            allocate(fd, header.file_bytes, path.parent / SPARE, disk)
            write_all(disk, fd, [header.encode()], 0)
            disk.sync(fd)
            temporary.rename(path)
            sync_directory(path.parent, self._reserve)
        except BaseException:
            os.close(fd)
            raise
        self._headers[segment_id] = header
        return SegmentWriter(fd, header, path, offset=FIRST_GROUP, numbers=self._numbers)

    def _derived_header(self, segment_id: int, previous_end: int, file_bytes: int) -> SegmentHeader:
        cluster, incarnation = bytes.fromhex(self.identity.cluster_id), bytes.fromhex(self.identity.incarnation)
        return SegmentHeader(cluster, incarnation, segment_id, previous_end, file_bytes)

    def _seal(self, segment_id: int, offset: int, disk: DiskCalls) -> None:
        path = self.segment_path(segment_id)
        writer = SegmentWriter(os.open(path, os.O_RDWR), self._headers[segment_id], path, offset=offset)
        try:
            writer.seal(disk)
        finally:
            writer.close()

    def _holds_group(self, segment_id: int) -> bool:
        fd = os.open(self.segment_path(segment_id), os.O_RDONLY)
        try:
            return SegmentScan(fd, self._headers[segment_id]).holds_group()
        finally:
            os.close(fd)

    # --- removing ----------------------------------------------------------------------------------------------------

    def finish_removals(self, is_used: Callable[[int], bool], disk: DiskCalls) -> None:
        """Unlink the segments that were removed before the last process ended. After the scan. Raises OSError.

        is_used: whether a record of the segment is used; such a segment stays, and is compacted again.
        """
        for segment_id in [one for one in self.segment_ids[:-1] if one in self._removed and not is_used(one)]:
            self.unlink_segment(segment_id, disk)
            self.forget_segment(segment_id)
        self.raise_first_segment(disk)

    def unlink_segment(self, segment_id: int, disk: DiskCalls) -> None:
        """Remove the file, durably. Its SEGMENT_REMOVED record is synced. Raises OSError.

        The reserve of descriptors belongs to the writer thread, so it is not used here.
        """
        self.segment_path(segment_id).unlink(missing_ok=True)
        disk.step("unlinked")
        sync_directory(self.path / SEGMENTS)
        disk.step("directory synced")

    def forget_segment(self, segment_id: int) -> None:
        """Its file is gone."""
        del self._headers[segment_id]
        self.holes = tuple(hole for hole in self.holes if hole.segment_id != segment_id)

    def raise_first_segment(self, disk: DiskCalls) -> None:
        """Let the identity name the lowest segment that has a file. Not if that would hide a missing file."""
        lowest = self.segment_ids[0]
        if lowest > self.identity.first_segment_id and not any(hole.segment_id < lowest for hole in self.new_holes):
            identity = replace(self.identity, first_segment_id=lowest)
            write_identity(self.path, identity)
            self.identity = identity
            disk.step("first segment raised")

    # --- opening -----------------------------------------------------------------------------------------------------

    def _format(self) -> None:
        """Create the first segment. No record is accepted before the identity names it, so leftovers hold none."""
        segments = self.path / SEGMENTS
        segments.mkdir(exist_ok=True)
        for leftover in segments.iterdir():
            leftover.unlink()
        self._make_segment(DiskCalls(), segment_id=1, previous_end=0, group_bytes=0).close()
        sync_directory(self.path)
        self.identity = replace(self.identity, first_segment_id=1)
        write_identity(self.path, self.identity)
        self._headers.clear()

    def _load_headers(self, *, clean: bool) -> None:
        """Read the header of every segment. clean: remove leftovers. Raises StorageDirectoryRefused."""
        first = self.identity.first_segment_id
        segments = self.path / SEGMENTS
        found: list[int] = []
        for file in sorted(segments.iterdir() if segments.exists() else ()):
            name = _SEGMENT_NAME.fullmatch(file.name)
            if file.suffix == TEMPORARY or (name and int(name[1], 16) < first):
                if clean:
                    file.unlink()
            elif name:
                found.append(int(name[1], 16))
        if not found:
            raise StorageDirectoryRefused(
                f"{segments}: holds no segment, but the node had segment {first:016x} and perhaps more; check that the "
                f"volume is mounted, or restore the files; if they are lost, {REPLACE}",
                missing=first,
            )
        for segment_id in found:
            self._headers[segment_id] = self._load_header(segment_id)

    def _load_header(self, segment_id: int) -> SegmentHeader:
        path = self.segment_path(segment_id)
        try:
            with path.open("rb") as file:
                header = SegmentHeader.decode(file.read(HEADER.size), path)
        except OSError:
            header = None
        if header is None:
            self._headerless.add(segment_id)
            size = max(path.stat().st_size // GROUP_ALIGN, 1) * GROUP_ALIGN
            return self._derived_header(segment_id, 0, size)
        owner = (header.cluster_id.hex(), header.incarnation.hex(), header.segment_id)
        wanted = (self.identity.cluster_id, self.identity.incarnation, segment_id)
        if owner != wanted:
            raise StorageDirectoryRefused(
                f"{path}: belongs to (cluster, node incarnation, segment) {owner}, expected {wanted}: "
                f"it is a file of another directory; restore the right one; if it is lost, {REPLACE}"
            )
        return header


def _must_not_be_written(segment_id: int, holes: list[Hole] | tuple[Hole, ...]) -> bool:
    """A segment in which a hole was found gets no more records: what is written there may be lost, too."""
    return any(hole.segment_id == segment_id for hole in holes)
