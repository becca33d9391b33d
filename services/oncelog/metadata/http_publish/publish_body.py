"""The request and response bodies of publishing over HTTP, and the checks that need no log."""

import base64
import binascii
import hashlib
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from oncelog.client.producing.duplicates import DuplicateRules, OnContentDiffers, OnUnverified
from oncelog.core.errors import InvalidArgument, MessageTooLarge, SequenceIdRequired
from oncelog.core.formats.columns import check_event_times, encode_event_times, encode_keys, encode_properties
from oncelog.core.names import check_idempotency_key
from oncelog.core.sdk.producer.opening import MESSAGE_BYTES_MAX
from oncelog.core.sdk.producer.sequence_ids import check_sequence_ids

#: Overhead of a message in its batch, beside value, key, event time and properties.
_OVERHEAD_BYTES = 16


#: A quoted header escapes quotes and backslashes.
_ESCAPED = re.compile(r"\\([\\\"])")
#: JSON values of one message: brackets, five fields, and some properties.
_VALUES_PER_MESSAGE = 64


class PublishMessage(BaseModel):
    """One message, with its value as text or as base64."""

    model_config = ConfigDict(extra="forbid")

    value: StrictStr | None = Field(default=None, description="The value as text; stored as UTF-8.")
    value_base64: StrictStr | None = Field(default=None, description="The value as base64, instead of `value`.")
    key: StrictStr | None = None
    event_time_ms: StrictInt | None = Field(default=None, description="Milliseconds since 1970.")
    properties: dict[StrictStr, StrictStr] | None = None


class PublishBody(BaseModel):
    """One or several messages, which are stored in one entry and in order."""

    model_config = ConfigDict(extra="forbid")

    producer_name: StrictStr | None = Field(
        default=None, description="Name of the producer. Not allowed with an Idempotency-Key."
    )
    sequence_id: StrictInt | None = Field(
        default=None,
        description="Sequence id of the first message; the ids of the others follow. With `producer_name` only.",
    )
    sequence_ids: list[StrictInt] | None = Field(
        default=None, fail_fast=True, description="One sequence id per message, ascending; instead of `sequence_id`."
    )
    sequence_mode: Literal["monotonic", "contiguous"] = Field(
        default="monotonic",
        description="Whether ids may have gaps (`monotonic`) or not. A name keeps the mode of its first use.",
    )
    on_unverified: Literal["raise", "accept"] = Field(
        default="raise",
        description="What happens to a message whose sequence id is older than all that the log remembers of the "
        "producer, so that it may never have been stored: an error, or a result with `verified` false.",
    )
    on_content_differs: Literal["raise", "accept"] = Field(
        default="raise",
        description="What happens to a message if another one is stored under its sequence id: an error, or a "
        "duplicate with `content_differs` true.",
    )
    messages: list[PublishMessage] = Field(min_length=1, fail_fast=True)


class MessageAnswer(BaseModel):
    """The result of one message, which is stored, by this request or before."""

    message_id: str | None = Field(description="ledger:entry:index; null if the log no longer remembers it")
    sequence_id: int
    duplicate: bool = Field(description="The message was stored before; this request wrote nothing.")
    resent: bool = Field(
        description="The duplicate is of this same request, which the service had to send to the log twice."
    )
    verified: bool = Field(
        description="false: the id is older than all that the log remembers; unknown whether it was stored"
    )
    content_differs: bool | None = Field(
        default=None,
        description="Of duplicates. true: another message is stored under this id, or under that of another message of "
        "the same batch; false: the stored one is the same; null: unknown",
    )


class MessageOutcome(BaseModel):
    """The result of one message of a failed publish."""

    sequence_id: int
    stored: bool | None = Field(description="null: unknown; send it again with the same name and sequence id")
    duplicate: bool = Field(description="The message was stored before; this request wrote nothing.")
    code: str | None = Field(description="Code of the error; null if the message is stored.")


class PublishAnswer(BaseModel):
    """The response if all messages are stored."""

    topic: str
    producer_name: str
    messages: list[MessageAnswer]
    warning: str | None = Field(default=None, description="Present if messages are not verified; explains what to do.")


@dataclass(frozen=True, slots=True)
class PublishLimits:
    """body_bytes_max: size of a request body. message_bytes_max: size of one value. messages_max: per request."""

    body_bytes_max: int
    message_bytes_max: int
    messages_max: int


