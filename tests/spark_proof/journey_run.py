"""Runs one journey: starts its driver, injects faults at the points it announces, restarts it, and checks the
target."""

import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.cluster.cluster_fixture import Cluster
from tests.cluster.kills import just_seen
from tests.cluster.until import until
from tests.proofs.session_process import SessionProcess
from tests.spark_proof.driver import FAILED, DriverSpec
from tests.spark_proof.faulty_sink import COMMITS, PLANNED, REACHED, RELEASED, WAITING
from tests.spark_proof.flights import Row, Verdict, batch_ends, compare, partition_topic, wanted
from tests.spark_proof.plan import RECUT, Fault, Journey, Victim
from tests.spark_proof.source_topic import stored

#: Much longer than a driver takes from one fault to the next, including its start.
DRIVER_S = 900
#: Queries that failed because an owner died or the machine was busy; a user would restart them, too.
FAILURES_MAX = 6
_ROOT = Path(__file__).parents[2]
_ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Outcome:
    """hits: {label of a fault: how often it was injected}. missed: faults that were not injected. starts: of the
    driver."""

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
        """Protected: nothing is wrong. The control: it has duplicates, which the protection prevents."""
        if self.missed or self.complaints:
            return False
        return self.verdict.perfect if self.journey.protected else self.verdict.duplicated > 0


class JourneyRun:
    """One journey on a cluster that serves."""

    def __init__(self, journey: Journey, cluster: Cluster, directory: Path, rows_per_batch: int) -> None:
        self._journey = journey
        self._cluster = cluster
        self._directory = directory
        self._planned = directory / "faults"
        self._rows_per_batch = rows_per_batch
        self._target = f"public/default/proof-{directory.name}"
        self._starts = 0

    async def run(self, partitions: Sequence[Sequence[Row]]) -> Outcome:
        """Raises AssertionError when the query does not come to its end."""
        began = time.monotonic()
        self._planned.mkdir(parents=True)
        for fault in self._journey.faults:
            planned = json.dumps({"victim": fault.victim, "after": fault.after})
            (self._planned / f"{fault.name}{PLANNED}").write_text(planned)
        failures = 0
        while not await self._drive():
            killed = len(list(self._planned.glob("*-driver-*" + REACHED)))
            failures = self._starts - killed
            assert failures <= FAILURES_MAX, f"the query fails again and again: {self._log.read_text()[-3000:]}"
        return await self._outcome(partitions, failures, time.monotonic() - began)

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
            child.end()

    def _start(self, spec: DriverSpec) -> SessionProcess:
        """Workers import the format of this package."""
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        words = ["-m", "tests.spark_proof.driver", spec.to_json()]
        return SessionProcess(words, self._directory, self._log, environment={"PYTHONPATH": path})

    async def _follow(self, child: SessionProcess) -> bool:
        """Inject the faults whose points wait for it."""
        while True:
            waiting = await until(
                lambda: self._waiting() or (_ENDED if child.code is not None else ""),
                DRIVER_S,
                every_s=0.05,
                waiting_for=f"{self._journey.name}, see {self._log}",
            )
            if waiting == _ENDED:
                assert child.code in {0, FAILED}, self._log.read_text()[-3000:]
                return child.code == 0
            fault = next(each for each in self._journey.faults if each.name == waiting)
            if fault.victim is Victim.DRIVER:
                await child.kill(once=just_seen)
                self._release(fault)
                return False
            await self._kill_owners(fault)
            self._release(fault)

    def _waiting(self) -> str:
        """Name of a fault whose point was reached, and whose victim this run must kill."""
        waiting = {path.stem for path in self._planned.glob("*" + WAITING)}
        released = {path.stem for path in self._planned.glob("*" + RELEASED)}
        return min(waiting - released, default="")

    def _release(self, fault: Fault) -> None:
        (self._planned / f"{fault.name}{RELEASED}").touch()

    async def _kill_owners(self, fault: Fault) -> None:
        await self._cluster.healed()
        if fault.victim is Victim.OWNERS:
            victims = [name for name, process in self._cluster.processes.items() if process["role"] == "owner"]
        else:
            topic = self._target if fault.victim is Victim.TARGET_OWNER else partition_topic(fault.batch % 3)
            victims = [await self._cluster.owner_of(topic)]
        for name in victims:
            await self._cluster.kill(name, once=just_seen)

    async def _outcome(self, partitions: Sequence[Sequence[Row]], failures: int, seconds: float) -> Outcome:
        ends = batch_ends(self._directory / "checkpoint")
        found = await stored(self._cluster.url, self._target)
        reference = wanted(self._journey.job, partitions, ends)
        if not self._journey.protected:
            # Each attempt of the control publishes under a name that the log gives it.
            reference = [replace(each, producer="") for each in reference]
        verdict = compare(reference, found)
        hits, missed = self._hits()
        complaints = []
        if {partition_topic(partition): len(rows) for partition, rows in enumerate(partitions)} != ends[-1]:
            complaints.append(f"the query ended at {ends[-1]}, before the end of its source")
        if self._journey.mode == "batch" and [each.sequence_id for each in found] != list(range(len(found))):
            complaints.append("sequence ids of the target are not dense")
        return Outcome(
            self._journey, verdict, hits, missed, len(ends), self._starts, failures, seconds, tuple(complaints)
        )

    def _hits(self) -> tuple[dict[str, int], tuple[str, ...]]:
        injected = {path.stem for path in self._planned.glob("*" + REACHED)}
        hits = Counter(fault.label for fault in self._journey.faults if fault.name in injected)
        missed = [fault.label for fault in self._journey.faults if fault.name not in injected]
        if self._journey.recut:
            hits[RECUT] = recut_batches((self._planned / COMMITS).read_text().splitlines())
            missed += [] if hits[RECUT] else [RECUT]
        return dict(hits), tuple(missed)


def recut_batches(commits: Sequence[str]) -> int:
    """The number of batches that were committed again with another number of tasks."""
    tasks: dict[int, set[int]] = {}
    for line in commits:
        commit = json.loads(line)
        tasks.setdefault(commit["batch"], set()).add(commit["tasks"])
    return sum(len(counts) > 1 for counts in tasks.values())
