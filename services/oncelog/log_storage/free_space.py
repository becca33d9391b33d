"""The room on the disk: below a bound only recoveries and fences still find room, and ordinary adds are refused."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from oncelog.log_storage.node_runner import NodeRunner

logger = logging.getLogger(__name__)

WATCH_INTERVAL_S = 5.0
#: Writable again only when so much more is free: a node that goes to and fro rolls every ledger each time.
WRITABLE_FACTOR = 1.25


class Tell(Protocol):
    """Tells the cluster."""

    def __call__(self, *, free_bytes: int, read_only: bool) -> Awaitable[None]: ...


class FreeSpace:
    """Looks at once, and then again and again."""

    def __init__(self, free_bytes: Callable[[], int], runner: NodeRunner, *, free_bytes_min: int) -> None:
        self._free_bytes = free_bytes
        self._runner = runner
        self._free_bytes_min = free_bytes_min
        #: as seen by the last look
        self.free_bytes = 0
        self.look()

    def look(self) -> None:
        """Tell the node when it becomes read-only, and when it is writable again."""
        self.free_bytes = self._free_bytes()
        was = self._runner.read_only
        read_only = self.free_bytes < self._free_bytes_min * (WRITABLE_FACTOR if was else 1.0)
        if read_only != was:
            fields = {"free_bytes": self.free_bytes, "free_bytes_min": self._free_bytes_min}
            logger.warning("read-only: the disk is nearly full" if read_only else "writable", extra={"fields": fields})
            self._runner.set_read_only(read_only)

    async def watch(self, tell: Tell) -> None:
        """Never return."""
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            self.look()
            await tell(free_bytes=self.free_bytes, read_only=self._runner.read_only)
