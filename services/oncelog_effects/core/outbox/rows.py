"""The rows of an outbox: what is sent of each, and which ones can never be sent.

Rules
- A row that can never be stored gets a reason instead of a number, so nothing waits behind it (hazard
  row-too-large-for-the-log).
- The partition of a row is fixed when it gets its number: by the hash of its key, or of its event id.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.errors import InvalidArgument, InvalidName
from oncelog.core.formats.columns import check_event_times, encode_properties
from oncelog.core.names import TopicName, parse_topic

#: The property of a message that has the event id of its row.
EVENT_ID = "oncelog.event_id"
EVENT_ID_CHARACTERS_MAX = 64
#: Key and properties of one row together, as the log packs them. A batch has 64 KiB beside its values.
EXTRAS_BYTES_MAX = 48 * 1024


class RowHead(NamedTuple):
    """A row without its value. size_bytes: of the value. properties: JSON; None: none, "": more than is ever sent.
    flaw: a column of a type that cannot be sent, what `wrong_type` says of it; empty: none."""

    id: int
    event_id: str
    topic: str
    key: bytes | None
    size_bytes: int
    properties: str | None
    event_time_ms: int | None = None
    flaw: str = ""


class NumberedRow(NamedTuple):
    """A row that has its number in a stream and is not confirmed. size_bytes: of value, key and properties."""

    number: int
    event_id: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Checked:
    """A row that the log can store, if its value is not too large for the topic."""

    topic: TopicName
    hashed: bytes
    size_bytes: int


def check_row(row: RowHead) -> Checked | str:
    """What is needed to number the row, or why it can never be sent."""
    if row.flaw:
        return row.flaw
    try:
        topic = parse_topic(row.topic)
        if not 1 <= len(row.event_id) <= EVENT_ID_CHARACTERS_MAX:
            return f"event_id has {len(row.event_id)} characters: give 1 to {EVENT_ID_CHARACTERS_MAX}"
        check_event_times([row.event_time_ms])
        extras = len(encode_properties([sent_properties(row.properties, row.event_id)])) + len(row.key or b"")
    except (InvalidName, InvalidArgument) as error:
        return error.message
    if extras > EXTRAS_BYTES_MAX:
        return f"key and properties have {extras} bytes, the limit is {EXTRAS_BYTES_MAX}"
    return Checked(topic, row.event_id.encode() if row.key is None else row.key, row.size_bytes + extras)


def wrong_type(column: str, value: object, wanted: tuple[type, ...], give: str) -> str:
    """Why the value of this column cannot be sent; empty: it can. give: what an application has to insert."""
    if value is None or isinstance(value, wanted):
        return ""
    kind = "bytes" if isinstance(value, bytes | bytearray | memoryview) else type(value).__name__
    return printable(f"{column} is {value!r:.80}, of type {kind}: give {give}")


def printable(text: str) -> str:
    """Text that every database and terminal takes: without surrogates and zero characters."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def sent_properties(properties: str | None, event_id: str) -> Mapping[str, str]:
    """Those of the message. Raises InvalidArgument."""
    found: object = {}
    if properties is not None:
        if not properties:
            raise InvalidArgument(f"properties are larger than {EXTRAS_BYTES_MAX} bytes", field="properties")
        try:
            found = json.loads(properties)
        except (ValueError, RecursionError) as error:
            raise InvalidArgument(f"properties are no JSON: {error}", field="properties") from error
    if not isinstance(found, dict):
        raise InvalidArgument("properties are no JSON object of text to text", field="properties")
    if EVENT_ID in found:
        raise InvalidArgument(f"property {EVENT_ID} is the relay's own: use another name", field="properties")
    return {**found, EVENT_ID: event_id}
