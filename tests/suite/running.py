"""One part of the suite as a process: what it has written, how far it is, and what is left of it.

The temporary files of a part (logs and directories of clusters) are under one directory. It is deleted if the part
passes, and named if it fails.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from oncelog.cli.standalone.fork_server import ForkServer
from tests.cluster.forked_program import ForkedPopen
from tests.suite.forked_part import MODULE
from tests.suite.parts import Part
from tests.suite.queue import Measured

#: pytest writes a line per test: its name when it begins, then its result and "[done/of]"
LINE_PER_TEST = "--verbose --override-ini=console_output_style=count"
_RESULT = re.compile(r" (PASSED|FAILED|ERROR|XFAIL|SKIPPED)\b.*\[ *(\d+)/(\d+)\]$")


#: Storage nodes refuse messages before a disk is full: three new ones need 2.25 GiB (docs/settings.md).
FREE_BYTES = 4 * 1024**3


def check_free_disk(free: int | None = None) -> None:
    """free: bytes, by default those of the temporary directory. Raises SystemExit if clusters would refuse messages."""
    place = tempfile.gettempdir()
    free = shutil.disk_usage(place).free if free is None else free
    if free < FREE_BYTES:
        raise SystemExit(
            f"{place} has {free / 1024**3:.1f} GiB free, and the tests need {FREE_BYTES // 1024**3}: "
            "free some space, or name another directory in TMPDIR"
        )


def kept_files() -> Path:
    """A new directory for the temporary files of one run of the suite."""
    return Path(tempfile.mkdtemp(prefix="oncelog-tests-"))


@dataclass(slots=True)
class Running:
    """One part that runs, or has run.

    files: where its temporary files go, in a directory of their own. forks: has imported what the tests of parts need;
    None: each part imports it again.
    """

    part: Part
    files: Path
    forks: ForkServer | None = None
    #: without the lines of tests that passed
    lines: list[str] = field(default_factory=list)
    #: the line that is not complete
    unfinished: str = ""
    done: int = 0
    count: int = 0
    failed: int = 0
    code: int | None = None
    #: 0: it has not begun
    pid: int = 0
    measured: Measured = field(default_factory=lambda: Measured(0.0, 0.0))

    def run(self) -> None:
        """Blocks until the part ends."""
        began = time.monotonic()
        process, output = self._started()
        with output:
            # What has been written, also if it is less than a line: the name of the test that runs.
            while data := os.read(output.fileno(), 1 << 16):
                self.read(data.decode(errors="replace"))
        if self.unfinished:
            self.read("\n")
        _, status, usage = os.wait4(process.pid, 0)
        self.code = process.returncode = os.waitstatus_to_exitcode(status)
        self.measured = Measured(time.monotonic() - began, usage.ru_utime + usage.ru_stime)
        if self.code == 0:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _started(self) -> "tuple[subprocess.Popen[bytes], IO[bytes]]":
        """The process, and what it writes to its standard streams."""
        options = f"{os.environ.get('PYTEST_ADDOPTS', '')} {LINE_PER_TEST}"
        environment = {**os.environ, "PYTEST_ADDOPTS": options}
        command = self.part.command
        if "pytest" in command:
            # Not among the options of the environment, which a pytest that a test starts would take for its own.
            command.append(f"--basetemp={self.directory}")
        read, write = os.pipe()
        with os.fdopen(write, "wb") as written:
            process: subprocess.Popen[bytes]
            if self.forks is not None and "pytest" in command:
                words = command[command.index("pytest") + 1 :]
                process = ForkedPopen(self.forks, MODULE, words, environment, written, written)
            else:
                process = subprocess.Popen(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.STDOUT
                )
        self.pid = process.pid
        return process, os.fdopen(read, "rb")

    def interrupt(self) -> None:
        """As Ctrl-C, which does not reach a fork."""
        if self.pid and self.code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGINT)

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
