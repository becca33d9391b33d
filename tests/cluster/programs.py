"""Programs as processes of their own, whose output is a log: started, watched and killed with all that they started."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.cluster.kills import Once, moment
from tests.cluster.until import until

DEADLINE_S = 60.0


def started(
    log: Path,
    command: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    *,
    stdin: int = subprocess.DEVNULL,
) -> "Running":
    """Run a command in this directory; what it writes is appended to the log. stdin: as of a Popen."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdin=stdin, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    return Running(process, log)


class Running:
    """One run of a program."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self.log = log

    def runs(self) -> bool:
        return self.process.poll() is None

    def text(self) -> str:
        """What it has written."""
        return self.log.read_text()

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self.process.poll()

    def signal(self, number: signal.Signals) -> None:
        """To all of its processes; nothing happens if it has ended."""
        if self.runs():
            os.killpg(self.process.pid, number)

    async def reaches(self, condition: Callable[[], object], waiting_for: str) -> None:
        """Return once it is so; the program must not end before."""

        def reached() -> object:
            assert self.runs() or condition(), self.log.read_text()[-3000:]
            return condition()

        try:
            await until(reached, DEADLINE_S, every_s=0.01, waiting_for=waiting_for)
        finally:
            if sys.exc_info()[0] is not None:
                self.end()

    async def says(self, words: str) -> str:
        """Return the first line of its log that contains the words."""

        def line() -> str:
            return next((each for each in self.text().splitlines() if words in each), "")

        await self.reaches(line, f"{words!r} in its log")
        return line()

    async def health(self, path: str) -> Any:
        """What its health port answers, which must be good news."""
        url = json.loads(await self.says('"msg": "health port"'))["url"]
        async with httpx.AsyncClient(verify=False) as http:
            return (await http.get(f"{url}{path}", timeout=DEADLINE_S)).raise_for_status().json()

    async def ends(self, code: int = 0) -> str:
        """Return what it has written once it has ended with this exit code."""
        await until(lambda: not self.runs(), DEADLINE_S, waiting_for=f"the end of {self.log.stem}")
        written = self.log.read_text()
        assert self.process.returncode == code, written[-3000:]
        return written

    async def kill(self, *, once: Once) -> None:
        """kill -9 of the program with all of its processes, as soon as the condition holds; it must run then."""
        await moment(once)
        assert self.runs(), self.text()[-3000:]
        self.end()

    def end(self) -> None:
        """Kill what is left of it."""
        try:
            os.killpg(self.process.pid, 9)
        except ProcessLookupError:
            pass  # it has ended
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


@asynccontextmanager
async def running(process: Running) -> AsyncIterator[Running]:
    """Inside the block; then it is killed."""
    try:
        yield process
    finally:
        process.end()
