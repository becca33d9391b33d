"""SIGSTOP for a container, from a pod that sees its node's processes: from inside, process 1 cannot be stopped."""

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

from oncelog.lab.chaos.target import FaultMissed

#: What is printed once they stand still.
STOPPED = "stopped"


def processes_of(container: str, proc: Path = Path("/proc")) -> list[int]:
    """Ids of the processes whose control group names the container."""
    found = []
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            group = (folder / "cgroup").read_text()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended, or is none of ours
        if container in group:
            found.append(int(folder.name))
    return sorted(found)


def stop_for(container: str, seconds: float) -> None:
    """Stop them, print so, and let them go on after a while or at SIGTERM. Raises FaultMissed: there are none."""
    found = processes_of(container)
    if not found:
        raise FaultMissed(f"no process here belongs to container {container}")
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
