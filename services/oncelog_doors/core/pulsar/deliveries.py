"""Entries as clients of Pulsar get them, made of what the log holds.

    a batch of columns      a batch of Pulsar; a batch of one message: a single message
    an entry of a client    as it came; if its first messages are known (`skip_first`), a batch without them

Each is a function of the stored entry alone, so all clients get the same bytes, and ids name the same messages for
ever. Metadata is written by hand, field by field (`protobuf_fields`): the core imports no generated code, and tests
read it with protobuf (hazard wrong-bytes-of-ours).

An entry that exceeds what clients accept is compressed with zlib, which all of them read. If it still exceeds it, it
cannot be delivered: MessageTooLarge, and the reader stops there. Nothing is left out in silence.
"""

import base64
import zlib
from collections.abc import Iterator, Mapping
from struct import Struct
from typing import NamedTuple

from oncelog.core.errors import InvalidBatch, MessageTooLarge
from oncelog.core.formats.batch import BatchHeader, Buffer, PayloadFormat, decode_ids, deltas_of, payload_of
from oncelog.core.formats.columns import Columns
from oncelog.core.formats.compression import PulsarCodec, expand_pulsar
from oncelog.core.formats.entry import EntryHeader
from oncelog.core.formats.payload import read_columns
from oncelog.core.formats.pulsar import RAW_BYTES_MAX
from oncelog_doors.core.pulsar.message_ids import NO_BATCH_INDEX, DeliveredId
from oncelog_doors.core.pulsar.protobuf_fields import bytes_field, fields_of, number_field, varint

_ZLIB_LEVEL = 1
_CODECS = frozenset(PulsarCodec)
_SIZE = Struct(">I")
_HEAD = Struct(">HII")
_ENTRY_MARK = 0x0E01

# Fields of the metadata of an entry.
_PRODUCER, _SEQUENCE, _PUBLISH_TIME, _PROPERTY, _KEY = 1, 2, 3, 4, 6
_CODEC, _RAW_BYTES, _COUNT, _EVENT_TIME, _ENCRYPTION = 8, 9, 11, 12, 13
_KEY_IN_BASE64, _HIGHEST = 17, 24
# Fields of the metadata of a message in a batch.
_ONE_PROPERTY, _ONE_KEY, _ONE_BYTES, _ONE_EVENT_TIME, _ONE_KEY_IN_BASE64, _ONE_SEQUENCE = 1, 2, 3, 5, 6, 8


class RawBatch(NamedTuple):
    """One stored entry, its bytes checked. producer_name: None: it has none, or the topic does not know it any more."""

    entry: EntryHeader
    batch: BatchHeader
    body: Buffer
    producer_name: str | None


class Delivery(NamedTuple):
    """What is sent of one entry. messages: what the client counts as consumed. last_index: of its last message in the
    topic. whole: the bytes of a client; None: metadata and payload are ours, and get a checksum."""

    id: DeliveredId
    messages: int
    last_index: int
    append_time_ms: int
    whole: Buffer | None
    metadata: bytes = b""
    payload: bytes = b""


def delivery_of(raw: RawBatch, bytes_max: int) -> Delivery:
    """What is sent of an entry. bytes_max: of metadata and payload, if no client wrote them. Raises InvalidBatch,
    MessageTooLarge, CompressionUnavailable."""
    entry = raw.entry
    made = Delivery(DeliveredId(entry.position), entry.count, entry.next_index - 1, entry.append_time_ms, None)
    if raw.batch.payload_format == PayloadFormat.PULSAR:
        data = payload_of(raw.batch, raw.body)
        if not entry.skip_first:
            return made._replace(whole=data)
        metadata, payload = _without_prefix(data, entry.skip_first, entry.count)
    else:
        columns = read_columns(raw.batch, payload_of(raw.batch, raw.body))
        ids = decode_ids(raw.batch, deltas_of(raw.batch, raw.body))[entry.skip_first :]
        front = _front(raw, ids[0])
        if raw.batch.count == 1:
            metadata, payload = front + _described(columns, 0, _OF_ENTRY), bytes(columns.values[0])
        else:
            metadata = front + number_field(_COUNT, entry.count) + number_field(_HIGHEST, ids[-1])
            payload = b"".join(_messages(columns, entry.skip_first, iter(ids)))
    metadata, payload = _fitting(raw, metadata, payload, bytes_max)
    return made._replace(metadata=metadata, payload=payload)


