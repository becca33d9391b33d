"""Publishing blocks of lines: several lists on the way, at a pace, until the end or until somebody wants to stop.

Rules
- Lists are handed over in order and their fates are taken in order: "acknowledged up to an offset" has no holes.
- A stop ends the reading; what was handed over is still waited for.
- The pace is that of lines handed over. After a stall it catches up, by what at most one second would have sent.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from oncelog.cli.produce.line_file import LineBlock
from oncelog.cli.produce.progress import ProgressView

#: Lists handed over and not answered; the SDK bounds their bytes as well.
LISTS_PENDING_MAX = 32
#: A paced run sends so often, at rates that have a line for it.
TICK_S = 0.02
CATCH_UP_S = 1.0


class BatchOutcome(Protocol):
    """The part of the SDK's BatchResult that is used here."""

    @property
    def unverified_ranges(self) -> list[range]: ...
    @property
    def count(self) -> int: ...
    @property
    def duplicates(self) -> int: ...


class LineProducer(Protocol):
    """The part of the SDK's producer that is used here."""

    async def send_many(self, values: list[bytes], *, sequence_ids: list[int] | None = None) -> BatchOutcome: ...


@dataclass(slots=True)
class RunProgress:
    """How far a run has come.

    sent: lines handed over. acked: stored, now or before; duplicates: those stored before. offset: everything before it
    is acknowledged. unverified: duplicates below all that the owner remembers, so known by its mark alone.
    """

    offset: int
    sent: int = 0
    acked: int = 0
    duplicates: int = 0
    unverified: int = 0

    @property
    def stored(self) -> int:
        return self.acked - self.duplicates


class Pace:
    """Grants lines at `rate` a second; None: any number at once. now_s: any clock that only goes forward."""

    def __init__(self, rate: float | None, now_s: float) -> None:
        self._rate = rate
        self._granted_to_s = now_s

    def grant(self, now_s: float) -> int | None:
        """How many lines may be handed over now; None: no bound."""
        if self._rate is None:
            return None
        self._granted_to_s = max(self._granted_to_s, now_s - CATCH_UP_S)
        return int((now_s - self._granted_to_s) * self._rate)

    def used(self, count: int) -> None:
        if self._rate is not None:
            self._granted_to_s += count / self._rate

    @property
    def wait_s(self) -> float:
        """Until the next look, when nothing was granted."""
        return TICK_S if self._rate is None else max(TICK_S, 1 / self._rate)


class Publishing:
    """One run; `progress` is true at any moment, also after an error."""

    def __init__(self, producer: LineProducer, view: ProgressView, rate: float | None, start: int) -> None:
        self.progress = RunProgress(start)
        self._producer = producer
        self._view = view
        self._rate = rate
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Hand over nothing more; `run` returns when what was handed over is answered."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    async def run(self, blocks: AsyncIterator[LineBlock]) -> None:
        """Publish all blocks. Raises what the producer raises; an error ends the run."""
        pending: asyncio.Queue[tuple[asyncio.Task[BatchOutcome], int] | None] = asyncio.Queue(LISTS_PENDING_MAX)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._collect(pending))
            async for block in self._paced(blocks):
                ids = block.offsets
                sending = tasks.create_task(self._producer.send_many(block.values, sequence_ids=ids))
                self.progress.sent += len(block)
                await pending.put((sending, block.end))
            await pending.put(None)

    async def _paced(self, blocks: AsyncIterator[LineBlock]) -> AsyncIterator[LineBlock]:
        """The same lines, cut to what the pace grants."""
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
            pass  # time is up, nobody wants to stop

    async def _collect(self, pending: "asyncio.Queue[tuple[asyncio.Task[BatchOutcome], int] | None]") -> None:
        progress = self.progress
        while (item := await pending.get()) is not None:
            sending, end = item
            result = await sending
            progress.acked += result.count
            progress.duplicates += result.duplicates
            progress.unverified += sum(map(len, result.unverified_ranges))
            progress.offset = end
            self._view.acked(progress.acked, progress.duplicates, progress.offset)
