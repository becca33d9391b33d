"""What `FileEffects` does with files, each call one step that a crash may come before or behind."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from oncelog.core.effect_errors import StoreBusy

_RETRY_S = 0.02


class FileState(NamedTuple):
    """Which file is at a path, and its length. Changes with each append and each replacement."""

    inode: int
    length: int


class FileDisk:
    """Raises OSError."""

    def state(self, path: Path) -> FileState | None:
        """None: there is no file."""
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        return FileState(found.st_ino, found.st_size)

    def read(self, path: Path, first: int = 0, count: int | None = None) -> bytes:
        """Empty, if there is no file."""
        try:
            with path.open("rb") as file:
                file.seek(first)
                return file.read(-1 if count is None else count)
        except FileNotFoundError:
            return b""

    def create(self, path: Path) -> None:
        """An empty file, durably; nothing, if it is there."""
        with _opened(path, os.O_WRONLY | os.O_CREAT):
            pass
        self._sync_directory(path.parent)

    def write(self, path: Path, offset: int, data: bytes) -> None:
        """Returns when it is durable."""
        with _opened(path, os.O_WRONLY) as file:
            _write(file, offset, data)
            os.fsync(file)

    def cut(self, path: Path, length: int) -> None:
        with _opened(path, os.O_WRONLY) as file:
            os.ftruncate(file, length)
            os.fsync(file)

    def replace(self, path: Path, data: bytes) -> None:
        """All of it or nothing, durably."""
        temporary = path.with_name(f"{path.name}.new")
        with suppress(FileNotFoundError):
            # A file whose sync has failed once stays doubtful, whatever is written to it.
            os.unlink(temporary)  # noqa: PTH108  # as the other calls: tests interpose functions of `os`
        with _opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            _write(file, 0, data)
            os.fsync(file)
        os.replace(temporary, path)  # noqa: PTH105
        self._sync_directory(path.parent)

    @contextmanager
    def locked(self, path: Path, busy_timeout_s: float) -> Iterator[None]:
        """Inside the block no other process, and no other user in this one, holds the lock. Raises StoreBusy."""
        with _opened(path, os.O_RDWR | os.O_CREAT) as file:
            until = time.monotonic() + busy_timeout_s
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= until:
                        holder = os.pread(file, 20, 0).decode(errors="replace").strip()
                        raise StoreBusy(
                            f"{path} was locked by process {holder or 'unknown'} for more than {busy_timeout_s:g} s. "
                            "If it is stopped, let it go on, or end it"
                        ) from None
                    time.sleep(_RETRY_S)
            os.ftruncate(file, 0)
            _write(file, 0, b"%d\n" % os.getpid())
            yield

    def _sync_directory(self, path: Path) -> None:
        with _opened(path, os.O_RDONLY | os.O_DIRECTORY) as directory:
            os.fsync(directory)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    file = os.open(path, flags, 0o666)
    try:
        yield file
    finally:
        os.close(file)


def _write(file: int, offset: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(file, rest, offset)
        rest, offset = rest[written:], offset + written
