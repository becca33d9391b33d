"""One supervised process: starts it, waits until it is ready, and restarts it whenever it exits.

A service writes one JSON line {"serving": {addresses}} to standard output when it is ready; its standard error is its
log. Each change of state is reported to a callback, so that no restart is silent.
"""

import asyncio
import json
import signal
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

from oncelog.cli.standalone.cluster_plan import ProcessPlan
from oncelog.cli.standalone.process_start import Process, ProcessStarter
from oncelog.runtime.process import ENDS_BECAUSE

#: Pause before a restart: first and maximum.
BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0
#: After this time in service, the pause before a restart is the first one again.
STEADY_S = 10.0
_LAST_LINES = 5

Addresses = Mapping[str, object]


class ProcessState(StrEnum):
    STARTING = "starting"
    SERVING = "serving"
    WAITING = "waiting to restart"
    STOPPED = "stopped"


class SupervisedProcess:
    """Keeps one process running. `watch` is called with the process and a sentence at each change of its state."""

    def __init__(
        self,
        plan: ProcessPlan,
        log_path: Path,
        environment: Mapping[str, str],
        watch: "Callable[[SupervisedProcess, str], None]",
        starter: ProcessStarter,
    ) -> None:
        self.plan = plan
        self.state = ProcessState.STARTING
        #: the addresses that it reported; empty until it is ready
        self.serving: Addresses = {}
        self.restarts = 0
        #: consecutive exits without STEADY_S of service in between
        self.failures = 0
        self._log_path = log_path
        self._environment = environment
        self._watch = watch
        self._starter = starter
        self._process: Process | None = None
        self._stopping = asyncio.Event()

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def pid(self) -> int | None:
        """The process id; None if it is not running."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if self._process is not None and running else None

    async def keep(self) -> None:
        """Run the process and restart it when it exits, until `stop`."""
        while True:
            began = time.monotonic()
            self._change(ProcessState.STARTING, "")
            code = await self._run_once()
            if self._stopping.is_set():
                break
            steady = self.state is ProcessState.SERVING and time.monotonic() - began > STEADY_S
            self.failures = 1 if steady else self.failures + 1
            delay_s = min(BACKOFF_FIRST_S * 2 ** (self.failures - 1), BACKOFF_MAX_S)
            self.restarts += 1
            self._change(ProcessState.WAITING, f"{self.name} {_ending(code)}; restarting it in {delay_s:.1f} s")
            try:
                await asyncio.wait_for(self._stopping.wait(), delay_s)
                break
            except TimeoutError:
                continue
        self._change(ProcessState.STOPPED, "")

    async def stop(self, deadline_s: float) -> None:
        """Send SIGTERM, and SIGKILL at the deadline if the process has not drained; this is reported."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), deadline_s)
        except TimeoutError:
            self._watch(self, f"{self.name} did not drain within {deadline_s:.0f} s and was killed")
            process.kill()
            await process.wait()

    def last_words(self) -> str:
        """The sentence with which the process ended itself; without one, the last lines of its log."""
        try:
            lines = self._log_path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        sentences = [message for line in lines[-1:] if (message := _logged(line)).startswith(ENDS_BECAUSE)]
        if sentences:
            return sentences[0].removeprefix(ENDS_BECAUSE)
        return "\n".join(["end of its log:", *lines[-_LAST_LINES:]])

    async def _run_once(self) -> int:
        """Run the process once; returns the exit code, negative for a signal."""
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            process = self._process = await self._starter.start(self.plan.command, self._environment, log)
        self._watch(self, "")  # it has a process id now, perhaps for a long wait
        if self._stopping.is_set():
            process.send_signal(signal.SIGTERM)
        try:
            assert process.stdout is not None
            async for line in process.stdout:
                self._read_line(line)
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()

    def _read_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return
        if isinstance(message, dict) and isinstance(message.get("serving"), dict):
            self.serving = message["serving"]
            self._change(
                ProcessState.SERVING, f"{self.name} is ready again" if self.restarts else f"{self.name} is ready"
            )

    def _change(self, state: ProcessState, sentence: str) -> None:
        self.state = state
        self._watch(self, sentence)


def _logged(line: str) -> str:
    """The message of a line of a log; "" for another line."""
    try:
        found = json.loads(line)
    except ValueError:
        return ""
    return str(found.get("msg", "")) if isinstance(found, dict) else ""


def _ending(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
