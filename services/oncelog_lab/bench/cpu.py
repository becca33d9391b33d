"""What processes use, as the kernel counts it: the CPU of each role while a load runs, in cores, and memory."""

import os
import time
from pathlib import Path
from types import TracebackType

from oncelog_lab.cluster import ClusterProcess, LabCluster
from oncelog_lab.failures import LabFailed

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class CpuMeter:
    """Adds up the use inside each `with`. Measures only this process if the cluster was not started by the lab."""

    def __init__(self, cluster: LabCluster) -> None:
        self._pids: dict[str, list[int]] = {"client": [os.getpid()]}
        try:
            for process in cluster.processes():
                if process.pid is not None:
                    self._pids.setdefault(process.role, []).append(process.pid)
        except LabFailed:
            pass  # the processes of a running cluster may be on other machines
        self._used_s = dict.fromkeys(self._pids, 0.0)
        self._elapsed_s = 0.0
        #: (moment, {pid: CPU seconds})
        self._began: tuple[float, dict[int, float]] = (0.0, {})

    def __enter__(self) -> None:
        self._began = (time.perf_counter(), self._now())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        moment, before = self._began
        self._elapsed_s += time.perf_counter() - moment
        after = self._now()
        for role, pids in self._pids.items():
            # A process that has ended meanwhile does not count: what it used is not known any more.
            self._used_s[role] += sum(after[pid] - before[pid] for pid in pids if pid in after and pid in before)

    def cores(self) -> dict[str, float]:
        """{role: cores used by all its processes}."""
        if not self._elapsed_s:
            return {}
        return {role: round(used_s / self._elapsed_s, 2) for role, used_s in self._used_s.items()}

    def us_each(self, count: int) -> dict[str, float]:
        """{role: microseconds of CPU that all its processes used for each of `count` things}."""
        return {role: round(used_s * 1e6 / max(1, count), 2) for role, used_s in self._used_s.items()}

    def _now(self) -> dict[int, float]:
        used = {pid: _cpu_seconds(pid) for pids in self._pids.values() for pid in pids}
        return {pid: seconds for pid, seconds in used.items() if seconds is not None}


def _cpu_seconds(pid: int) -> float | None:
    """User and system time of a process with all its threads. None after its end."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None
    # The name, in brackets, may contain anything. The numbers follow it.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def resident_bytes(process: ClusterProcess) -> int:
    """Memory of the process, as the kernel counts it; 0 after its end."""
    try:
        return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except FileNotFoundError:
        return 0
