"""A consumer of the demo: a process, which is killed and started again, and what it reports."""

import json
import sys
from pathlib import Path

from oncelog_lab.child_process import LabChild
from oncelog_lab.consumption import Consumption
from oncelog_lab.failures import LabFailed


class ConsumerProcess:
    """One process after the other, under one consumer name. Their reports go into the account."""

    def __init__(self, url: str, topic: str, subscription: str, name: str, account: Consumption, log: Path) -> None:
        self.name = name
        #: messages that its processes have acknowledged, as far as they reported it
        self.acked = 0
        self._words = (url, topic, subscription, "shared", name)
        self._account = account
        self._log = log
        self._child: LabChild | None = None

    async def start(self) -> None:
        """Start it (again)."""
        command = (sys.executable, "-m", "oncelog_lab.consumer_program", *self._words)
        self._child = await LabChild.start(self.name, command, log=self._log, on_line=self._take)

    async def kill(self) -> None:
        """Send SIGKILL, and return when all its output was read."""
        if self._child is not None:
            await self._child.kill()

    async def stop(self) -> None:
        if self._child is not None:
            await self._child.stop()

    def check_running(self) -> None:
        """Raises LabFailed with its last lines."""
        if self._child is not None and self._child.ended:
            raise LabFailed(f"{self.name} has ended{self._child.last_lines()}")

    def _take(self, line: bytes) -> None:
        if not line.endswith(b"\n"):
            return  # cut off by SIGKILL
        report = json.loads(line)
        if "received" in report:
            self._account.receive(report["received"], empty_at_s=report["empty_at"])
        else:
            self._account.acknowledge(report["acked"], at_s=report["at"])
            self.acked += sum(last - first + 1 for first, last in report["acked"])
