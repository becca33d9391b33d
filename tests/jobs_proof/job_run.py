"""Runs one job: starts its command, strikes when its moment is there, starts it again until it ends, and judges."""

import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.cluster_fixture import START_S, Cluster
from tests.cluster.until import until
from tests.jobs_proof.jobs import Judged, ProvenJob
from tests.jobs_proof.plan import JobPlan, Strike, Victim, amid
from tests.jobs_proof.process import JobProcess

#: Far above what a job needs from one strike to the next, its start included.
JOB_S = 900
#: Starts that an owner's death or a busy machine ended; a user would try again, too.
FAILURES_MAX = 4
_LOOK_S = 0.003
_ENDED, _NOW = "ended", "now"


@dataclass(frozen=True, slots=True)
class Outcome:
    """hits: {fault: how often it struck}. missed: what was planned and did not. starts: of the job. failures: of
    those, how many ended by themselves with an error."""

    plan: JobPlan
    judged: Judged
    hits: dict[str, int]
    missed: tuple[str, ...]
    starts: int
    failures: int
    seconds: float

    @property
    def good(self) -> bool:
        """Every strike hit, each message is there once, one more run adds none, and the control is doubled."""
        judged = self.judged
        doubled = judged.control is None or judged.control.duplicated > 0
        clean = not (self.missed or judged.complaints or judged.added)
        return clean and judged.verdict.perfect and doubled


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
                """Killed, or failed: once more."""
            self._missed += [f"{strike.fault}: the job ended before" for strike in planned]
        judged = await self._own.judged(self._to_its_end)
        seconds = time.monotonic() - began
        return Outcome(self._plan, judged, dict(self._hits), tuple(self._missed), self._starts, self._failures, seconds)

    async def _start(self, planned: list[Strike]) -> bool:
        """One start, until the job ends or is killed; whether it came to its end. What struck is planned no more."""
        await self._cluster.healed()
        await self._own.begin()
        process = self._process(self._own.words)
        try:
            while True:
                strike = planned[0] if planned else None
                if await self._told(process, strike) == _ENDED:
                    return self._ended(process)
                assert strike is not None
                planned.pop(0)
                if strike.victim is Victim.JOB:
                    await self._judge_kill(strike, process.kill())
                    return False
                await self._kill_owner(strike, process)
        finally:
            process.kill()

    def _process(self, words: Sequence[str]) -> JobProcess:
        self._starts += 1
        return JobProcess(words, self._directory / f"start-{self._starts:02d}")

    async def _told(self, process: JobProcess, strike: Strike | None) -> str:
        """Whether the job has ended, or the moment of the strike is there."""

        async def told() -> str:
            if process.code is not None:
                return _ENDED
            sight = None if strike is None else await self._own.look()
            return _NOW if strike and sight and amid(strike, sight, self._own.total) else ""

        waiting_for = f"{self._plan.job}, {strike.fault if strike else 'its end'}: see {process.log}"
        return await until(told, JOB_S, every_s=_LOOK_S, waiting_for=waiting_for)

    def _ended(self, process: JobProcess) -> bool:
        if process.code == 0:
            return True
        self._failures += 1
        said = process.log.read_text()[-3000:]
        print(f"{self._plan.job}: start {self._starts} ended with code {process.code}: {said}", file=sys.stderr)
        assert self._failures <= FAILURES_MAX, f"{self._plan.job} fails again and again: {said}"
        return False

    async def _judge_kill(self, strike: Strike, killed: bool) -> None:
        """A hit is a kill that found the job amid what was meant: what is there now, says so."""
        sight = await until(self._own.look, START_S, waiting_for="what the killed job has left")
        assert sight is not None
        self._note(strike, killed and amid(strike, sight, self._own.total), f"when it was dead: {sight}")

    async def _kill_owner(self, strike: Strike, process: JobProcess) -> None:
        name = await self._cluster.owner_of(await self._own.topic_of(strike))
        await self._cluster.kill(name)
        self._note(strike, process.code is None, "the job had ended")

    def _note(self, strike: Strike, hit: bool, otherwise: str) -> None:
        print(f"{self._plan.job}, start {self._starts}: {strike.fault}{'' if hit else ': MISSED'}", file=sys.stderr)
        if hit:
            self._hits[strike.fault] += 1
        else:
            self._missed.append(f"{strike.fault}: {otherwise}")

    async def _to_its_end(self, words: Sequence[str]) -> Any:
        """Another command, which nobody strikes."""
        process = self._process(words)
        try:
            assert await self._told(process, None) == _ENDED
            assert process.code == 0, f"code {process.code}: {process.log.read_text()[-3000:]}"
            return process.answer
        finally:
            process.kill()
