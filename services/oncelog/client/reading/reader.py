"""The asyncio reader: the messages of one topic, from any start.

A partitioned topic is read with all its partitions, in turn: the messages of each are in its order, in no order between
them.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self

from oncelog.client.network.lookup import PartitionCounts, partitions_in
from oncelog.client.network.network import Network
from oncelog.client.network.partition_watch import PartitionWatch, for_each_partition
from oncelog.client.network.start_position import PLACES, Place, check_place
from oncelog.client.reading.log_reader import LogReader
from oncelog.client.reading.stream_state import Gaps
from oncelog.client.values.arguments import check_seconds, check_type
from oncelog.client.values.corruption import OnCorrupt, SkippedEntries
from oncelog.client.values.encrypted import OnEncrypted
from oncelog.client.values.messages import Message, MessageBatch
from oncelog.core.errors import DeadlineExceeded, InvalidArgument, OncelogError, ReaderClosed
from oncelog.core.formats.message_id import EARLIEST, LATEST, Index, MessageId
from oncelog.core.names import TopicName
from oncelog.runtime.forks import when_forked

#: Where reading begins. A list: one message id for each partition that was read; others begin at their first message.
ReadStart = Place | Sequence[MessageId]


def check_read_start(start: ReadStart, inclusive: bool) -> None:
    """Raises InvalidArgument."""
    if isinstance(start, MessageId | datetime | Index):
        check_place(start, inclusive)
        return
    check_type("start", start, list, f"{PLACES}, or a list of MessageIds")
    for each in start:
        check_type("start", each, MessageId, "a list of MessageIds")
    check_type("inclusive", inclusive, bool, "True or False")


class AsyncReader:
    """Reads one topic. Made by `AsyncClient.create_reader`; for one task at a time, not for several threads.

        async for message in reader: ...

    Readers acknowledge nothing. To continue after a restart, the application stores the id of the last message that it
    has handled and passes it as `start`.

    Attributes:
        topic: the full name of the topic, tenant/namespace/name.
    """

    def __init__(
        self,
        topic: TopicName,
        network: Network,
        *,
        timeout_ms: int | None,
        on_corrupt: OnCorrupt = OnCorrupt.RAISE,
        on_encrypted: OnEncrypted = OnEncrypted.RAISE,
    ) -> None:
        self.topic = str(topic)
        self._part_of = partial(
            LogReader, network=network, timeout_ms=timeout_ms, on_corrupt=on_corrupt, on_encrypted=on_encrypted
        )
        self._topic = topic
        self._network = network
        self._timeout_ms = timeout_ms
        #: of the topic, or of each of its partitions
        self._parts = [self._part_of(topic)]
        #: of a partitioned topic
        self._watch: PartitionWatch | None = None
        #: set when the topic has got more partitions
        self._grown = asyncio.Event()
        self._turn = 0
        #: the batch that read_next returns messages of, and the index of its next message
        self._batch: MessageBatch | None = None
        self._at = 0
        when_forked(self)

    def forked(self) -> None:
        """In a forked child: the messages that are here belong to the parent."""
        self._batch = None

    def __repr__(self) -> str:
        return f"AsyncReader({self.topic!r}{', closed' if self.closed else ''})"

    async def open(self, start: ReadStart, *, inclusive: bool) -> None:
        """Fix the start. LATEST means the last message that is stored now, even if the connection is lost later."""
        try:
            await self._open_all(start, inclusive=inclusive)
        except InvalidArgument as error:
            # The answer to the usual look-up: a topic without partitions costs no other one.
            partitions = partitions_in(error)
            if not partitions:
                raise
            self._parts = [self._part_of(replace(self._topic, partition=number)) for number in range(partitions)]
            self._watch = PartitionWatch(self._topic, self._network, self._follow)
            try:
                await self._open_all(start, inclusive=inclusive)
            except BaseException:
                await self.close()
                raise
            self._watch.start(PartitionCounts(partitions))

    async def _open_all(self, start: ReadStart, *, inclusive: bool) -> None:
        if self._watch is None and isinstance(start, Sequence):
            await self._parts[0].check_topic(EARLIEST)
            raise InvalidArgument(f"start: {self.topic} has no partitions: give one message id", field="start")
        starts = self._starts(start)
        pairs = zip(self._parts, starts, strict=True)
        await for_each_partition(lambda pair: pair[0].open(pair[1], inclusive=inclusive), pairs)

    async def seek(self, start: ReadStart, *, inclusive: bool = False) -> None:
        """Go on reading elsewhere; `start` and `inclusive` as in `create_reader`.

        Also after an error about a message or an entry, such as MessageTooLarge. Raises as `create_reader`, and
        ReaderClosed; after an error the reader goes on where it was.
        """
        self._network.check_loop()
        end = next((part.end for part in self._parts if part.end is not None), None)
        if end is not None:
            raise end.with_traceback(None)
        if self._watch is not None:
            await self._watch.check(self._timeout_ms)
        await self._open_all(start, inclusive=inclusive)
        self._batch, self._at = None, 0

    async def _follow(self, counts: PartitionCounts) -> None:
        """Read the partitions that the topic has got, from their first message."""
        numbers = range(len(self._parts), counts.now)
        parts = [self._part_of(replace(self._topic, partition=number)) for number in numbers]
        try:
            await for_each_partition(lambda part: part.open(EARLIEST, inclusive=False), parts)
        except BaseException:
            for part in parts:
                part.close()
            raise
        self._parts += parts
        self._grown.set()

    def _starts(self, start: ReadStart) -> list[Place]:
        """The start of each partition. Raises InvalidArgument."""
        count = len(self._parts)
        if self._watch is None:
            assert not isinstance(start, Sequence), "refused before"
            return [start]
        if isinstance(start, datetime) or start in (EARLIEST, LATEST):
            assert not isinstance(start, Sequence), "a list equals no id"
            return [start] * count
        if isinstance(start, MessageId | Index):
            message = f"start: a message id or an index is a place of one partition, and {self.topic} has {count}"
            raise InvalidArgument(f"{message}: give a list of message ids, or a time", field="start")
        starts: list[Place] = [EARLIEST] * count
        for each in start:
            if not 0 <= each.partition < count:
                message = f"start: message id {each} is of no partition of {self.topic}, which has {count}"
                raise InvalidArgument(message, field="start")
            starts[each.partition] = each
        return starts

    # --- reading ------------------------------------------------------------------------------------------------------

    async def read_next(self, *, timeout: float | None = None) -> Message:
        """Return the next message; wait until there is one.

        timeout: seconds until DeadlineExceeded; None: no limit. Raises CorruptEntry or UnreadableEntry for an entry
        that cannot be read and EntriesLost for entries that are proved lost, unless the reader skips such entries;
        ReaderClosed; and LedgerUnavailable while no live storage node has the next entries: call again to go on waiting
        for them.
        """
        batch, at = self._batch, self._at
        if batch is None or at >= batch.count:
            batch, at = await self._next_batch(timeout), 0
            self._batch = batch
        self._at = at + 1
        return Message(batch, at)

    async def read_batch(self, *, timeout: float | None = None) -> MessageBatch:
        """Return all messages of the next entry, or the rest of the entry that read_next has begun. The fastest way.

        Arguments and errors as in `read_next`.
        """
        return self._rest() or self._take() or await self._next_batch(timeout)

    def _rest(self) -> MessageBatch | None:
        """What read_next has left of its batch."""
        batch, at, self._batch = self._batch, self._at, None
        if batch is None or at >= len(batch):
            return None
        return batch.after(at) if at else batch

    def _take(self) -> MessageBatch | None:
        """What has arrived, of the next partition in turn that has something."""
        self._network.check_loop()
        for step in range(len(self._parts)):
            number = (self._turn + step) % len(self._parts)
            batch = self._parts[number].take()
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
            raise self._late(timeout) from (self._trouble or error)
        return batch

    @property
    def _trouble(self) -> OncelogError | None:
        """The latest reason why a partition is not read."""
        return next((part.stream.trouble for part in self._parts if part.stream.trouble is not None), None)

    def _late(self, timeout: float | None) -> DeadlineExceeded:
        why = "" if self._trouble is None else f": {self._trouble}"
        return DeadlineExceeded(f"no message on {self.topic} arrived within {timeout} s{why}")

    async def _arrival(self) -> None:
        """Return when a batch is here, or the topic has got more partitions. Raises what ended a partition."""
        if self._watch is None:
            await self._parts[0].arrival()
            return
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
        """Whether the topic holds a message, stored now, that this reader has not returned yet."""
        self._network.check_loop()
        if self._batch is not None and self._at < len(self._batch):
            return True
        if self._watch is None:
            return await self._parts[0].has_message()
        await self._watch.check(self._timeout_ms)
        return any(await asyncio.gather(*(part.has_message() for part in self._parts)))

    async def batch_up_to(self, last: MessageId, *, timeout: float | None) -> MessageBatch | None:
        """As `read_batch`; None when everything up to the stored message `last` was returned or skipped. Raises
        InvalidArgument for a partitioned topic: there is no order between partitions."""
        if self._watch is not None:
            raise InvalidArgument(f"{self.topic} is partitioned: read one of its partitions up to {last}", field="last")
        batch = self._rest() or self._take()
        if batch is None:
            check_seconds("timeout", timeout, zero_allowed=True)
            try:
                async with asyncio.timeout(timeout):
                    await self._parts[0].arrival(up_to=last)
            except TimeoutError as error:
                raise self._late(timeout) from (self._trouble or error)
            batch = self._take()
        return batch

    @property
    def skipped(self) -> SkippedEntries:
        """The number of skipped entries, and the newest 1000 of them; of several partitions, those of each."""
        each = [part.corruption.skipped for part in self._parts]
        return SkippedEntries(sum(one.total for one in each), tuple(entry for one in each for entry in one.newest))

    @property
    def gaps(self) -> Gaps:
        """The number of gaps in the topic's indexes that the reader met, and the newest 1000 of them; of several
        partitions, those of each."""
        each = [part.stream.gaps for part in self._parts]
        return Gaps(sum(one.total for one in each), tuple(gap for one in each for gap in one.newest))

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the reader was closed or has failed."""
        return any(part.closed for part in self._parts)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        """Waits for the next message; the iteration ends when the reader is closed."""
        batch, at = self._batch, self._at
        if batch is not None and at < batch.count:  # nearly every message: no second call
            self._at = at + 1
            return Message(batch, at)
        try:
            return await self.read_next()
        except ReaderClosed:
            raise StopAsyncIteration from None

    async def close(self) -> None:
        """Close the reader. A call that waits for a message raises ReaderClosed. In a forked child it does nothing."""
        if self._network.inherited is not None:
            return
        self._network.check_loop()
        if self._watch is not None:
            self._watch.end()
        for part in self._parts:
            part.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
