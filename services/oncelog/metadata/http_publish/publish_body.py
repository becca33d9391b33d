"""What a publish over HTTP takes and gives, as values; and the checks that need no log."""

import base64
import binascii
import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from oncelog.core.errors import InvalidArgument, MessageTooLarge, SequenceIdRequired
from oncelog.core.formats.columns import encode_event_times, encode_keys, encode_properties
from oncelog.core.producer.opening import MESSAGE_BYTES_MAX
from oncelog.core.producer.sequence_ids import check_sequence_ids

#: What a message may cost in its batch beside its value, its key and so on.
_OVERHEAD_BYTES = 16
_KEY_CHARACTERS_MAX = 255


#: Of one message: its brackets, its five fields, and some properties.
_VALUES_PER_MESSAGE = 64


class PublishMessage(BaseModel):
    """One message; its value is given as text, or as bytes in base64."""

    model_config = ConfigDict(extra="forbid")

    value: StrictStr | None = Field(default=None, description="The value as text, stored as UTF-8.")
    value_base64: StrictStr | None = Field(default=None, description="The value as bytes; instead of `value`.")
    key: StrictStr | None = None
    event_time_ms: StrictInt | None = Field(default=None, description="ms since 1970")
    properties: dict[StrictStr, StrictStr] | None = None


class PublishBody(BaseModel):
    """One message or several, which are stored in one piece and in order."""

    model_config = ConfigDict(extra="forbid")

    producer_name: StrictStr | None = Field(default=None, description="Who publishes; not with an Idempotency-Key.")
    sequence_id: StrictInt | None = Field(
        default=None, description="Of the first message; each further one has one more. With `producer_name`."
    )
    sequence_ids: list[StrictInt] | None = Field(
        default=None, fail_fast=True, description="One for each message, ascending; instead of `sequence_id`."
    )
    sequence_mode: Literal["monotonic", "contiguous"] = Field(
        default="monotonic", description="Whether ids may leave holes; a name keeps its mode."
    )
    messages: list[PublishMessage] = Field(min_length=1, fail_fast=True)


class MessageAnswer(BaseModel):
    """The fate of one message: it is stored, now or before."""

    message_id: str | None = Field(description="ledger:entry:index; null where it is no longer remembered")
    sequence_id: int
    duplicate: bool = Field(description="It was stored before, nothing was written now.")
    resent: bool = Field(
        description="It is a duplicate of this very publish, which the service had to send to the log twice."
    )
    verified: bool = Field(description="false: so old that only the mark is remembered, not this id")


class MessageFate(BaseModel):
    """What became of one message of a publish that failed."""

    sequence_id: int
    stored: bool | None = Field(description="null: not known; send it again under the same name and sequence id")
    duplicate: bool = Field(description="It was stored before, nothing was written now.")
    code: str | None = Field(description="Why it failed; null when it is stored.")


class PublishAnswer(BaseModel):
    """All messages are stored."""

    topic: str
    producer_name: str
    messages: list[MessageAnswer]
    warning: str | None = Field(default=None, description="Of messages that are not verified: what that means.")


@dataclass(frozen=True, slots=True)
class PublishLimits:
    """body_bytes_max: of a request. message_bytes_max: of one value. messages_max: in one request."""

    body_bytes_max: int
    message_bytes_max: int
    messages_max: int


def values_of(limits: PublishLimits) -> int:
    """How many JSON values (`json_limits`) the largest body that these limits allow may need."""
    return _VALUES_PER_MESSAGE * limits.messages_max


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of one request, column by column, each as long as `values`."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None]
    event_times_ms: Sequence[int | None]
    properties: Sequence[dict[str, str] | None]

    @property
    def fingerprint(self) -> str:
        """Equal for equal messages, however their JSON was written."""
        digest = hashlib.sha256()
        pieces = [self.values, [encode_keys(self.keys)], [encode_event_times(self.event_times_ms)]]
        ordered = [dict(sorted(each.items())) if each else None for each in self.properties]
        for piece in (*pieces, [encode_properties(ordered)]):
            digest.update(struct.pack("<Q", len(piece)))
            for content in piece:
                digest.update(struct.pack("<Q", len(content)) + content)
        return digest.hexdigest()


