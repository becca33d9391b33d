"""A child process of a bench: started, awaited until it says what it serves, ended."""

import asyncio
import json
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from oncelog.core.errors import Fatal
from oncelog.runtime.orphan_guard import guarded

_LAST_LINES = 8
_KILL_AFTER_S = 30.0
#: An announcement names every process of a cluster, in one line.
_LINE_BYTES_MAX = 1024 * 1024


class BenchFailed(Fatal):
    """A bench has no figure to give; the message says what did not start, or did not come in time."""


class Child:
    """A process that announced itself. `announced`: the one JSON object that it printed for that."""

    def __init__(self, name: str, process: Process, announced: Mapping[str, Any], log: Path) -> None:
        self.name = name
        self.announced = announced
        self.log = log
        self._process = process
        assert process.stdout is not None
        #: whatever else it prints is read, so that it never waits for a full pipe
        self._reading = asyncio.get_running_loop().create_task(_read_on(process.stdout))

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        announces: str,
        deadline_s: float,
        environment: Mapping[str, str] | None = None,
    ) -> Self:
        """Return once the child has printed a JSON object with the key `announces`. Raises BenchFailed."""
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *guarded(command),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=errors,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                limit=_LINE_BYTES_MAX,
            )
        try:
            async with asyncio.timeout(deadline_s):
                announced = await _announcement(process, announces)
        except BaseException as error:
            await _end(process)
            if isinstance(error, TimeoutError):
                raise BenchFailed(f"{name} did not serve within {deadline_s:.0f} s{_end_of(log)}") from error
            raise
        if announced is None:
            raise BenchFailed(f"{name} does not start: exit code {await process.wait()}{_end_of(log)}")
        return cls(name, process, announced, log)

    @property
    def pid(self) -> int:
        return self._process.pid

    def check_alive(self) -> None:
        """Raises BenchFailed with the end of its log."""
        if self._process.returncode is not None:
            raise BenchFailed(f"{self.name} has ended with code {self._process.returncode}{_end_of(self.log)}")

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL when that takes too long."""
        await _end(self._process)
        self._reading.cancel()


async def _announcement(process: Process, key: str) -> dict[str, Any] | None:
    """The object with the key; None: the process has ended without it. Lines may be logs, or parts of one object."""
    assert process.stdout is not None
    text = ""
    async for line in process.stdout:
        text = line.decode(errors="replace") if not text else text + line.decode(errors="replace")
        try:
            said = json.loads(text)
        except ValueError:
            if not text.lstrip().startswith("{"):
                text = ""
            continue
        text = ""
        if isinstance(said, dict) and key in said:
            return said
    return None


async def _read_on(stream: asyncio.StreamReader) -> None:
    while await stream.read(65_536):
        pass


async def _end(process: Process) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), _KILL_AFTER_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def _end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
    return "; its log ends:\n" + "\n".join(lines) if lines else f"; its log, {log}, is empty"
