"""Stores dead letters in their topics, for topic owners: any replica may get any request, again.

The producer name stands for the source topic and its subscription, the mode is contiguous, and the letters' numbers
were durable before they were sent. So each is stored once, in order, whoever sends it again, while deduplication is
enabled for the dead-letter topic.

A letter is its message with the place from which it comes. A message that cannot be stored so, because it is too large
with these properties, cannot be decoded, or is gone, becomes a letter without value, key and properties of its own: it
costs no other letter anything (hazards oversized-dead-letters, poisonous-dead-letter).
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from crc32c import crc32c

from oncelog.client.client import AsyncClient
from oncelog.client.producing.producer import AsyncProducer
from oncelog.client.stored import stored_message
from oncelog.client.values.messages import Message, MessageBatch, open_entry
from oncelog.client.values.results import BatchResult, TopicPartition
from oncelog.core.errors import InvalidArgument, InvariantViolated, PermissionDenied, ServiceUnavailable
from oncelog.core.formats.message_id import NO_PARTITION
from oncelog.core.ids import TopicId
from oncelog.core.names import parse_topic
from oncelog.core.sdk.producer.opening import BATCH_OVERHEAD_BYTES
from oncelog.metadata.topics.topic_lookup import TopicLookup
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.wire import metadata_pb2 as pb

logger = logging.getLogger(__name__)

#: Room for the headers of a batch and its columns.
BATCH_HEADERS_BYTES = 256
#: Properties of a dead letter, beside those of its message.
ORIGIN = "dead_letter."
#: Those that say which message of which subscription a letter is.
_IDENTITY = (f"{ORIGIN}topic", f"{ORIGIN}subscription", f"{ORIGIN}index")
READ_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class _Letter:
    """What is stored. Without a value: what the message had is left out."""

    sequence: int
    properties: Mapping[str, str]
    value: bytes = b""
    key: bytes | None = None
    event_time_ms: int | None = None

    @property
    def bytes(self) -> int:
        """Of a batch with this letter alone, or some more."""
        text = sum(len(name.encode()) + len(value.encode()) + 8 for name, value in self.properties.items())
        return BATCH_HEADERS_BYTES + len(self.value) + len(self.key or b"") + text


class DeadLetterService:
    """The handlers."""

    def __init__(self, client: AsyncClient, lookup: TopicLookup, topics: TopicStore) -> None:
        self._client = client
        self._lookup = lookup
        self._topics = topics

    async def resolve(self, request: pb.ResolveDeadLetterTopicRequest) -> pb.ResolveDeadLetterTopicAnswer:
        """The id of the topic, which is created where its namespace allows that. Raises TopicNotFound."""
        located = await self._lookup.locate(parse_topic(request.topic), create=True)
        if located.partitions:
            message = f"dead-letter topic {request.topic} is partitioned: use one of its partitions, or another topic"
            raise InvalidArgument(message, field="dead_letter_topic")
        return pb.ResolveDeadLetterTopicAnswer(topic_id=located.topic_id)

    async def publish(self, request: pb.PublishDeadLettersRequest) -> pb.PublishDeadLettersAnswer:
        """Returns when all letters are stored. Raises the errors of an opening and of a send."""
        record = await self._topics.read(TopicId(request.topic_id))
        if record is None:
            return pb.PublishDeadLettersAnswer(topic_deleted=True)
        name = record.value.name
        producer = await self._client.create_producer(
            name, producer_name=request.producer_name, sequence_mode="contiguous", on_content_differs="accept"
        )
        try:
            # Topic ids are never reused: the same id after the opening means that the producer was opened on it.
            if (await self._lookup.find(parse_topic(name))).topic_id != request.topic_id:
                raise ServiceUnavailable(f"topic {name} was deleted and created again meanwhile: try again")
            bytes_max, last = producer.message_bytes_max, producer.last_sequence_id
            letters = [_letter_of(request, letter, bytes_max=bytes_max) for letter in request.letters]
            await self._check(name, producer, [letter for letter in letters if letter.sequence <= last])
            await _send(producer, [letter for letter in letters if letter.sequence > last])
        finally:
            await producer.close(flush=False)
        return pb.PublishDeadLettersAnswer()

    async def _check(self, topic: str, producer: AsyncProducer, repeated: list[_Letter]) -> None:
        """A letter whose number is stored counts as stored only if the message with this number is the letter: before
        these names were reserved, another role could open one (hazard foreign-producer-name). Raises
        PermissionDenied."""
        if not repeated:
            return
        result = await _send(producer, repeated)
        for letter, message_id in zip(repeated, result.message_ids, strict=True):
            found: Mapping[str, str] = {}
            if message_id is not None:
                message = await stored_message(self._client, topic, message_id, timeout_s=READ_TIMEOUT_S)
                found = {} if message is None else message.properties
            if any(found.get(key) != letter.properties[key] for key in _IDENTITY):
                raise PermissionDenied(
                    f"message {letter.sequence} of producer {producer.producer_name} in {topic} is not the dead letter "
                    "with this number: another program has used the name; delete the dead-letter topic, or let the "
                    "consumers name another one",
                    topic=topic,
                )


async def send_letters(
    producer: AsyncProducer, letters: Sequence[_Letter] | Sequence[Message], sequence_ids: Sequence[int]
) -> BatchResult:
    """Publish the content of letters. Raises the errors of `send_many`."""
    return await producer.send_many(
        [letter.value for letter in letters],
        sequence_ids=sequence_ids,
        keys=[letter.key for letter in letters],
        event_times_ms=[letter.event_time_ms for letter in letters],
        properties=[letter.properties for letter in letters],
    )


async def _send(producer: AsyncProducer, letters: Sequence[_Letter]) -> BatchResult:
    return await send_letters(producer, letters, [letter.sequence for letter in letters])


def _letter_of(request: pb.PublishDeadLettersRequest, letter: pb.DeadLetter, *, bytes_max: int) -> _Letter:
    """bytes_max: the largest value that the dead-letter topic takes."""
    origin = {
        f"{ORIGIN}topic": request.origin_topic,
        f"{ORIGIN}subscription": request.subscription,
        f"{ORIGIN}index": str(letter.message_index),
    }
    if letter.reason:
        origin[f"{ORIGIN}reason"] = letter.reason
    omitted = letter.omitted
    if not omitted:
        try:
            message = _message_of(letter)
            message_id = message.message_id
            if letter.HasField("batch_index"):
                message_id = replace(message_id, batch_index=letter.batch_index)
            origin[f"{ORIGIN}message_id"] = str(message_id)
            origin[f"{ORIGIN}sequence_id"] = str(message.sequence_id)
            properties = {**message.properties, **origin}
            found = _Letter(letter.sequence, properties, message.value, message.key, message.event_time_ms)
        except InvariantViolated:
            raise
        except Exception as error:  # whatever a producer's message causes, it costs this letter alone
            logger.exception("a dead letter of topic %s is stored without its message", request.origin_topic)
            omitted = f"it cannot be read: {error}"
        else:
            if len(found.value) <= bytes_max and found.bytes <= bytes_max + BATCH_OVERHEAD_BYTES:
                return found
            omitted = f"with these properties it has {found.bytes} bytes, the limit is {bytes_max}"
    return _Letter(letter.sequence, {**origin, f"{ORIGIN}omitted": omitted})


def _message_of(letter: pb.DeadLetter) -> Message:
    """Raises CorruptEntry."""
    stored = open_entry(letter.entry, crc32c)
    batch = MessageBatch(stored, TopicPartition(TopicId(""), NO_PARTITION), None, first_batch_index=0)
    return Message(batch, letter.message_index - batch.first_index)
