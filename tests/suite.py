"""`python -m tests.suite TARGET …`: run targets of the Makefile in parallel, with a line of progress every 15 seconds.

A line says, for each target that runs: tests done, of how many, failures so far, and the test that runs now. When a
target ends, its own last line is printed, or, if it failed, all that it wrote but the lines of tests that passed.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

#: at once: on two cores one or two of them compute, while the others wait; Spark gives a process 10 s to start
TARGETS_MAX = 4
EVERY_S = 15.0
#: pytest writes a line per test: its name when it begins, then its result and "[done/of]"
LINE_PER_TEST = "--verbose --override-ini=console_output_style=count"
_RESULT = re.compile(r" (PASSED|FAILED|ERROR|XFAIL|SKIPPED)\b.*\[ *(\d+)/(\d+)\]$")


@dataclass(slots=True)
class Target:
    """One command, and what it has written."""

    name: str
    command: list[str]
    #: without the lines of tests that passed
    lines: list[str] = field(default_factory=list)
    #: the line that is not complete
    unfinished: str = ""
    done: int = 0
    count: int = 0
    failed: int = 0
    seconds: float | None = None

    def run(self) -> int:
        """Blocks until the command ends. Returns its exit code."""
        began = time.monotonic()
        options = f"{os.environ.get('PYTEST_ADDOPTS', '')} {LINE_PER_TEST}"
        process = subprocess.Popen(
            self.command,
            env={**os.environ, "PYTEST_ADDOPTS": options},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdout is not None
        with process:
            # What has been written, also if it is less than a line: the name of the test that runs.
            while data := os.read(process.stdout.fileno(), 1 << 16):
                self.read(data.decode(errors="replace"))
        if self.unfinished:
            self.read("\n")
        self.seconds = time.monotonic() - began
        return process.returncode

    def read(self, text: str) -> None:
        *complete, self.unfinished = (self.unfinished + text).split("\n")
        for line in complete:
            result = _RESULT.search(line)
            if result is not None:
                self.done, self.count = int(result[2]), int(result[3])
                self.failed += result[1] in ("FAILED", "ERROR")
            if result is None or result[1] != "PASSED":
                self.lines.append(line)

    def progress(self) -> str:
        counted = f" {self.done} of {self.count}" if self.count else ""
        failed = f", {self.failed} failed" if self.failed else ""
        now = self.unfinished.split("::")[0].removeprefix("tests/") if "::" in self.unfinished else ""
        return f"{self.name}{counted}{failed}{f' ({now})' if now else ''}"

    def summary(self, code: int) -> str:
        """What is worth reading at the end."""
        said = "failed" if code else "passed"
        shown = self.lines if code else [line for line in self.lines if line][-1:]
        return "\n".join([f"==> {self.name} {said} after {clock(self.seconds or 0)}", *shown])


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def run_all(targets: list[Target], every_s: float = EVERY_S) -> list[str]:
    """Print the progress and the summaries. Returns the names of the targets that failed."""
    began, failed = time.monotonic(), list[str]()
    with ThreadPoolExecutor(TARGETS_MAX) as pool:
        running: dict[Future[int], Target] = {pool.submit(target.run): target for target in targets}
        while running:
            ended, _ = wait(running, timeout=every_s, return_when=FIRST_COMPLETED)
            for future in ended:
                target = running.pop(future)
                code = future.result()
                print(target.summary(code), flush=True)
                failed += [target.name] if code else []
            if running and not ended:
                parts = (target.progress() for future, target in running.items() if future.running())
                print(clock(time.monotonic() - began), *parts, sep="  ", flush=True)
    outcome = f"failed: {', '.join(failed)}" if failed else "all passed"
    print(f"==> {outcome}, {clock(time.monotonic() - began)} in all")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suite", description=__doc__)
    parser.add_argument("targets", nargs="+", metavar="TARGET")
    names = parser.parse_args().targets
    return 1 if run_all([Target(name, ["make", "--no-print-directory", name]) for name in names]) else 0


if __name__ == "__main__":
    sys.exit(main())
