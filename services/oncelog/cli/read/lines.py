"""Formats messages as bytes: one JSON object per line, or only the values."""

import base64
import json
import sys
from itertools import islice

from oncelog.client.values.messages import MessageBatch
from oncelog.runtime.descriptors import discard_output


def raw_lines(batch: MessageBatch, count: int | None = None) -> bytes:
    """Each value with a newline. count: only the first `count` messages."""
    pieces: list[bytes | memoryview] = []
    for value in batch.values[:count]:
        pieces += (value, b"\n")
    return b"".join(pieces)


def json_lines(batch: MessageBatch, count: int | None = None) -> bytes:
    """An object per message. A value that is not UTF-8 is in `value_base64`; unset fields are left out."""
    # Values that are equal for all messages of a batch are formatted once, which halves the time per line.
    time = batch[0].publish_time.isoformat(timespec="milliseconds") if len(batch) else ""
    first_id = batch.message_id(0) if len(batch) else None
    columns = (batch.keys, batch.event_times_ms, batch.properties)
    has_more = any(column is not None for column in columns) or batch.origin is not None
    redelivered = batch.delivery.delivery_counts
    lines: list[str] = []
    for number, (value, sequence_id) in enumerate(islice(zip(batch.values, batch.sequence_ids, strict=True), count)):
        assert first_id is not None, "the batch is not empty"
        facts: dict[str, object] = _bytes("value", bytes(value))
        facts["producer_name"] = batch.producer_name
        facts["producer_id"] = batch.producer_id
        facts["sequence_id"] = sequence_id
        facts["message_id"] = f"{first_id.ledger_id}:{first_id.entry_id}:{first_id.batch_index + number}"
        facts["publish_time"] = time
        facts["index"] = batch.first_index + number
        if has_more:
            facts |= _more(batch, number)
        if redelivered and (deliveries := redelivered.get(batch.first_index + number, 1)) > 1:
            facts["delivery_count"] = deliveries
        lines.append(json.dumps(facts, ensure_ascii=False))
    lines.append("")
    return "\n".join(lines).encode()


def _more(batch: MessageBatch, number: int) -> dict[str, object]:
    """The optional fields of a message."""
    message = batch[number]
    facts: dict[str, object] = {}
    if message.key is not None:
        facts |= _bytes("key", message.key)
    if message.event_time_ms is not None:
        facts["event_time_ms"] = message.event_time_ms
    if message.properties:
        facts["properties"] = dict(message.properties)
    if (origin := message.origin) is not None:
        facts["origin"] = {
            "cluster_id": origin.cluster_id,
            "topic_id": origin.message_id.topic_id,
            "message_id": str(origin.message_id),
            "index": origin.index,
            "producer_name": origin.producer_name,
            "sequence_id": origin.sequence_id,
            "publish_time_ms": origin.publish_time_ms,
            "append_time_ms": origin.append_time_ms,
        }
    return facts


def _bytes(name: str, data: bytes) -> dict[str, object]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def written(data: bytes) -> bool:
    """Write to standard output at once. False: its reader has closed it, as in `oncelog read … | head`; then nothing is
    flushed at exit."""
    output = sys.stdout.buffer
    try:
        output.write(data)
        output.flush()
    except BrokenPipeError:
        discard_output()
        return False
    return True