def last_id_of(raw: RawBatch) -> DeliveredId:
    """The id of the last message of an entry, as its delivery has it (hazard last-id-of-no-message)."""
    entry = raw.entry
    alone = raw.batch.count == 1
    if raw.batch.payload_format == PayloadFormat.PULSAR and not entry.skip_first:
        metadata, _payload = _split(payload_of(raw.batch, raw.body))
        alone = all(each.field != _COUNT for each in fields_of(metadata))
    return DeliveredId(entry.position, NO_BATCH_INDEX if alone else entry.count - 1)


# --- columns ----------------------------------------------------------------------------------------------------------


class _Fields(NamedTuple):
    """Numbers of the same fields of an entry and of a message in a batch."""

    property: int
    key: int
    event_time: int
    key_in_base64: int


_OF_ENTRY = _Fields(_PROPERTY, _KEY, _EVENT_TIME, _KEY_IN_BASE64)
_OF_MESSAGE = _Fields(_ONE_PROPERTY, _ONE_KEY, _ONE_EVENT_TIME, _ONE_KEY_IN_BASE64)


def _front(raw: RawBatch, first_id: int) -> bytes:
    """What the metadata of every entry has."""
    return (
        bytes_field(_PRODUCER, (raw.producer_name or "").encode())
        + number_field(_SEQUENCE, first_id)
        + number_field(_PUBLISH_TIME, raw.batch.publish_time_ms)
    )


def _messages(columns: Columns, start: int, ids: Iterator[int]) -> Iterator[Buffer]:
    """The messages of a batch from `start` on, each with its metadata: in pieces."""
    described = columns.keys is not None or columns.event_times_ms is not None or columns.properties is not None
    size, sequence = varint(_ONE_BYTES << 3), varint(_ONE_SEQUENCE << 3)
    values = columns.values
    for index in range(start, len(values)):
        value = values[index]
        metadata = size + varint(len(value)) + sequence + varint(next(ids))
        if described:
            metadata = _described(columns, index, _OF_MESSAGE) + metadata
        yield _SIZE.pack(len(metadata)) + metadata
        yield value


def _described(columns: Columns, index: int, to: _Fields) -> bytes:
    """Properties, key and event time of a message."""
    out = b""
    if columns.properties is not None:
        out += _properties(columns.properties[index], to.property)
    key = None if columns.keys is None else columns.keys[index]
    if key is not None:
        try:
            key.decode()
        except UnicodeDecodeError:
            out += bytes_field(to.key, base64.b64encode(key)) + number_field(to.key_in_base64, 1)
        else:
            out += bytes_field(to.key, key)
    time_ms = None if columns.event_times_ms is None else columns.event_times_ms[index]
    return out if time_ms is None else out + number_field(to.event_time, time_ms)


def _properties(properties: Mapping[str, str], field: int) -> bytes:
    return b"".join(
        bytes_field(field, bytes_field(1, name.encode()) + bytes_field(2, value.encode()))
        for name, value in properties.items()
    )


def _fitting(raw: RawBatch, metadata: bytes, payload: bytes, bytes_max: int) -> tuple[bytes, bytes]:
    """Both, compressed if they are too large. Raises MessageTooLarge."""
    if len(metadata) + len(payload) <= bytes_max:
        return metadata, payload
    packed = zlib.compress(payload, _ZLIB_LEVEL)
    kept = b"".join(metadata[each.start : each.end] for each in fields_of(metadata) if each.field != _RAW_BYTES)
    metadata = kept + number_field(_CODEC, PulsarCodec.ZLIB) + number_field(_RAW_BYTES, len(payload))
    if len(metadata) + len(packed) > bytes_max:
        raise MessageTooLarge(
            f"entry {raw.entry.position} has {len(metadata) + len(packed)} bytes for a client of Pulsar, at most "
            f"{bytes_max} are delivered: read it with the SDK, or start the reader behind it",
            field="message", limit=bytes_max, message_id=str(raw.entry.position),
        )  # fmt: skip
    return metadata, packed


