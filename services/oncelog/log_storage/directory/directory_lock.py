"""Taking a directory: only an empty or an own one, and only for one process."""

import fcntl
import os
from pathlib import Path

from oncelog.core.errors import StorageDirectoryRefused
from oncelog.log_storage.directory.identity import IDENTITY, REPLACE, TEMPORARY, sync_directory

LOCK = "lock"
#: What a directory without identity may hold: our own first files, and what the file system puts into a volume's root.
_HARMLESS = frozenset({LOCK, IDENTITY + TEMPORARY, "lost+found"})


def make_directory(path: Path) -> None:
    if not path.exists():
        path.mkdir(parents=True)
        sync_directory(path.parent)


def refuse_foreign(path: Path) -> None:
    if (path / IDENTITY).exists():
        return
    names = sorted(file.name for file in path.iterdir() if file.name not in _HARMLESS)
    if names:
        raise StorageDirectoryRefused(
            f"{path}: not empty ({', '.join(names[:5])}{' …' if len(names) > 5 else ''}), but without {IDENTITY}: not "
            f"a storage node's directory, or a damaged one; correct the path, or restore {IDENTITY}; if it is lost, "
            f"{REPLACE}"
        )


def take_lock(path: Path, *, write_pid: bool = True) -> int:
    """Raises StorageDirectoryRefused if another process has the directory open."""
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
    if write_pid:
        os.pwrite(fd, f"{os.getpid():<20}\n".encode(), 0)
    return fd
