"""The request and response bodies of consuming over HTTP."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr

from oncelog.client.consuming.consumer import DELAY_S_MAX
from oncelog.client.values.messages import Message, MessageBatch
from oncelog.core.formats.message_id import NO_PARTITION
from oncelog.core.http_consume.delivery_id import DeliveryId
from oncelog.core.names import TopicName
from oncelog.metadata.rest.subscription_values import StoredMessage, message_fields

WINDOW_MAX = 10_000
ACK_TIMEOUT_S_MAX = 3_600
MESSAGES_MAX = 1_000
WAIT_S_MAX = 60
IDS_MAX = 10_000


class NewSession(BaseModel):
    """How a session consumes."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["exclusive", "failover", "shared", "key_shared"] = Field(
        default="shared", description="How the sessions and consumers of the subscription share its messages."
    )
    ack_timeout: StrictInt = Field(
        ge=1,
        le=ACK_TIMEOUT_S_MAX,
        description="Seconds after which a message that was not acknowledged is delivered again. A session without a "
        "request for so long ends.",
    )
    window: StrictInt = Field(
        default=100,
        ge=1,
        le=WINDOW_MAX,
        description="Messages that may be given and not acknowledged; as many may wait in the service.",
    )
    start: Literal["earliest", "latest"] = Field(
        default="latest", description="Where the subscription begins, if it is created now."
    )


class SessionView(BaseModel):
    """An open session."""

    session: str = Field(description="Its id, for the paths of its requests.")
    topic: str
    subscription: str
    type: str
    ack_timeout: int
    window: int


class ConsumedMessage(StoredMessage):
    """One delivery of a message."""

    id: str = Field(description="Names the delivery: acknowledge it with this.")
    topic: str = Field(description="With the partition, if the topic has partitions.")
    topic_id: str = Field(description="With `index` it identifies the message for ever, for your own records.")
    partition: int | None = Field(description="null: the topic has no partitions.")
    seek_epoch: int = Field(description="How often the subscription had been sought.")
    generation: int = Field(description="Of the active consumer; 0 for shared and key_shared.")
    append_time_ms: int = Field(description="When the topic owner stored it, ms since 1970.")
    delivery_count: int = Field(description="1: as far as that is counted, it was not delivered before.")


class ConsumedMessages(BaseModel):
    """Empty: no message arrived in time."""

    messages: list[ConsumedMessage]


class Acks(BaseModel):
    """Which deliveries."""

    model_config = ConfigDict(extra="forbid")

    ids: list[StrictStr] = Field(
        min_length=1, max_length=IDS_MAX, fail_fast=True, description="The `id` of each message."
    )


class Nacks(Acks):
    """Which deliveries, and when their messages are delivered again."""

    delay: Annotated[StrictInt | StrictFloat, Field(ge=0, le=DELAY_S_MAX)] | None = Field(
        default=None, description="Seconds; by default the topic owner chooses, longer with each delivery."
    )


class Outcome(BaseModel):
    """The outcome of one id."""

    id: str
    durable: bool | None = Field(
        description="true: it is durable. false: nothing was done, and the message is delivered again. null: unknown; "
        "send the id again"
    )
    code: str | None = Field(description="Why it is not true: `not_outstanding`, or the code of an error.")


class Outcomes(BaseModel):
    """In the order of the request."""

    ids: list[Outcome]


@dataclass(frozen=True, slots=True)
class Event:
    """One message of an answer. data: its JSON, on one line."""

    id: str
    data: bytes


def delivery_of(message: Message) -> DeliveryId:
    return DeliveryId(message.index, message.seek_epoch, message.generation, message.partition)


def event_of(topic: TopicName, batch: MessageBatch) -> Event:
    """The one message of a batch that a consumer of this topic got."""
    (message,) = batch
    partitioned = message.partition != NO_PARTITION
    whole = replace(topic, partition=message.partition) if partitioned else topic
    delivery = str(delivery_of(message))
    view = ConsumedMessage(
        id=delivery,
        topic=str(whole),
        topic_id=message.message_id.topic_id,
        partition=message.partition if partitioned else None,
        seek_epoch=message.seek_epoch,
        generation=message.generation,
        append_time_ms=batch.append_time_ms,
        delivery_count=message.delivery_count,
        **message_fields(message),
    )
    return Event(delivery, view.model_dump_json().encode())


def body_of(events: list[Event]) -> bytes:
    """The JSON of ConsumedMessages."""
    return b'{"messages":[' + b",".join(event.data for event in events) + b"]}"
