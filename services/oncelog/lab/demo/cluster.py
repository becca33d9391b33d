"""The cluster of the demo: `oncelog standalone` as a process of its own, whose processes can be found and killed."""

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.cli.standalone.status import read_status
from oncelog.core.errors import OncelogError
from oncelog.lab.demo.publisher import DemoFailed
from oncelog.runtime.orphan_guard import guarded

_START_DEADLINE_S = 120.0
_STOP_DEADLINE_S = 60.0
_CALL_TIMEOUT_S = 5.0
_LOOK_EVERY_S = 0.05

#: Told what the cluster says about itself.
Tell = Callable[[str], None]


class DemoCluster:
    """A running cluster; made by `running`."""

    def __init__(self, process: Process, status: dict[str, object], data: Path) -> None:
        self.url = str(status["url"])
        self.admin_url = str(status["admin_url"])
        self._process = process
        self._data = data
        self._api = AdminApi(self.admin_url, timeout_s=_CALL_TIMEOUT_S)

    @classmethod
    @asynccontextmanager
    async def running(
        cls, data: Path, *, storage_node_count: int, owner_count: int, tell: Tell
    ) -> "AsyncIterator[DemoCluster]":
        """Start it, on free ports, and drain it at the end of the block. Raises DemoFailed."""
        command = [sys.executable, "-m", "oncelog.cli", "standalone", "--output", "json", "--data", str(data)]
        command += ["--storage-nodes", str(storage_node_count), "--owners", str(owner_count)]
        command += ["--port", "0", "--http-port", "0"]
        process = await asyncio.create_subprocess_exec(
            *guarded(command), stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        said: list[str] = []
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_hear(process, said, tell))
            try:
                cluster = cls(process, await _ready(process, said), data)
                yield cluster
                cluster.close()
            finally:
                await _stop(process)

    async def call(self, method: Callable[[AdminApi], Answer]) -> Answer:
        """One call of the REST interface, beside the event loop. Raises OncelogError."""
        return await asyncio.to_thread(method, self._api)

    async def get(self, path: str) -> dict[str, object]:
        """One object of the REST interface; tried again while a takeover is running. Raises DemoFailed."""
        ends_at = time.monotonic() + _START_DEADLINE_S
        while True:
            try:
                answer = await self.call(lambda api: api.get(path))
            except OncelogError as error:
                if not error.retriable or time.monotonic() > ends_at:
                    raise DemoFailed(f"{path}: {error}") from error
                await asyncio.sleep(_LOOK_EVERY_S)
                continue
            if not isinstance(answer, dict):
                raise DemoFailed(f"{path} answered no object")
            return answer

    def processes(self) -> list[dict[str, object]]:
        """The children as standalone.json tells of them."""
        found = read_status(self._data / "standalone.json")["processes"]
        assert isinstance(found, list), "as it is written"
        return found

    def serving_as(self, incarnation: str) -> dict[str, object]:
        """The child that has this incarnation. Raises DemoFailed."""
        for process in self.processes():
            serving = process["serving"]
            if isinstance(serving, dict) and serving.get("incarnation") == incarnation and process["pid"] is not None:
                return process
        raise DemoFailed(f"no running process is {incarnation}")

    async def restarted(self, name: str, killed_pid: int, deadline_s: float) -> None:
        """Return when the child serves again, as another process. Raises DemoFailed."""
        ends_at = time.monotonic() + deadline_s
        while time.monotonic() < ends_at:
            process = next(process for process in self.processes() if process["name"] == name)
            if process["state"] == "serving" and process["pid"] not in {None, killed_pid}:
                return
            await asyncio.sleep(_LOOK_EVERY_S)
        raise DemoFailed(f"{name} does not serve again after {deadline_s:.0f} s")

    def close(self) -> None:
        self._api.close()


async def _ready(process: Process, said: list[str]) -> dict[str, object]:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_DEADLINE_S):
            line = await process.stdout.readline()
    except TimeoutError as error:
        raise DemoFailed(f"no cluster within {_START_DEADLINE_S:.0f} s") from error
    if not line:
        raise DemoFailed("the cluster did not start:\n" + "\n".join(said[-10:]))
    status: dict[str, object] = json.loads(line)
    return status


async def _hear(process: Process, said: list[str], tell: Tell) -> None:
    assert process.stderr is not None
    async for line in process.stderr:
        said.append(line.decode(errors="replace").rstrip())
        tell(said[-1])


async def _stop(process: Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), _STOP_DEADLINE_S)
    except TimeoutError:
        process.kill()


def kill_9(process: dict[str, object]) -> int:
    """SIGKILL the child. Returns its process id. Raises DemoFailed when it is down already."""
    pid = process["pid"]
    if not isinstance(pid, int):
        raise DemoFailed(f"{process['name']} is down already")
    os.kill(pid, signal.SIGKILL)
    return pid