def read_messages(body: PublishBody, limits: PublishLimits) -> Messages:
    """Raises InvalidArgument and MessageTooLarge, with the field and the limit."""
    if len(body.messages) > limits.messages_max:
        message = f"{len(body.messages)} messages in one request, at most {limits.messages_max}"
        raise MessageTooLarge(message, field="messages", limit=limits.messages_max)
    values = [_value(each, f"messages.{index}", limits) for index, each in enumerate(body.messages)]
    messages = Messages(
        values,
        [_utf8(each.key, f"messages.{index}.key") for index, each in enumerate(body.messages)],
        [each.event_time_ms for each in body.messages],
        [each.properties or None for each in body.messages],
    )
    size = sum(map(len, values)) + _OVERHEAD_BYTES * len(values) + len(encode_keys(messages.keys))
    size += len(encode_event_times(messages.event_times_ms)) + len(encode_properties(messages.properties))
    if size > MESSAGE_BYTES_MAX:
        text = f"the messages of one request have {size} bytes together, at most {MESSAGE_BYTES_MAX}: send fewer"
        raise MessageTooLarge(text, field="messages", limit=MESSAGE_BYTES_MAX)
    return messages


def read_sequence_ids(body: PublishBody) -> Sequence[int]:
    """The ids of a publish under a producer name. Raises InvalidArgument."""
    if body.sequence_id is None and body.sequence_ids is None:
        message = "a publish under a producer name needs the sequence ids of its messages"
        raise SequenceIdRequired(message, field="sequence_id")
    if body.sequence_id is not None and body.sequence_ids is not None:
        raise InvalidArgument("give sequence_id or sequence_ids, not both", field="sequence_ids")
    count = len(body.messages)
    if body.sequence_id is not None:
        return check_sequence_ids(range(body.sequence_id, body.sequence_id + count))
    assert body.sequence_ids is not None, "one of the two"
    if len(body.sequence_ids) != count:
        raise InvalidArgument(f"{len(body.sequence_ids)} ids for {count} messages", field="sequence_ids", limit=count)
    return check_sequence_ids(body.sequence_ids)


def read_key(header: str) -> str:
    """The key, whether written as a plain word or as a quoted string. Raises InvalidArgument."""
    key = header.strip()
    if len(key) >= 2 and key[0] == key[-1] == '"':
        key = key[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    if not 1 <= len(key) <= _KEY_CHARACTERS_MAX or not (key.isascii() and key.isprintable()):
        message = f"an idempotency key is 1 to {_KEY_CHARACTERS_MAX} printable ASCII characters"
        raise InvalidArgument(message, field="Idempotency-Key", limit=_KEY_CHARACTERS_MAX)
    return key


def _value(message: PublishMessage, field: str, limits: PublishLimits) -> bytes:
    if (message.value is None) is (message.value_base64 is None):
        raise InvalidArgument("a message has a value or a value_base64, one of the two", field=f"{field}.value")
    if message.value is not None:
        value = _utf8(message.value, f"{field}.value") or b""
    else:
        try:
            value = base64.b64decode(message.value_base64 or "", validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidArgument(f"the value is not base64: {error}", field=f"{field}.value_base64") from error
    if len(value) > limits.message_bytes_max:
        text = f"a value of {len(value)} bytes is over {limits.message_bytes_max}"
        raise MessageTooLarge(text, field=f"{field}.value", limit=limits.message_bytes_max)
    return value


def _utf8(text: str | None, field: str) -> bytes | None:
    try:
        return None if text is None else text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{field} is no valid text: {error}", field=field) from error
