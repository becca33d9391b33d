"""The runner: injects the faults of a schedule step by step, and continues only when the cluster is healthy again.

Healthy: every member serves, and every client of the workload had an acknowledgement since the recovery of the last
fault. A cluster that does not become healthy ends the faults, but not the run: the verdict is still needed.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from oncelog_lab.chaos.schedule import FaultStep
from oncelog_lab.failures import FaultMissed, LabFailed
from oncelog_lab.faults.injector import FaultInjector, InjectedFault
from oncelog_lab.faults.kinds import Fault
from oncelog_lab.workload.connection import WorkloadConnection

HEALTHY_DEADLINE_S = 240.0
#: More frequent checks would slow down a small cluster.
_CHECK_EVERY_S = 1.0

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class FaultHit:
    """An injected fault. healthy_at_s: when the cluster was healthy again; None: it never was. recovered_at_s: when the
    injector had ended the fault; None: it could not."""

    step: int
    injected: InjectedFault
    healthy_at_s: float | None
    recovered_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class FaultMiss:
    """A planned fault that was not injected."""

    step: int
    fault: Fault
    reason: str


@dataclass(slots=True)
class FaultResults:
    """The results of a schedule. unhealthy: why the faults ended early, if they did."""

    hits: list[FaultHit] = field(default_factory=list)
    misses: list[FaultMiss] = field(default_factory=list)
    unhealthy: str | None = None


class FaultRunner:
    """healthy_deadline_s: after the recovery of the last fault of a step."""

    def __init__(
        self,
        injector: FaultInjector,
        link: WorkloadConnection,
        tell: Tell,
        *,
        healthy_deadline_s: float = HEALTHY_DEADLINE_S,
    ) -> None:
        self._injector = injector
        self._link = link
        self._tell = tell
        self._healthy_deadline_s = healthy_deadline_s

    async def run(self, steps: Sequence[FaultStep], *, pace: float = 1.0) -> FaultResults:
        """Carry out all steps. pace: multiplies the pauses and the time that faults last."""
        results = FaultResults()
        for step in steps:
            if results.unhealthy is not None:
                reason = "the cluster is not healthy after an earlier fault"
                results.misses += [FaultMiss(step.number, fault, reason) for fault in step.faults]
                continue
            await asyncio.sleep(step.pause_s * pace)
            await self._step(step, results, pace)
        return results

    async def _step(self, step: FaultStep, results: FaultResults, pace: float) -> None:
        async with asyncio.TaskGroup() as tasks:  # at the same time: to choose a victim takes a while
            injecting = [tasks.create_task(self._inject(step, fault, results)) for fault in step.faults]
        injected = [one for task in injecting if (one := task.result()) is not None]
        if not injected:
            return
        async with asyncio.TaskGroup() as tasks:
            holding = [tasks.create_task(self._hold(one, pace)) for one in injected]
        endings = [task.result() for task in holding]
        failures = [ending for ending in endings if isinstance(ending, str)]
        unhealthy = "; ".join(failures) or await self._until_healthy(time.time(), pace)
        healthy_at_s = None if unhealthy else time.time()
        results.hits += [
            FaultHit(step.number, one, healthy_at_s, None if isinstance(ending, str) else ending)
            for one, ending in zip(injected, endings, strict=True)
        ]
        if unhealthy:
            what = "could not recover" if failures else f"not healthy within {self._healthy_deadline_s:.0f} s"
            results.unhealthy = f"step {step.number}: {what}: {unhealthy}"
            self._tell(results.unhealthy)
        else:
            took_s = time.time() - min(one.at_s for one in injected)
            self._tell(f"healthy again {took_s:.1f} s after step {step.number}")

    async def _inject(self, step: FaultStep, fault: Fault, results: FaultResults) -> InjectedFault | None:
        try:
            injected = await self._injector.inject(fault, self._link.owner_addresses)
        except FaultMissed as miss:
            results.misses.append(FaultMiss(step.number, fault, str(miss)))
            self._tell(f"{fault.kind} missed: {miss}")
            return None
        self._tell(f"{fault.kind}: {injected.victim}" + (f", for {fault.hold_s:g} s" if fault.hold_s else ""))
        return injected

    async def _hold(self, injected: InjectedFault, pace: float) -> str | float:
        """Wait, then recover, also when the run is interrupted. Returns the time, or why the recovery failed."""
        failure = None
        try:
            await asyncio.sleep(injected.fault.hold_s * pace)
        finally:
            try:
                await asyncio.shield(self._injector.recover(injected))
            except LabFailed as error:
                failure = f"{injected.fault.kind} of {injected.victim}: {error}"
            if injected.fault.hold_s and failure is None:
                self._tell(f"{injected.fault.kind}: {injected.victim} recovered")
        return failure or time.time()

    async def _until_healthy(self, since_s: float, pace: float) -> str | None:
        """Return None when the cluster is healthy, or what is not at the deadline."""
        ends_at = time.monotonic() + self._healthy_deadline_s
        while True:
            unhealthy = self._link.silent(since_s) or await self._injector.unhealthy()
            if unhealthy is None or time.monotonic() > ends_at:
                return unhealthy
            await asyncio.sleep(max(_CHECK_EVERY_S * pace, 0.05))