def values_of(limits: PublishLimits) -> int:
    """The number of JSON values (`rest.port.body_limits`) that a body within these limits may need."""
    return _VALUES_PER_MESSAGE * limits.messages_max


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of one request as columns of equal length."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None]
    event_times_ms: Sequence[int | None]
    properties: Sequence[dict[str, str] | None]

    @property
    def fingerprint(self) -> str:
        """A digest that is equal for equal messages, however their JSON is formatted."""
        digest = hashlib.sha256()
        pieces = [self.values, [encode_keys(self.keys)], [encode_event_times(self.event_times_ms)]]
        ordered = [dict(sorted(each.items())) if each else None for each in self.properties]
        for piece in (*pieces, [encode_properties(ordered)]):
            digest.update(struct.pack("<Q", len(piece)))
            for content in piece:
                digest.update(struct.pack("<Q", len(content)) + content)
        return digest.hexdigest()


def read_messages(body: PublishBody, limits: PublishLimits) -> Messages:
    """The messages of the body. Raises InvalidArgument and MessageTooLarge, with field and limit."""
    if len(body.messages) > limits.messages_max:
        message = f"the request has {len(body.messages)} messages, the maximum is {limits.messages_max}"
        raise MessageTooLarge(message, field="messages", limit=limits.messages_max)
    values = [_value(each, f"messages.{index}", limits) for index, each in enumerate(body.messages)]
    messages = Messages(
        values,
        [_utf8(each.key, f"messages.{index}.key") for index, each in enumerate(body.messages)],
        [each.event_time_ms for each in body.messages],
        [each.properties or None for each in body.messages],
    )
    check_event_times(messages.event_times_ms)
    size = sum(map(len, values)) + _OVERHEAD_BYTES * len(values) + len(encode_keys(messages.keys))
    size += len(encode_event_times(messages.event_times_ms)) + len(encode_properties(messages.properties))
    if size > MESSAGE_BYTES_MAX:
        text = f"the messages of the request have {size} bytes, the maximum is {MESSAGE_BYTES_MAX}: send fewer at once"
        raise MessageTooLarge(text, field="messages", limit=MESSAGE_BYTES_MAX)
    return messages


def read_sequence_ids(body: PublishBody) -> Sequence[int]:
    """The sequence ids of a publish by producer name. Raises InvalidArgument."""
    if body.sequence_id is None and body.sequence_ids is None:
        message = "a publish with producer_name needs sequence ids: add sequence_id or sequence_ids"
        raise SequenceIdRequired(message, field="sequence_id")
    if body.sequence_id is not None and body.sequence_ids is not None:
        raise InvalidArgument("send sequence_id or sequence_ids, not both", field="sequence_ids")
    count = len(body.messages)
    if body.sequence_id is not None:
        return check_sequence_ids(range(body.sequence_id, body.sequence_id + count))
    assert body.sequence_ids is not None, "one of the two"
    if len(body.sequence_ids) != count:
        raise InvalidArgument(
            f"the request has {len(body.sequence_ids)} sequence ids for {count} messages",
            field="sequence_ids",
            limit=count,
        )
    return check_sequence_ids(body.sequence_ids)


def read_rules(body: PublishBody) -> DuplicateRules:
    return DuplicateRules(OnUnverified(body.on_unverified), OnContentDiffers(body.on_content_differs))


def read_key(header: str) -> str:
    """The key, from a header with or without quotes. Raises InvalidArgument."""
    key = header.strip()
    if len(key) >= 2 and key[0] == key[-1] == '"':
        key = _ESCAPED.sub(r"\1", key[1:-1])
    return check_idempotency_key(key, field="Idempotency-Key")


def _value(message: PublishMessage, field: str, limits: PublishLimits) -> bytes:
    if (message.value is None) is (message.value_base64 is None):
        raise InvalidArgument("a message needs exactly one of value and value_base64", field=f"{field}.value")
    if message.value is not None:
        value = _utf8(message.value, f"{field}.value") or b""
    else:
        try:
            value = base64.b64decode(message.value_base64 or "", validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidArgument(f"the value is not valid base64: {error}", field=f"{field}.value_base64") from error
    if len(value) > limits.message_bytes_max:
        text = f"the value has {len(value)} bytes, the maximum is {limits.message_bytes_max}"
        raise MessageTooLarge(text, field=f"{field}.value", limit=limits.message_bytes_max)
    return value


def _utf8(text: str | None, field: str) -> bytes | None:
    try:
        return None if text is None else text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{field} is not valid text: {error}", field=field) from error
