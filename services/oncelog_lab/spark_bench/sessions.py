"""The Spark sessions of a benchmark, each in a process and a JVM of its own."""

import asyncio
import importlib.util
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from oncelog.runtime.installation import install_command
from oncelog_lab.child_process import LabChild
from oncelog_lab.failures import LabFailed
from oncelog_lab.spark_bench.alternation import SparkSample

_MODULE = "oncelog_lab.spark_bench.session_process"
#: Long enough for a busy machine.
_START_DEADLINE_S = 300.0
_ASK_DEADLINE_S = 600.0


class BenchSession:
    """One Spark session."""

    def __init__(
        self, master: str, child: LabChild, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.master = master
        self._child = child
        self._reader = reader
        self._writer = writer

    def named(self, what: str) -> str:
        """The name of a load in this session."""
        return f"{what}, {self.master}"

    async def request(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Send a request of `SparkWork`. Raises LabFailed."""
        self._writer.write(json.dumps([name, arguments]).encode() + b"\n")
        try:
            async with asyncio.timeout(_ASK_DEADLINE_S):
                line = await self._reader.readline()
        except TimeoutError as error:
            raise LabFailed(f"{self._child.name} did not finish {name} within {_ASK_DEADLINE_S:.0f} s") from error
        if not line:
            self._child.check_running()
            raise LabFailed(f"{self._child.name} has closed its connection")
        response: dict[str, Any] = json.loads(line)
        if "error" in response:
            raise LabFailed(f"{self._child.name}: {name}: {response['error']}")
        answer: dict[str, Any] = response["answer"]
        return answer

    async def rate(self, rows: int, name: str, **arguments: Any) -> SparkSample:
        """Rows per second of a request that processes so many rows. Raises LabFailed."""
        answer = await self.request(name, **arguments)
        return SparkSample(rows / answer["seconds"], answer["busy_cores"])


@asynccontextmanager
async def open_sessions(masters: Sequence[str], directory: Path) -> AsyncIterator[list[BenchSession]]:
    """Start the sessions at the same time. Raises LabFailed."""
    async with AsyncExitStack() as opened:
        try:
            async with asyncio.TaskGroup() as starting:
                tasks = [
                    starting.create_task(opened.enter_async_context(_open_session(master, directory)))
                    for master in masters
                ]
        except* LabFailed as failures:
            raise failures.exceptions[0] from failures
        yield [task.result() for task in tasks]


@asynccontextmanager
async def _open_session(master: str, directory: Path) -> AsyncIterator[BenchSession]:
    """Raises LabFailed."""
    if importlib.util.find_spec("pyspark") is None:
        raise LabFailed(f"this benchmark needs Spark: run {install_command('oncelog_spark')}")
    own = directory / master.replace("[", "-").rstrip("]")
    own.mkdir()
    child = await LabChild.start(
        f"Spark {master}",
        (sys.executable, "-m", _MODULE, master, str(own / "socket"), str(own)),
        log=own / "log",
        announces="session",
        deadline_s=_START_DEADLINE_S,
    )
    try:
        reader, writer = await asyncio.open_unix_connection(child.announced["session"])
        try:
            yield BenchSession(master, child, reader, writer)
        finally:
            writer.close()
    finally:
        await child.stop()
