"""Free disk space: below a limit ordinary adds are refused, so that recoveries and fences still find space. The rule is
`core.node.disk_space`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from oncelog.core.node.disk_space import refuses_adds, refuses_repairs
from oncelog.log_storage.serve.node_runner import NodeRunner
from oncelog.runtime.observing.events import EventKind

logger = logging.getLogger(__name__)

WATCH_INTERVAL_S = 5.0


class UpdateRegistration(Protocol):
    """Announces the free space to the cluster."""

    def __call__(self, *, free_bytes: int, read_only: bool) -> Awaitable[None]: ...


class FreeSpace:
    """Checks the free space at creation, at each roll, and periodically, because others may use the disk."""

    def __init__(
        self, free_bytes: Callable[[], int], runner: NodeRunner, *, free_bytes_min: int, roll_bytes: Callable[[], int]
    ) -> None:
        """roll_bytes: returns what the next roll takes."""
        self._free_bytes = free_bytes
        self._roll_bytes = roll_bytes
        self._runner = runner
        self._free_bytes_min = free_bytes_min
        #: called at each check while repair copies are refused: deletes what is not needed to serve
        self.on_nearly_full: Callable[[], None] = lambda: None
        #: of the disk, as of the last check
        self.free_bytes = 0
        self.check()
        runner.on_rolled = self.check

    def check(self) -> None:
        """Check once. Notify the node when it becomes read-only or writable."""
        self.free_bytes = self._free_bytes()
        left = self.free_bytes - self._roll_bytes()
        was, repairs_were_refused = self._runner.read_only, self._runner.repairs_refused
        repairs_refused = refuses_repairs(left, free_bytes_min=self._free_bytes_min)
        read_only = refuses_adds(left, free_bytes_min=self._free_bytes_min, refused=was)
        if repairs_refused:
            self.on_nearly_full()
        if read_only != was:
            self._runner.events.note(
                EventKind.NODE, logger,
                "node is read-only: disk nearly full" if read_only else "node is writable again", level="warning",
                free_bytes=self.free_bytes, free_bytes_after_next_segment=left, free_bytes_min=self._free_bytes_min,
            )  # fmt: skip
        if (read_only, repairs_refused) != (was, repairs_were_refused):
            self._runner.set_read_only(read_only, repairs_refused=repairs_refused)

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes may be written that are not needed to serve: the limit of repair copies, as of now."""
        left = self._free_bytes() - self._roll_bytes() - size
        return not refuses_repairs(left, free_bytes_min=self._free_bytes_min)

    async def watch(self, update: UpdateRegistration) -> None:
        """Never return."""
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            self.check()
            await update(free_bytes=self.free_bytes, read_only=self._runner.read_only)
