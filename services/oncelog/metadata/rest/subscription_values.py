"""Request and response bodies of the routes for subscriptions."""

import base64
import codecs
import re
from typing import Annotated, Any

from crc32c import crc32c
from fastapi import Depends, Path
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, model_validator

from oncelog.client.values.encrypted import EncryptedMessage, OnEncrypted
from oncelog.client.values.messages import Message, MessageBatch, open_entry
from oncelog.client.values.results import TopicPartition
from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.message_id import NO_PARTITION, MessageId
from oncelog.core.ids import TopicId
from oncelog.core.names import TopicName, check_part
from oncelog.rpc.codecs.consumer_codec import PROPERTIES_BYTES_MAX, PROPERTIES_MAX
from oncelog.rpc.codecs.reader_codec import StartAt, StartEdge, StartIndex, StartMessage, StartTime, start_message
from oncelog.wire import subscriptions_pb2 as pb
from oncelog.wire.consumer_pb2 import SubscriptionProperty
from oncelog.wire.owner_pb2 import ReaderStart as ReaderStartMessage

Properties = dict[StrictStr, StrictStr]
#: Each of them takes six bytes of JSON, and no text needs them.
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_Utf8 = codecs.getincrementaldecoder("utf-8")
_Subscription = Annotated[str, Path(description="Subscription: 1 to 255 of A-Z a-z 0-9 _ - = : .")]


async def _subscription(subscription: _Subscription) -> str:
    return check_part(subscription, field="subscription")


SubscriptionPath = Annotated[str, Depends(_subscription)]


