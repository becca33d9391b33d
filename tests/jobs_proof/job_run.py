"""Runs one job: starts its command, injects each fault at its stage, restarts the command until it ends, and checks
it."""

import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.cluster_fixture import START_S, Cluster
from tests.cluster.kills import any_time, just_seen
from tests.cluster.until import until
from tests.jobs_proof.jobs import Checked, ProvenJob
from tests.jobs_proof.plan import Fault, JobPlan, Victim, reached
from tests.jobs_proof.process import JobProcess

#: Much longer than a job takes from one fault to the next, including its start.
JOB_S = 900
#: Starts that failed because an owner died or the machine was busy; a user would retry, too.
FAILURES_MAX = 4
_LOOK_S = 0.003
_ENDED, _NOW = "ended", "now"


@dataclass(frozen=True, slots=True)
class Outcome:
    """hits: {label of a fault: how often it was injected}. missed: faults that were not injected. starts: of the job.
    failures: starts that ended with an error."""

    plan: JobPlan
    checked: Checked
    hits: dict[str, int]
    missed: tuple[str, ...]
    starts: int
    failures: int
    seconds: float

    @property
    def good(self) -> bool:
        """Every fault was injected, each message is stored once, one more run adds none, and the control has
        duplicates."""
        checked = self.checked
        doubled = checked.control is None or checked.control.duplicated > 0
        clean = not (self.missed or checked.complaints or checked.added)
        return clean and checked.verdict.perfect and doubled


class JobRun:
    """One job on a cluster that serves. publish: brings the next wave to the source."""

    def __init__(
        self,
        plan: JobPlan,
        own: ProvenJob,
        cluster: Cluster,
        directory: Path,
        publish: Callable[[int], Awaitable[None]],
    ) -> None:
        self._plan = plan
        self._own = own
        self._cluster = cluster
        self._directory = directory
        self._publish = publish
        self._hits: Counter[str] = Counter()
        self._missed: list[str] = []
        self._starts = 0
        self._failures = 0

    async def run(self) -> Outcome:
        """Raises AssertionError when the job fails again and again."""
        began = time.monotonic()
        for wave in range(self._plan.waves):
            await self._publish(wave)
            planned = self._plan.of_wave(wave)
            while not await self._start(planned):
                """Killed, or failed: start it again."""
            self._missed += [f"{fault.label}: the job ended before" for fault in planned]
        checked = await self._own.checked(self._to_its_end)
        seconds = time.monotonic() - began
        return Outcome(
            self._plan, checked, dict(self._hits), tuple(self._missed), self._starts, self._failures, seconds
        )

    async def _start(self, planned: list[Fault]) -> bool:
        """One start, until the job ends or is killed; whether it succeeded. Injected faults are removed from the
        plan."""
        await self._cluster.healed()
        await self._own.begin()
        process = self._process(self._own.words)
        try:
            while True:
                fault = planned[0] if planned else None
                if await self._awaited(process, fault) == _ENDED:
                    return self._ended(process)
                assert fault is not None
                planned.pop(0)
                if fault.victim is Victim.JOB:
                    await self._record_kill(fault, await process.kill(once=just_seen))
                    return False
                await self._kill_owner(fault, process)
        finally:
            process.end()

    def _process(self, words: Sequence[str]) -> JobProcess:
        self._starts += 1
        return JobProcess(words, self._directory / f"start-{self._starts:02d}")

    async def _awaited(self, process: JobProcess, fault: Fault | None) -> str:
        """Wait until the job has ended, or is at the fault's stage."""

        async def found() -> str:
            if process.code is not None:
                return _ENDED
            state = None if fault is None else await self._own.observe()
            return _NOW if fault and state and reached(fault, state, self._own.total) else ""

        waiting_for = f"{self._plan.job}, {fault.label if fault else 'its end'}: see {process.log}"
        return await until(found, JOB_S, every_s=_LOOK_S, waiting_for=waiting_for)

    def _ended(self, process: JobProcess) -> bool:
        if process.code == 0:
            return True
        self._failures += 1
        log = process.log.read_text()[-3000:]
        print(f"{self._plan.job}: start {self._starts} ended with code {process.code}: {log}", file=sys.stderr)
        assert self._failures <= FAILURES_MAX, f"{self._plan.job} fails again and again: {log}"
        return False

    async def _record_kill(self, fault: Fault, killed: bool) -> None:
        """A kill counts if the results that are left show the fault's stage."""
        state = await until(self._own.observe, START_S, waiting_for="what the killed job has left")
        assert state is not None
        self._note(fault, killed and reached(fault, state, self._own.total), f"when it was dead: {state}")

    async def _kill_owner(self, fault: Fault, process: JobProcess) -> None:
        name = await self._cluster.owner_of(await self._own.topic_of(fault))
        await self._cluster.kill(name, once=any_time)
        self._note(fault, process.code is None, "the job had ended")

    def _note(self, fault: Fault, hit: bool, otherwise: str) -> None:
        print(f"{self._plan.job}, start {self._starts}: {fault.label}{'' if hit else ': MISSED'}", file=sys.stderr)
        if hit:
            self._hits[fault.label] += 1
        else:
            self._missed.append(f"{fault.label}: {otherwise}")

    async def _to_its_end(self, words: Sequence[str]) -> Any:
        """Run another command, without faults."""
        process = self._process(words)
        try:
            assert await self._awaited(process, None) == _ENDED
            assert process.code == 0, f"code {process.code}: {process.log.read_text()[-3000:]}"
            return process.answer
        finally:
            process.end()
