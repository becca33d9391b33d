"""What one connection reads of one partition: a reader of the log, and what it has read and not sent yet.

    idle ──▶ opening ──▶ open ──▶ idle
                └─────────┴─────▶ failed, until the client has got the error

A client that goes on where it was is served by the same reader; for another offset there is a new one. A name may stand
for another topic than before, because the topic was deleted and made again. The offset of the client then means nothing
any more, so it is out of range, once (hazard read-on-in-another-topic).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from oncelog.core.errors import OncelogError
from oncelog.core.formats.batch import LONG_CHECK_BYTES
from oncelog.core.ids import TopicId
from oncelog.core.names import TopicName
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.core.kafka.error_codes import ErrorCode, code_of
from oncelog_doors.kafka.asking import Asking, log_of
from oncelog_doors.kafka.ports import Bounds, ReadBatch, ReaderPort

#: Above it a batch is made in another thread: it would delay all other clients.
MADE_HERE_BYTES_MAX = LONG_CHECK_BYTES
#: How old the end of the log may be that a client gets while it reads. Its lag is computed from it.
END_AGE_MS = 5_000


class PartitionReads:
    """name, index: of the partition, as the client names it. changed: called when there is something for a request."""

    def __init__(
        self, around: Asking, tasks: BackgroundTasks, name: str, index: int, changed: Callable[[], None]
    ) -> None:
        self._around, self._tasks, self._name, self._index, self._changed = around, tasks, name, index, changed
        #: when a request asked for it last
        self.asked_ms = 0
        #: what is sent next begins with this offset; None: nothing is read
        self._next: int | None = None
        self._reader: ReaderPort | None = None
        self._reading: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._looked_ms = 0
        self._log: TopicName | None = None
        self._topic_id: TopicId | None = None
        self._ready: deque[ReadBatch] = deque()
        #: of the batches that were read and not sent
        self.ready_bytes = 0
        self._wanted_bytes = 1
        self._wanted = asyncio.Event()
        self._error = ErrorCode.NONE
        #: None: not known yet
        self._bounds: Bounds | None = None

    # --- requests -----------------------------------------------------------------------------------------------------

    def read_from(self, offset: int, bytes_max: int, now_ms: int) -> None:
        """A request wants this. bytes_max: of what it is sent."""
        self.asked_ms = now_ms
        if self._next != offset:
            self.close()
            self._next, self._error, self._bounds, self._looked_ms = offset, ErrorCode.NONE, None, now_ms
            self._reading = self._tasks.start(self._read(offset), what=f"reads of {self._name}")
        self._wanted_bytes = max(1, bytes_max)
        self._wanted.set()

    def take_error(self) -> ErrorCode:
        """What the client gets instead of messages. What was read before comes first; a request after it begins
        again."""
        if self._ready or self._error is ErrorCode.NONE:
            return ErrorCode.NONE
        self._next = None
        return self._error

    @property
    def is_full(self) -> bool:
        """Whether nothing more is read before the client takes something, or at all."""
        return self._error is not ErrorCode.NONE or self.ready_bytes >= self._room

    @property
    def bounds(self) -> Bounds | None:
        """Of the log, not older than some seconds; None: they are not known yet. The end is never above the true one,
        and not below what was sent."""
        return self._bounds

    def take(self, bytes_max: int, *, at_least_one: bool) -> list[ReadBatch]:
        """What is sent now. at_least_one: also a batch that is larger."""
        taken: list[ReadBatch] = []
        while self._ready:
            size = len(self._ready[0].records)
            if size > bytes_max and (taken or not at_least_one):
                break
            batch = self._ready.popleft()
            taken.append(batch)
            bytes_max -= size
            self.ready_bytes -= size
            self._next = batch.last_offset + 1
        self._wanted.set()
        return taken

    def look(self, now_ms: int) -> None:
        """Look where the log ends now, if that is due, for a later answer."""
        log = self._log
        if log is None or self._reader is None or self._looking is not None or now_ms < self._looked_ms + END_AGE_MS:
            return
        self._looked_ms = now_ms
        self._looking = self._tasks.start(self._look(log), what=f"the end of {log}")

    async def _look(self, log: TopicName) -> None:
        try:
            found = await self._around.cluster.bounds(log, self._around.caller)
        except OncelogError:
            return  # it is known as it was, and asked for again
        finally:
            self._looking = None
        self._bounds = Bounds(found.first, max(found.end, self._bounds.end if self._bounds else 0))

    def close(self) -> None:
        """Read nothing any more."""
        for task in (self._reading, self._looking):
            if task is not None:
                task.cancel()
        self._reading = self._looking = None
        self._close_reader()
        self._ready.clear()
        self.ready_bytes, self._next = 0, None

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    # --- the task that reads ------------------------------------------------------------------------------------------

    @property
    def _room(self) -> int:
        return self._wanted_bytes if self._reader is None else min(self._wanted_bytes, self._reader.read_ahead_bytes)

    async def _read(self, offset: int) -> None:
        try:
            self._error = await self._open(offset)
            while self._error is ErrorCode.NONE and self._reader is not None:
                await self._read_on(self._reader)
        except OncelogError as error:
            self._error = code_of(error)
        self._close_reader()
        self._reading = None
        self._changed()

    async def _open(self, offset: int) -> ErrorCode:
        cluster, caller = self._around.cluster, self._around.caller
        log = self._log = await log_of(self._around, self._name, self._index)
        bounds = await cluster.bounds(log, caller)
        if not bounds.first <= offset <= bounds.end:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        self._reader = await cluster.open_reader(log, caller, offset)
        former, self._topic_id = self._topic_id, self._reader.topic_id
        if former not in (None, self._topic_id):
            return ErrorCode.OFFSET_OUT_OF_RANGE
        self._bounds = bounds
        self._changed()
        return ErrorCode.NONE

    async def _read_on(self, reader: ReaderPort) -> None:
        """Make one entry ready, or wait for one."""
        if self.ready_bytes >= self._room:
            self._wanted.clear()
            await self._wanted.wait()
            return
        entry = reader.take()
        if entry is None:
            try:
                await reader.arrival()
            except OncelogError as error:
                if not error.retriable:
                    raise
            return
        batch = await _made(reader, entry)
        self._ready.append(batch)
        self.ready_bytes += len(batch.records)
        if self._bounds is not None:
            self._bounds = self._bounds._replace(end=max(self._bounds.end, batch.last_offset + 1))
        self._changed()


async def _made(reader: ReaderPort, entry: Any) -> ReadBatch:
    if reader.size_of(entry) <= MADE_HERE_BYTES_MAX:
        return reader.prepare(entry)
    return await asyncio.to_thread(reader.prepare, entry)
