"""The producer of the demo: `oncelog produce` as a process of its own, killed and run again.

Its progress is read as JSON lines; so acknowledgements have the time at which the client saw them.
"""

import asyncio
import contextlib
import json
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from pathlib import Path

from oncelog.core.errors import Fatal
from oncelog.lab.demo.acks import Acks
from oncelog.runtime.orphan_guard import guarded


class DemoFailed(Fatal):
    """The demo could not be carried out; the message says what did not happen."""


class Publisher:
    """Runs `oncelog produce` with the given arguments, as often as it is asked to."""

    def __init__(self, arguments: Sequence[str], log_path: Path) -> None:
        self.acks = Acks()
        self.lives = 0
        self._arguments = tuple(arguments)
        self._log_path = log_path
        self._process: Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()
        #: the summary of a life that ended well
        self._summary: dict[str, object] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "asked before `start`"
        return self._process.pid

    async def start(self, *, replay_lines: int = 0) -> None:
        """Run it (again). replay_lines: so many stored lines it sends again, like one without memory."""
        self.lives += 1
        self.acks.life_began()
        command = [sys.executable, "-m", "oncelog.cli", "produce", *self._arguments]
        command += ["--progress", "json", "--output", "json", "--replay", str(replay_lines)]
        with self._log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *guarded(command), stdin=DEVNULL, stdout=PIPE, stderr=log, start_new_session=True
            )
        self._listening = asyncio.create_task(self._listen(self._process))

    async def kill(self) -> None:
        """kill -9; returns when it is gone and everything that it said is read."""
        assert self._process is not None, "killed before `start`"
        with contextlib.suppress(ProcessLookupError):  # on a busy machine it may have published all and ended by now
            self._process.kill()
        await self._gone()

    async def until(self, offset: int, deadline_s: float) -> None:
        """Return when everything before `offset` is acknowledged. Raises DemoFailed: not in time, or it ended."""
        ends_at = time.monotonic() + deadline_s
        while self.acks.offset < offset:
            self._heard.clear()
            assert self._listening is not None, "asked before `start`"
            if self._listening.done():
                await self._gone()
                raise DemoFailed(f"the producer ended before its work was done:\n{self._last_words()}")
            if time.monotonic() > ends_at:
                raise DemoFailed(
                    f"no further than byte {self.acks.offset} after {deadline_s:.0f} s: {self._last_words()}"
                )
            try:
                await asyncio.wait_for(self._heard.wait(), 0.2)
            except TimeoutError:
                continue

    async def finish(self, deadline_s: float) -> None:
        """Return when it ended by itself and well. Raises DemoFailed."""
        try:
            async with asyncio.timeout(deadline_s):
                code = await self._gone()
        except TimeoutError as error:
            raise DemoFailed(f"the producer did not end within {deadline_s:.0f} s:\n{self._last_words()}") from error
        if code != 0 or self._summary is None:
            raise DemoFailed(f"the producer ended with exit code {code}:\n{self._last_words()}")

    async def stop(self) -> None:
        """End it in any case."""
        if self._process is not None and self._process.returncode is None:
            await self.kill()

    async def _gone(self) -> int:
        assert self._process is not None
        assert self._listening is not None
        code = await self._process.wait()
        await self._listening
        return code

    async def _listen(self, process: Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if not line.endswith(b"\n"):
                break  # cut by the kill
            said = json.loads(line)
            if "acked" in said:
                self.acks.add(time_s=said["monotonic"], offset=said["offset"], duplicates=said["duplicates"])
            elif "lines" in said:
                self._summary = said
            self._heard.set()
        self._heard.set()

    def _last_words(self) -> str:
        return "\n".join(self._log_path.read_text(errors="replace").splitlines()[-10:])
