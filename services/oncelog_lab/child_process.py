"""A child process of the lab. It ends with the lab, however the lab ends."""

import asyncio
import json
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from oncelog.runtime.orphan_guard import guarded
from oncelog_lab.failures import LabFailed

_LAST_LINES = 10
_STOP_DEADLINE_S = 60.0
#: After the end of the process. A process that it has started may still hold the output open.
_OUTPUT_DEADLINE_S = 5.0
#: The announcement of a cluster lists every process in one line.
_LINE_BYTES_MAX = 1024 * 1024

Line = Callable[[bytes], object]


def _ignore(_line: bytes) -> None:
    return


class LabChild:
    """A running process. Its output is read all the time, so that it never blocks on a full pipe."""

    def __init__(self, name: str, process: Process, log: Path | None, on_line: Line) -> None:
        self.name = name
        #: the JSON object that the process printed when it was ready
        self.announced: Mapping[str, Any] = {}
        self._process = process
        self._log = log
        self._on_line = on_line
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._announcement: asyncio.Future[Mapping[str, Any] | None] = asyncio.get_running_loop().create_future()
        self._key: str | None = None
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str],
        *,
        log: Path | None = None,
        on_line: Line = _ignore,
        announces: str | None = None,
        deadline_s: float = 0.0,
        environment: Mapping[str, str] | None = None,
    ) -> Self:
        """Start a process. With `announces`, return once it has printed a JSON object with this key in one line.

        environment: variables besides those of this process.
        log: file for standard error; without it, `on_line` is called with the lines of both outputs. Raises LabFailed.
        """
        errors = STDOUT if log is None else log.open("ab")
        try:
            process = await asyncio.create_subprocess_exec(
                *guarded(command),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=errors,
                # By default gRPC reports every connection that ends.
                env={"GRPC_VERBOSITY": "NONE", **os.environ, **(environment or {})},
                start_new_session=True,
                limit=_LINE_BYTES_MAX,
            )
        finally:
            if not isinstance(errors, int):
                errors.close()
        child = cls(name, process, log, on_line)
        child._key = announces
        child._reading = asyncio.create_task(child._read())
        if announces is not None:
            await child._until_announced(deadline_s)
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended and all of its output was read."""
        return self._reading is not None and self._reading.done()

    def check_running(self) -> None:
        """Raises LabFailed with the last lines of the process."""
        if self._process.returncode is not None:
            raise LabFailed(f"{self.name} has ended with exit code {self._process.returncode}{self.last_lines()}")

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the process has ended."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> int:
        """Return the exit code, after all output was read."""
        code = await self._process.wait()
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=_OUTPUT_DEADLINE_S)
            self._reading.cancel()
        return code

    async def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self.send_signal(signal.SIGKILL)
        await self.wait()

    async def stop(self) -> None:
        """Send SIGTERM, and SIGKILL if the process is still there at the deadline."""
        self.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_DEADLINE_S)
        except TimeoutError:
            self.send_signal(signal.SIGKILL)
        await self.wait()

    def last_lines(self) -> str:
        """The end of its log, or of its output, as the end of an error message."""
        lines = list(self._last_lines)
        if self._log is not None:
            lines = self._log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        return "; last lines:\n" + "\n".join(lines) if lines else "; it printed nothing"

    async def _until_announced(self, deadline_s: float) -> None:
        try:
            async with asyncio.timeout(deadline_s):
                announced = await self._announcement
        except BaseException as error:
            await self.kill()
            if isinstance(error, TimeoutError):
                raise LabFailed(f"{self.name} was not ready within {deadline_s:.0f} s{self.last_lines()}") from error
            raise
        if announced is None:
            raise LabFailed(f"{self.name} did not start: exit code {await self.wait()}{self.last_lines()}")
        self.announced = announced

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._last_lines.append(line.decode(errors="replace").rstrip())
            if self._key is None or self._announcement.done() or not self._take_announcement(line):
                self._on_line(line)
        if not self._announcement.done():
            self._announcement.set_result(None)

    def _take_announcement(self, line: bytes) -> bool:
        try:
            found = json.loads(line)
        except ValueError:
            return False
        if not isinstance(found, dict) or self._key not in found:
            return False
        self._announcement.set_result(found)
        return True
