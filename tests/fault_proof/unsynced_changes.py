"""The changes of a directory that no fsync has made durable yet, recorded so that a power cut can take them back.

    change (write, size, create, rename, unlink, mkdir) --recorded before it is made--> pending
    fsync of the file       -> its writes and sizes are durable
    fsync of the directory  -> creations, renames and removals of its names are durable
    failed fsync of a file  -> its writes stay pending, and a later fsync does not help: the kernel reports the failure
                               once and then takes the pages for clean. Only writing the same range again helps
    power cut               -> all pending changes, or some of them, are undone in reverse order

The record is kept beside the directory, in files that survive the process: a process that is killed loses nothing,
because the page cache stays, so its successor continues with the same pending changes. Hard links keep the files
whose names are changed. Only the process under test changes the directory.
"""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Written back by the kernel as a whole: a power cut keeps it or loses it.
PAGE_BYTES = 4096
#: The record is emptied at this size, as soon as nothing is pending.
RECORD_BYTES_MAX = 256 * 1024

_DATA = frozenset({"write", "size"})
#: The interposed disk replaces these functions of `os` later, and must not see the links that are made here.
_make_link = os.link


@dataclass(slots=True)
class Change:
    """One pending change. fields: as in the record. failed: an fsync of the file failed after the change.

    ranges: of a write, the (offset, size) that are still pending.
    """

    number: int
    kind: str
    fields: dict[str, Any]
    failed: bool = False
    ranges: list[tuple[int, int]] = field(default_factory=list)

    @property
    def inodes(self) -> list[int]:
        """The files that are needed to undo the change."""
        return [self.fields[name] for name in ("inode", "over") if self.fields.get(name)]


