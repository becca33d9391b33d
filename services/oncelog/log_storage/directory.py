"""The directory of one storage node: its identity, its segments, and their recovery at start.

    identity.json    {format 1, cluster_id, incarnation, created_ms, first_segment_id, crc32c}: the two ids are UUIDs
                     as 32 hex digits; crc32c covers the other fields as JSON with sorted keys. Written as
                     identity.json.tmp, fsync, rename, fsync of the directory
    lock             held by flock while a process has the directory open; contains its pid, for operators
    segments/        <segment id, 16 hex digits>.seg; ids are consecutive, from first_segment_id on

Rules
1. The incarnation is created with the directory and ends with it: a wiped directory is a new node, at any address.
2. Only an absent or empty directory is formatted: an identity with first_segment_id 0, then the first segment, then the
   identity with 1. While it is 0, nothing was ever stored, and the next start continues the formatting. A directory
   with files but no identity is refused, because it may hold someone's data.
3. Every segment from first_segment_id on must exist. The next segment is created before the one before it is sealed, so
   a seal without a successor means a lost file. `previous_end` of the successor says up to where its predecessor was
   synced.
4. To reclaim segments from the front, the higher first_segment_id is written first, and then the files are removed.
   Files below it are leftovers.
5. A roll that was interrupted is completed at the next start.
"""

import fcntl
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from crc32c import crc32c

from oncelog.core.errors import StorageDirectoryRefused
from oncelog.log_storage.descriptor_reserve import DescriptorReserve
from oncelog.log_storage.segment_format import (
    DURABILITY_MARKER_BYTES,
    FIRST_GROUP,
    HEADER,
    SEAL_BYTES,
    SegmentHeader,
    StoredRecord,
    aligned,
    damaged,
)
from oncelog.log_storage.segment_scan import SegmentScan, ranges_to_cut, seal_is_due
from oncelog.log_storage.segment_writer import DiskCalls, SegmentWriter, write_all

