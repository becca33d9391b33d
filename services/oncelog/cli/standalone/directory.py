"""The directory of a standalone cluster: ensures that only one supervisor uses it, and no process of an earlier one.

When a supervisor is killed, its processes stop, too, but they drain first, and hold ports and directories for some
seconds. So the next start waits for the process ids in the earlier status, if they still belong to Oncelog.
"""

import asyncio
import fcntl
import os
import pwd
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from oncelog.cli.standalone.status import read_status
from oncelog.core.errors import Fatal, InvalidArgument

EARLIER_DEADLINE_S = 40.0
_LOOK_EVERY_S = 0.1


class DirectoryInUse(Fatal):
    """Another standalone cluster uses this directory."""


@contextmanager
def locked(data: Path) -> Iterator[None]:
    """Lock the directory. Raises DirectoryInUse, and InvalidArgument if this user cannot write there."""
    try:
        lock = os.open(data / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise not_writable(data) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DirectoryInUse(f"another cluster is running in {data}: stop it first") from error
        yield
    finally:
        os.close(lock)


async def earlier_gone(status_path: Path, tell: Callable[[str], None]) -> None:
    """Wait until the processes of an earlier run have ended, at most until the deadline; then their locks report it."""
    ends_at = time.monotonic() + EARLIER_DEADLINE_S
    reported = False
    while (left := _left(status_path)) and time.monotonic() < ends_at:
        if not reported:
            tell(f"waiting for the processes of an earlier run to end: {', '.join(map(str, left))}")
            reported = True
        await asyncio.sleep(_LOOK_EVERY_S)


def not_writable(path: Path) -> InvalidArgument:
    """The error about a directory that this user cannot write to."""
    owner = path.stat().st_uid
    whose = "" if owner == os.geteuid() else f", because it belongs to {_user(owner)}"
    return InvalidArgument(
        f"{_user(os.geteuid())} cannot write to {path}{whose}: correct its permissions, or name another directory "
        "with --data",
        field="data",
    )


def _user(number: int) -> str:
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"


def _left(status_path: Path) -> list[int]:
    try:
        processes = read_status(status_path)["processes"]
    except (OSError, ValueError, KeyError):  # none, or one that a full disk has cut off
        return []
    assert isinstance(processes, list), "the format of the status file"
    return [process["pid"] for process in processes if process["pid"] is not None and _is_ours(process["pid"])]


def _is_ours(pid: int) -> bool:
    """Whether the process runs an Oncelog service or ZooKeeper; process ids are reused."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return b"oncelog." in command or b"zookeeper" in command
