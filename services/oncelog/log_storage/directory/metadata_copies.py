"""Copies of ZooKeeper's records in the directory of a storage node: opaque files that metadata services put there.

    metadata_copies/<name>.copy       the newest COPIES_MAX stay
                    <name>.pinned     not counted among those; the newest PINNED_MAX stay
                    <name>.part       being written, or left by an upload that broke

Rules
- A copy is written as `.part`, synced and renamed, so what is listed is whole.
- Nothing here is needed to serve the log: when the disk fills, the copies that are not pinned are the first to go.
- The age of a copy is that of its file, so a metadata service whose clock is wrong cannot make its copy stay for ever.
"""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from oncelog.core.errors import Conflict, InvalidArgument, TooManyRequests
from oncelog.log_storage.directory.identity import sync_directory
from oncelog.log_storage.directory.segment_writer import SYSTEM, write_all

FOLDER = "metadata_copies"
COPIES_MAX = 24
PINNED_MAX = 14
COPY_BYTES_MAX = 1 << 30
#: Uploads at once. One that was not continued for PART_AGE_S has ended.
PARTS_MAX = 4
PART_AGE_S = 600.0
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,127}")
_COPY, _PINNED, _PART = ".copy", ".pinned", ".part"


class HeldCopy(NamedTuple):
    name: str
    size: int
    pinned: bool


class MetadataCopies:
    """Used by one thread at a time. Methods raise OSError where the disk fails, and InvalidArgument for a bad name."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / FOLDER

    def put(self, name: str, offset: int, data: bytes, *, last: bool, pinned: bool) -> None:
        """Append a part at the end of the upload; offset 0 begins it anew. After the last one the copy is durable.

        Raises Conflict if the upload does not end at `offset`, TooManyRequests, and InvalidArgument above
        COPY_BYTES_MAX.
        """
        part = self._folder / (_checked(name) + _PART)
        if offset + len(data) > COPY_BYTES_MAX:
            raise InvalidArgument(f"a copy may have {COPY_BYTES_MAX} bytes", field="data", limit=COPY_BYTES_MAX)
        if offset == 0:
            self._begin(part)
        flags = os.O_WRONLY | (os.O_CREAT | os.O_TRUNC if offset == 0 else 0)
        try:
            fd = os.open(part, flags, 0o600)
        except FileNotFoundError:
            raise Conflict(f"the upload of copy {name} was given up: begin again", offset=0) from None
        try:
            size = os.fstat(fd).st_size
            if size != offset:
                raise Conflict(f"the upload of copy {name} is at byte {size}, not {offset}: begin again", offset=size)
            write_all(SYSTEM, fd, [data], offset)
            if last:
                os.fsync(fd)
        finally:
            os.close(fd)
        if last:
            pinned = pinned or self._path(name, _PINNED).exists()
            part.rename(self._path(name, _PINNED if pinned else _COPY))
            if pinned:
                self._path(name, _COPY).unlink(missing_ok=True)
            self._drop_old(keep=name)
            sync_directory(self._folder)

    def list(self) -> list[HeldCopy]:
        """By name."""
        found = [HeldCopy(path.stem, path.stat().st_size, path.suffix == _PINNED) for path in self._files()]
        return sorted(found)

    def read(self, name: str, offset: int, count: int) -> tuple[bytes, int]:
        """A part, and the size of the whole copy; (b"", 0): there is no such copy."""
        _checked(name)
        for suffix in (_PINNED, _COPY):
            try:
                with self._path(name, suffix).open("rb") as file:
                    file.seek(offset)
                    return file.read(count), os.fstat(file.fileno()).st_size
            except FileNotFoundError:
                continue
        return b"", 0

    def drop_unpinned(self) -> int:
        """The disk is nearly full. Returns how many files were deleted."""
        files = [*self._files(_COPY), *self._files(_PART)]
        for path in files:
            path.unlink(missing_ok=True)
        return len(files)

    def _begin(self, part: Path) -> None:
        if not self._folder.exists():
            self._folder.mkdir()
            sync_directory(self._folder.parent)
        others = [path for path in self._files(_PART) if path != part]
        for path in [path for path in others if time.time() - path.stat().st_mtime > PART_AGE_S]:
            path.unlink()
            others.remove(path)
        if len(others) >= PARTS_MAX:
            raise TooManyRequests(f"{PARTS_MAX} copies are being written here: retry later", limit=PARTS_MAX)

    def _drop_old(self, *, keep: str) -> None:
        """Of each kind the newest stay; the one just written, whatever the clock says."""
        for suffix, count_max in ((_COPY, COPIES_MAX), (_PINNED, PINNED_MAX)):
            newest = sorted(self._files(suffix), key=lambda path: (path.stem == keep, path.stat().st_mtime_ns, path))
            for path in newest[:-count_max]:
                path.unlink()

    def _files(self, *suffixes: str) -> Iterator[Path]:
        wanted = suffixes or (_COPY, _PINNED)
        if self._folder.exists():
            yield from sorted(path for path in self._folder.iterdir() if path.suffix in wanted)

    def _path(self, name: str, suffix: str) -> Path:
        return self._folder / (name + suffix)


def _checked(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        message = f"the name {name[:80]!r} of a copy must have 1 to 128 of a-z, 0-9, - and ., and begin with a-z or 0-9"
        raise InvalidArgument(message, field="name", limit=128)
    return name