FORMAT = 1
IDENTITY = "identity.json"
LOCK = "lock"
SEGMENTS = "segments"
TEMPORARY = ".tmp"
SEGMENT_BYTES = 256 * 1024 * 1024
#: first_segment_id of a directory whose first segment is still being created.
NOT_FORMATTED = 0
_SEGMENT_NAME = re.compile(r"([0-9a-f]{16})\.seg")
_WIPE = "or wipe the directory to make it a new node"
#: What a directory without identity may hold: our own first files, and what the file system puts into a volume's root.
_HARMLESS = frozenset({LOCK, IDENTITY + TEMPORARY, "lost+found"})


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of this node. The two ids are 32 hex digits."""

    cluster_id: str
    incarnation: str
    created_ms: int
    first_segment_id: int

    def encode(self) -> bytes:
        fields: dict[str, int | str] = {
            "format": FORMAT,
            "cluster_id": self.cluster_id,
            "incarnation": self.incarnation,
            "created_ms": self.created_ms,
            "first_segment_id": self.first_segment_id,
        }
        fields["crc32c"] = crc32c(json.dumps(fields, sort_keys=True).encode())
        return json.dumps(fields, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes, path: Path) -> "Identity":
        """Raises StorageDirectoryRefused."""
        try:
            fields = json.loads(data)
            checksum, form = fields.pop("crc32c"), fields.pop("format")
            identity = cls(**fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StorageDirectoryRefused(f"{path}: not a valid identity ({error}); restore it, {_WIPE}") from error
        if form != FORMAT:
            raise StorageDirectoryRefused(
                f"{path}: has format {form}, but this version reads format {FORMAT}; start a version of that format"
            )
        if checksum != crc32c(json.dumps(fields | {"format": form}, sort_keys=True).encode()):
            raise StorageDirectoryRefused(f"{path}: wrong checksum; restore the file, {_WIPE}")
        return identity


def sync_directory(path: Path, reserve: DescriptorReserve | None = None) -> None:
    flags = os.O_RDONLY | os.O_DIRECTORY
    fd = os.open(path, flags) if reserve is None else reserve.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_identity(path: Path, identity: Identity) -> None:
    temporary = path / (IDENTITY + TEMPORARY)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        write_all(DiskCalls(), fd, [identity.encode()], 0)
        os.fsync(fd)
    finally:
        os.close(fd)
    temporary.rename(path / IDENTITY)
    sync_directory(path)


class StorageDirectory:
    """An open, locked directory. Open it, exhaust `scan()`, then give it to a journal."""

    def __init__(self, path: Path, identity: Identity, lock_fd: int, *, segment_bytes: int) -> None:
        self.path = path
        self.identity = identity
        self.segment_bytes = segment_bytes
        self._lock_fd = lock_fd
        self._reserve = DescriptorReserve()
        #: {segment_id: its header}, ascending and consecutive, never empty.
        self._headers: dict[int, SegmentHeader] = {}
        #: (fd, scan, ranges to cut) of the last segment, once the scan is complete; consumed by `settle`.
        self._tail: tuple[int, SegmentScan, list[tuple[int, int]]] | None = None
        #: Whether `settle` must seal the last segment but one, for the first time or again.
        self._seal_last_but_one = False

    @classmethod
    def open(cls, path: Path, cluster_id: str, *, segment_bytes: int = SEGMENT_BYTES) -> "StorageDirectory":
        """Lock the directory and check its identity. Format it if it is absent or empty.

        cluster_id: a UUID, as hex. segment_bytes: the size of new segments; a larger group gets a larger segment.
        Raises StorageDirectoryRefused, and DamagedSegment for a segment whose header or size is wrong.
        """
        cluster_id = uuid.UUID(cluster_id).hex
        _make_directory(path)
        _refuse_foreign(path)
        lock_fd = _take_lock(path)
        try:
            if not (path / IDENTITY).exists():
                identity = Identity(cluster_id, uuid.uuid4().hex, time.time_ns() // 1_000_000, NOT_FORMATTED)
                _write_identity(path, identity)
            else:
                identity = Identity.decode((path / IDENTITY).read_bytes(), path / IDENTITY)
            if identity.cluster_id != cluster_id:
                raise StorageDirectoryRefused(
                    f"{path}: belongs to cluster {identity.cluster_id}, but this process to cluster {cluster_id}; "
                    f"give the process its own directory, or the address of the directory's cluster, {_WIPE}",
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
            directory._load_headers()
        except BaseException:
            directory.close()
            raise
        return directory

    def header(self, segment_id: int) -> SegmentHeader:
        return self._headers[segment_id]

    @property
    def segment_ids(self) -> list[int]:
        """Ascending and consecutive, at least one."""
        return list(self._headers)

    def segment_path(self, segment_id: int) -> Path:
        return self.path / SEGMENTS / f"{segment_id:016x}.seg"

    def free_bytes(self) -> int:
        """Bytes that the file system has free for this process."""
        return shutil.disk_usage(self.path).free

    def close(self) -> None:
        """Release the lock. Close the journal first."""
        if self._tail is not None:
            os.close(self._tail[0])
        self._reserve.close()
        os.close(self._lock_fd)

    def scan(self) -> Iterator[StoredRecord]:
        """Every record of every segment in the order of writing, including fences and tombstones, without seals.

        Reads only. Raises DamagedSegment, possibly after it yielded records: the caller must then discard them.
        """
        assert self._tail is None, "scan once, then settle"
        ids = self.segment_ids
        for segment_id in ids:
            path = self.segment_path(segment_id)
            fd = os.open(path, os.O_RDWR)
            try:
                scan = SegmentScan(fd, self._headers[segment_id], path)
                yield from scan.records()
                if segment_id == ids[-1]:
                    self._tail = (fd, scan, ranges_to_cut(scan, path))
                else:
                    used = segment_id + 1 != ids[-1] or self._holds_group(segment_id + 1)
                    self._seal_last_but_one = seal_is_due(
                        scan, path, self._headers[segment_id + 1], successor_used=used
                    )
            finally:
                if self._tail is None:
                    os.close(fd)

    def settle(self, disk: DiskCalls) -> SegmentWriter:
        """Make durable what the scan replayed, cut the torn end, complete a roll. Returns the writer to continue with.

        The last group is written again with its own bytes before the sync: if the previous process ended because a sync
        had failed, the kernel may hold those pages as clean although they are not on the disk. Raises OSError.
        """
        assert self._tail is not None, "scan() was not exhausted"
        (fd, scan, dirty), self._tail = self._tail, None
        last = self.segment_ids[-1]
        if self._seal_last_but_one:
            self._seal(last - 1, self._headers[last].previous_end, disk)
        for offset, size in dirty:
            write_all(disk, fd, [bytes(size)], offset)
        if scan.unconfirmed is not None:
            write_all(disk, fd, [os.pread(fd, scan.end - scan.unconfirmed, scan.unconfirmed)], scan.unconfirmed)
        disk.sync(fd)
        writer = SegmentWriter(fd, self._headers[last], self.segment_path(last), offset=scan.end)
        return writer if scan.unconfirmed is None else self.confirm_end(writer, disk)

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
        successor = self._make_segment(disk, previous_end=full.offset, group_bytes=group_bytes)
        try:
            full.seal(disk)
        except OSError:
            successor.close()
            raise
        full.close(disk)
        self._reserve.refill()
        return successor

    def _make_segment(self, disk: DiskCalls, *, previous_end: int, group_bytes: int) -> SegmentWriter:
        """Create the next segment, durable under its name. Raises OSError.

        It gets its name only when its header is durable. So a header with a wrong checksum is damage, not a torn start.
        """
        segment_id = max(self._headers, default=0) + 1
        header = SegmentHeader(
            bytes.fromhex(self.identity.cluster_id),
            bytes.fromhex(self.identity.incarnation),
            segment_id,
            previous_end,
            aligned(max(self.segment_bytes, FIRST_GROUP + group_bytes + SEAL_BYTES)),
        )
        path = self.segment_path(segment_id)
        temporary = path.with_suffix(TEMPORARY)
        fd = self._reserve.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            os.posix_fallocate(fd, 0, header.file_bytes)
            write_all(disk, fd, [header.encode()], 0)
            disk.sync(fd)
            temporary.rename(path)
            sync_directory(path.parent, self._reserve)
        except BaseException:
            os.close(fd)
            raise
        self._headers[segment_id] = header
        return SegmentWriter(fd, header, path, offset=FIRST_GROUP)

    def _seal(self, segment_id: int, offset: int, disk: DiskCalls) -> None:
        path = self.segment_path(segment_id)
        writer = SegmentWriter(os.open(path, os.O_RDWR), self._headers[segment_id], path, offset=offset)
        try:
            writer.seal(disk)
        finally:
            writer.close()

    def _holds_group(self, segment_id: int) -> bool:
        path = self.segment_path(segment_id)
        fd = os.open(path, os.O_RDONLY)
        try:
            return SegmentScan(fd, self._headers[segment_id], path).holds_group()
        finally:
            os.close(fd)

    def _format(self) -> None:
        """Create the first segment. No record is accepted before the identity names it, so leftovers hold none."""
        segments = self.path / SEGMENTS
        segments.mkdir(exist_ok=True)
        for leftover in segments.iterdir():
            leftover.unlink()
        self._make_segment(DiskCalls(), previous_end=0, group_bytes=0).close()
        sync_directory(self.path)
        self.identity = replace(self.identity, first_segment_id=1)
        _write_identity(self.path, self.identity)
        self._headers.clear()

    def _load_headers(self) -> None:
        """Read the header of every segment. Raises StorageDirectoryRefused, DamagedSegment."""
        first = self.identity.first_segment_id
        segments = self.path / SEGMENTS
        found: list[int] = []
        for file in sorted(segments.iterdir() if segments.exists() else ()):
            name = _SEGMENT_NAME.fullmatch(file.name)
            if file.suffix == TEMPORARY or (name and int(name[1], 16) < first):
                file.unlink()
            elif name:
                found.append(int(name[1], 16))
        missing = next((number for number, has in enumerate(found, first) if number != has), first + len(found))
        if not found or found[-1] > missing:
            raise StorageDirectoryRefused(
                f"{segments}: segment {missing:016x} is missing, and with it records that this node acknowledged; "
                f"restore the file, {_WIPE}: its ledgers are then one copy short",
                missing=missing,
            )
        for segment_id in found:
            self._headers[segment_id] = self._load_header(segment_id)

    def _load_header(self, segment_id: int) -> SegmentHeader:
        path = self.segment_path(segment_id)
        with path.open("rb") as file:
            header = SegmentHeader.decode(file.read(HEADER.size), path)
        owner = (header.cluster_id.hex(), header.incarnation.hex(), header.segment_id)
        wanted = (self.identity.cluster_id, self.identity.incarnation, segment_id)
        if owner != wanted:
            raise StorageDirectoryRefused(
                f"{path}: belongs to (cluster, node incarnation, segment) {owner}, expected {wanted}: "
                f"it is a file of another directory; restore the right one, {_WIPE}"
            )
        size = path.stat().st_size
        if size != header.file_bytes:
            raise damaged(
                path, offset=size, what="end of file", why=f"the file was created with {header.file_bytes} bytes"
            )
        return header


def _make_directory(path: Path) -> None:
    if not path.exists():
        path.mkdir(parents=True)
        sync_directory(path.parent)


def _refuse_foreign(path: Path) -> None:
    if (path / IDENTITY).exists():
        return
    names = sorted(file.name for file in path.iterdir() if file.name not in _HARMLESS)
    if names:
        raise StorageDirectoryRefused(
            f"{path}: not empty ({', '.join(names[:5])}{' …' if len(names) > 5 else ''}), but without {IDENTITY}: not "
            f"a storage node's directory, or a damaged one; give an empty directory, or restore {IDENTITY}, {_WIPE}"
        )


def _take_lock(path: Path) -> int:
    fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
        os.close(fd)
        raise StorageDirectoryRefused(
            f"{path}: in use by another process (pid {holder or 'unknown'}); "
            f"stop that process, or give this one its own directory"
        ) from error
    os.pwrite(fd, f"{os.getpid():<20}\n".encode(), 0)
    return fd
