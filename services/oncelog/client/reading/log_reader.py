"""Reads one log: a topic without partitions, or one partition of a topic. It survives changes of the topic owner."""

from typing import NamedTuple

from oncelog.client.network.backoff import persist
from oncelog.client.network.network import Network
from oncelog.client.network.start_position import Place, check_topic_of, start_at
from oncelog.client.reading.read_stream import ReadStream
from oncelog.client.reading.stream_state import NO_GAPS
from oncelog.client.values.corruption import Corruption, OnCorrupt
from oncelog.client.values.encrypted import OnEncrypted
from oncelog.client.values.messages import MessageBatch
from oncelog.core.errors import (
    CorruptEntry,
    EntriesLost,
    MessageTooLarge,
    OncelogError,
    ReaderClosed,
    UnreadableEntry,
)
from oncelog.core.formats.message_id import EARLIEST, LATEST, NO_PARTITION, MessageId
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.names import TopicName
from oncelog.rpc.codecs.owner_codec import LAST_MESSAGE
from oncelog.rpc.codecs.reader_codec import StartAt
from oncelog.wire.owner_pb2 import LastMessageRequest

#: Errors of one place in the log: elsewhere the reader may go on.
_OF_A_PLACE = (CorruptEntry, EntriesLost, MessageTooLarge, UnreadableEntry)

#: ledger id, entry id, batch index
_Position = tuple[int, int, int]


class LastMessage(NamedTuple):
    """message_id: None when the topic holds no message. next_index: of the message that comes next."""

    message_id: MessageId | None
    next_index: int


async def last_message(network: Network, topic: TopicName, *, timeout_ms: int | None) -> LastMessage:
    """The topic's last message.

    Every message that was acknowledged before the call is counted: for each answer the topic owner proves that no newer
    owner serves the topic, and an answer with an owner_epoch below the highest one seen is refused. Creates no topic.
    Raises TopicNotFound, another fatal error, or DeadlineExceeded with the last retriable reason.
    """

    async def ask(again: bool) -> LastMessage:
        route = await network.route(topic, fresh=again, create=False)
        seen = network.epochs.highest(route.topic_id)
        request = LastMessageRequest(topic=str(topic), topic_id=route.topic_id, owner_epoch_seen=seen)
        answer = await network.ask_owner(route, LAST_MESSAGE, request)
        if not answer.present:
            return LastMessage(None, answer.next_index)
        partition = NO_PARTITION if topic.partition is None else topic.partition
        ledger_id, entry_id = LedgerId(answer.ledger_id), EntryId(answer.entry_id)
        message_id = MessageId(route.topic_id, partition, ledger_id, entry_id, answer.batch_index)
        return LastMessage(message_id, answer.next_index)

    return await persist(ask, timeout_ms=timeout_ms, what=f"the last message of {topic}")


class LogReader:
    """The batches of one log, from a start on."""

    def __init__(
        self,
        topic: TopicName,
        network: Network,
        *,
        timeout_ms: int | None,
        on_corrupt: OnCorrupt,
        on_encrypted: OnEncrypted = OnEncrypted.RAISE,
    ) -> None:
        self._on_encrypted = on_encrypted
        self.corruption = Corruption(str(topic), on_corrupt)
        self._topic = topic
        self._network = network
        self._timeout_ms = timeout_ms
        self._stream: ReadStream | None = None
        #: taken from the stream, and not returned yet
        self._ahead: MessageBatch | None = None
        #: everything up to here was returned, or precedes the start; None: unknown (a start by time or index)
        self._after: _Position | None = None

    @property
    def stream(self) -> ReadStream:
        if self._stream is None:
            raise ReaderClosed("the reader is not open")
        return self._stream

    @property
    def closed(self) -> bool:
        """Whether the reader was closed or has failed."""
        return self._stream is not None and self._stream.failure is not None

    @property
    def end(self) -> OncelogError | None:
        """Why the reader cannot go on, nor anywhere else in the log."""
        failure = None if self._stream is None else self._stream.failure
        return None if isinstance(failure, _OF_A_PLACE) else failure

    async def open(self, start: Place, *, inclusive: bool) -> None:
        """Fix the start. LATEST means the last message that is stored now, even if the connection is lost later.

        An open reader goes on where it was if this fails.
        """
        at, after = await self._place(start, inclusive=inclusive)
        await self.check_topic(start)
        gaps = NO_GAPS
        if self._stream is not None:
            gaps = self._stream.gaps
            self._stream.close(ReaderClosed("the reader reads elsewhere"))
            self.corruption.restart()
        self._stream = ReadStream(
            self._topic, at, self._network, corruption=self.corruption, gaps=gaps, on_encrypted=self._on_encrypted
        )
        self._ahead, self._after = None, after

    async def _place(self, start: Place, *, inclusive: bool) -> tuple[StartAt, _Position | None]:
        """Where the owner begins, and what precedes it; None: unknown."""
        if start == LATEST:
            last = (await last_message(self._network, self._topic, timeout_ms=self._timeout_ms)).message_id
            start = EARLIEST if last is None else last
        at = start_at(start, inclusive=inclusive)
        if not isinstance(start, MessageId):
            return at, None
        return at, (start.ledger_id, start.entry_id, start.batch_index - inclusive)

    async def check_topic(self, start: Place) -> None:
        """Check that the topic exists, and that a message id is of this topic and not of a deleted one (hazard
        recreated-topic)."""
        topic_given = isinstance(start, MessageId) and bool(start.topic_id)
        route = await persist(
            lambda again: self._network.route(self._topic, fresh=again or topic_given),
            timeout_ms=self._timeout_ms,
            what=f"the owner of {self._topic}",
        )
        check_topic_of(start, self._topic, route)

    def take(self) -> MessageBatch | None:
        """The next batch; None when none was received. Raises CorruptEntry, unless such entries are skipped."""
        batch = self.stream.take() if self._ahead is None else self._ahead
        self._ahead = None
        if batch is not None:
            self._after = _position(batch.message_id(-1))
        return batch

    async def arrival(self, *, up_to: MessageId | None = None) -> bool:
        """Return when a batch is here for `take`. False: everything up to the stored message `up_to` was returned or
        skipped. Raises the error that ended the reader, and LedgerUnavailable, after which it may wait again."""
        if up_to is not None and self._after is not None and _position(up_to) <= self._after:
            return False
        while not self._is_here():
            passed = self.corruption.passed
            if up_to is not None and passed is not None and up_to.position <= passed:
                return False
            await self.stream.arrival()
        return True

    def _is_here(self) -> bool:
        if self._ahead is None:
            self._ahead = self.stream.take()
        return self._ahead is not None

    async def has_message(self) -> bool:
        """Whether the log holds a message, stored now, that was not returned yet."""
        while self._after is None and not self.stream.at_end and not self._is_here():
            await self.stream.arrival()
        if self._is_here():
            return True
        if self._after is None:
            return False
        last = (await last_message(self._network, self._topic, timeout_ms=self._timeout_ms)).message_id
        if last is None or _position(last) <= self._after:
            return False
        # All messages up to the last one may be in entries that are skipped: only reading on shows that.
        return self.corruption.choice is OnCorrupt.RAISE or await self.arrival(up_to=last)

    def close(self) -> None:
        """A call that waits for a message raises ReaderClosed."""
        self._ahead = None
        if self._stream is not None:
            self._stream.close(ReaderClosed("the reader was closed"))


def _position(message_id: MessageId) -> _Position:
    return (message_id.ledger_id, message_id.entry_id, message_id.batch_index)
