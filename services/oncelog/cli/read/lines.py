"""Messages as bytes to print: one JSON object a line, or the values alone."""

import base64
import json
from itertools import islice

from oncelog.client.messages import Message, MessageBatch


def raw_lines(batch: MessageBatch, count: int | None = None) -> bytes:
    """Each value and a newline. count: only the first so many messages."""
    pieces: list[bytes | memoryview] = []
    for value in batch.values[:count]:
        pieces += (value, b"\n")
    return b"".join(pieces)


def json_lines(batch: MessageBatch, count: int | None = None) -> bytes:
    """An object for each message; a value that is no UTF-8 is in `value_base64`, what a message has not is left out."""
    messages = islice(batch, count)
    return "".join(json.dumps(_facts(message), ensure_ascii=False) + "\n" for message in messages).encode()


def _facts(message: Message) -> dict[str, object]:
    facts: dict[str, object] = _bytes("value", message.value)
    facts |= {
        "producer_name": message.producer_name,
        "sequence_id": message.sequence_id,
        "message_id": str(message.message_id),
        "publish_time": message.publish_time.isoformat(timespec="milliseconds"),
        "index": message.index,
    }
    if message.key is not None:
        facts |= _bytes("key", message.key)
    if message.event_time_ms is not None:
        facts["event_time_ms"] = message.event_time_ms
    if message.properties:
        facts["properties"] = dict(message.properties)
    return facts


def _bytes(name: str, data: bytes) -> dict[str, object]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}
