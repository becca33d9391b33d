"""Messages without a cluster, for tests of functions that get them."""

import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from crc32c import crc32c

from oncelog.client.values.messages import NOT_DELIVERED, ConsumerDelivery, Message, MessageBatch, open_entry
from oncelog.client.values.results import TopicPartition
from oncelog.core.formats.batch import encode_batch
from oncelog.core.formats.columns import encode_event_times, encode_keys, encode_properties, encode_values
from oncelog.core.formats.entry import EntryHeader, EntryKind, encode_header
from oncelog.core.ids import EntryId, Generation, LedgerId, OwnerEpoch, ProducerId, TopicId

PRODUCER = "test"
_LEDGER = LedgerId(1)


class Content(NamedTuple):
    """What a producer sends as one message."""

    value: bytes
    key: bytes | None = None
    properties: Mapping[str, str] | None = None
    event_time_ms: int | None = None
    publish_time_ms: int = 0

    @classmethod
    def of(cls, message: Message) -> "Content":
        return cls(
            bytes(message.value), message.key, message.properties, message.event_time_ms, message.publish_time_ms
        )


def messages(
    values: Sequence[bytes | str],
    *,
    keys: Sequence[bytes | str | None] | None = None,
    properties: Sequence[Mapping[str, str] | None] | None = None,
    event_times_ms: Sequence[int | None] | None = None,
) -> list[Message]:
    """Messages of a topic without partitions, with indexes from 0, as a consumer gets them. The other columns are as
    long as `values`; text is UTF-8.

    Raises ValueError if they are not as long.
    """
    count = len(values)
    columns = (keys or [None] * count, properties or [None] * count, event_times_ms or [None] * count)
    contents = [
        Content(_bytes(value), None if key is None else _bytes(key), entries, time_ms)
        for value, key, entries, time_ms in zip(values, *columns, strict=True)
    ]
    topic_id = TopicId(uuid.uuid4().hex)
    return [message_of(content, topic_id, index) for index, content in enumerate(contents)]


def message_of(content: Content, topic_id: TopicId, index: int, delivery: ConsumerDelivery = NOT_DELIVERED) -> Message:
    """As it is stored in an entry of its own."""
    payload = encode_values([content.value])
    if content.key is not None:
        payload += encode_keys([content.key])
    if content.event_time_ms is not None:
        payload += encode_event_times([content.event_time_ms])
    if content.properties:
        payload += encode_properties([content.properties])
    batch = encode_batch(
        payload, producer_id=ProducerId(1), generation=Generation(1), first=index, last=index, count=1,
        publish_time_ms=content.publish_time_ms, checksum=crc32c,
    )  # fmt: skip
    header = EntryHeader(
        EntryKind.MESSAGES, _LEDGER, EntryId(index), EntryId(-1), 0, OwnerEpoch(1), content.publish_time_ms, index,
        0, 1, len(batch), topic_id,
    )  # fmt: skip
    stored = open_entry(encode_header(header, batch, crc32c) + batch, crc32c)
    return MessageBatch(stored, TopicPartition(topic_id, -1), PRODUCER, first_batch_index=0, delivery=delivery)[0]


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
