"""The bench's side of its Spark sessions, each in a process and a JVM of its own, so that they can take turns."""

import asyncio
import importlib.util
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from oncelog.lab.bench.processes import BenchFailed, Child
from oncelog.lab.spark_bench.turns import Sample

_MODULE = "oncelog.lab.spark_bench.session_process"
#: For a machine that has other work, too: a bench that waits for ever shows nothing.
_START_DEADLINE_S = 300.0
_ASK_DEADLINE_S = 600.0


class Session:
    """One Spark session."""

    def __init__(self, master: str, child: Child, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.master = master
        self._child = child
        self._reader = reader
        self._writer = writer

    async def ask(self, request: str, **arguments: Any) -> dict[str, Any]:
        """See SparkWork. Raises BenchFailed."""
        self._writer.write(json.dumps([request, arguments]).encode() + b"\n")
        try:
            async with asyncio.timeout(_ASK_DEADLINE_S):
                line = await self._reader.readline()
        except TimeoutError as error:
            raise BenchFailed(f"{self._child.name} was not done after {_ASK_DEADLINE_S:.0f} s: {request}") from error
        if not line:
            self._child.check_alive()
            raise BenchFailed(f"{self._child.name} has closed its connection")
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            raise BenchFailed(f"{self._child.name}: {request}: {told['error']}")
        answer: dict[str, Any] = told["answer"]
        return answer

    async def rate(self, rows: int, request: str, **arguments: Any) -> Sample:
        """Rows a second of one request that takes so many rows. Raises BenchFailed."""
        told = await self.ask(request, **arguments)
        return Sample(rows / told["seconds"], told["busy_cores"])


@asynccontextmanager
async def open_sessions(masters: Sequence[str], directory: Path) -> AsyncIterator[list[Session]]:
    """Start them side by side, give them, end them. Raises BenchFailed."""
    async with AsyncExitStack() as opened:
        try:
            async with asyncio.TaskGroup() as starting:
                tasks = [
                    starting.create_task(opened.enter_async_context(_open_session(master, directory)))
                    for master in masters
                ]
        except* BenchFailed as failures:
            raise failures.exceptions[0] from failures
        yield [task.result() for task in tasks]


@asynccontextmanager
async def _open_session(master: str, directory: Path) -> AsyncIterator[Session]:
    """Start it, give it, end it. Raises BenchFailed."""
    if importlib.util.find_spec("pyspark") is None:
        raise BenchFailed("Spark is not installed here: pip install 'oncelog[pipeline]'")
    own = directory / master.replace("[", "-").rstrip("]")
    own.mkdir()
    child = await Child.start(
        f"Spark {master}",
        (sys.executable, "-m", _MODULE, master, str(own / "socket"), str(own)),
        log=own / "log",
        announces="session",
        deadline_s=_START_DEADLINE_S,
    )
    try:
        reader, writer = await asyncio.open_unix_connection(child.announced["session"])
        try:
            yield Session(master, child, reader, writer)
        finally:
            writer.close()
    finally:
        await child.stop()
