"""Runs one journey: starts its driver, strikes where it announces, starts it again, and compares what is left."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from oncelog.runtime.orphan_guard import guarded
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.until import until
from tests.spark_proof.driver import FAILED, DriverSpec
from tests.spark_proof.flights import Row, Verdict, batch_ends, compare, part_topic, wanted
from tests.spark_proof.plan import RECUT, Journey, Strike, Victim
from tests.spark_proof.source_topic import stored
from tests.spark_proof.striking_sink import COMMITS, PLANNED, REACHED, RELEASED, WAITING

#: Far above what a driver needs from one strike to the next, its start included.
DRIVER_S = 900
#: Queries that an owner's death or a busy machine ended; a user would start them again, too.
FAILURES_MAX = 6
_ROOT = Path(__file__).parents[2]
_ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Outcome:
    """hits: {fault: how often it struck}. missed: faults that were planned and did not. starts: of the driver."""

    journey: Journey
    verdict: Verdict
    hits: dict[str, int]
    missed: tuple[str, ...]
    batches: int
    starts: int
    failures: int
    seconds: float
    complaints: tuple[str, ...] = field(default=())

    @property
    def good(self) -> bool:
        """Protected: nothing is wrong. The control: it shows what the protection is for."""
        if self.missed or self.complaints:
            return False
        return self.verdict.perfect if self.journey.protected else self.verdict.duplicated > 0


class JourneyRun:
    """One journey on a cluster that serves."""

    def __init__(self, journey: Journey, cluster: Cluster, directory: Path, rows_per_batch: int) -> None:
        self._journey = journey
        self._cluster = cluster
        self._directory = directory
        self._strikes = directory / "strikes"
        self._rows_per_batch = rows_per_batch
        self._target = f"public/default/proof-{directory.name}"
        self._starts = 0

    async def run(self, parts: Sequence[Sequence[Row]]) -> Outcome:
        """Raises AssertionError when the query does not come to its end."""
        began = time.monotonic()
        self._strikes.mkdir(parents=True)
        for strike in self._journey.strikes:
            told = json.dumps({"victim": strike.victim, "after": strike.after})
            (self._strikes / f"{strike.name}{PLANNED}").write_text(told)
        failures = 0
        while not await self._drive():
            killed = len(list(self._strikes.glob("*-driver-*" + REACHED)))
            failures = self._starts - killed
            assert failures <= FAILURES_MAX, f"the query fails again and again: {self._log.read_text()[-3000:]}"
        return await self._outcome(parts, failures, time.monotonic() - began)

    @property
    def _log(self) -> Path:
        return self._directory / "driver.log"

    async def _drive(self) -> bool:
        """One start of the driver, until it ends or is killed; whether the query came to its end."""
        cut = self._journey.cut(self._starts)
        self._starts += 1
        spec = DriverSpec(
            self._cluster.url,
            self._journey.job,
            self._journey.mode,
            self._journey.master,
            self._target,
            str(self._directory),
            self._rows_per_batch,
            self._journey.protected,
            **cut,
        )
        child = self._start(spec)
        try:
            return await self._follow(child)
        finally:
            _kill_group(child)

    def _start(self, spec: DriverSpec) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                guarded([sys.executable, "-m", "tests.spark_proof.driver", spec.to_json()]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                cwd=self._directory,
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        """Workers import the format of this package; what Spark leaves behind stays in the journey's directory."""
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        own = {name: value for name, value in os.environ.items() if not name.startswith(("ONCELOG_", "SPARK_"))}
        places = {name: str(self._directory) for name in ("SPARK_WORKER_DIR", "SPARK_LOCAL_DIRS")}
        return own | places | {"PYTHONPATH": path}

    async def _follow(self, child: subprocess.Popen[bytes]) -> bool:
        """Strike whatever waits to be struck."""
        while True:
            told = await until(
                lambda: self._waiting() or (_ENDED if child.poll() is not None else ""),
                DRIVER_S,
                every_s=0.05,
                waiting_for=f"{self._journey.name}, see {self._log}",
            )
            if told == _ENDED:
                assert child.returncode in {0, FAILED}, self._log.read_text()[-3000:]
                return child.returncode == 0
            strike = next(each for each in self._journey.strikes if each.name == told)
            if strike.victim is Victim.DRIVER:
                _kill_group(child)
                self._release(strike)
                return False
            await self._kill_owners(strike)
            self._release(strike)

    def _waiting(self) -> str:
        """Name of a strike that was reached, and is the run's to carry out."""
        waiting = {path.stem for path in self._strikes.glob("*" + WAITING)}
        released = {path.stem for path in self._strikes.glob("*" + RELEASED)}
        return min(waiting - released, default="")

    def _release(self, strike: Strike) -> None:
        (self._strikes / f"{strike.name}{RELEASED}").touch()

    async def _kill_owners(self, strike: Strike) -> None:
        await self._cluster.healed()
        if strike.victim is Victim.OWNERS:
            victims = [name for name, process in self._cluster.processes.items() if process["role"] == "owner"]
        else:
            topic = self._target if strike.victim is Victim.TARGET_OWNER else part_topic(strike.batch % 3)
            victims = [await self._cluster.owner_of(topic)]
        for name in victims:
            await self._cluster.kill(name)

    async def _outcome(self, parts: Sequence[Sequence[Row]], failures: int, seconds: float) -> Outcome:
        ends = batch_ends(self._directory / "checkpoint")
        found = await stored(self._cluster.url, self._target)
        reference = wanted(self._journey.job, parts, ends)
        if not self._journey.protected:
            # Each attempt of the control publishes under a name that the log gives it.
            reference = [replace(each, producer="") for each in reference]
        verdict = compare(reference, found)
        hits, missed = self._hits()
        complaints = []
        if {part_topic(part): len(rows) for part, rows in enumerate(parts)} != ends[-1]:
            complaints.append(f"the query ended at {ends[-1]}, before the end of its source")
        if self._journey.mode == "batch" and [each.sequence_id for each in found] != list(range(len(found))):
            complaints.append("sequence ids of the target are not dense")
        return Outcome(
            self._journey, verdict, hits, missed, len(ends), self._starts, failures, seconds, tuple(complaints)
        )

    def _hits(self) -> tuple[dict[str, int], tuple[str, ...]]:
        struck = {path.stem for path in self._strikes.glob("*" + REACHED)}
        hits = Counter(strike.fault for strike in self._journey.strikes if strike.name in struck)
        missed = [strike.fault for strike in self._journey.strikes if strike.name not in struck]
        if self._journey.recut:
            hits[RECUT] = recut_batches((self._strikes / COMMITS).read_text().splitlines())
            missed += [] if hits[RECUT] else [RECUT]
        return dict(hits), tuple(missed)


def recut_batches(commits: Sequence[str]) -> int:
    """How many batches were committed again with another number of tasks."""
    tasks: dict[int, set[int]] = {}
    for line in commits:
        told = json.loads(line)
        tasks.setdefault(told["batch"], set()).add(told["tasks"])
    return sum(len(counts) > 1 for counts in tasks.values())


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """The driver, its JVM and its executors, all at once; their Python workers find out by themselves."""
    with contextlib.suppress(ProcessLookupError):  # all of it is gone
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
