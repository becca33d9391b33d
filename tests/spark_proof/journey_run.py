"""Runs one journey: starts its driver, injects faults at the points it announces, restarts it, and checks the
target."""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.cluster.cluster_fixture import Cluster
from tests.proofs.flights import Row, compare
from tests.proofs.killed_run import KilledRun
from tests.proofs.report import Outcome
from tests.proofs.session_process import SessionProcess
from tests.proofs.source_topic import stored
from tests.spark_proof.driver import FAILED, DriverSpec
from tests.spark_proof.faulty_sink import COMMITS, PLANNED, REACHED, RELEASED, WAITING
from tests.spark_proof.flights import batch_ends, partition_topic, wanted
from tests.spark_proof.plan import RECUT, Fault, Journey, Victim

_ROOT = Path(__file__).parents[2]


class JourneyRun:
    """One journey on a cluster that serves: its driver is `tests.proofs.killed_run.Killed`."""

    def __init__(self, journey: Journey, cluster: Cluster, directory: Path, rows_per_batch: int) -> None:
        self.name = journey.name
        self._journey = journey
        self._cluster = cluster
        self._directory = directory
        self._planned = directory / "faults"
        self._rows_per_batch = rows_per_batch
        self._target = f"public/default/proof-{directory.name}"

    async def run(self, partitions: Sequence[Sequence[Row]]) -> Outcome:
        """Raises AssertionError when the query does not come to its end."""
        began = time.monotonic()
        self._planned.mkdir(parents=True)
        for fault in self._journey.faults:
            planned = json.dumps({"victim": fault.victim, "after": fault.after})
            (self._planned / f"{fault.name}{PLANNED}").write_text(planned)
        driver = KilledRun(self, self._cluster)
        await driver.to_its_end()
        return await self._outcome(partitions, driver, time.monotonic() - began)

    # --- the driver, for `KilledRun` ----------------------------------------------------------------------------------

    async def start(self, number: int) -> SessionProcess:
        """Workers import the format of this package."""
        spec = DriverSpec(
            self._cluster.url,
            self._journey.job,
            self._journey.mode,
            self._journey.master,
            self._target,
            str(self._directory),
            self._rows_per_batch,
            self._journey.protected,
            **self._journey.cut(number - 1),
        )
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        words = ["-m", "tests.spark_proof.driver", spec.to_json()]
        log = self._directory / "driver.log"
        return SessionProcess(words, self._directory, log, environment={"PYTHONPATH": path})

    async def due(self) -> Fault | None:
        """The fault whose point was reached, and whose victim this run must kill: the point waits for it."""
        waiting = {path.stem for path in self._planned.glob("*" + WAITING)}
        released = {path.stem for path in self._planned.glob("*" + RELEASED)}
        first = min(waiting - released, default="")
        return next((each for each in self._journey.faults if each.name == first), None)

    async def owners(self, fault: Fault) -> list[str]:
        if fault.victim is Victim.DRIVER:
            return []
        await self._cluster.healed()
        if fault.victim is Victim.OWNERS:
            return [name for name, process in self._cluster.processes.items() if process["role"] == "owner"]
        topic = self._target if fault.victim is Victim.TARGET_OWNER else partition_topic(fault.batch % 3)
        return [await self._cluster.owner_of(topic)]

    async def injected(self, fault: Fault, *, hit: bool) -> None:
        """The point goes on; a driver that was killed there is not awaited by anybody."""
        (self._planned / f"{fault.name}{RELEASED}").touch()
        print(f"{self.name}: {fault.label}{'' if hit else ': it had ended'}", file=sys.stderr)

    def may_repeat(self, code: int) -> bool:
        """A query that failed, not a driver that did."""
        return code == FAILED

    # --- the oracle ---------------------------------------------------------------------------------------------------

    async def _outcome(self, partitions: Sequence[Sequence[Row]], driver: KilledRun[Fault], seconds: float) -> Outcome:
        journey = self._journey
        ends = batch_ends(self._directory / "checkpoint")
        found = await stored(self._cluster.url, self._target)
        reference = wanted(journey.job, partitions, ends)
        if not journey.protected:
            # Each attempt of the control publishes under a name that the log gives it.
            reference = [replace(each, producer="") for each in reference]
        complaints = []
        if {partition_topic(partition): len(rows) for partition, rows in enumerate(partitions)} != ends[-1]:
            complaints.append(f"the query ended at {ends[-1]}, before the end of its source")
        if journey.mode == "batch" and [each.sequence_id for each in found] != list(range(len(found))):
            complaints.append("sequence ids of the target are not dense")
        hits, missed = self._hits()
        return Outcome(
            journey.name, compare(reference, found), sorted(hits), hits, missed, complaints, driver.starts,
            driver.failures, seconds, {"mode": journey.mode, "batches": len(ends)}, journey.protected,
        )  # fmt: skip

    def _hits(self) -> tuple[dict[str, int], list[str]]:
        injected = {path.stem for path in self._planned.glob("*" + REACHED)}
        hits = Counter(fault.label for fault in self._journey.faults if fault.name in injected)
        missed = [fault.label for fault in self._journey.faults if fault.name not in injected]
        if self._journey.recut:
            hits[RECUT] = recut_batches((self._planned / COMMITS).read_text().splitlines())
            missed += [] if hits[RECUT] else [RECUT]
        return dict(hits), missed


def recut_batches(commits: Sequence[str]) -> int:
    """The number of batches that were committed again with another number of tasks."""
    tasks: dict[int, set[int]] = {}
    for line in commits:
        commit = json.loads(line)
        tasks.setdefault(commit["batch"], set()).add(commit["tasks"])
    return sum(len(counts) > 1 for counts in tasks.values())
