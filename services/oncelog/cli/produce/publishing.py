"""Publishes blocks of lines, with several batches in flight and an optional rate limit, until the end or a stop.

Rules
- Batches are sent in order and their results are taken in order, so "acknowledged up to an offset" has no gaps.
- A stop ends the reading; batches in flight are still awaited.
- The rate limit applies to sent lines. After a stall, up to one second of lines is caught up.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from oncelog.cli.produce.line_file import LineBlock
from oncelog.cli.produce.progress import ProgressView

if TYPE_CHECKING:
    from oncelog.cli.read.told import WaitingHint
    from oncelog.client.producing.producer import AsyncProducer

#: Batches in flight. The SDK limits their bytes, too.
BATCHES_PENDING_MAX = 32
#: Interval between batches with a rate limit, if the rate is high enough.
TICK_S = 0.02
CATCH_UP_S = 1.0


class BatchOutcome(Protocol):
    """The attributes of the SDK's BatchResult that are used here."""

    @property
    def unverified_ranges(self) -> list[range]: ...
    @property
    def differing_ranges(self) -> list[range]: ...
    @property
    def count(self) -> int: ...
    @property
    def duplicates(self) -> int: ...


class LineProducer(Protocol):
    """The method of the SDK's producer that is used here."""

    async def send_many(self, values: list[bytes], *, sequence_ids: list[int] | None = None) -> BatchOutcome: ...


class Labelled:
    """Sends each message with this key and these properties."""

    def __init__(self, producer: "AsyncProducer", key: str | None, properties: Mapping[str, str]) -> None:
        self._producer = producer
        self._key = key
        self._properties = properties

    async def send_many(self, values: list[bytes], *, sequence_ids: list[int] | None = None) -> BatchOutcome:
        return await self._producer.send_many(
            values,
            sequence_ids=sequence_ids,
            keys=None if self._key is None else [self._key] * len(values),
            properties=[self._properties] * len(values) if self._properties else None,
        )


@dataclass(slots=True)
class RunProgress:
    """The progress of a run.

    sent: lines sent. acked: lines stored, now or before. duplicates: lines stored before. offset: all lines before it
    are acknowledged. unverified: duplicates older than all batches that the owner remembers. differing: duplicates in
    batches with other content than the stored ones.
    """

    offset: int
    sent: int = 0
    acked: int = 0
    duplicates: int = 0
    unverified: int = 0
    differing: int = 0

    @property
    def stored(self) -> int:
        return self.acked - self.duplicates


class Pace:
    """Limits lines to `rate` per second; None: no limit. now_s: from a monotonic clock."""

    def __init__(self, rate: float | None, now_s: float) -> None:
        self._rate = rate
        self._granted_to_s = now_s

    def grant(self, now_s: float) -> int | None:
        """Number of lines that may be sent now; None: no limit."""
        if self._rate is None:
            return None
        self._granted_to_s = max(self._granted_to_s, now_s - CATCH_UP_S)
        return int((now_s - self._granted_to_s) * self._rate)

    def used(self, count: int) -> None:
        if self._rate is not None:
            self._granted_to_s += count / self._rate

    @property
    def wait_s(self) -> float:
        """Pause before the next `grant`, if it returned 0."""
        return TICK_S if self._rate is None else max(TICK_S, 1 / self._rate)


class Publishing:
    """One run; `progress` is correct at any time, also after an error."""

    def __init__(
        self, producer: LineProducer, view: ProgressView, rate: float | None, start: int, waiting: "WaitingHint"
    ) -> None:
        self.progress = RunProgress(start)
        self._waiting = waiting
        self._producer = producer
        self._view = view
        self._rate = rate
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Send no further batches; `run` returns when all batches in flight have their results."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    async def run(self, blocks: AsyncIterator[LineBlock]) -> None:
        """Publish all blocks. Raises the errors of the producer; an error ends the run."""
        pending: asyncio.Queue[tuple[asyncio.Task[BatchOutcome], int] | None] = asyncio.Queue(BATCHES_PENDING_MAX)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._collect(pending))
            async for block in self._paced(blocks):
                ids = block.offsets
                sending = tasks.create_task(self._producer.send_many(block.values, sequence_ids=ids))
                self.progress.sent += len(block)
                await pending.put((sending, block.end))
            await pending.put(None)

    async def _paced(self, blocks: AsyncIterator[LineBlock]) -> AsyncIterator[LineBlock]:
        """The same lines in blocks of the size that the rate limit allows."""
        pace = Pace(self._rate, time.monotonic())
        async for each in blocks:
            block = each
            while len(block) and not self.stopped:
                granted = pace.grant(time.monotonic())
                if granted == 0:
                    await self._pause(pace.wait_s)
                    continue
                if granted is None or granted >= len(block):
                    ready, block = block, LineBlock([], [], block.end)
                else:
                    ready, block = block.cut(granted)
                yield ready
                pace.used(len(ready))
                if granted is not None:
                    await self._pause(pace.wait_s)
            if self.stopped:
                break

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            pass  # no stop was requested during the pause

    async def _collect(self, pending: "asyncio.Queue[tuple[asyncio.Task[BatchOutcome], int] | None]") -> None:
        progress = self.progress
        while (item := await pending.get()) is not None:
            sending, end = item
            self._waiting.begins()
            try:
                result = await sending
            finally:
                self._waiting.ends()
            progress.acked += result.count
            progress.duplicates += result.duplicates
            progress.unverified += sum(map(len, result.unverified_ranges))
            progress.differing += sum(map(len, result.differing_ranges))
            progress.offset = end
            self._view.acked(progress.acked, progress.duplicates, progress.offset)
