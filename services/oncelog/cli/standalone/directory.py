"""The directory of a standalone cluster: one supervisor at a time, and nothing of an earlier one still at work in it.

A supervisor that is killed takes its children along, but they drain first, and for some seconds hold ports and
directories. So the next start waits for the process ids that the earlier status names, where they are still ours.
"""

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from oncelog.cli.standalone.status import read_status
from oncelog.core.errors import Fatal

EARLIER_DEADLINE_S = 40.0
_LOOK_EVERY_S = 0.1


class DirectoryInUse(Fatal):
    """Another standalone cluster runs on this directory."""


@contextmanager
def locked(data: Path) -> Iterator[None]:
    """Hold the directory. Raises DirectoryInUse."""
    lock = os.open(data / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DirectoryInUse(f"a cluster is running on {data} already: end that first") from error
        yield
    finally:
        os.close(lock)


async def earlier_gone(status_path: Path, tell: Callable[[str], None]) -> None:
    """Return when the processes of an earlier run have ended, or did not within the deadline: then their locks tell."""
    ends_at = time.monotonic() + EARLIER_DEADLINE_S
    told = False
    while (left := _left(status_path)) and time.monotonic() < ends_at:
        if not told:
            tell(f"waiting for processes of an earlier run to end: {', '.join(map(str, left))}")
            told = True
        await asyncio.sleep(_LOOK_EVERY_S)


def _left(status_path: Path) -> list[int]:
    try:
        processes = read_status(status_path)["processes"]
    except (FileNotFoundError, json.JSONDecodeError, KeyError):
        return []
    assert isinstance(processes, list), "as it is written"
    return [process["pid"] for process in processes if process["pid"] is not None and _is_ours(process["pid"])]


def _is_ours(pid: int) -> bool:
    """Whether the process runs one of our services or ZooKeeper: numbers of processes are used again."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return b"oncelog." in command or b"zookeeper" in command