# --- entries of clients -----------------------------------------------------------------------------------------------


def _split(entry: Buffer) -> tuple[bytes, memoryview]:
    """Metadata and payload of an entry. Raises InvalidBatch."""
    view = memoryview(entry)
    if len(view) < _HEAD.size:
        raise InvalidBatch(f"an entry of {len(view)} bytes is cut off", field="entry", limit=_HEAD.size)
    mark, _checksum, metadata_bytes = _HEAD.unpack_from(view)
    if mark != _ENTRY_MARK or metadata_bytes > len(view) - _HEAD.size:
        message = f"an entry begins with {mark:#06x}, and has metadata of {metadata_bytes} bytes"
        raise InvalidBatch(message, field="metadata_size", limit=len(view) - _HEAD.size)
    return bytes(view[_HEAD.size : _HEAD.size + metadata_bytes]), view[_HEAD.size + metadata_bytes :]


def _without_prefix(entry: Buffer, skip: int, count: int) -> tuple[bytes, bytes]:
    """Metadata and payload of a batch without its first `skip` messages, of which `count` are left."""
    metadata, payload = _split(entry)
    found = {each.field: each.number for each in fields_of(metadata)}
    if found.get(_COUNT) != skip + count or _ENCRYPTION in found:
        message = f"an entry of {skip + count} messages counts {found.get(_COUNT)}, or is encrypted: it cannot be cut"
        raise InvalidBatch(message, field="num_messages_in_batch", limit=skip + count)
    raw = _expanded(found.get(_CODEC, PulsarCodec.NONE), payload, found.get(_RAW_BYTES, 0))
    at, first_id = 0, found.get(_SEQUENCE, 0) + skip
    for index in range(skip + 1):
        value_at, one = _message_at(raw, at, index)
        if index < skip:
            at = value_at + one.get(_ONE_BYTES, 0)
        else:
            first_id = one.get(_ONE_SEQUENCE, first_id)
    changed = {_SEQUENCE, _CODEC, _RAW_BYTES, _COUNT}
    kept = b"".join(metadata[each.start : each.end] for each in fields_of(metadata) if each.field not in changed)
    rest = bytes(raw[at:])
    return (
        kept + number_field(_SEQUENCE, first_id) + number_field(_RAW_BYTES, len(rest)) + number_field(_COUNT, count),
        rest,
    )


def _expanded(codec: int, payload: Buffer, raw_bytes: int) -> Buffer:
    """The payload without the compression of its client. The owner has checked it before it was stored."""
    if codec not in _CODECS or raw_bytes > RAW_BYTES_MAX:
        message = f"compression {codec} with {raw_bytes} bytes in it is none of Pulsar's"
        raise InvalidBatch(message, field="compression", limit=RAW_BYTES_MAX)
    return expand_pulsar(PulsarCodec(codec), payload, raw_bytes)


def _message_at(raw: Buffer, at: int, index: int) -> tuple[int, dict[int, int]]:
    """(where the value of a message begins, {field of its metadata: number})."""
    if at + _SIZE.size > len(raw):
        raise InvalidBatch(f"message {index} of a batch is cut off", field="payload", limit=len(raw))
    metadata_at = at + _SIZE.size
    value_at = metadata_at + _SIZE.unpack_from(raw, at)[0]
    if value_at > len(raw):
        raise InvalidBatch(f"message {index} of a batch is cut off", field="payload", limit=len(raw))
    return value_at, {each.field: each.number for each in fields_of(bytes(raw[metadata_at:value_at]))}
