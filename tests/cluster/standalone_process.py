"""`oncelog standalone` and other commands as real processes, for tests of the command line."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oncelog.runtime.orphan_guard import guarded
from tests.cluster.until import until_sync

START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 90.0
COMMAND_TIMEOUT_S = 120.0


def command(*words: str) -> list[str]:
    """The command line, ended with the test process."""
    return guarded([sys.executable, "-m", "oncelog.cli", *words])


def environment() -> dict[str, str]:
    """Without the settings of the user who runs the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ONCELOG_")}


class Standalone:
    """A running standalone cluster."""

    def __init__(self, process: subprocess.Popen[str], status: Mapping[str, Any], log_path: Path) -> None:
        self.process = process
        #: the line that it printed when it was ready
        self.status = status
        self._log_path = log_path

    @property
    def url(self) -> str:
        return str(self.status["url"])

    @property
    def admin_url(self) -> str:
        return str(self.status["admin_url"])

    @property
    def told(self) -> str:
        """Its standard error."""
        return self._log_path.read_text()

    def now(self) -> dict[str, Any]:
        """standalone.json as it is now."""
        found: dict[str, Any] = json.loads((Path(self.status["data"]) / "standalone.json").read_text())
        return found

    def child(self, name: str) -> dict[str, Any]:
        """One process of standalone.json."""
        found: dict[str, Any] = next(process for process in self.now()["processes"] if process["name"] == name)
        return found

    def run(self, *words: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        """Another command against this cluster, to its end. given: its standard input."""
        own = environment() | {"ONCELOG_URL": self.url, "ONCELOG_ADMIN_URL": self.admin_url}
        return subprocess.run(
            command(*words), input=given, capture_output=True, env=own, timeout=COMMAND_TIMEOUT_S, check=False
        )

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_DEADLINE_S)


@contextmanager
def standalone(directory: Path, *options: str) -> Iterator[Standalone]:
    """Start a cluster and give it when it serves; its ports are free ones unless the options name others.

    directory: for its standard error, and for the cluster unless the options name another place.
    """
    log_path = directory / "standalone.stderr"
    words = ["standalone", "-o", "json", "--port", "0", "--http-port", "0", "--data", str(directory / "data"), *options]
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=environment(), text=True
        )
    try:
        yield Standalone(process, _ready(process, log_path), log_path)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        assert process.stdout is not None
        process.stdout.close()


def gone(pid: int) -> bool:
    """Whether no such process runs any more; one that its parent has not noticed yet does not run."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def _ready(process: "subprocess.Popen[str]", log_path: Path) -> dict[str, Any]:
    assert process.stdout is not None
    output = process.stdout

    def said() -> bool:
        return bool(select.select([output], [], [], 0)[0]) or process.poll() is not None

    until_sync(said, START_DEADLINE_S, waiting_for="the standalone cluster")
    line = output.readline()
    assert line, f"the cluster did not start: {log_path.read_text()}"
    found: dict[str, Any] = json.loads(line)
    return found
