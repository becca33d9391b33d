"""The workload as a process of this machine, for a cluster that is reached from here."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from signal import SIGTERM
from typing import Protocol

from oncelog.lab.chaos.workload_link import WorkloadLink
from oncelog.runtime.orphan_guard import guarded

#: A line tells of every client; a trace of a bug may be long.
_LINE_BYTES_MAX = 1024 * 1024


class RunningWorkload(Protocol):
    """Wherever it runs."""

    async def end(self) -> None:
        """Ask it to close its clients, to read everything back, and to judge."""

    def ended(self) -> bool:
        """Whether it says nothing any more."""


class LocalWorkload:
    """Made by `running`."""

    def __init__(self, process: Process, listening: "asyncio.Task[None]") -> None:
        self._process = process
        self._listening = listening

    @classmethod
    @asynccontextmanager
    async def running(cls, arguments: Sequence[str], link: WorkloadLink) -> "AsyncIterator[LocalWorkload]":
        """Start `oncelog chaos workload`; its lines go to the link. It is killed at the end of the block."""
        command = [sys.executable, "-m", "oncelog.cli", "chaos", "workload", *arguments]
        process = await asyncio.create_subprocess_exec(
            *guarded(command),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            limit=_LINE_BYTES_MAX,
            env={**os.environ, "GRPC_VERBOSITY": "NONE"},  # it would tell of every connection that ends
            start_new_session=True,
        )
        assert process.stdout is not None
        listening = asyncio.ensure_future(link.listen(process.stdout))
        try:
            yield cls(process, listening)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await listening

    async def end(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(SIGTERM)

    def ended(self) -> bool:
        return self._listening.done()
