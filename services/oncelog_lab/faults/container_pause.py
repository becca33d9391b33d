"""SIGSTOP for a container, from a pod that sees the processes of its node. Process 1 cannot be stopped from inside."""

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

from oncelog_lab.failures import FaultMissed

#: Printed when all processes are stopped.
STOPPED = "stopped"


def processes_of(container: str, proc: Path = Path("/proc")) -> list[int]:
    """Ids of the processes whose control group contains the container's id."""
    found = []
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            group = (folder / "cgroup").read_text()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # the process has ended
        if container in group:
            found.append(int(folder.name))
    return sorted(found)


def stop_for(container: str, seconds: float) -> None:
    """Stop the processes, print STOPPED, and continue them after so many seconds or at SIGTERM. Raises FaultMissed."""
    found = processes_of(container)
    if not found:
        raise FaultMissed(f"container {container} has no process on this node")
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        for pid in found:
            os.kill(pid, signal.SIGSTOP)
        print(STOPPED, *found, flush=True)
        ended.wait(seconds)
    finally:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
