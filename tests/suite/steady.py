"""`python -m tests.suite.steady --runs 10 --load 12`: whether `make test` is green each time, also on a busy machine.

The load is so many processes that all begin to compute at the same moment, every two seconds, and together take three
tenths of the machine. So the tests have most of the time to themselves, and each two seconds a moment in which a
process of theirs waits for twelve others: what a test takes for granted about time does not hold then.

A machine that shares its cores with others is not always as fast: before each run and while it runs a loop says how
fast it is, and the seconds of two runs compare by it.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.suite.parts import ROOT
from tests.suite.running import clock

PERIOD_S = 2.0
#: of all cores
SHARE = 0.3
#: Between two looks at the machine's speed while a run goes on.
LOOK_S = 10.0
TURNS = 10_000_000
_COMPUTING = """
import os, sys, time
period_s, work_s, parent = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
while os.getppid() == parent:
    time.sleep(period_s - time.time() % period_s)
    ends_at = time.process_time() + work_s
    while time.process_time() < ends_at:
        pass
"""


class Run(NamedTuple):
    number: int
    seconds: float
    code: int
    load_average: float
    loop_s: float
    #: the median of those while it ran
    loop_during_s: float
    log: Path

    def __str__(self) -> str:
        said = "passed" if self.code == 0 else f"failed: {', '.join(self.failed_tests()) or 'see the log'}"
        machine = f"load average {self.load_average:.1f}, a loop {self.loop_s:.2f} s, then {self.loop_during_s:.2f} s"
        return f"run {self.number}: {clock(self.seconds)}, {machine}, {said} ({self.log})"

    def failed_tests(self) -> list[str]:
        return sorted(set(re.findall(r"^(?:FAILED|ERROR) (\S+)", self.log.read_text(errors="replace"), re.MULTILINE)))


def loop_s(turns: int = TURNS) -> float:
    """Seconds of CPU of ten million turns, by so many."""
    began = time.process_time()
    for _ in range(turns):
        pass
    return (time.process_time() - began) * TURNS / turns


@contextmanager
def load(count: int) -> Iterator[None]:
    """So many processes compute inside the block. They end with this process, too."""
    work_s = PERIOD_S * SHARE * len(os.sched_getaffinity(0)) / max(count, 1)
    command = [sys.executable, "-c", _COMPUTING, str(PERIOD_S), str(work_s), str(os.getpid())]
    with ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen(command)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def run_once(number: int, command: list[str], log: Path) -> Run:
    before, during, began = median(loop_s() for _ in range(5)), list[float](), time.monotonic()
    with (
        log.open("wb") as written,
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=written, stderr=written) as process,
    ):
        while process.poll() is None:
            during.append(loop_s(TURNS // 20))
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_S)
    seconds = time.monotonic() - began
    return Run(number, seconds, process.returncode, os.getloadavg()[1], before, median(during or [before]), log)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suite.steady", description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--load", type=int, default=0, metavar="PROCESSES")
    parser.add_argument("--logs", type=Path, default=ROOT / "build/steady", metavar="DIRECTORY")
    parser.add_argument("--command", nargs="+", default=["make", "test"], metavar="WORD", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.logs.mkdir(parents=True, exist_ok=True)
    runs = []
    with load(given.load):
        for number in range(1, given.runs + 1):
            log = given.logs / f"{time.strftime('%Y%m%d-%H%M%S')}-load-{given.load}.log"
            runs.append(run_once(number, given.command, log))
            print(runs[-1], flush=True)
    green = sum(run.code == 0 for run in runs)
    print(f"{green} of {len(runs)} passed; the longest took {clock(max(run.seconds for run in runs))}")
    return 0 if green == len(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
