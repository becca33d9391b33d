"""The harness can fail: a report is proven by faults, messages and a control alone, and a run starts what failed."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.cluster.cluster_fixture import Cluster
from tests.cluster.until import until_sync
from tests.proofs.flights import Verdict
from tests.proofs.killed_run import FAILURES_MAX, KilledRun
from tests.proofs.report import Besides, Outcome, Report
from tests.proofs.session_process import SessionProcess, kill_session
from tests.proofs.source_topic import Filled

PERFECT = Verdict(10, 10, 0, 0, 0, 0)
DOUBLED = replace(PERFECT, stored=12, duplicated=2)
GOOD = Outcome("copy", PERFECT, ["driver, mid-batch"], {"driver, mid-batch": 1}, [], [], 3, 1, 9.0, {"batches": 8})
CONTROL = replace(GOOD, verdict=DOUBLED, protected=False)
AUDIT = Besides("audit", True, {"topics": 4}, ["audit: good"])
DIFFERS = "the result differs from the reference"


def reported(outcomes: Sequence[Outcome], besides: Besides = AUDIT) -> Report:
    return Report(1, Filled(30, 10), "jobs", outcomes, besides)


@pytest.mark.parametrize(
    ("found", "proven", "said"),
    [
        (GOOD, True, "once"),
        (replace(GOOD, verdict=DOUBLED), False, DIFFERS),
        (replace(GOOD, verdict=replace(PERFECT, lost=1)), False, DIFFERS),
        (replace(GOOD, verdict=replace(PERFECT, foreign=1)), False, DIFFERS),
        (replace(GOOD, verdict=replace(PERFECT, out_of_order=1)), False, DIFFERS),
        (replace(GOOD, missed=["driver, mid-batch"], hits={}), False, "planned, but not injected: driver, mid-batch"),
        (replace(GOOD, complaints=["ids are not dense"]), False, "copy: ids are not dense"),
        (CONTROL, True, "doubled, as expected"),
        (replace(CONTROL, verdict=PERFECT), False, "the control has no duplicate"),
    ],
)
def test_verdict_needs_every_fault_every_message_and_a_control_that_fails(
    found: Outcome, proven: bool, said: str
) -> None:
    """A run that could not have failed is no proof."""
    report = reported([GOOD, replace(found, name="copy")])
    assert (found.good, report.proven, report.to_json()["proven"]) == (proven, proven, proven)
    assert said in str(report)
    assert str(report).splitlines()[-1] == ("PROVEN" if proven else "NOT PROVEN")


def test_run_without_a_part_or_with_a_bad_look_besides_proves_nothing() -> None:
    assert not reported([]).proven
    bad = reported([GOOD], replace(AUDIT, good=False, lines=["audit: incomplete"]))
    assert not bad.proven
    assert str(bad).splitlines()[-2:] == ["audit: incomplete", "NOT PROVEN"]


def test_report_has_the_matrix_and_the_figures() -> None:
    told = reported([GOOD, replace(CONTROL, name="control")]).to_json()
    assert told["kills"] == {"driver, mid-batch": {"copy": 1, "control": 1}}
    assert told["source"] == {"sent": 30, "refused": 10}
    assert told["audit"] == {"topics": 4, "good": True}
    copy = told["jobs"]["copy"]
    assert (copy["batches"], copy["starts"], copy["failed_starts"], copy["duplicated"]) == (8, 3, 1, 0)


class Whole:
    """A cluster for a run whose faults kill the command only."""

    async def healed(self) -> None:
        """It is."""


class Command:
    """Ends with each of the codes, one start after the other; None: it goes on until it is killed."""

    name = "a command"

    def __init__(self, place: Path, *codes: int | None, repeated: Sequence[int] = (3,)) -> None:
        self.hits: list[bool] = []
        self._place = place
        self._codes = list(codes)
        self._repeated = repeated
        self._kills = False

    async def start(self, number: int) -> SessionProcess:
        code = self._codes[number - 1]
        self._kills = code is None
        words = "threading.Event().wait()" if code is None else f"sys.exit({code})"
        return SessionProcess(["-c", f"import sys, threading; {words}"], self._place, self._place / "log")

    async def due(self) -> str | None:
        return "a kill" if self._kills else None

    async def owners(self, fault: str) -> list[str]:
        return []

    async def injected(self, fault: str, *, hit: bool) -> None:
        self.hits.append(hit)

    def may_repeat(self, code: int) -> bool:
        return code in self._repeated


@pytest.mark.asyncio
async def test_command_is_started_until_it_ends_by_itself_with_success(tmp_path: Path) -> None:
    command = Command(tmp_path, None, 3, None, 0)
    run = KilledRun(command, cast("Cluster", Whole()))
    await run.to_its_end()
    assert (run.starts, run.failures, command.hits) == (4, 1, [True, True])


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("codes", "said"),
    [((1,), "start 1 ended with code 1"), ((3,) * (FAILURES_MAX + 1), "fails again and again")],
)
async def test_command_that_nobody_would_repeat_ends_the_run(tmp_path: Path, codes: tuple[int, ...], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        await KilledRun(Command(tmp_path, *codes), cast("Cluster", Whole())).to_its_end()


# --- a kill -----------------------------------------------------------------------------------------------------------

_WITH_A_WORKER = """
import os, signal, sys
if not os.fork():
    os.setpgid(0, 0)
    open(sys.argv[1], "w").write(str(os.getpid()) + "\\n")
signal.pause()
"""


def start(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", code, *arguments], start_new_session=True)


def test_a_kill_also_ends_workers_outside_their_drivers_process_group(tmp_path: Path) -> None:
    """As Spark's are; a surviving worker would publish the same rows as the next start."""
    told = tmp_path / "worker"
    driver = start(_WITH_A_WORKER, str(told))
    worker = int(until_sync(lambda: told.exists() and told.read_text().strip(), 60))
    assert kill_session(driver)
    assert driver.returncode == -signal.SIGKILL
    stat = Path(f"/proc/{worker}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in {"Z", "X"}
    assert worker != os.getpid()


def test_a_job_that_has_ended_by_itself_was_not_killed() -> None:
    """Then the fault has missed."""
    job = start("")
    job.wait()
    assert not kill_session(job)
