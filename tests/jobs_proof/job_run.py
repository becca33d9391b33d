"""Runs one job through the faults of its plan, and checks it."""

import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.cluster_fixture import START_S, Cluster
from tests.cluster.until import until
from tests.jobs_proof.jobs import Checked, ProvenJob
from tests.jobs_proof.plan import Fault, JobPlan, Victim, reached
from tests.jobs_proof.process import JobProcess
from tests.proofs.killed_run import KilledRun
from tests.proofs.report import Outcome


class JobRun:
    """One job on a cluster that serves: its command is `tests.proofs.killed_run.Killed`. publish: brings the next wave
    to the source."""

    def __init__(
        self,
        plan: JobPlan,
        own: ProvenJob,
        cluster: Cluster,
        directory: Path,
        publish: Callable[[int], Awaitable[None]],
    ) -> None:
        self.name = str(plan.job)
        self._plan = plan
        self._own = own
        self._cluster = cluster
        self._directory = directory
        self._publish = publish
        self._planned: list[Fault] = []
        self._hits: Counter[str] = Counter()
        self._missed: list[str] = []

    async def run(self) -> Outcome:
        """Raises AssertionError when the job fails again and again."""
        began, command = time.monotonic(), KilledRun(self, self._cluster)
        for wave in range(self._plan.waves):
            await self._publish(wave)
            self._planned = self._plan.of_wave(wave)
            await command.to_its_end()
            self._missed += [f"{fault.label}: the job ended before" for fault in self._planned]
        checked = await self._own.checked(self._to_its_end)
        return outcome_of(self._plan, checked, self._hits, self._missed, command, time.monotonic() - began)

    # --- the command, for `KilledRun` ---------------------------------------------------------------------------------

    async def start(self, number: int) -> JobProcess:
        await self._own.begin()
        return JobProcess(self._own.words, self._directory / f"start-{number:02d}")

    async def due(self) -> Fault | None:
        """The next fault, if the visible results show its stage."""
        state = await self._own.observe() if self._planned else None
        if state is None or not reached(self._planned[0], state, self._own.total):
            return None
        return self._planned[0]

    async def owners(self, fault: Fault) -> list[str]:
        if fault.victim is Victim.JOB:
            return []
        return [await self._cluster.owner_of(await self._own.topic_of(fault))]

    async def injected(self, fault: Fault, *, hit: bool) -> None:
        """A kill of the job counts if the results that are left show the fault's stage."""
        self._planned.remove(fault)
        otherwise = "the job had ended"
        if fault.victim is Victim.JOB:
            state = await until(self._own.observe, START_S, waiting_for="what the killed job has left")
            assert state is not None
            hit, otherwise = hit and reached(fault, state, self._own.total), f"when it was dead: {state}"
        print(f"{self.name}: {fault.label}{'' if hit else ': MISSED'}", file=sys.stderr)
        if hit:
            self._hits[fault.label] += 1
        else:
            self._missed.append(f"{fault.label}: {otherwise}")

    def may_repeat(self, code: int) -> bool:
        """After any error: its repetition must be harmless."""
        return True

    # --- the oracle ---------------------------------------------------------------------------------------------------

    async def _to_its_end(self, words: Sequence[str]) -> Any:
        """Run another command, without faults."""
        place = self._directory / f"checked-{len(list(self._directory.glob('checked-*'))) + 1}"
        code, answer = await JobProcess(words, place).answer()
        assert code == 0, f"{words} ended with code {code}: see {place}"
        return answer


def outcome_of(
    plan: JobPlan, checked: Checked, hits: Counter[str], missed: Sequence[str], command: KilledRun[Fault],
    seconds: float,
) -> Outcome:  # fmt: skip
    """For the report."""
    doubled = None if checked.control is None else checked.control.duplicated
    return Outcome(
        str(plan.job), checked.verdict, [fault.label for fault in plan.faults], hits, missed, checked.wrong,
        command.starts, command.failures, seconds,
        {"added_by_one_more_run": checked.added, "doubled_without_protection": doubled},
    )  # fmt: skip
