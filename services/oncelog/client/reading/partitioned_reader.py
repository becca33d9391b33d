"""One reader over all partitions of a topic: the messages of each partition in its order, in no order between them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from oncelog.client.network.lookup import PartitionCounts
from oncelog.client.network.network import Network
from oncelog.client.network.partition_watch import PartitionWatch
from oncelog.client.reading.reader import AsyncReader, ReadStart
from oncelog.client.reading.stream_state import Gaps
from oncelog.client.values.arguments import check_seconds
from oncelog.client.values.corruption import OnCorrupt, SkippedEntries
from oncelog.client.values.messages import Message, MessageBatch
from oncelog.core.errors import DeadlineExceeded, InvalidArgument, ReaderClosed
from oncelog.core.formats.message_id import EARLIEST, LATEST, Index, MessageId
from oncelog.core.names import TopicName

#: Partitions that are opened at the same time.
OPENINGS_MAX = 64


class PartitionedReader(AsyncReader):
    """An AsyncReader of a partitioned topic. A read takes from the partitions in turn."""

    def __init__(
        self, topic: TopicName, partitions: int, network: Network, *, timeout_ms: int | None, on_corrupt: OnCorrupt
    ) -> None:
        self.topic = str(topic)
        topics = [replace(topic, partition=number) for number in range(partitions)]
        self._part_of = partial(AsyncReader, network=network, timeout_ms=timeout_ms, on_corrupt=on_corrupt)
        self._topic = topic
        self._timeout_ms = timeout_ms
        self._parts = [self._part_of(each) for each in topics]
        self._watch = PartitionWatch(topic, network, self._follow)
        #: set when the topic has got more partitions
        self._grown = asyncio.Event()
        self._turn = 0
        self._batch: MessageBatch | None = None
        self._at = 0
        self._is_closed = False

    async def open(self, start: ReadStart, *, inclusive: bool) -> None:
        await self._open_all(start, inclusive=inclusive)
        self._watch.start(PartitionCounts(len(self._parts)))

    async def _open_all(self, start: ReadStart, *, inclusive: bool) -> None:
        starts = self._starts(start)
        for first in range(0, len(self._parts), OPENINGS_MAX):
            some = range(first, min(first + OPENINGS_MAX, len(self._parts)))
            await asyncio.gather(*(self._parts[n].open(starts[n], inclusive=inclusive) for n in some))

    async def seek(self, start: ReadStart, *, inclusive: bool = False) -> None:
        self._check_open()
        await self._watch.check(self._timeout_ms)
        await self._open_all(start, inclusive=inclusive)
        self._batch, self._at = None, 0

    async def _follow(self, counts: PartitionCounts) -> None:
        """Read the partitions that the topic has got, from their first message."""
        numbers = range(len(self._parts), counts.now)
        parts = [self._part_of(replace(self._topic, partition=number)) for number in numbers]
        try:
            await asyncio.gather(*(part.open(EARLIEST, inclusive=False) for part in parts))
        except BaseException:
            await asyncio.gather(*(part.close() for part in parts))
            raise
        self._parts += parts
        self._grown.set()

    def _starts(self, start: ReadStart) -> list[MessageId | datetime | Index]:
        """The start of each partition. Raises InvalidArgument."""
        count = len(self._parts)
        if isinstance(start, datetime) or start in (EARLIEST, LATEST):
            assert not isinstance(start, Sequence), "a list equals no id"
            return [start] * count
        if isinstance(start, MessageId | Index):
            message = f"start: a message id or an index is a place of one partition, and {self.topic} has {count}"
            raise InvalidArgument(f"{message}: give a list of message ids, or a time", field="start")
        starts: list[MessageId | datetime | Index] = [EARLIEST] * count
        for each in start:
            if not 0 <= each.partition < count:
                message = f"start: message id {each} is of no partition of {self.topic}, which has {count}"
                raise InvalidArgument(message, field="start")
            starts[each.partition] = each
        return starts

    # --- reading ------------------------------------------------------------------------------------------------------

    async def read_next(self, *, timeout: float | None = None) -> Message:
        batch, at = self._batch, self._at
        if batch is None or at >= len(batch):
            batch, at = await self._next_batch(timeout), 0
            self._batch = batch
        self._at = at + 1
        return Message(batch, at)

    async def read_batch(self, *, timeout: float | None = None) -> MessageBatch:
        batch = self.take_local()
        if batch is None:
            batch = await self._next_batch(timeout)
        return batch

    def take_local(self) -> MessageBatch | None:
        batch, at, self._batch = self._batch, self._at, None
        if batch is not None and at < len(batch):
            return batch.after(at) if at else batch
        return self._take()

    def _take(self) -> MessageBatch | None:
        """What has arrived, of the next partition in turn that has something."""
        self._check_open()
        for step in range(len(self._parts)):
            number = (self._turn + step) % len(self._parts)
            batch = self._parts[number].take_local()
            if batch is not None:
                self._turn = number + 1
                return batch
        return None

    async def _next_batch(self, timeout: float | None) -> MessageBatch:
        check_seconds("timeout", timeout, zero_allowed=True)
        try:
            async with asyncio.timeout(timeout):
                while (batch := self._take()) is None:
                    await self._arrival()
        except TimeoutError as error:
            raise DeadlineExceeded(f"no message on {self.topic} arrived within {timeout} s") from error
        return batch

    async def _arrival(self) -> None:
        """Return when a partition has news. Raises the error that ended one."""
        self._grown.clear()
        waiting: list[asyncio.Future[object]] = [asyncio.ensure_future(part.arrival()) for part in self._parts]
        waiting.append(asyncio.ensure_future(self._grown.wait()))
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def has_message_available(self) -> bool:
        if self._batch is not None and self._at < len(self._batch):
            return True
        await self._watch.check(self._timeout_ms)
        return any(await asyncio.gather(*(part.has_message_available() for part in self._parts)))

    async def batch_up_to(self, last: MessageId, *, timeout: float | None) -> MessageBatch | None:
        """Raises InvalidArgument: there is no order between partitions."""
        raise InvalidArgument(f"{self.topic} is partitioned: read one of its partitions up to {last}", field="last")

    @property
    def skipped(self) -> SkippedEntries:
        """Of all partitions; the newest ones are listed partition by partition."""
        each = [part.skipped for part in self._parts]
        return SkippedEntries(sum(one.total for one in each), tuple(entry for one in each for entry in one.newest))

    @property
    def gaps(self) -> Gaps:
        """Of all partitions; the newest ones are listed partition by partition."""
        each = [part.gaps for part in self._parts]
        return Gaps(sum(one.total for one in each), tuple(gap for one in each for gap in one.newest))

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._is_closed or any(part.closed for part in self._parts)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ReaderClosed("the reader was closed")

    async def close(self) -> None:
        self._is_closed = True
        self._watch.end()
        await asyncio.gather(*(part.close() for part in self._parts))
