"""One supervised process: started, awaited until it serves, started again whenever it ends.

A service says on standard output that it serves, with one JSON line {"serving": {its addresses}}; its standard error is
its log. What happens to it is told, each time, to whoever watches: nothing is restarted silently.
"""

import asyncio
import json
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

from oncelog.cli.standalone.cluster_plan import ProcessPlan
from oncelog.runtime.orphan_guard import guarded

#: Waits before a restart: the first is short, for most deaths are single; the last is what a broken machine gets.
BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0
#: After so long in service the next death counts as the first again.
STEADY_S = 10.0
_LAST_LINES = 5

Addresses = Mapping[str, object]


class ProcessState(StrEnum):
    STARTING = "starting"
    SERVING = "serving"
    WAITING = "waiting to restart"
    STOPPED = "stopped"


class SupervisedProcess:
    """Keeps one process alive. `watch` is called with the child and a sentence at each change of its state."""

    def __init__(
        self,
        plan: ProcessPlan,
        log_path: Path,
        environment: Mapping[str, str],
        watch: "Callable[[SupervisedProcess, str], None]",
    ) -> None:
        self.plan = plan
        self.state = ProcessState.STARTING
        #: what it said it serves, empty until then
        self.serving: Addresses = {}
        self.restarts = 0
        #: deaths in a row without a steady time between them
        self.failures = 0
        self._log_path = log_path
        self._environment = environment
        self._watch = watch
        self._process: Process | None = None
        self._stopping = asyncio.Event()

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def pid(self) -> int | None:
        """Of the process that runs now, if one does."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if self._process is not None and running else None

    async def keep(self) -> None:
        """Run the process, again and again, until `stop`."""
        while True:
            began = time.monotonic()
            self._change(ProcessState.STARTING, "")
            code = await self._live()
            if self._stopping.is_set():
                break
            steady = self.state is ProcessState.SERVING and time.monotonic() - began > STEADY_S
            self.failures = 1 if steady else self.failures + 1
            delay_s = min(BACKOFF_FIRST_S * 2 ** (self.failures - 1), BACKOFF_MAX_S)
            self.restarts += 1
            self._change(ProcessState.WAITING, f"{self.name} {_ending(code)}; starting it again in {delay_s:.1f} s")
            try:
                await asyncio.wait_for(self._stopping.wait(), delay_s)
                break
            except TimeoutError:
                continue
        self._change(ProcessState.STOPPED, "")

    async def stop(self, deadline_s: float) -> None:
        """SIGTERM, and SIGKILL when it has not drained at the deadline, which is said."""
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
        """The end of its log."""
        try:
            lines = self._log_path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        return "\n".join(lines[-_LAST_LINES:])

    async def _live(self) -> int:
        """One life; returns the exit code, negative for a signal."""
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            # A session of its own: Ctrl-C goes to the supervisor alone, which ends the services in order.
            process = self._process = await asyncio.create_subprocess_exec(
                *guarded(self.plan.command),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=log,
                env=dict(self._environment),
                start_new_session=True,
            )
        if self._stopping.is_set():
            process.send_signal(signal.SIGTERM)
        try:
            assert process.stdout is not None
            async for line in process.stdout:
                self._hear(line)
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()

    def _hear(self, line: bytes) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            return
        if isinstance(said, dict) and isinstance(said.get("serving"), dict):
            self.serving = said["serving"]
            self._change(ProcessState.SERVING, f"{self.name} serves again" if self.restarts else f"{self.name} serves")

    def _change(self, state: ProcessState, sentence: str) -> None:
        self.state = state
        self._watch(self, sentence)


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