class TopicPlace(BaseModel):
    """A place in the topic: exactly one of the fields. A message id and an index belong to one partition."""

    model_config = ConfigDict(extra="forbid")

    position: StrictStr | None = Field(None, description="earliest or latest", pattern="^(earliest|latest)$")
    message_id: StrictStr | None = Field(None, description="ledger:entry or ledger:entry:index; begins after it")
    inclusive: StrictBool = Field(False, description="With message_id: begin with that message itself")
    index: StrictInt | None = Field(None, ge=0, lt=1 << 62, description="Number of the message in the topic")
    time_ms: StrictInt | None = Field(
        None, ge=0, lt=1 << 53, description="The first message stored at or after it, ms since 1970"
    )

    @model_validator(mode="after")
    def _one(self) -> "TopicPlace":
        given = [each for each in (self.position, self.message_id, self.index, self.time_ms) if each is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of position, message_id, index and time_ms")
        return self

    @property
    def is_of_one_partition(self) -> bool:
        return self.message_id is not None or self.index is not None

    def start(self) -> ReaderStartMessage:
        """On the wire. Raises InvalidArgument."""
        return start_message(self._at())

    def _at(self) -> StartAt:
        if self.index is not None:
            return StartIndex(self.index)
        if self.time_ms is not None:
            return StartTime(self.time_ms)
        if self.message_id is not None:
            found = MessageId.parse(self.message_id)
            return StartMessage(found.position, found.batch_index, self.inclusive)
        return StartEdge.EARLIEST if self.position == "earliest" else StartEdge.LATEST


class SeekPlace(TopicPlace):
    """The place of a seek."""

    redo: StrictBool = Field(False, description="Also let the messages take effect again in the store of their effects")


class EffectsStore(BaseModel):
    """A store of effects."""

    model_config = ConfigDict(extra="forbid")

    store_id: StrictStr = Field(description="32 hexadecimal digits", pattern="^[0-9a-f]{32}$")


class NewSubscription(BaseModel):
    """Where a new subscription begins, and its properties."""

    model_config = ConfigDict(extra="forbid")

    start: TopicPlace = Field(default_factory=lambda: TopicPlace.model_validate({"position": "latest"}))
    properties: Properties = Field(default_factory=dict)


class RedriveRequest(BaseModel):
    """Which dead letters are published to their origin again."""

    model_config = ConfigDict(extra="forbid")

    max: StrictInt = Field(1_000, ge=1, le=100_000, description="Letters that are published at most")
    dead_letter_topic: StrictStr | None = Field(
        None, description="The one that the consumers name; default: TOPIC-SUBSCRIPTION-DLQ"
    )


class KeptLetter(BaseModel):
    """A dead letter that could not be published. It stays where it is."""

    index: int = Field(description="Number of the letter in the dead-letter topic")
    reason: str


class WaitingLetters(BaseModel):
    """What a redrive would look at."""

    dead_letter_topic: str
    waiting: int = Field(description="Its messages that no redrive has published yet; also those of other topics")


class RedriveAnswer(BaseModel):
    """What one redrive did."""

    dead_letter_topic: str
    redriven: int = Field(description="Letters that are in their origin again, once")
    already: int = Field(description="Of these: how many an earlier request had published")
    kept_count: int = Field(description="Letters that could not be published")
    kept: list[KeptLetter] = Field(description="The first 100 of these")
    left: int = Field(description="Letters that were not looked at: repeat the request")


class StoredMessage(BaseModel):
    """One message as it is stored. The fields that HTTP publish has, too, have the same meaning there."""

    index: int = Field(description="Number of the message in the topic")
    message_id: str
    value: str | None = Field(description="null: no text in UTF-8, or with control characters, see value_base64")
    value_base64: str | None = Field(description="Both null: the message has no value, as a tombstone of Kafka")
    key: str | None = Field(description="null: none, no text in UTF-8, or with control characters, see key_base64")
    key_base64: str | None
    producer_id: int | None = Field(
        description="Stands for the producer's name, and is never another's; null: stored without deduplication"
    )
    producer_name: str | None = Field(
        description="null with a producer_id: the producer has expired or was deleted, and its name is not known"
    )
    sequence_id: int
    publish_time_ms: int
    event_time_ms: int | None
    properties: dict[str, str]


class PeekedMessage(StoredMessage):
    """One message of a backlog."""

    encrypted: bool = Field(
        description="A client of Pulsar has encrypted the message, so its value is null here: only a program with the "
        "key can read it"
    )


def wire_properties(given: Properties) -> list[SubscriptionProperty]:
    """Raises InvalidArgument, which names the limit."""
    if len(given) > PROPERTIES_MAX:
        message = f"{len(given)} properties, at most {PROPERTIES_MAX}"
        raise InvalidArgument(message, field="properties", limit=PROPERTIES_MAX)
    size = sum(len(name.encode()) + len(value.encode()) for name, value in given.items())
    if size > PROPERTIES_BYTES_MAX:
        message = f"the properties have {size} bytes, at most {PROPERTIES_BYTES_MAX}"
        raise InvalidArgument(message, field="properties", limit=PROPERTIES_BYTES_MAX)
    return [SubscriptionProperty(name=name, value=value) for name, value in given.items()]


def peeked_message(topic: TopicName, answer: pb.PeekMessageAnswer) -> PeekedMessage:
    """Raises CorruptEntry."""
    partition = NO_PARTITION if topic.partition is None else topic.partition
    stored = open_entry(answer.entry, crc32c)
    name = answer.producer_name or None
    batch = MessageBatch(
        stored, TopicPartition(TopicId(""), partition), name, first_batch_index=0, on_encrypted=OnEncrypted.PASS
    )
    at = answer.message_index - batch.first_index
    return PeekedMessage.model_validate({**message_fields(Message(batch, at)), "encrypted": batch.encrypted})


def message_fields(message: Message) -> dict[str, Any]:
    """The fields of StoredMessage."""
    value = message.value
    return {
        "index": message.index,
        "message_id": str(message.message_id),
        "producer_id": message.producer_id,
        "producer_name": message.producer_name,
        "sequence_id": message.sequence_id,
        "publish_time_ms": message.publish_time_ms,
        "event_time_ms": message.event_time_ms,
        "properties": dict(message.properties),
        **text_fields("value", None if isinstance(value, EncryptedMessage) else value),
        **text_fields("key", message.key),
    }


def text_fields(name: str, data: bytes | None, *, cut: bool = False) -> dict[str, Any]:
    """Bytes as text if they are text, and in base64 otherwise. cut: they may end inside a character, which is left
    out."""
    if data is None:
        return {name: None, f"{name}_base64": None}
    try:
        if _CONTROL.search(data) is None:
            return {name: _Utf8().decode(data, final=not cut), f"{name}_base64": None}
    except UnicodeDecodeError:
        pass
    return {name: None, f"{name}_base64": base64.b64encode(data).decode()}
