"""Processes of the proof: they end with it, however it ends."""

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from oncelog.core.errors import OncelogError
from oncelog.runtime.orphan_guard import guarded

DEADLINE_S = 120.0
_EVERY_S = 0.02
#: The addresses of a cluster are one line.
_LINE_BYTES_MAX = 1024 * 1024


class ProofFailed(OncelogError):
    """A history could not be played: a process has ended, or nothing came within the deadline."""

    code = "proof_failed"


async def wait_for(condition: Callable[[], object], what: str) -> None:
    """Raises ProofFailed after two minutes."""
    ends_at = time.monotonic() + DEADLINE_S
    while True:
        if condition():
            return
        if time.monotonic() > ends_at:
            raise ProofFailed(f"no {what} within {DEADLINE_S:.0f} s")
        await asyncio.sleep(_EVERY_S)


class Child:
    """A process that prints lines, and may read some. Made by `running`."""

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name, self._process, self._log = name, process, log

    @classmethod
    @asynccontextmanager
    async def running(
        cls, name: str, command: Sequence[str], log: Path, settings: Mapping[str, str] | None = None
    ) -> AsyncIterator["Child"]:
        """It is killed at the end of the block if it still runs. log: for its standard error, appended. settings:
        variables besides those of this process."""
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *guarded(command), stdin=PIPE, stdout=PIPE, stderr=errors, limit=_LINE_BYTES_MAX,
                env={"GRPC_VERBOSITY": "NONE", **os.environ, **(settings or {})}, start_new_session=True,
            )  # fmt: skip
        child = cls(name, process, log)
        try:
            yield child
        finally:
            await child.kill()

    async def line(self) -> str:
        """The next one. Raises ProofFailed when there is none within two minutes, or no more."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(DEADLINE_S):
                line = await self._process.stdout.readline()
        except TimeoutError as error:
            raise ProofFailed(f"{self.name} says nothing for {DEADLINE_S:.0f} s") from error
        if not line:
            last = self._log.read_text(errors="replace")[-2000:]
            raise ProofFailed(f"{self.name} has ended; its log ends with: {last or '(nothing)'}")
        return line.decode().strip()

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    def pause(self) -> None:
        """Stop it, as a machine that hangs does."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        """Ask it to end, and wait for that, two minutes at most."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), DEADLINE_S)


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs a module of this installation."""
    return [sys.executable, "-m", name, *arguments]
