"""Checks the batches of one connection. One that takes long is checked in another thread, and what comes meanwhile
together behind it: so it goes to the owner together, for which a frame of each batch costs more than the batch."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from oncelog.core.formats.batch import LONG_CHECK_BYTES
from oncelog.core.formats.kafka import kafka_takes_long
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.connections.received import Buffer
from oncelog_doors.core.kafka.batch_checks import BatchRefusal, CheckedBatch, checked

#: About a frame to the owner. The first one may be larger.
CHECKED_TOGETHER_BYTES_MAX = 1024 * 1024

Found = CheckedBatch | BatchRefusal


class _Waiting(NamedTuple):
    records: Buffer | None
    bytes_max: int
    found: asyncio.Future[Found]


class Checking:
    """Of one connection. tasks: of its door."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        self._tasks = tasks
        self._waiting: deque[_Waiting] = deque()
        self._runs = False
        #: checked on the event loop since other clients had a turn
        self._here_bytes = 0

    async def checked(self, records: Buffer | None, bytes_max: int) -> Found:
        """records: of one partition of a Produce. bytes_max: the log's limit of a batch."""
        if not self._runs and not kafka_takes_long(records or b""):
            self._here_bytes += len(records or b"")
            if self._here_bytes > LONG_CHECK_BYTES:  # a request may have a batch for each of many partitions
                self._here_bytes = 0
                await asyncio.sleep(0)
            return checked(records, bytes_max, crc32c)
        waiting = _Waiting(records, bytes_max, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if not self._runs:
            self._runs = True
            self._tasks.start(self._run(), what="the checks of record batches")
        return await waiting.found

    async def _run(self) -> None:
        while self._waiting:
            together = self._next_ones()
            for each, found in zip(together, await asyncio.to_thread(_check, together), strict=True):
                if not each.found.done():  # its connection may be lost
                    each.found.set_result(found)
        self._runs = False

    def _next_ones(self) -> list[_Waiting]:
        found = [self._waiting.popleft()]
        size = len(found[0].records or b"")
        while self._waiting:
            size += len(self._waiting[0].records or b"")
            if size > CHECKED_TOGETHER_BYTES_MAX:
                break
            found.append(self._waiting.popleft())
        return found


def _check(together: Sequence[_Waiting]) -> list[Found]:
    return [checked(each.records, each.bytes_max, crc32c) for each in together]
