"""What a restore does when, and what processes take for it meanwhile."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.cluster.cluster_fixture import Cluster
from tests.cluster.until import until
from tests.records_proof.losses import RESTORE

_DEADLINE_S = 3_600.0
_EVERY_S = 0.1
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Steps:
    """began_s: when each step was seen first, on the event loop's clock. peak_mb: {name: resident}. cpu_s: {(name,
    process id): user and system}."""

    began_s: dict[str, float] = field(default_factory=dict)
    peak_mb: dict[str, int] = field(default_factory=dict)
    cpu_s: dict[tuple[str, int], float] = field(default_factory=dict)

    @classmethod
    @asynccontextmanager
    async def watched(cls, cluster: Cluster) -> AsyncIterator["Steps"]:
        steps, ended = cls(), asyncio.Event()

        async def sampled() -> bool:
            await steps._sample(cluster, rest)
            return ended.is_set()

        async with httpx.AsyncClient(trust_env=False) as rest:
            watching = asyncio.create_task(until(sampled, _DEADLINE_S, every_s=_EVERY_S, waiting_for="the restore"))
            try:
                yield steps
            finally:
                ended.set()
                await watching

    async def _sample(self, cluster: Cluster, rest: httpx.AsyncClient) -> None:
        for name, process in cluster.processes.items():
            if process["pid"]:
                self._measure(name, int(process["pid"]))
        try:
            answer = await rest.get(f"{cluster.admin_url}{RESTORE}")
        except httpx.TransportError:
            return
        if answer.status_code == 200 and answer.json()["state"] != "idle":
            self.began_s.setdefault(answer.json()["step"], asyncio.get_running_loop().time())

    def _measure(self, name: str, pid: int) -> None:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            return  # it has just ended
        peak = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
        self.peak_mb[name] = max(self.peak_mb.get(name, 0), *(int(each) // 1024 for each in peak), 0)
        self.cpu_s[name, pid] = (int(times[11]) + int(times[12])) / _TICKS_PER_S

    def tell(self) -> None:
        first = min(self.began_s.values())
        for step, at_s in sorted(self.began_s.items(), key=lambda each: each[1]):
            print(f"  {step:12} begins after {at_s - first:6.1f} s")
        for name, peak in sorted(self.peak_mb.items()):
            cpu = [f"{cpu_s:.1f}" for (of, _), cpu_s in self.cpu_s.items() if of == name]
            print(f"  {name:12} {peak:5} MB at most; CPU seconds of each of its processes: {', '.join(cpu)}")
