"""What a reader returns: batches of columns, and single messages as views of them.

A batch is one entry of the log, as one producer sent it. Its values are slices of the received bytes; columns are
decoded and values copied on access.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from oncelog.client.results import TopicPartition
from oncelog.core.errors import CorruptEntry, InvalidBatch
from oncelog.core.formats.batch import BatchHeader, Buffer, Checksum, decode_ids, deltas_of, payload_of, peek_batch
from oncelog.core.formats.columns import Columns, Values, decode_columns, expand_payload
from oncelog.core.formats.entry import EntryHeader, EntryKind, body_of, decode_entry, peek_header
from oncelog.core.formats.message_id import MessageId

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_PROPERTIES: Mapping[str, str] = {}


class StoredBatch(NamedTuple):
    """One entry of messages as it was read; its bytes are checked."""

    entry: EntryHeader
    batch: BatchHeader
    body: memoryview


def open_entry(data: Buffer, checksum: Checksum) -> StoredBatch:
    """Check one entry of messages. Raises CorruptEntry when the bytes are damaged or hold no messages."""
    peeked = peek_header(data)
    entry = decode_entry(data, ledger_id=peeked.ledger_id, entry_id=peeked.entry_id, checksum=checksum)
    body = body_of(data)
    try:
        batch = peek_batch(body)
    except InvalidBatch as error:
        raise CorruptEntry(f"entry {entry.position} holds no batch: {error}") from error
    if entry.kind != EntryKind.MESSAGES or batch.bytes_total != len(body) or entry.skip_first > batch.count:
        raise CorruptEntry(f"entry {entry.position} contradicts its batch")
    return StoredBatch(entry, batch, body)


class MessageBatch:
    """Consecutive messages of one producer, in columns of equal length; a sequence of `Message`.

    Attributes:
        values: the messages' values, a sequence of slices of one buffer.
        keys, event_times_ms, properties: one item for each message, or None when no message of the entry has one.
        sequence_ids: the messages' sequence ids; a range when they are dense.
        first_index: index in the topic of the first message; the others follow.
        producer_name: None for messages that were stored without deduplication.
        producer_id: the number that stands for the producer's name in the topic.
        publish_time_ms, append_time_ms: the producer's and the topic owner's clock, ms since 1970 UTC.
        count: number of messages, also `len(batch)`.
    """

    def __init__(
        self, stored: StoredBatch, topic: TopicPartition, producer_name: str | None, *, first_batch_index: int
    ) -> None:
        self.producer_name = producer_name
        #: index in the entry of this batch's first message; the messages before it are skipped or not wanted
        self.first_batch_index = max(first_batch_index, stored.entry.skip_first)
        self._stored = stored
        self._topic = topic
        self._columns = self._decode(stored)
        self._ids: Sequence[int] | None = None
        self.values: Values = self._cut(self._columns.values)
        #: messages of this batch
        self.count = len(self.values)
        #: the values' bytes and each value's offset, after a single value was accessed
        self.copied: tuple[bytes, list[int]] | None = None

    @staticmethod
    def _decode(stored: StoredBatch) -> Columns:
        try:
            payload = expand_payload(stored.batch, payload_of(stored.batch, stored.body))
            return decode_columns(payload, stored.batch.count)
        except InvalidBatch as error:
            raise CorruptEntry(f"entry {stored.entry.position} cannot be read: {error}") from error

    def _cut(self, column: Values) -> Values:
        return column[self.first_batch_index :] if self.first_batch_index else column

    @property
    def sequence_ids(self) -> Sequence[int]:
        if self._ids is None:
            batch = self._stored.batch
            self._ids = decode_ids(batch, deltas_of(batch, self._stored.body))[self.first_batch_index :]
        return self._ids

    @property
    def first_index(self) -> int:
        entry = self._stored.entry
        return entry.base_index + self.first_batch_index - entry.skip_first

    @property
    def producer_id(self) -> int:
        return self._stored.batch.producer_id

    @property
    def publish_time_ms(self) -> int:
        return self._stored.batch.publish_time_ms

    @property
    def append_time_ms(self) -> int:
        return self._stored.entry.append_time_ms

    @property
    def keys(self) -> Sequence[bytes | None] | None:
        keys = self._columns.keys
        return None if keys is None else keys[self.first_batch_index :]

    @property
    def event_times_ms(self) -> Sequence[int | None] | None:
        times = self._columns.event_times_ms
        return None if times is None else times[self.first_batch_index :]

    @property
    def properties(self) -> Sequence[Mapping[str, str]] | None:
        properties = self._columns.properties
        return None if properties is None else properties[self.first_batch_index :]

    def message_id(self, index: int) -> MessageId:
        """The id of the message at `index`; negative indexes count from the end."""
        entry = self._stored.entry
        batch_index = self.first_batch_index + range(len(self))[index]
        return MessageId(self._topic.topic_id, self._topic.partition, entry.ledger_id, entry.entry_id, batch_index)

    def after(self, count: int) -> "MessageBatch":
        """This batch without its first `count` messages."""
        first = self.first_batch_index + count
        return MessageBatch(self._stored, self._topic, self.producer_name, first_batch_index=first)

    def copy_values(self) -> tuple[bytes, list[int]]:
        """Copy all values at once: slicing bytes costs half of copying slices of a memoryview."""
        self.copied = (bytes(self.values.data), list(self.values.offsets))
        return self.copied

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> "Message":
        return Message(self, range(self.count)[index])

    def __iter__(self) -> "Iterator[Message]":
        for index in range(self.count):
            yield Message(self, index)


class Message:
    """One message: a view of its batch, which it keeps in memory.

    Attributes:
        value: bytes.
        message_id: the message's position in the topic, as a MessageId.
        sequence_id: the producer's id of the message.
        producer_name: None for a message that was stored without deduplication.
        index: the message's number in its topic: 0, 1, 2 …, without gaps.
        key: bytes, or None.
        properties: text to text; empty when the message has none.
        publish_time, publish_time_ms: the producer's clock, as an aware datetime in UTC and in ms since 1970.
        event_time, event_time_ms: the time that the producer gave, or None. `event_time` raises OverflowError for times
            that datetime cannot express.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: MessageBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def value(self) -> bytes:
        index = self._index
        data, offsets = self._batch.copied or self._batch.copy_values()
        return data[offsets[index] : offsets[index + 1]]

    @property
    def message_id(self) -> MessageId:
        return self._batch.message_id(self._index)

    @property
    def sequence_id(self) -> int:
        return self._batch.sequence_ids[self._index]

    @property
    def producer_name(self) -> str | None:
        return self._batch.producer_name

    @property
    def index(self) -> int:
        return self._batch.first_index + self._index

    @property
    def key(self) -> bytes | None:
        keys = self._batch.keys
        return None if keys is None else keys[self._index]

    @property
    def properties(self) -> Mapping[str, str]:
        properties = self._batch.properties
        return _NO_PROPERTIES if properties is None else properties[self._index]

    @property
    def publish_time_ms(self) -> int:
        return self._batch.publish_time_ms

    @property
    def publish_time(self) -> datetime:
        return _EPOCH + timedelta(milliseconds=self.publish_time_ms)

    @property
    def event_time_ms(self) -> int | None:
        times = self._batch.event_times_ms
        return None if times is None else times[self._index]

    @property
    def event_time(self) -> datetime | None:
        time_ms = self.event_time_ms
        return None if time_ms is None else _EPOCH + timedelta(milliseconds=time_ms)

    def __repr__(self) -> str:
        value = self.value
        shown = value if len(value) <= 60 else value[:60] + b"..."
        return f"Message({self.message_id}, producer={self.producer_name!r}, id={self.sequence_id}, value={shown!r})"
