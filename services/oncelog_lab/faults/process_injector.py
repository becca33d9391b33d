"""Faults in a standalone cluster: its processes are killed or stopped by signals, and data directories damaged."""

import asyncio
import shutil
import signal
import time
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from oncelog_lab.cluster import ClusterProcess, LabCluster, signal_process
from oncelog_lab.failures import FaultMissed, LabFailed
from oncelog_lab.faults.bit_rot import flip_bits
from oncelog_lab.faults.injector import InjectedFault
from oncelog_lab.faults.kinds import DESTRUCTIVE, PAUSES, VICTIM_COMPONENT, Component, Fault, FaultKind
from oncelog_lab.faults.replacement import FORMER, Replacement
from oncelog_lab.waiting import until

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
        self._replacement = Replacement(self._get)

    async def counts(self) -> Mapping[Component, int]:
        return {component: self._before[component] for component in Component if self._before[component]}

    def left_out(self) -> Mapping[FaultKind, str]:
        return {kind: "needs Kubernetes" for kind in FaultKind if kind not in (*_KILLS, *PAUSES, *DESTRUCTIVE)}

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
        try:
            if fault.kind in DESTRUCTIVE:
                return await self._destroy(fault, victim)
            stops = fault.kind in PAUSES
            at_s = time.time()
            await self._signal(victim, signal.SIGSTOP if stops else signal.SIGKILL, stops=stops)
        except LabFailed as error:
            raise FaultMissed(error.message) from error
        self._stopped[victim.name] = victim
        return InjectedFault(fault, victim.name, at_s)

    async def _destroy(self, fault: Fault, victim: ClusterProcess) -> InjectedFault:
        """Delete or damage the directory of the node while the process is stopped, then kill the process."""
        detail = await self._replacement.permitted(lambda address: address == victim.address)
        directory = self._cluster.directory_of(victim)
        at_s = time.time()
        await self._signal(victim, signal.SIGSTOP, stops=True)
        try:
            if fault.kind is FaultKind.STORAGE_LOSS:
                lost = directory.with_name(f"{directory.name}.lost")
                directory.rename(lost)
                await asyncio.to_thread(shutil.rmtree, lost)
            else:
                await asyncio.to_thread(flip_bits, directory / "segments", fault.pick)
        finally:
            await self._signal(victim, signal.SIGKILL, stops=False)
        return InjectedFault(fault, victim.name, at_s, detail)

    async def _signal(self, victim: ClusterProcess, number: signal.Signals, *, stops: bool) -> None:
        """Send the signal, and return when the process is stopped, or has ended. Raises LabFailed."""
        signal_process(victim, number)
        await until(
            lambda: _state_of(victim) in ({"T"} if stops else {"gone", "Z", "X"}),
            _EFFECT_DEADLINE_S,
            f"{victim.name} still runs",
            every_s=_CHECK_EVERY_S,
        )

    async def _get(self, path: str) -> Any:
        async with self._cluster.rest() as rest:
            answer = await rest.call("GET", path)
        return answer.body if answer.ok else None

    async def recover(self, injected: InjectedFault) -> None:
        if injected.fault.kind in PAUSES:
            try:
                signal_process(self._stopped[injected.victim], signal.SIGCONT)
            except LabFailed:
                return  # it was killed and started again meanwhile
        elif injected.fault.kind in DESTRUCTIVE:
            await self._recover_copies(injected)

    async def _recover_copies(self, injected: InjectedFault) -> None:
        """A process has another address after each start, so the name tells which one it is."""

        def is_at(address: str) -> bool:
            return any(each.name == injected.victim and each.address == address for each in self._cluster.processes())

        lost = injected.fault.kind is FaultKind.STORAGE_LOSS
        await self._replacement.restored(is_at, not_as=injected.detail[FORMER] if lost else "")

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
