"""The log of one topic in memory, and readers of it in the form that a door needs."""

import asyncio

from oncelog.core.errors import OncelogError, ReaderClosed
from oncelog.core.ids import Position
from oncelog_doors.core.pulsar.deliveries import Delivery, RawBatch, delivery_of, last_id_of
from oncelog_doors.core.pulsar.message_ids import (
    DeliveredId,
    FromEnd,
    FromEntry,
    FromFirst,
    FromTime,
    Start,
    before,
)
from tests.doors.pulsar.chunks.fake_chunks import FakeChunks, FakeMessage
from tests.doors.pulsar.fake_subscriptions import FakeSubscription


class FakeLog:
    """fails_at: the error of the entry at a position. starts: of the readers that were opened."""

    def __init__(self) -> None:
        self.batches: list[RawBatch] = []
        self.chunks = FakeChunks()
        self.fails_at: dict[Position, OncelogError] = {}
        self.starts: list[Start] = []
        self.readers: list[FakeReader] = []
        #: {name: subscription}
        self.subscriptions: dict[str, FakeSubscription] = {}
        self.answers_last = asyncio.Event()
        self.answers_last.set()

    def append(self, *batches: RawBatch) -> None:
        self.batches += batches
        for reader in self.readers:
            reader.woken.set()
        for subscription in self.subscriptions.values():
            subscription.changed()


class FakeReader:
    """Has the form of `ReaderPort`."""

    def __init__(self, log: FakeLog, start: Start) -> None:
        self.log = log
        self.woken = asyncio.Event()
        self.error: OncelogError | None = None
        self.closed = False
        #: errors that `arrival` has raised
        self.raised = 0
        self.before, self.at = self._placed(start)

    def _placed(self, start: Start) -> tuple[Position | None, int]:
        batches = self.log.batches
        match start:
            case FromFirst():
                return None, 0
            case FromEnd():
                return (batches[-1].entry.position if batches else None), len(batches)
            case FromEntry(position):
                return before(position), sum(each.entry.position < position for each in batches)
            case FromTime(time_ms):
                at = sum(each.entry.append_time_ms < time_ms for each in batches)
                return (batches[at - 1].entry.position if at else None), at

    def take(self) -> RawBatch | None:
        if self.at >= len(self.log.batches) or self.error is not None:
            return None
        self.at += 1
        return self.log.batches[self.at - 1]

    async def arrival(self) -> None:
        while self.error is None and self.at >= len(self.log.batches):
            self.woken.clear()
            await self.woken.wait()
        if self.error is not None:
            error, self.raised = self.error, self.raised + 1
            if error.retriable:
                self.error = None
            raise error

    def fail(self, error: OncelogError) -> None:
        self.error = error
        self.woken.set()

    def chunks_of(self, entry: RawBatch) -> FakeMessage | None:
        return self.log.chunks.of_entry(entry)

    def size_of(self, entry: RawBatch) -> int:
        return len(entry.body)

    def prepare(self, entry: RawBatch, bytes_max: int) -> Delivery:
        if (error := self.log.fails_at.get(entry.entry.position)) is not None:
            raise error
        return delivery_of(entry, bytes_max)

    async def last_id(self) -> DeliveredId | None:
        await self.log.answers_last.wait()
        if self.error is not None:
            raise self.error
        return last_id_of(self.log.batches[-1]) if self.log.batches else None

    def close(self) -> None:
        self.closed = True
        self.fail(self.error or ReaderClosed("closed"))
