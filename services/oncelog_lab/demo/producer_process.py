"""The producer of the demo: `oncelog produce` as a process, which is killed and started again."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from oncelog_lab.acknowledgements import AckPauses
from oncelog_lab.child_process import LabChild
from oncelog_lab.failures import LabFailed
from oncelog_lab.waiting import until

CLIENT = "producer"


class ProducerProcess:
    """Runs `oncelog produce` with these arguments, one process after the other."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        #: every byte of the file before it is acknowledged
        self.offset = 0
        #: in the monotonic clock of this machine, which all its processes share
        self.pauses = AckPauses()
        self._arguments = tuple(arguments)
        self._log = log
        self._child: LabChild | None = None
        #: duplicates that the cluster reported: to processes that ended, and to the current one
        self._duplicates = [0, 0]
        self._finished = False

    @property
    def duplicates(self) -> int:
        return sum(self._duplicates)

    async def start(self, *, replay_lines: int = 0) -> None:
        """Start it (again). replay_lines: so many stored lines are sent again, as if it had lost its position."""
        self._duplicates = [self.duplicates, 0]
        self._finished = False  # the one before may have sent all lines before it was killed
        options = ("--progress", "json", "--output", "json", "--replay", str(replay_lines))
        command = (sys.executable, "-m", "oncelog.cli", "produce", *self._arguments, *options)
        self._child = await LabChild.start("the producer", command, log=self._log, on_line=self._take)

    async def kill(self) -> None:
        """Send SIGKILL, and return when all its output was read. It may have finished just before."""
        if self._child is not None:
            await self._child.kill()

    async def until(self, offset: int, deadline_s: float) -> None:
        """Return when everything before `offset` is acknowledged. Raises LabFailed if the process ends before that."""
        child = self._child
        assert child is not None, "called before `start`"

        def reached() -> bool:
            if self.offset < offset and child.ended:
                raise LabFailed(f"the producer ended at byte {self.offset} of the file{child.last_lines()}")
            return self.offset >= offset

        await until(reached, deadline_s, f"acknowledgements up to byte {offset} of the file")

    async def repeated(self, lines: int, deadline_s: float) -> None:
        """Return when the log has refused so many duplicates of this process. Raises LabFailed if it ends before."""
        child = self._child
        assert child is not None, "called before `start`"

        def refused() -> bool:
            if self._duplicates[1] < lines and child.ended:
                raise LabFailed(f"only {self._duplicates[1]} of {lines} lines were duplicates{child.last_lines()}")
            return self._duplicates[1] >= lines

        await until(refused, deadline_s, f"{lines} duplicates")

    async def finish(self, deadline_s: float) -> None:
        """Return when the process ended by itself with success. Raises LabFailed."""
        child = self._child
        assert child is not None, "called before `start`"
        await until(lambda: child.ended, deadline_s, "the end of the producer")
        code = await child.wait()
        if code != 0 or not self._finished:
            raise LabFailed(f"the producer ended with exit code {code}{child.last_lines()}")

    def _take(self, line: bytes) -> None:
        if not line.endswith(b"\n"):
            return  # cut off by SIGKILL
        progress = json.loads(line)
        if "acked" in progress:
            # A replay acknowledges old offsets again.
            self.offset = max(self.offset, progress["offset"])
            self._duplicates[1] = progress["duplicates"]
            self.pauses.acknowledged(CLIENT, progress["monotonic"])
        elif "lines" in progress:
            self._finished = True
