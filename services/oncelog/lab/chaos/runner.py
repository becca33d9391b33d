"""The runner: carries a schedule out on a target, step by step, and goes on only when everything is healed.

Healed means: every member serves again, and every client of the workload has had an acknowledgement since the last
fault was mended. What does not heal ends the striking, never the run: the verdict is about what was acknowledged.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from oncelog.lab.chaos.schedule import Fault, Step
from oncelog.lab.chaos.target import ChaosFailed, FaultMissed, Struck, Target
from oncelog.lab.chaos.workload_link import WorkloadLink

HEAL_DEADLINE_S = 240.0
#: Rarely: on a small cluster the looking itself would be felt.
_LOOK_EVERY_S = 1.0

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Hit:
    """A fault that struck, and when all was well again. healed_at_s None: it never was."""

    step: int
    struck: Struck
    healed_at_s: float | None


@dataclass(frozen=True, slots=True)
class Miss:
    """A planned fault that did not strike."""

    step: int
    fault: Fault
    reason: str


@dataclass(slots=True)
class Faults:
    """What became of the schedule. unhealed: why the run stopped striking, if it did."""

    hits: list[Hit] = field(default_factory=list)
    misses: list[Miss] = field(default_factory=list)
    unhealed: str | None = None


class Runner:
    """heal_deadline_s: after the last fault of a step was mended."""

    def __init__(
        self, target: Target, link: WorkloadLink, tell: Tell, *, heal_deadline_s: float = HEAL_DEADLINE_S
    ) -> None:
        self._target = target
        self._link = link
        self._tell = tell
        self._heal_deadline_s = heal_deadline_s

    async def run(self, steps: Sequence[Step], *, pace: float = 1.0) -> Faults:
        """All steps. pace: multiplies the pauses and what is held, for tests of the runner."""
        faults = Faults()
        for step in steps:
            if faults.unhealed is not None:
                faults.misses += [Miss(step.number, fault, "an earlier fault never healed") for fault in step.faults]
                continue
            await asyncio.sleep(step.pause_s * pace)
            await self._step(step, faults, pace)
        return faults

    async def _step(self, step: Step, faults: Faults, pace: float) -> None:
        async with asyncio.TaskGroup() as tasks:  # at once: to find a victim takes a while
            striking = [tasks.create_task(self._strike(step, fault, faults)) for fault in step.faults]
        struck = [one for task in striking if (one := task.result()) is not None]
        if not struck:
            return
        async with asyncio.TaskGroup() as tasks:
            holding = [tasks.create_task(self._hold(one, pace)) for one in struck]
        mended_at_s = time.time()
        unmended = [trouble for task in holding if (trouble := task.result()) is not None]
        unhealed = "; ".join(unmended) or await self._heal(mended_at_s, pace)
        healed_at_s = None if unhealed else time.time()
        faults.hits += [Hit(step.number, one, healed_at_s) for one in struck]
        if unhealed:
            within = "was not mended" if unmended else f"did not heal within {self._heal_deadline_s:.0f} s"
            faults.unhealed = f"step {step.number} {within}: {unhealed}"
            self._tell(faults.unhealed)
        else:
            self._tell(f"healed {time.time() - min(one.at_s for one in struck):.1f} s after step {step.number} struck")

    async def _strike(self, step: Step, fault: Fault, faults: Faults) -> Struck | None:
        try:
            struck = await self._target.strike(fault, self._link.scene)
        except FaultMissed as miss:
            faults.misses.append(Miss(step.number, fault, str(miss)))
            self._tell(f"{fault.kind} missed: {miss}")
            return None
        self._tell(f"{fault.kind}: {struck.victim}" + (f", for {fault.hold_s:g} s" if fault.hold_s else ""))
        return struck

    async def _hold(self, struck: Struck, pace: float) -> str | None:
        """Let it last, then mend it, also when the run is interrupted. Returns why it could not be mended."""
        trouble = None
        try:
            await asyncio.sleep(struck.fault.hold_s * pace)
        finally:
            try:
                await asyncio.shield(self._target.mend(struck))
            except ChaosFailed as error:
                trouble = f"{struck.fault.kind} of {struck.victim}: {error}"
            if struck.fault.hold_s and trouble is None:
                self._tell(f"{struck.fault.kind}: {struck.victim} mended")
        return trouble

    async def _heal(self, since_s: float, pace: float) -> str | None:
        """Return None when all is well, else what is not at the deadline."""
        ends_at = time.monotonic() + self._heal_deadline_s
        while True:
            trouble = self._link.silent(since_s) or await self._target.ailing()
            if trouble is None or time.monotonic() > ends_at:
                return trouble
            await asyncio.sleep(max(_LOOK_EVERY_S * pace, 0.05))
