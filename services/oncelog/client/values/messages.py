"""What a reader or consumer returns: batches of columns, and single messages as views of them.

A batch is one entry of the log, as one producer sent it. Its values are slices of the received bytes; columns are
decoded and values copied on access.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from oncelog.client.values.encrypted import EncryptedMessage, OnEncrypted
from oncelog.client.values.results import TopicPartition
from oncelog.core.errors import CorruptEntry, InvalidArgument, InvalidBatch
from oncelog.core.formats.batch import (
    BatchHeader,
    Buffer,
    Checksum,
    PayloadFormat,
    deltas_of,
    payload_of,
    peek_batch,
)
from oncelog.core.formats.columns import (
    Columns,
    Headers,
    Values,
    encode_event_times,
    encode_keys,
    encode_properties,
    encode_values,
)
from oncelog.core.formats.entry import EntryHeader, EntryKind, body_of, decode_entry, peek_header
from oncelog.core.formats.message_id import MessageId
from oncelog.core.formats.origin import BatchOrigin, Origin, unpack_origin
from oncelog.core.formats.payload import expand_columns, message_ids, read_columns, shown_columns
from oncelog.core.ids import Generation, SeekEpoch

#: Property of a message: the trace context of W3C that it was sent in.
TRACEPARENT = "traceparent"
_NO_PROPERTIES: Mapping[str, str] = {}
ColumnT = TypeVar("ColumnT")


class ConsumerDelivery(NamedTuple):
    """How a consumer got messages. source: its subscription of one topic or partition. delivery_counts: {index: how
    often it was delivered, this time included}, of those above 1."""

    source: object
    seek_epoch: SeekEpoch
    generation: Generation
    delivery_counts: Mapping[int, int]

    def count_of(self, index: int) -> int:
        return self.delivery_counts.get(index, 1) if self.delivery_counts else 1


@dataclass(frozen=True, slots=True)
class Receipt:
    """One delivery of one message, without its content: a program that keeps no message acknowledges it with this.
    index: of the message in its topic."""

    delivery: ConsumerDelivery
    index: int

    @property
    def delivery_count(self) -> int:
        return self.delivery.count_of(self.index)


#: Of messages that no consumer got, but a reader.
NOT_DELIVERED = ConsumerDelivery(None, SeekEpoch(0), Generation(0), {})


class StoredBatch(NamedTuple):
    """One entry of messages as it was read; its bytes are checked."""

    entry: EntryHeader
    batch: BatchHeader
    body: memoryview


def open_entry(data: Buffer, checksum: Checksum) -> StoredBatch:
    """Check one entry of messages. Raises CorruptEntry when the bytes are damaged or hold no messages."""
    peeked = peek_header(data)
    entry = decode_entry(data, ledger_id=peeked.ledger_id, entry_id=peeked.entry_id, checksum=checksum)
    return open_verified(entry, data)


def open_verified(entry: EntryHeader, data: Buffer) -> StoredBatch:
    """As `open_entry`, of an entry whose checksum was compared. Raises CorruptEntry when it holds no messages."""
    body = body_of(data)
    try:
        batch = peek_batch(body)
    except InvalidBatch as error:
        raise CorruptEntry(f"entry {entry.position} holds no batch: {error}") from error
    if entry.kind != EntryKind.MESSAGES or batch.bytes_total != len(body) or entry.skip_first > batch.count:
        raise CorruptEntry(f"entry {entry.position} contradicts its batch")
    return StoredBatch(entry, batch, body)


def decode_stored(stored: StoredBatch, on_encrypted: OnEncrypted = OnEncrypted.RAISE) -> Columns:
    """Raises CorruptEntry when the payload contradicts its header, CompressionUnavailable, and MessageEncrypted unless
    encrypted messages are passed on."""
    try:
        if on_encrypted is OnEncrypted.PASS and stored.batch.payload_format == PayloadFormat.PULSAR:
            return shown_columns(stored.batch, payload_of(stored.batch, stored.body))
        return read_columns(stored.batch, payload_of(stored.batch, stored.body))
    except InvalidBatch as error:
        raise CorruptEntry(f"entry {stored.entry.position} cannot be read: {error}") from error


class MessageBatch:
    """Consecutive messages of one producer, in columns of equal length; a sequence of `Message`.

    Attributes:
        values: the messages' values, a sequence of slices of one buffer. A null or encrypted value is empty here.
        nulls: whether each value is null, or None when no value of the entry is. Clients of Kafka and Pulsar send such
            values.
        encrypted: whether the messages are encrypted; see `Message.value`.
        keys, event_times_ms, properties: one item for each message, or None when no message of the entry has one.
        headers: of clients of Kafka, see `Message.headers`; None when no message of the entry has one.
        sequence_ids: the messages' sequence ids; a range when they are dense.
        first_index: index in the topic of the first message; the others follow.
        producer_name: None if the topic does not know the name of `producer_id`, see `Message`.
        producer_id: the number that stands for the producer's name in the topic, for ever; None for messages that were
            stored without deduplication.
        publish_time_ms, append_time_ms: the producer's and the topic owner's clock, ms since 1970 UTC.
        count: number of messages, also `len(batch)`.
        partition: the partition's number; -1 for a topic that is not partitioned.
    """

    def __init__(
        self,
        stored: StoredBatch,
        topic: TopicPartition,
        producer_name: str | None,
        *,
        first_batch_index: int,
        end_batch_index: int | None = None,
        columns: Columns | None = None,
        delivery: ConsumerDelivery = NOT_DELIVERED,
        on_encrypted: OnEncrypted = OnEncrypted.RAISE,
    ) -> None:
        """end_batch_index: behind the last wanted message; None: all are wanted. columns: those of `stored`, if they
        are decoded already; else on_encrypted says how."""
        self.producer_name = producer_name
        #: index in the entry of this batch's first message; the messages before it are skipped or not wanted
        self.first_batch_index = max(first_batch_index, stored.entry.skip_first)
        self.delivery = delivery
        self._end_batch_index = end_batch_index
        self._stored = stored
        self._topic = topic
        self._columns = decode_stored(stored, on_encrypted) if columns is None else columns
        self._ids: Sequence[int] | None = None
        values = self._columns.values
        self._whole = self.first_batch_index == 0 and end_batch_index in (None, stored.batch.count)
        self.values: Values = values if self._whole else values[self.first_batch_index : end_batch_index]
        #: messages of this batch
        self.count = len(self.values)
        #: the entry of an encrypted batch, after a single value was accessed
        self._sealed: bytes | None = None
        #: whether some values are null or encrypted
        self.has_special_values = self._columns.nulls is not None or self._columns.encryption is not None
        #: the values' bytes and each value's offset, after a single value was accessed
        self.copied: tuple[bytes, list[int]] | None = None

    def _cut(self, column: Sequence[ColumnT] | None) -> Sequence[ColumnT] | None:
        if column is None or self._whole:
            return column
        return column[self.first_batch_index : self._end_batch_index]

    @property
    def sequence_ids(self) -> Sequence[int]:
        if self._ids is None:
            batch = self._stored.batch
            ids = message_ids(batch, deltas_of(batch, self._stored.body), self._columns)
            self._ids = ids[self.first_batch_index : self._end_batch_index]
        return self._ids

    @property
    def first_index(self) -> int:
        entry = self._stored.entry
        return entry.base_index + self.first_batch_index - entry.skip_first

    @property
    def in_chunks(self) -> bool:
        """Whether the value is joined from chunks: it is longer than the entry that names them."""
        return len(self._stored.body) > self._stored.entry.body_bytes

    @property
    def producer_id(self) -> int | None:
        return self._stored.batch.producer_id or None

    @property
    def publish_time_ms(self) -> int:
        return self._stored.batch.publish_time_ms

    @property
    def append_time_ms(self) -> int:
        return self._stored.entry.append_time_ms

    @property
    def keys(self) -> Sequence[bytes | None] | None:
        return self._cut(self._columns.keys)

    @property
    def event_times_ms(self) -> Sequence[int | None] | None:
        return self._cut(self._columns.event_times_ms)

    @property
    def properties(self) -> Sequence[Mapping[str, str]] | None:
        return self._cut(self._columns.properties)

    @property
    def nulls(self) -> Sequence[bool] | None:
        return self._cut(self._columns.nulls)

    @property
    def headers(self) -> Sequence[Headers] | None:
        return self._cut(self._columns.headers)

    @property
    def encrypted(self) -> bool:
        return self._columns.encryption is not None

    def special_value(self, index: int) -> EncryptedMessage | None:
        """The value of the message at `index`, which is encrypted, or null."""
        if self._columns.encryption is None:
            return None
        if self._sealed is None:
            self._sealed = bytes(payload_of(self._stored.batch, self._stored.body))
        return EncryptedMessage.of(
            self._sealed, self.first_batch_index + index, self._stored.batch.count, self._columns.encryption
        )

    @property
    def origin(self) -> BatchOrigin | None:
        """Where a mirror has copied the messages of the whole entry from; see `origin_of`. Raises CorruptEntry."""
        content = self._columns.origin
        if content is None:
            return None
        try:
            return unpack_origin(content, self._stored.batch.count)
        except InvalidBatch as error:
            raise CorruptEntry(f"entry {self._stored.entry.position} cannot be read: {error}") from error

    def origin_of(self, index: int) -> Origin | None:
        """Where the message at `index` was copied from; None: it was published here."""
        origin = self.origin
        return None if origin is None else origin.of(self.first_batch_index + index)

    @property
    def partition(self) -> int:
        return self._topic.partition

    def message_id(self, index: int) -> MessageId:
        """The id of the message at `index`; negative indexes count from the end."""
        entry = self._stored.entry
        batch_index = self.first_batch_index + range(len(self))[index]
        return MessageId(self._topic.topic_id, self._topic.partition, entry.ledger_id, entry.entry_id, batch_index)

    def after(self, count: int) -> "MessageBatch":
        """This batch without its first `count` messages."""
        return self.part(count, self.count)

    def part(self, start: int, stop: int) -> "MessageBatch":
        """Messages `start` to `stop` - 1 of this batch, at least one."""
        end = self.first_batch_index + stop
        return MessageBatch(
            self._stored,
            self._topic,
            self.producer_name,
            first_batch_index=self.first_batch_index + start,
            end_batch_index=self._end_batch_index if stop == self.count else end,
            columns=self._columns,
            delivery=self.delivery,
        )

    @property
    def checksum(self) -> int:
        """CRC32C of the whole batch, as its producer sent it."""
        return self._stored.batch.checksum

    @property
    def generation(self) -> int:
        """Of the producer's instance."""
        return self._stored.batch.generation

    def payload(self) -> bytes:
        """The columns of these messages, uncompressed: as they are stored, if these are all messages of the entry.
        Raises InvalidArgument for what columns cannot hold: null and encrypted values, and headers that are no
        properties."""
        stored = self._stored
        if (found := self.not_in_columns()) is not None:
            index, what = found
            raise InvalidArgument(
                f"message {index} has {what}: it cannot be stored as a message of Oncelog", field="value"
            )
        if self._whole and stored.batch.payload_format == PayloadFormat.COLUMNS:
            return bytes(expand_columns(stored.batch, payload_of(stored.batch, stored.body)))
        parts = [encode_values(list(self.values))]
        if self.keys is not None:
            parts.append(encode_keys(self.keys))
        if self.event_times_ms is not None:
            parts.append(encode_event_times(self.event_times_ms))
        if self.properties is not None:
            parts.append(encode_properties(self.properties))
        return b"".join(parts)

    def not_in_columns(self) -> tuple[int, str] | None:
        """(index, what it has) of the first message with something that columns cannot hold; None: there is none."""
        client = f"of a client of {PayloadFormat(self._stored.batch.payload_format).name.capitalize()}"
        if self.encrypted:
            return self.first_index, f"an encrypted value {client}"
        for number, is_null in enumerate(self.nulls or ()):
            if is_null:
                return self.first_index + number, f"a null value {client}"
        if self.headers is None:
            return None
        pairs = zip(self.headers, self.properties or (), strict=True)
        unlike = next((number for number, (own, shown) in enumerate(pairs) if len(own) != len(shown)), None)
        what = f"headers that are not text, or have one key, {client}"
        return None if unlike is None else (self.first_index + unlike, what)

    def copy_values(self) -> tuple[bytes, list[int]]:
        """Copy all values at once: slicing bytes costs half of copying slices of a memoryview."""
        data, offsets = self.values.data, self.values.offsets
        base = offsets[0]
        if base == 0 and offsets[-1] == len(data):
            self.copied = (bytes(data), list(offsets))
        else:
            self.copied = (bytes(data[base : offsets[-1]]), [offset - base for offset in offsets])
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
        value: bytes. Of messages that clients of Kafka or Pulsar have sent also None, for a null value (a tombstone),
            and an EncryptedMessage, with on_encrypted="pass".
        message_id: the message's position in the topic, as a MessageId.
        sequence_id: the producer's id of the message.
        producer_id: the number that stands for the producer's name in the topic: stored with the message, and never
            given to another one. None for a message that was stored without deduplication.
        producer_name: None if `producer_id` is None; and with an id, if the topic does not know its name any more,
            because the producer has expired or was deleted. So the messages of one producer have the same id for ever,
            and the same name as long as the topic knows it.
        index: the message's number in its topic: 0, 1, 2 …, without gaps.
        key: bytes, or None.
        properties: text to text; empty when the message has none. Of a client of Kafka: its headers whose values are
            text, of several with one key the last one.
        headers: of a client of Kafka: (key, value) in order, a value is bytes or None; else empty.
        traceparent: the W3C trace context of the span that sent the message, or None; see `create_producer`.
        publish_time_ms: the producer's clock, in ms since 1970 UTC.
        event_time_ms: the time that the producer gave, in ms since 1970 UTC, or None.
        partition: the partition's number; -1 for a topic that is not partitioned.
        delivery_count: of a consumer: how often the message was delivered to its subscription, this time included, as
            far as that is counted; 1 for the first delivery.
        generation: of a consumer of an exclusive or failover subscription: the number of its grant, which ascends each
            time that another consumer becomes the active one. Otherwise 0.
        seek_epoch: of a consumer: how often the subscription had been sought when the message was delivered.
        origin: of a message that a mirror has copied from another cluster: what it was there, as an Origin; else None.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: MessageBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def value(self) -> bytes | Any:
        batch, index = self._batch, self._index
        if batch.has_special_values and (batch.encrypted or (batch.nulls or ())[index]):
            return batch.special_value(index)
        data, offsets = batch.copied or batch.copy_values()
        return data[offsets[index] : offsets[index + 1]]

    @property
    def message_id(self) -> MessageId:
        return self._batch.message_id(self._index)

    @property
    def sequence_id(self) -> int:
        return self._batch.sequence_ids[self._index]

    @property
    def producer_id(self) -> int | None:
        return self._batch.producer_id

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
    def headers(self) -> Headers:
        headers = self._batch.headers
        return () if headers is None else headers[self._index]

    @property
    def batch_checksum(self) -> int:
        """CRC32C of the batch that the message is stored in, as its producer sent it."""
        return self._batch.checksum

    @property
    def origin(self) -> Origin | None:
        return self._batch.origin_of(self._index)

    @property
    def traceparent(self) -> str | None:
        return self.properties.get(TRACEPARENT)

    @property
    def partition(self) -> int:
        return self._batch.partition

    @property
    def delivery(self) -> ConsumerDelivery:
        return self._batch.delivery

    @property
    def receipt(self) -> Receipt:
        return Receipt(self._batch.delivery, self.index)

    @property
    def delivery_count(self) -> int:
        return self._batch.delivery.count_of(self.index)

    @property
    def generation(self) -> int:
        return self._batch.delivery.generation

    @property
    def seek_epoch(self) -> int:
        return self._batch.delivery.seek_epoch

    @property
    def publish_time_ms(self) -> int:
        return self._batch.publish_time_ms

    @property
    def event_time_ms(self) -> int | None:
        times = self._batch.event_times_ms
        return None if times is None else times[self._index]

    def __repr__(self) -> str:
        value = self.value
        shown = value[:60] + b"..." if isinstance(value, bytes) and len(value) > 60 else value
        return f"Message({self.message_id}, producer={self.producer_name!r}, id={self.sequence_id}, value={shown!r})"


def runs_of(messages: Sequence[Message]) -> list[MessageBatch]:
    """The same messages in columns: one batch for each run of consecutive messages of one entry."""
    runs: list[tuple[MessageBatch, int, int]] = []
    for message in messages:
        batch, index = message._batch, message._index  # noqa: SLF001  # of this module
        if runs and runs[-1][0] is batch and runs[-1][2] == index:
            runs[-1] = (batch, runs[-1][1], index + 1)
        else:
            runs.append((batch, index, index + 1))
    return [batch if stop - start == batch.count else batch.part(start, stop) for batch, start, stop in runs]
