"""One part of the suite as a process: what it has written, how far it is, and what is left of it.

The temporary files of a part (logs and directories of clusters) are under one directory. It is deleted if the part
passes, and named if it fails.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.suite.parts import Part
from tests.suite.queue import Measured

#: pytest writes a line per test: its name when it begins, then its result and "[done/of]"
LINE_PER_TEST = "--verbose --override-ini=console_output_style=count"
_RESULT = re.compile(r" (PASSED|FAILED|ERROR|XFAIL|SKIPPED)\b.*\[ *(\d+)/(\d+)\]$")


def kept_files() -> Path:
    """A new directory for the temporary files of one run of the suite."""
    return Path(tempfile.mkdtemp(prefix="oncelog-tests-"))


@dataclass(slots=True)
class Running:
    """One part that runs, or has run.

    files: where its temporary files go, in a directory of their own.
    """

    part: Part
    files: Path
    #: without the lines of tests that passed
    lines: list[str] = field(default_factory=list)
    #: the line that is not complete
    unfinished: str = ""
    done: int = 0
    count: int = 0
    failed: int = 0
    code: int | None = None
    measured: Measured = field(default_factory=lambda: Measured(0.0, 0.0))

    def run(self) -> None:
        """Blocks until the part ends."""
        began = time.monotonic()
        options = f"{os.environ.get('PYTEST_ADDOPTS', '')} {LINE_PER_TEST}"
        # Not among the options of the environment, which a pytest that a test starts would take for its own.
        own = [f"--basetemp={self.directory}"] if "pytest" in self.part.command else []
        process = subprocess.Popen(
            [*self.part.command, *own],
            env={**os.environ, "PYTEST_ADDOPTS": options},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdout is not None
        with process.stdout:
            # What has been written, also if it is less than a line: the name of the test that runs.
            while data := os.read(process.stdout.fileno(), 1 << 16):
                self.read(data.decode(errors="replace"))
        if self.unfinished:
            self.read("\n")
        _, status, usage = os.wait4(process.pid, 0)
        self.code = process.returncode = os.waitstatus_to_exitcode(status)
        self.measured = Measured(time.monotonic() - began, usage.ru_utime + usage.ru_stime)
        if self.code == 0:
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def directory(self) -> Path:
        return self.files / self.part.name.replace("/", "-")

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
        return f"{self.part.name}{counted}{failed}{f' ({now})' if now else ''}"

    def summary(self) -> str:
        """What is worth reading at the end."""
        said = "failed" if self.code else "passed"
        shown = [line for line in self.lines if line][-1:]
        if self.code:
            kept = [f"logs and directories: {self.directory}"] if self.directory.exists() else []
            shown = [*self.lines, *kept, f"again: {' '.join(self.part.command)}"]
        return "\n".join([f"==> {self.part.name} {said} after {clock(self.measured.seconds)}", *shown])


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
