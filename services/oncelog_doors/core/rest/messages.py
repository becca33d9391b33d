"""Stored messages as Pulsar's REST has them: a body, and headers that begin with X-Pulsar-.

    an entry       all its messages: of a batch, the body has each one with its metadata, and the headers count them
    one message    of a batch, its value alone, under an id with its number in the entry

The body is without the compression of the client. An encrypted entry stays as it is, because its messages are not
visible: each of them is shown as the whole entry.

A header takes printable ASCII. A key with other characters goes in base64, as keys of bytes do; a name with others is
left out. Properties are JSON, in which other characters are escaped.
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from oncelog.core.formats.batch import Buffer
from oncelog_doors.core.pulsar import entry_cuts as at
from oncelog_doors.core.pulsar.deliveries import Delivery
from oncelog_doors.core.pulsar.entry_cuts import expanded, messages_in, numbers_of, split
from oncelog_doors.core.pulsar.message_ids import NO_BATCH_INDEX, DeliveredId
from oncelog_doors.core.pulsar.protobuf_fields import FoundField, fields_of
from oncelog_doors.core.rest.refusals import Refused

#: Clients of Pulsar's REST refuse an answer with larger headers, all together: 8 KiB.
HEADERS_BYTES_MAX = 7 * 1024
_CODECS = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
_PREFIX = "X-Pulsar-"
#: {field of the metadata of an entry: header}, by how the value is written.
_TEXTS = {1: "producer-name", 5: "replicated-from", 7: "replicated-to", 14: "encryption-algo", 26: "uuid"}
_NUMBERS = {
    2: "sequence-id", 9: "uncompressed-size", 20: "marker-type", 22: "txnid-least-bits", 23: "txnid-most-bits",
    24: "highest-sequence-id", 27: "num-chunks-from-msg", 28: "total-chunk-msg-size", 29: "chunk-id",
}  # fmt: skip
_TIMES = {3: "publish-time", 12: "event-time", 19: "deliver-at-time"}
_SWITCHES = {25: "null-value", 30: "null-partition-key"}
_BASE64 = {
    13: "Base64-encryption-keys", 15: "Base64-encryption-param", 16: "Base64-schema-version", 18: "Base64-ordering-key",
}  # fmt: skip
#: {field of the metadata of a message in a batch: that of an entry}. The others mean nothing for a message alone.
_OF_MESSAGE = {
    at.ONE_PROPERTY: at.PROPERTY, at.ONE_KEY: at.KEY, at.ONE_EVENT_TIME: at.EVENT_TIME,
    at.ONE_KEY_IN_BASE64: at.KEY_IN_BASE64, 7: 18, at.ONE_SEQUENCE: at.SEQUENCE, 9: 25, 10: 30,
}  # fmt: skip
#: Fields of a batch that its messages do not share.
_NOT_SHARED = frozenset({*_OF_MESSAGE.values(), at.COUNT, at.HIGHEST, at.RAW_BYTES})


#: A time in ms since 1970, as Pulsar's tools read it; None for one that no calendar has.
Moment = Callable[[int], str | None]


class ShownMessages(NamedTuple):
    """headers: some come several times. body: of one message its value."""

    headers: list[tuple[str, str]]
    body: Buffer


def shown_entry(delivery: Delivery, moment: Moment) -> ShownMessages:
    """Raises Refused if the headers are too large, InvalidBatch, CompressionUnavailable."""
    metadata, payload = _parts(delivery)
    found = numbers_of(metadata)
    position = delivery.id.position
    headers = _headers(_values(metadata, fields_of(metadata)), f"{position.ledger_id}:{position.entry_id}", moment)
    if at.COUNT in found:
        headers += [(f"{_PREFIX}num-batch-message", str(found[at.COUNT])), (f"{_PREFIX}batch-size", str(len(payload)))]
    headers += _of_broker(delivery, delivery.last_index, moment)
    return _fitting(headers, payload if at.ENCRYPTION in found else expanded(found, payload))


def shown_message(delivery: Delivery, index: int, moment: Moment) -> ShownMessages:
    """One message of an entry. index: its number in the topic. Raises as `shown_entry`."""
    assert delivery.last_index is not None, "the entry is whole"
    number = index - (delivery.last_index + 1 - delivery.messages)
    assert 0 <= number < delivery.messages, "the message is in the entry"
    metadata, payload = _parts(delivery)
    found = numbers_of(metadata)
    if at.COUNT not in found or at.ENCRYPTION in found:
        return shown_entry(delivery, moment)
    raw = memoryview(expanded(found, payload))
    start, value_at, end, sequence_id = list(messages_in(raw, number + 1))[number]
    one = bytes(raw[start + at.SIZE.size : value_at])
    shared = [each for each in fields_of(metadata) if each.field not in _NOT_SHARED]
    own = [each._replace(field=_OF_MESSAGE[each.field]) for each in fields_of(one) if each.field in _OF_MESSAGE]
    values = [*_values(metadata, shared), *_values(one, own)]
    if sequence_id is None:
        values.append(_Value(at.SEQUENCE, found[at.SEQUENCE] + number))
    position = delivery.id.position
    headers = _headers(values, f"{position.ledger_id}:{position.entry_id}:{number}", moment)
    return _fitting([*headers, *_of_broker(delivery, index, moment)], raw[value_at:end])


def shown_id(last: DeliveredId | None, partition: int | None) -> dict[str, int]:
    """A message id as JSON. None: of the place in front of all messages."""
    position = None if last is None else last.position
    batch_index = NO_BATCH_INDEX if last is None else last.batch_index
    return {
        "ledgerId": -1 if position is None else position.ledger_id,
        "entryId": -1 if position is None else position.entry_id,
        "partitionIndex": -1 if partition is None else partition,
        **({} if batch_index == NO_BATCH_INDEX else {"batchIndex": batch_index, "batchSize": batch_index + 1}),
    }


# --- headers ----------------------------------------------------------------------------------------------------------


class _Value(NamedTuple):
    """Of a field of the metadata of an entry: its number, or its bytes."""

    field: int
    number: int
    content: bytes = b""


def _parts(delivery: Delivery) -> tuple[bytes, Buffer]:
    return (delivery.metadata, delivery.payload) if delivery.whole is None else split(delivery.whole)


def _values(data: bytes, fields: Iterable[FoundField]) -> Iterator[_Value]:
    for each in fields:
        yield _Value(each.field, each.number, data[each.content_at : each.end])


def _headers(values: Iterable[_Value], message_id: str, moment: Moment) -> list[tuple[str, str]]:
    headers = [(f"{_PREFIX}Message-ID", message_id)]
    properties: dict[str, str] = {}
    key: bytes | None = None
    key_in_base64 = encrypted = False
    for field, number, content in values:
        if field in _TEXTS:
            if _is_printable(content):
                headers.append((_PREFIX + _TEXTS[field], content.decode("ascii")))
        elif field in _NUMBERS:
            headers.append((_PREFIX + _NUMBERS[field], str(number)))
        elif field in _TIMES:
            headers += _time_header(_PREFIX + _TIMES[field], moment(number))
        elif field in _SWITCHES:
            headers.append((_PREFIX + _SWITCHES[field], _switch(number)))
        elif field in _BASE64:
            headers.append((_PREFIX + _BASE64[field], base64.b64encode(content).decode()))
            encrypted |= field == at.ENCRYPTION
        elif field == at.PROPERTY:
            properties |= _property(content)
        elif field == at.KEY:
            key = content
        elif field == at.KEY_IN_BASE64:
            key_in_base64 = bool(number)
        elif field == at.CODEC:
            headers.append((f"{_PREFIX}compression", _CODECS[number] if number < len(_CODECS) else str(number)))
    if key is not None:
        if not _is_printable(key):
            key, key_in_base64 = base64.b64encode(key), True
        headers.append((f"{_PREFIX}partition-key", key.decode("ascii")))
        headers.append((f"{_PREFIX}partition-key-b64-encoded", _switch(key_in_base64)))
    headers.append((f"{_PREFIX}PROPERTY", json.dumps(properties)))
    return [*headers, (f"{_PREFIX}Is-Encrypted", _switch(encrypted))]


def _is_printable(text: bytes) -> bool:
    return all(32 <= each < 127 for each in text) and text == text.strip()


def _switch(on: Any) -> str:
    return "true" if on else "false"


def _property(content: bytes) -> dict[str, str]:
    both = {each.field: content[each.content_at : each.end].decode("utf-8", "replace") for each in fields_of(content)}
    return {both.get(1, ""): both.get(2, "")}


def _time_header(name: str, moment: str | None) -> list[tuple[str, str]]:
    return [] if moment is None else [(name, moment)]


def _of_broker(delivery: Delivery, index: int | None, moment: Moment) -> list[tuple[str, str]]:
    """When the entry was stored, and the number of the message in its topic."""
    name = f"{_PREFIX}Broker-Entry-METADATA"
    stored = _time_header(f"{name}-timestamp", moment(delivery.append_time_ms))
    return stored if index is None else [*stored, (f"{name}-index", str(index))]


def _fitting(headers: list[tuple[str, str]], body: Buffer) -> ShownMessages:
    """Raises Refused."""
    size = sum(len(name) + len(value) for name, value in headers)
    if size > HEADERS_BYTES_MAX:
        what = f"keys and properties of message {headers[0][1]} have {size} bytes, and headers of HTTP take "
        raise Refused(413, f"{what}{HEADERS_BYTES_MAX}: read it with a client whose service URL begins with pulsar://")
    return ShownMessages(headers, body)
