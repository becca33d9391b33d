"""The workload as a process of this machine."""

import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from oncelog_lab.child_process import LabChild
from oncelog_lab.workload.connection import WorkloadConnection


class ProcessWorkload:
    """See `RunningWorkload`. Created by `running`."""

    def __init__(self, child: LabChild) -> None:
        self._child = child

    @classmethod
    @asynccontextmanager
    async def running(cls, arguments: Sequence[str], link: WorkloadConnection) -> "AsyncIterator[ProcessWorkload]":
        """Start `oncelog chaos workload`; its lines go to the link. It is killed at the end of the block."""
        command = [sys.executable, "-m", "oncelog.cli", "chaos", "workload", *arguments]
        child = await LabChild.start("the workload", command, on_line=link.take)
        try:
            yield cls(child)
        finally:
            await child.kill()

    async def end(self) -> None:
        self._child.send_signal(signal.SIGTERM)

    def ended(self) -> bool:
        return self._child.ended
