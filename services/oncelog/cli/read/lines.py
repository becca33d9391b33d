"""Formats messages as bytes: one JSON object per line, only the values, or as a template says."""

import base64
import json
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from oncelog.client.values.messages import MessageBatch
from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.columns import TIME_MS_MAX, TIME_MS_MIN
from oncelog.runtime.descriptors import discard_output

#: The lines of the messages at these places of a batch.
Lines = Callable[[MessageBatch, Sequence[int]], bytes]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _moment(time_ms: int) -> str:
    """The nearest one of the years 1 to 9999, where the producer's clock was beyond them."""
    nearest = _EPOCH + timedelta(milliseconds=max(TIME_MS_MIN, min(time_ms, TIME_MS_MAX)))
    return nearest.isoformat(timespec="milliseconds")


def raw_lines(batch: MessageBatch, numbers: Sequence[int]) -> bytes:
    """Each value with a newline. numbers: which messages of the batch."""
    pieces: list[bytes | memoryview] = []
    for number in numbers:
        pieces += (batch.values[number], b"\n")
    return b"".join(pieces)


def json_lines(batch: MessageBatch, numbers: Sequence[int]) -> bytes:
    """An object per message. A value that is not UTF-8 is in `value_base64`; unset fields are left out, but a null
    value is null, also that of an encrypted message. numbers: as of `raw_lines`."""
    # Values that are equal for all messages of a batch are formatted once, which halves the time per line.
    time = _moment(batch.publish_time_ms)
    first_id = batch.message_id(0) if len(batch) else None
    columns = (batch.keys, batch.event_times_ms, batch.properties, batch.headers)
    has_more = any(column is not None for column in columns) or batch.origin is not None
    redelivered = batch.delivery.delivery_counts
    lines: list[str] = []
    ids, nulls, encrypted = batch.sequence_ids, batch.nulls, batch.encrypted
    for number in numbers:
        assert first_id is not None, "the batch is not empty"
        facts: dict[str, object]
        if encrypted:
            facts = {"value": None, "encrypted": _encrypted(batch, number, with_entry=not lines)}
        else:
            facts = {"value": None} if nulls and nulls[number] else _value(batch.values[number])
        facts["producer_name"] = batch.producer_name
        facts["producer_id"] = batch.producer_id
        facts["sequence_id"] = ids[number]
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


def _encrypted(batch: MessageBatch, number: int, *, with_entry: bool) -> dict[str, object]:
    """with_entry: all messages of a batch are in it together, so it is printed once."""
    sealed = batch.special_value(number)
    assert sealed is not None, "the messages are encrypted"
    return {
        "keys": {name: _base64(key) for name, key in sealed.keys.items()},
        "algorithm": sealed.algorithm,
        "parameters_base64": _base64(sealed.parameters),
        "batch_index": sealed.batch_index,
        "batch_count": sealed.batch_count,
        **({"entry_base64": _base64(sealed.entry)} if with_entry else {}),
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _value(value: memoryview) -> dict[str, object]:
    return _bytes("value", bytes(value))


def _properties(batch: MessageBatch, number: int) -> bytes:
    found = {} if batch.properties is None else batch.properties[number]
    return json.dumps(dict(found), ensure_ascii=False).encode()


#: {letter of a template: what it stands for}
TEMPLATE: dict[str, Callable[[MessageBatch, int], bytes]] = {
    "v": lambda batch, number: bytes(batch.values[number]),
    "k": lambda batch, number: b"" if batch.keys is None else batch.keys[number] or b"",
    "i": lambda batch, number: b"%d" % (batch.first_index + number),
    "n": lambda batch, _: (batch.producer_name or "").encode(),
    "s": lambda batch, number: b"%d" % batch.sequence_ids[number],
    "m": lambda batch, number: str(batch.message_id(number)).encode(),
    "t": lambda batch, _: _moment(batch.publish_time_ms).encode(),
    "p": _properties,
    "%": lambda _batch, _number: b"%",
}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def parse_template(text: str) -> Lines:
    """As `json_lines`, for a template such as `%i %k %v`; a newline follows, unless it ends with one or with \\0.
    Raises InvalidArgument."""
    parts: list[bytes | Callable[[MessageBatch, int], bytes]] = []
    at = 0
    while at < len(text):
        mark, letter = text[at], text[at + 1 : at + 2]
        if mark not in "%\\":
            parts.append(mark.encode())
            at += 1
            continue
        known = letter in (TEMPLATE if mark == "%" else _ESCAPES)
        if not known:
            letters = ", ".join(f"%{each}" for each in TEMPLATE)
            raise InvalidArgument(
                f"format: {mark}{letter} is not known. Known: {letters}, \\n, \\t, \\r, \\0, \\\\", field="format"
            )
        parts.append(TEMPLATE[letter] if mark == "%" else _ESCAPES[letter])
        at += 2
    if not text.endswith(("\\n", "\\0")):
        parts.append(b"\n")

    def lines(batch: MessageBatch, numbers: Sequence[int]) -> bytes:
        return b"".join(
            part if isinstance(part, bytes) else part(batch, number) for number in numbers for part in parts
        )

    return lines


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
    if message.headers:
        facts["headers"] = [{"key": key} | _header(value) for key, value in message.headers]
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


def _header(value: bytes | None) -> dict[str, object]:
    return {"value": None} if value is None else _bytes("value", value)


def _bytes(name: str, data: bytes) -> dict[str, object]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": _base64(data)}


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
