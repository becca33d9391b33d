"""A cluster as a child process: `oncelog standalone`, with what a test needs to start, find and end it.

Rules
- It ends with the process that started it, even if that is killed (`orphan_guard`): the supervisor then gets SIGTERM,
  drains, and deletes a temporary directory. The parent is the thread that called `start`, so call it from a thread that
  lives as long as the cluster should.
- It does not see the ONCELOG_ variables of the user, which are for other clusters.
"""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from uuid import uuid4

import httpx

from oncelog.cli.extras import check_installed
from oncelog.cli.standalone.status import read_status
from oncelog.core.errors import Fatal
from oncelog.runtime.orphan_guard import guarded
from oncelog.runtime.settings import PREFIX, shown, variable

#: On a quiet machine 3 s, on a busy one more than a minute.
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 90.0
REQUEST_TIMEOUT_S = 60.0
_STANDALONE = (sys.executable, "-m", "oncelog.cli", "standalone")
_LIGHT = ("--light", "--port", "0", "--http-port", "0")


class ClusterNotStarted(Fatal):
    """`oncelog standalone` did not start; the message is its error."""


class LocalCluster:
    """One cluster: `with LocalCluster() as cluster`, or `start` and `stop`, which may be repeated.

    options: of `oncelog standalone`; by default a light cluster on free ports. settings: of the services, by the names
    of their variables in lower case without the prefix: ledger_age_max_ms=1000.
    """

    def __init__(self, *options: str, **settings: float | str) -> None:
        given = {variable(name): shown(value) for name, value in settings.items()}
        self._set_up([*_STANDALONE, *(options or _LIGHT)], without_settings(os.environ) | given, log=None)

    def _set_up(self, command: Sequence[str], environment: Mapping[str, str], *, log: Path | None) -> None:
        """log: what the supervisor reports is appended to it; None: kept for the error of a failed start."""
        self._command = [*command, "-o", "json"]
        self._environment = environment
        self._log = log
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._announced: Mapping[str, Any] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Return once every process serves. Raises ClusterNotStarted, and Fatal if packages are missing."""
        check_installed("services", "embedded")
        with tempfile.TemporaryFile() if self._log is None else self._log.open("ab+") as log:
            begun = log.seek(0, os.SEEK_END)
            self._supervisor = process = self._launched(log)
            line = _first_line(process)
            if not line:
                self.stop()
                log.seek(begun)
                raise ClusterNotStarted(_error_in(log.read().decode(errors="replace")))
        self._announced = json.loads(line)

    def _launched(self, log: IO[bytes]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            guarded(self._command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=dict(self._environment),
            # Ctrl-C ends pytest, and pytest ends the cluster.
            start_new_session=True,
        )

    def stop(self) -> int:
        """End the cluster with SIGTERM, as a user does. Returns the exit code; 0 if it does not run."""
        process, self._supervisor = self._supervisor, None
        if process is None:
            return 0
        process.terminate()
        try:
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    @property
    def url(self) -> str:
        """The URL for clients."""
        return str(self._announced["url"])

    @property
    def admin_url(self) -> str:
        """The address of REST."""
        return str(self._announced["admin_url"])

    @property
    def data(self) -> Path:
        """The directory with the data, and `logs` of each process."""
        return Path(self._announced["data"])

    def status(self) -> dict[str, Any]:
        """The supervisor's record of the cluster and its processes, as of now."""
        return read_status(self.data / "standalone.json")

    def new_topic(self) -> str:
        """The full name of a topic that does not exist yet; its first use creates it."""
        return f"persistent://public/default/test-{uuid4().hex[:12]}"

    def new_namespace(self) -> str:
        """Create a namespace, and return its name with its tenant."""
        name = f"public/test-{uuid4().hex[:12]}"
        address = f"{self.admin_url}/admin/v2/namespaces/{name}"
        answer = httpx.put(address, timeout=REQUEST_TIMEOUT_S, trust_env=False)
        if answer.is_error:
            raise Fatal(f"namespace {name} could not be created: {answer.text}")
        return name


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables but for those of Oncelog."""
    return {name: value for name, value in environment.items() if not name.startswith(PREFIX)}


def _error_in(said: str) -> str:
    """The sentence of the supervisor's error; without one, its last lines."""
    lines = said.splitlines()
    at = next((number for number, line in enumerate(lines) if line.startswith("error: ")), None)
    if at is None:
        return "\n".join([f"`oncelog standalone` ended, or was not ready in {START_TIMEOUT_S:.0f} s", *lines[-20:]])
    return "\n".join(lines[at:]).removeprefix("error: ")


def _first_line(process: "subprocess.Popen[bytes]") -> bytes:
    """Of its standard output; b"" if it ends before, or is not ready in time."""
    assert process.stdout is not None, "it was started with a pipe"
    line, ends_at = b"", time.monotonic() + START_TIMEOUT_S
    with process.stdout as output:
        while not line.endswith(b"\n"):
            left_s = ends_at - time.monotonic()
            if left_s <= 0 or not select.select([output], [], [], left_s)[0]:
                return b""
            part = os.read(output.fileno(), 1 << 16)
            if not part:
                return b""
            line += part
    return line