class UnsyncedChanges:
    """place: a directory for the record, on the file system of the observed one. Not safe for threads."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._links = place / "files"
        self._links.mkdir(parents=True, exist_ok=True)
        self._number = 0
        self.pending: list[Change] = []
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        self._log = os.open(place / "changes.jsonl", flags)
        self._former = os.open(place / "former-bytes", flags)
        for line in os.pread(self._log, os.fstat(self._log).st_size, 0).splitlines():
            self._apply(json.loads(line))

    def close(self) -> None:
        os.close(self._log)
        os.close(self._former)

    @property
    def number(self) -> int:
        """Of the last change."""
        return self._number

    # --- changes, each recorded before it is made ---------------------------------------------------------------------

    def write(self, fd: int, path: str, offset: int, size: int) -> None:
        stat = os.fstat(fd)
        if offset + size > stat.st_size:
            self.resize(fd, path)
        former = _read(path, offset, min(size, stat.st_size - offset))
        at = os.fstat(self._former).st_size
        blank = not any(former)
        if not blank:
            os.write(self._former, former)
        self._keep(stat.st_ino, path)
        self._record("write", inode=stat.st_ino, offset=offset, size=len(former), at=-1 if blank else at)

    def resize(self, fd: int, path: str) -> None:
        stat = os.fstat(fd)
        self._keep(stat.st_ino, path)
        self._record("size", inode=stat.st_ino, size=stat.st_size)

    def create(self, path: str) -> None:
        self._record("create", path=path)

    def make_directory(self, path: str) -> None:
        self._record("mkdir", path=path)

    def rename(self, path: str, to: str) -> None:
        over = self._keep(_inode(to), to)
        self._record("rename", path=path, to=to, over=over)

    def unlink(self, path: str) -> None:
        self._record("unlink", path=path, inode=self._keep(_inode(path), path))

    # --- syncs, each recorded after it has returned -------------------------------------------------------------------

    def file_synced(self, inode: int, until: int) -> None:
        """The changes of the file up to number `until` are durable."""
        self._record("file_synced", inode=inode, until=until)
        self._shorten()

    def file_sync_failed(self, inode: int, until: int) -> None:
        self._record("file_sync_failed", inode=inode, until=until)

    def directory_synced(self, path: str, until: int) -> None:
        self._record("directory_synced", path=path, until=until)
        self._drop_links()
        self._shorten()

    # --- the power cut ------------------------------------------------------------------------------------------------

    def lose(self, chance: random.Random | None = None) -> int:
        """Undo the pending changes; returns how many were undone, at least in part.

        chance: None: all. Otherwise each page of a file is lost or kept, and of the changes of names a random number
        of the last ones is lost, because file systems keep their order.
        """
        names = [change.number for change in self.pending if change.kind not in _DATA]
        first_lost = 0 if chance is None else chance.choice([*names, self._number + 1])
        kept: dict[tuple[int, int], bool] = {}

        def is_lost(inode: int, page: int) -> bool:
            return chance is None or not kept.setdefault((inode, page), chance.random() < 0.5)

        undone = 0
        for change in reversed(self.pending):
            if change.kind == "write":
                undone += self._undo_write(change, is_lost)
            elif change.kind == "size":
                if is_lost(change.fields["inode"], -1):
                    undone += 1
                    os.truncate(self._link(change.fields["inode"]), change.fields["size"])
            elif change.number >= first_lost:
                undone += 1
                self._undo_name(change)
        self.pending.clear()
        self._drop_links()
        self._shorten(least_bytes=0)
        return undone

    def _undo_write(self, change: Change, is_lost: Callable[[int, int], bool]) -> bool:
        inode, base, at = (change.fields[name] for name in ("inode", "offset", "at"))
        undone = False
        fd = os.open(self._link(inode), os.O_RDWR)
        try:
            for offset, size in (piece for each in change.ranges for piece in _pages(*each)):
                if change.failed or is_lost(inode, offset // PAGE_BYTES):
                    former = bytes(size) if at < 0 else os.pread(self._former, size, at + offset - base)
                    os.pwrite(fd, former, offset)
                    undone = True
        finally:
            os.close(fd)
        return undone

    def _undo_name(self, change: Change) -> None:
        path = Path(change.fields["path"])
        match change.kind:
            case "create":
                path.unlink(missing_ok=True)
            case "mkdir":
                shutil.rmtree(path, ignore_errors=True)
            case "unlink":
                if not path.exists() and change.fields["inode"]:
                    path.hardlink_to(self._link(change.fields["inode"]))
            case "rename":
                to = Path(change.fields["to"])
                if not path.exists() and to.exists():
                    to.rename(path)
                if change.fields["over"] and not to.exists():
                    to.hardlink_to(self._link(change.fields["over"]))

    # --- the record ---------------------------------------------------------------------------------------------------

    def _record(self, kind: str, **fields: Any) -> None:
        event = {"number": self._number + 1, "kind": kind, **fields}
        os.write(self._log, json.dumps(event).encode() + b"\n")
        self._apply(event)

    def _apply(self, event: dict[str, Any]) -> None:
        self._number = event["number"]
        match event["kind"]:
            case "file_synced":
                self._settle_file(event["inode"], event["until"])
            case "file_sync_failed":
                for change in self.pending:
                    if change.fields.get("inode") == event["inode"] and change.kind in _DATA:
                        change.failed |= change.number <= event["until"]
            case "directory_synced":
                self.pending = [
                    change for change in self.pending if not _named_in(change, event["path"], event["until"])
                ]
            case kind:
                ranges = [(event["offset"], event["size"])] if kind == "write" else []
                self.pending.append(Change(event["number"], kind, event, ranges=ranges))

    def _settle_file(self, inode: int, until: int) -> None:
        settled = [
            change
            for change in self.pending
            if change.kind in _DATA and change.fields["inode"] == inode and change.number <= until and not change.failed
        ]
        for change in self.pending:
            if change.failed and change.kind == "write" and change.fields["inode"] == inode:
                for later in settled:
                    if later.kind == "write":
                        change.ranges = list(_without(change.ranges, later.fields["offset"], later.fields["size"]))
        gone = {change.number for change in settled}
        gone |= {
            change.number for change in self.pending if change.failed and change.kind == "write" and not change.ranges
        }
        self.pending = [change for change in self.pending if change.number not in gone]

    def _link(self, inode: int) -> Path:
        return self._links / str(inode)

    def _keep(self, inode: int | None, path: str) -> int | None:
        """Keep the file reachable by its inode, whatever happens to its name."""
        if inode is not None and not self._link(inode).exists():
            with suppress(FileNotFoundError):
                _make_link(path, self._link(inode))
        return inode

    def _drop_links(self) -> None:
        """Drop the links that nothing pending needs any more."""
        needed = {str(inode) for change in self.pending for inode in change.inodes}
        for link in list(self._links.iterdir()):
            if link.name not in needed:
                link.unlink()

    def _shorten(self, least_bytes: int = RECORD_BYTES_MAX) -> None:
        """Empty the record if nothing is pending and it is this large."""
        if not self.pending and os.fstat(self._log).st_size + os.fstat(self._former).st_size > least_bytes:
            os.ftruncate(self._log, 0)
            os.ftruncate(self._former, 0)


def _read(path: str, offset: int, size: int) -> bytes:
    """By another descriptor: that of the writer may not allow reading."""
    if size <= 0:
        return b""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)


def _inode(path: str) -> int | None:
    try:
        return Path(path).stat().st_ino
    except FileNotFoundError:
        return None


def _named_in(change: Change, directory: str, until: int) -> bool:
    """Whether it is a change of a name in that directory, up to number `until`."""
    if change.kind in _DATA or change.number > until:
        return False
    return str(Path(change.fields.get("to", change.fields["path"])).parent) == directory


def _pages(offset: int, size: int) -> Iterator[tuple[int, int]]:
    """The range, cut at the boundaries of pages."""
    end = offset + size
    while offset < end:
        until = min(end, (offset // PAGE_BYTES + 1) * PAGE_BYTES)
        yield offset, until - offset
        offset = until


def _without(ranges: list[tuple[int, int]], offset: int, size: int) -> Iterator[tuple[int, int]]:
    """The ranges without offset..offset+size."""
    for start, length in ranges:
        before = min(length, max(0, offset - start))
        after = min(length, max(0, start + length - offset - size))
        if before + after >= length:
            yield start, length
            continue
        if before:
            yield start, before
        if after:
            yield start + length - after, after
