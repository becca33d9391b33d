"""What processes use, as the kernel counts it: the CPU, page faults and memory of each role while a load runs."""

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from oncelog_lab.cluster import ClusterProcess, LabCluster
from oncelog_lab.failures import LabFailed

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class _Used(NamedTuple):
    """By one process with all its threads, since its start. faults: minor page faults: pages that were new to it."""

    cpu_s: float
    faults: int


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
        self._used = dict.fromkeys(self._pids, _Used(0.0, 0))
        self._peak_bytes = dict.fromkeys(self._pids, 0)
        self._elapsed_s = 0.0
        #: (moment, {pid: what it has used})
        self._began: tuple[float, dict[int, _Used]] = (0.0, {})

    def __enter__(self) -> None:
        for pids in self._pids.values():
            for pid in pids:
                _forget_peak(pid)
        self._began = (time.perf_counter(), self._now())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        moment, before = self._began
        self._elapsed_s += time.perf_counter() - moment
        after = self._now()
        for role, pids in self._pids.items():
            # A process that has ended meanwhile does not count: what it used is not known any more.
            for pid in pids:
                if pid in after and pid in before:
                    (sum_s, sum_faults), (now_s, now_faults) = self._used[role], after[pid]
                    then_s, then_faults = before[pid]
                    self._used[role] = _Used(sum_s + now_s - then_s, sum_faults + now_faults - then_faults)
                    self._peak_bytes[role] = max(self._peak_bytes[role], _peak_bytes(pid))

    def cores(self) -> dict[str, float]:
        """{role: cores used by all its processes}."""
        if not self._elapsed_s:
            return {}
        return {role: round(used.cpu_s / self._elapsed_s, 2) for role, used in self._used.items()}

    def us_each(self, count: int) -> dict[str, float]:
        """{role: microseconds of CPU that all its processes used for each of `count` things}."""
        return {role: round(used.cpu_s * 1e6 / max(1, count), 2) for role, used in self._used.items()}

    def detail(self, count: int) -> dict[str, object]:
        """For the JSON output, of `count` messages: {role: …} of the CPU and the minor page faults of each message, and
        of the peak of the resident memory of one process."""
        return {
            "cpu_us": self.us_each(count),
            "faults": {role: round(used.faults / max(1, count), 4) for role, used in self._used.items()},
            "peak_mib": {role: round(peak / 1024**2, 1) for role, peak in self._peak_bytes.items()},
        }

    def _now(self) -> dict[int, _Used]:
        used = {pid: _used(pid) for pids in self._pids.values() for pid in pids}
        return {pid: each for pid, each in used.items() if each is not None}


def _used(pid: int) -> _Used | None:
    """None after its end."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None
    # The name, in brackets, may contain anything. The numbers follow it.
    fields = stat.rpartition(")")[2].split()
    return _Used((int(fields[11]) + int(fields[12])) / _TICKS_PER_S, int(fields[7]))


def _forget_peak(pid: int) -> None:
    """The peak of its memory begins again. Where the kernel refuses that, it is the peak since its start."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def _peak_bytes(pid: int) -> int:
    """0 after its end."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def resident_bytes(process: ClusterProcess) -> int:
    """Memory of the process, as the kernel counts it; 0 after its end."""
    try:
        return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except FileNotFoundError:
        return 0
