"""CPU use of each role while a load runs, in cores, from the tick counts of the kernel."""

import os
import time
from pathlib import Path
from types import TracebackType

from oncelog.lab.cluster import LabCluster
from oncelog.lab.failures import LabFailed

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


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
        self._began: tuple[float, dict[str, float]] = (0.0, {})

    def __enter__(self) -> None:
        self._began = (time.perf_counter(), self._now())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        moment, before = self._began
        self._elapsed_s += time.perf_counter() - moment
        for role, used_s in self._now().items():
            self._used_s[role] += used_s - before[role]

    def cores(self) -> dict[str, float]:
        """{role: cores used by all its processes}."""
        if not self._elapsed_s:
            return {}
        return {role: round(used_s / self._elapsed_s, 2) for role, used_s in self._used_s.items()}

    def us_each(self, count: int) -> dict[str, float]:
        """{role: microseconds of CPU that all its processes used for each of `count` things}."""
        return {role: round(used_s * 1e6 / max(1, count), 2) for role, used_s in self._used_s.items()}

    def _now(self) -> dict[str, float]:
        return {role: sum(map(_cpu_seconds, pids)) for role, pids in self._pids.items()}


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process with all its threads. 0.0 after its end."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return 0.0
    # The name, in brackets, may contain anything. The numbers follow it.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
