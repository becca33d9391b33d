"""Faults in a standalone cluster: its processes are killed, or stopped for a while, by signals."""

import signal
import time
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from oncelog.lab.cluster import ClusterProcess, LabCluster, signal_process
from oncelog.lab.failures import FaultMissed, LabFailed
from oncelog.lab.faults.injector import InjectedFault
from oncelog.lab.faults.kinds import PAUSES, VICTIM_COMPONENT, Component, Fault, FaultKind
from oncelog.lab.waiting import until

_KILLS = (FaultKind.OWNER_KILL, FaultKind.STORAGE_KILL, FaultKind.METADATA_KILL)
_EFFECT_DEADLINE_S = 5.0
_CHECK_EVERY_S = 0.02


class ProcessFaultInjector:
    """See `FaultInjector`."""

    def __init__(self, cluster: LabCluster) -> None:
        self._cluster = cluster
        #: members of each component before the first fault
        self._before = Counter(process.role for process in cluster.processes())
        self._stopped: dict[str, ClusterProcess] = {}

    async def counts(self) -> Mapping[Component, int]:
        return {component: self._before[component] for component in Component if self._before[component]}

    def left_out(self) -> Mapping[FaultKind, str]:
        return {kind: "needs Kubernetes" for kind in FaultKind if kind not in (*_KILLS, *PAUSES)}

    async def inject(self, fault: Fault, owner_addresses: Collection[str]) -> InjectedFault:
        component = VICTIM_COMPONENT[fault.kind]
        running = {each.name: each for each in self._cluster.processes() if each.role == component and each.pid}
        if component is Component.OWNER:
            # An owner without a topic of the workload would not be missed by any client.
            busy = {name: each for name, each in running.items() if each.address in owner_addresses}
            running = busy or running
        if not running:
            raise FaultMissed(f"no {component} runs")
        victim = running[fault.choose(list(running))]
        stops = fault.kind in PAUSES
        at_s = time.time()
        try:
            signal_process(victim, signal.SIGSTOP if stops else signal.SIGKILL)
            await until(
                lambda: _state_of(victim) in ({"T"} if stops else {"gone", "Z", "X"}),
                _EFFECT_DEADLINE_S,
                f"{victim.name} still runs",
                every_s=_CHECK_EVERY_S,
            )
        except LabFailed as error:
            raise FaultMissed(error.message) from error
        self._stopped[victim.name] = victim
        return InjectedFault(fault, victim.name, at_s)

    async def recover(self, injected: InjectedFault) -> None:
        if injected.fault.kind in PAUSES:
            try:
                signal_process(self._stopped[injected.victim], signal.SIGCONT)
            except LabFailed:
                return  # it was killed and started again meanwhile

    async def unhealthy(self) -> str | None:
        serving = Counter(process.role for process in self._cluster.processes() if process.serving)
        missing = self._before - serving
        return ", ".join(f"{count} {role} not serving" for role, count in sorted(missing.items())) or None


def _state_of(process: ClusterProcess) -> str:
    """The letter of its state in /proc, or "gone"."""
    try:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
