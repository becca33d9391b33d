"""A cluster of `oncelog standalone` that a run starts for itself and ends with itself."""

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from signal import SIGTERM

from oncelog.lab.chaos.access import Access
from oncelog.lab.chaos.target import ChaosFailed
from oncelog.runtime.orphan_guard import guarded

_START_DEADLINE_S = 120.0
_STOP_DEADLINE_S = 60.0
#: One line tells of every process.
_LINE_BYTES_MAX = 1024 * 1024
_OPTIONS = ("--storage-nodes", "3", "--owners", "2", "--metadata", "2", "--port", "0", "--http-port", "0", "-o", "json")


@asynccontextmanager
async def standalone_cluster(data: Path) -> AsyncIterator[Access]:
    """3 storage nodes, 2 owners and 2 metadata services on free ports, drained at the end. Raises ChaosFailed."""
    command = [sys.executable, "-m", "oncelog.cli", "standalone", *_OPTIONS, "--data", str(data)]
    log_path = data.parent / "standalone.log"
    with log_path.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *guarded(command), stdin=DEVNULL, stdout=PIPE, stderr=log, limit=_LINE_BYTES_MAX, start_new_session=True
        )
    try:
        status = await _ready(process, log_path)
        yield Access(str(status["url"]), str(status["admin_url"]))
    finally:
        await _end(process)


async def _ready(process: Process, log_path: Path) -> dict[str, object]:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_DEADLINE_S):
            line = await process.stdout.readline()
    except TimeoutError as error:
        raise ChaosFailed(f"no cluster within {_START_DEADLINE_S:.0f} s") from error
    if not line:
        said = await asyncio.to_thread(log_path.read_text)
        raise ChaosFailed(f"the cluster did not start:\n{said[-2000:]}")
    status: dict[str, object] = json.loads(line)
    return status


async def _end(process: Process) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.send_signal(SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), _STOP_DEADLINE_S)
    except TimeoutError:
        process.kill()
        await process.wait()
