"""The asyncio reader: the messages of one topic in order, from any start; it survives changes of the topic owner."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from oncelog.client.network.backoff import persist
from oncelog.client.network.network import Network
from oncelog.client.reading.read_stream import ReadStream
from oncelog.client.reading.stream_state import Gaps
from oncelog.client.values.arguments import check_seconds
from oncelog.client.values.corruption import Corruption, OnCorrupt, SkippedEntries
from oncelog.client.values.messages import Message, MessageBatch
from oncelog.core.errors import DeadlineExceeded, InvalidArgument, ReaderClosed
from oncelog.core.formats.message_id import EARLIEST, LATEST, NO_PARTITION, Index, MessageId
from oncelog.core.ids import EntryId, LedgerId, OwnerEpoch
from oncelog.core.names import TopicName
from oncelog.rpc.owner_codec import LAST_MESSAGE
from oncelog.rpc.reader_codec import StartAt, StartEdge, StartIndex, StartMessage, StartTime
from oncelog.wire.owner_pb2 import LastMessageRequest

_CALL_TIMEOUT_MS = 5_000
#: Where reading begins. A list: one message id for each partition that was read; others begin at their first message.
ReadStart = MessageId | datetime | Index | Sequence[MessageId]
#: ledger id, entry id, batch index
_Position = tuple[int, int, int]


async def last_message_id(network: Network, topic: TopicName, *, timeout_ms: int | None) -> MessageId | None:
    """The id of the topic's last message, None when the topic holds none.

    Every message that was acknowledged before the call is counted: for each answer the topic owner proves that no newer
    owner serves the topic, and an answer with an owner_epoch below the highest one seen is refused. Creates no topic.
    Raises TopicNotFound, another fatal error, or DeadlineExceeded with the last retriable reason.
    """

    async def ask(again: bool) -> MessageId | None:
        route = await network.route(topic, fresh=again, create=False)
        seen = network.epochs.highest(route.topic_id)
        request = LastMessageRequest(topic=str(topic), topic_id=route.topic_id, owner_epoch_seen=seen)
        async with network.channel(route) as channel:
            answer = await channel.call(LAST_MESSAGE, request, timeout_ms=_CALL_TIMEOUT_MS)
        network.epochs.believe(route.topic_id, OwnerEpoch(answer.owner_epoch))
        if not answer.present:
            return None
        partition = NO_PARTITION if topic.partition is None else topic.partition
        ledger_id, entry_id = LedgerId(answer.ledger_id), EntryId(answer.entry_id)
        return MessageId(route.topic_id, partition, ledger_id, entry_id, answer.batch_index)

    return await persist(ask, timeout_ms=timeout_ms, what=f"the last message of {topic}")


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
    ) -> None:
        self.topic = str(topic)
        self._corruption = Corruption(self.topic, on_corrupt)
        self._topic = topic
        self._network = network
        self._timeout_ms = timeout_ms
        self._stream: ReadStream | None = None
        #: the batch that read_next returns messages of, and the index of its next message
        self._batch: MessageBatch | None = None
        self._at = 0
        #: everything up to here was returned, or precedes the start; None: unknown (a start by time or index)
        self._after: _Position | None = None

    async def open(self, start: ReadStart, *, inclusive: bool) -> None:
        """Fix the start. LATEST means the last message that is stored now, even if the connection is lost later.

        An open reader goes on where it was if this fails.
        """
        if isinstance(start, Sequence):
            await self._check_topic(EARLIEST)
            raise InvalidArgument(f"start: {self.topic} has no partitions: give one message id", field="start")
        at, after = await self._place(start, inclusive=inclusive)
        await self._check_topic(start)
        if self._stream is not None:
            self._stream.close(ReaderClosed("the reader reads elsewhere"))
        self._stream = ReadStream(self._topic, at, self._network, corruption=self._corruption)
        self._batch, self._at, self._after = None, 0, after

    async def seek(self, start: ReadStart, *, inclusive: bool = False) -> None:
        """Go on reading elsewhere; `start` and `inclusive` as in `create_reader`.

        Raises as `create_reader`, and ReaderClosed; after an error the reader goes on where it was.
        """
        if self._open_stream.failure is not None:
            raise self._open_stream.failure
        await self.open(start, inclusive=inclusive)

    async def _place(self, start: MessageId | datetime | Index, *, inclusive: bool) -> tuple[StartAt, _Position | None]:
        """Where the owner begins, and what precedes it; None: unknown."""
        if isinstance(start, datetime):
            return StartTime(max(0, int(start.timestamp() * 1000))), None
        if isinstance(start, Index):
            return StartIndex(start.number), None
        if start == LATEST:
            last = await last_message_id(self._network, self._topic, timeout_ms=self._timeout_ms)
            start = EARLIEST if last is None else last
        after = (start.ledger_id, start.entry_id, start.batch_index - inclusive)
        if start == EARLIEST:
            return StartEdge.EARLIEST, after
        return StartMessage(start.position, start.batch_index, inclusive), after

    async def _check_topic(self, start: MessageId | datetime | Index) -> None:
        """Check that the topic exists, and that a message id is of this topic and not of a deleted one (hazard 3)."""
        partition = NO_PARTITION if self._topic.partition is None else self._topic.partition
        topic_given = isinstance(start, MessageId) and bool(start.topic_id)
        route = await persist(
            lambda again: self._network.route(self._topic, fresh=again or topic_given),
            timeout_ms=self._timeout_ms,
            what=f"the owner of {self._topic}",
        )
        expected = (route.topic_id, partition)
        if isinstance(start, MessageId) and start.topic_id and (start.topic_id, start.partition) != expected:
            raise InvalidArgument(
                f"start: message id {start} belongs to another topic than {self.topic}", field="start"
            )

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
            batch, at = await self._fetch(timeout), 0
            self._batch = batch
        self._at = at + 1
        return Message(batch, at)

    async def read_batch(self, *, timeout: float | None = None) -> MessageBatch:
        """Return all messages of the next entry, or the rest of the entry that read_next has begun. The fastest way.

        Arguments and errors as in `read_next`.
        """
        batch = self.take_local()
        if batch is None:
            batch = await self._fetch(timeout)
            self._batch, self._at = batch, len(batch)
        return batch

    def take_local(self) -> MessageBatch | None:
        """As `read_batch`, but None when no batch has been received yet. Never waits."""
        batch, at = self._batch, self._at
        if batch is not None and at < len(batch):
            self._at = len(batch)
            return batch.after(at) if at else batch
        batch = self._open_stream.take()
        if batch is not None:
            self._returned()
            self._batch, self._at = batch, len(batch)
        return batch

    async def arrival(self) -> None:
        """Return when something has arrived for `take_local`, or may have. Raises the error that ended the reader."""
        await self._open_stream.arrival()

    async def has_message_available(self) -> bool:
        """Whether the topic holds a message, stored now, that this reader has not returned yet."""
        stream = self._open_stream
        while True:
            if self._batch is not None and self._at < len(self._batch):
                return True
            batch = stream.take()
            if batch is not None:
                self._returned()
                self._batch, self._at = batch, 0
            elif self._after is None and self._batch is None and not stream.at_end:
                await stream.arrival()
            else:
                break
        if self._after is None and self._batch is None:
            return False
        self._returned()
        last = await last_message_id(self._network, self._topic, timeout_ms=self._timeout_ms)
        if last is None or self._after is None or _position(last) <= self._after:
            return False
        if self._corruption.choice is OnCorrupt.RAISE:
            return True
        # All messages up to the last one may be in entries that are skipped: only reading on shows that.
        batch = await self._next(None, up_to=last)
        if batch is not None:
            self._batch, self._at = batch, 0
        return batch is not None

    async def batch_up_to(self, last: MessageId, *, timeout: float | None) -> MessageBatch | None:
        """As `read_batch`; None when everything up to the stored message `last` was returned or skipped."""
        batch = self.take_local()
        if batch is None:
            self._returned()
            if self._after is not None and _position(last) <= self._after:
                return None
            batch = await self._next(timeout, up_to=last)
            if batch is not None:
                self._batch, self._at = batch, len(batch)
        return batch

    @property
    def skipped(self) -> SkippedEntries:
        """The number of skipped entries, and the newest 1000 of them."""
        return self._corruption.skipped

    @property
    def gaps(self) -> Gaps:
        """The number of gaps in the topic's indexes that the reader met, and the newest 1000 of them."""
        return self._open_stream.gaps

    async def _fetch(self, timeout: float | None) -> MessageBatch:
        batch = await self._next(timeout, up_to=None)
        assert batch is not None, "a read without an end returns a batch"
        return batch

    async def _next(self, timeout: float | None, *, up_to: MessageId | None) -> MessageBatch | None:
        """The next batch from the network; None when the entry of `up_to` was skipped."""
        check_seconds("timeout", timeout, zero_allowed=True)
        stream = self._open_stream
        try:
            async with asyncio.timeout(timeout):
                while (batch := stream.take()) is None:
                    passed = self._corruption.passed
                    if up_to is not None and passed is not None and up_to.position <= passed:
                        return None
                    await stream.arrival()
        except TimeoutError as error:
            why = "" if stream.trouble is None else f": {stream.trouble}"
            raise DeadlineExceeded(f"no message on {self.topic} arrived within {timeout} s{why}") from (
                stream.trouble or error
            )
        self._returned()
        return batch

    def _returned(self) -> None:
        """The current batch was returned: the reader is behind its last message."""
        if self._batch is not None and len(self._batch):
            self._after = _position(self._batch.message_id(-1))

    @property
    def closed(self) -> bool:
        """Whether the reader was closed or has failed."""
        return self._stream is not None and self._stream.failure is not None

    @property
    def _open_stream(self) -> ReadStream:
        if self._stream is None:
            raise ReaderClosed("the reader is not open")
        return self._stream

    # --- life ---------------------------------------------------------------------------------------------------------

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
        """Close the reader. A call that waits for a message raises ReaderClosed."""
        if self._stream is not None:
            self._stream.close(ReaderClosed("the reader was closed"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _position(message_id: MessageId) -> _Position:
    return (message_id.ledger_id, message_id.entry_id, message_id.batch_index)
