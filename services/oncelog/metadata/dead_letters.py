"""Stores dead letters in their topics, for topic owners: any replica may get any request, again.

The producer name stands for the source topic and its subscription, the mode is contiguous, and the letters' numbers
were durable before they were sent. So each is stored once, in order, whoever sends it again, while deduplication is
enabled for the dead-letter topic.
"""

from crc32c import crc32c

from oncelog.client.client import AsyncClient
from oncelog.client.messages import Message, MessageBatch, open_entry
from oncelog.client.results import TopicPartition
from oncelog.core.errors import InvalidArgument, ServiceUnavailable
from oncelog.core.formats.message_id import NO_PARTITION
from oncelog.core.ids import TopicId
from oncelog.core.names import parse_topic
from oncelog.metadata.coordination.topic_lookup import TopicLookup
from oncelog.stores.topic_store import TopicStore
from oncelog.wire import metadata_pb2 as pb

#: Properties of a dead letter, beside those of its message.
ORIGIN = "dead_letter."


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
        """Returns when all letters are stored. Raises the errors of a send; CorruptEntry."""
        record = await self._topics.read(TopicId(request.topic_id))
        if record is None:
            return pb.PublishDeadLettersAnswer(topic_deleted=True)
        letters = [(letter.sequence, _message_of(letter)) for letter in request.letters]
        name = record.value.name
        producer = await self._client.create_producer(
            name, producer_name=request.producer_name, sequence_mode="contiguous"
        )
        try:
            # Topic ids are never reused: the same id after the opening means that the producer was opened on it.
            if (await self._lookup.find(parse_topic(name))).topic_id != request.topic_id:
                raise ServiceUnavailable(f"topic {name} was deleted and created again meanwhile: try again")
            wanted = [(sequence, message) for sequence, message in letters if sequence > producer.last_sequence_id]
            if wanted:
                await producer.send_many(
                    [message.value for _, message in wanted],
                    sequence_ids=[sequence for sequence, _ in wanted],
                    keys=[message.key for _, message in wanted],
                    event_times_ms=[_event_time_ms(message) for _, message in wanted],
                    properties=[_properties(request, message) for _, message in wanted],
                )
        finally:
            await producer.close(flush=False)
        return pb.PublishDeadLettersAnswer()


def _message_of(letter: pb.DeadLetter) -> Message:
    stored = open_entry(letter.entry, crc32c)
    batch = MessageBatch(stored, TopicPartition(TopicId(""), NO_PARTITION), None, first_batch_index=0)
    return Message(batch, letter.message_index - batch.first_index)


def _event_time_ms(message: Message) -> int | None:
    return None if message.event_time is None else int(message.event_time.timestamp() * 1000)


def _properties(request: pb.PublishDeadLettersRequest, message: Message) -> dict[str, str]:
    """Those of the message, and where it comes from."""
    return {
        **message.properties,
        f"{ORIGIN}topic": request.origin_topic,
        f"{ORIGIN}subscription": request.subscription,
        f"{ORIGIN}index": str(message.index),
        f"{ORIGIN}message_id": str(message.message_id),
        f"{ORIGIN}sequence_id": str(message.sequence_id),
    }
