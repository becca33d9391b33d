"""Entries as clients of Pulsar get them, made of what the log holds.

    a batch of columns      a batch of Pulsar; a batch of one message: a single message
    a message in chunks     see `chunked_deliveries`
    an entry of a client    as it came; if its first messages are known (`skip_first`), a batch without them
    a part of either        a batch of the messages that are meant for one consumer (`parts`)

Each is a function of the stored entry and of the messages that are meant, so all clients get the same bytes. Of whole
entries ids name the same messages for ever. Metadata is written by hand, field by field (`protobuf_fields`): the core
imports no generated code, and tests read it with protobuf (hazard wrong-bytes-of-ours).

An entry that exceeds what clients accept is compressed with zlib, which all of them read. If it still exceeds it, it
cannot be delivered: MessageTooLarge, and the reader stops there. Nothing is left out in silence.
"""

import base64
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from oncelog.core.errors import MessageTooLarge
from oncelog.core.formats.batch import BatchHeader, Buffer, PayloadFormat, decode_ids, deltas_of, payload_of
from oncelog.core.formats.columns import Columns
from oncelog.core.formats.compression import PulsarCodec
from oncelog.core.formats.entry import EntryHeader
from oncelog.core.formats.payload import read_columns
from oncelog_doors.core.pulsar.entry_cuts import (
    CODEC,
    COUNT,
    EVENT_TIME,
    HIGHEST,
    KEY,
    KEY_IN_BASE64,
    ONE_BYTES,
    ONE_EVENT_TIME,
    ONE_KEY,
    ONE_KEY_IN_BASE64,
    ONE_PROPERTY,
    ONE_SEQUENCE,
    PRODUCER,
    PROPERTY,
    PUBLISH_TIME,
    RAW_BYTES,
    SEQUENCE,
    SIZE,
    cut,
    has_field,
    index_property,
    split,
)
from oncelog_doors.core.pulsar.message_ids import NO_BATCH_INDEX, DeliveredId
from oncelog_doors.core.pulsar.protobuf_fields import bytes_field, fields_of, number_field
from oncelog_doors.core.shared.varints import varint

_ZLIB_LEVEL = 1


class RawBatch(NamedTuple):
    """One stored entry, its bytes checked. producer_name: None: it has none, or the topic does not know it any more."""

    entry: EntryHeader
    batch: BatchHeader
    body: Buffer
    producer_name: str | None


class Delivery(NamedTuple):
    """What is sent of one entry. messages: in the bytes. last_index: of its last message in the topic; None: the
    messages are not consecutive, so that clients must not count back from it. whole: the bytes of a client; None:
    metadata and payload are ours, and get a checksum."""

    id: DeliveredId
    messages: int
    last_index: int | None
    append_time_ms: int
    whole: Buffer | None
    metadata: bytes = b""
    payload: bytes = b""


def delivery_of(raw: RawBatch, bytes_max: int) -> Delivery:
    """What is sent of an entry. bytes_max: of metadata and payload, if no client wrote them. Raises InvalidBatch,
    MessageTooLarge, CompressionUnavailable."""
    entry = raw.entry
    made = Delivery(DeliveredId(entry.position), entry.count, entry.next_index - 1, entry.append_time_ms, None)
    if raw.batch.payload_format == PayloadFormat.PULSAR and not entry.skip_first:
        return made._replace(whole=payload_of(raw.batch, raw.body))
    metadata, payload = bytes_of(raw, range(entry.skip_first, raw.batch.count), bytes_max)
    return made._replace(metadata=metadata, payload=payload)


def bytes_of(
    raw: RawBatch, kept: Sequence[int], bytes_max: int, *, indexes_from: int | None = None
) -> tuple[bytes, bytes]:
    """Metadata and payload of an entry with some of its messages, written here. kept: the numbers of the messages in
    the stored batch, ascending from 0. indexes_from: as `entry_cuts.cut`. bytes_max, errors: as `delivery_of`."""
    data = payload_of(raw.batch, raw.body)
    if raw.batch.payload_format == PayloadFormat.PULSAR:
        metadata, payload = cut(data, raw.batch.count, kept, indexes_from=indexes_from)
    else:
        columns = read_columns(raw.batch, data)
        all_ids = decode_ids(raw.batch, deltas_of(raw.batch, raw.body))
        ids = [all_ids[number] for number in kept]
        if raw.batch.count == 1:
            metadata, payload = metadata_of(raw, columns), bytes(columns.values[0])
        else:
            metadata = _front(raw, ids[0]) + number_field(COUNT, len(ids)) + number_field(HIGHEST, ids[-1])
            payload = b"".join(_messages(columns, kept, ids, indexes_from))
    return _fitting(raw, metadata, payload, bytes_max)


def metadata_of(raw: RawBatch, columns: Columns) -> bytes:
    """Of an entry of columns with one message."""
    return _front(raw, raw.batch.first) + _described(columns, 0, _OF_ENTRY)


def last_id_of(raw: RawBatch) -> DeliveredId:
    """The id of the last message of an entry, as its delivery has it (hazard last-id-of-no-message)."""
    entry = raw.entry
    alone = raw.batch.count == 1
    if raw.batch.payload_format == PayloadFormat.PULSAR and not entry.skip_first:
        metadata, _payload = split(payload_of(raw.batch, raw.body))
        alone = not has_field(metadata, COUNT)
    return DeliveredId(entry.position, NO_BATCH_INDEX if alone else entry.count - 1)


# --- columns ----------------------------------------------------------------------------------------------------------


class _Fields(NamedTuple):
    """Numbers of the same fields of an entry and of a message in a batch."""

    property: int
    key: int
    event_time: int
    key_in_base64: int


_OF_ENTRY = _Fields(PROPERTY, KEY, EVENT_TIME, KEY_IN_BASE64)
_OF_MESSAGE = _Fields(ONE_PROPERTY, ONE_KEY, ONE_EVENT_TIME, ONE_KEY_IN_BASE64)


def _front(raw: RawBatch, first_id: int) -> bytes:
    """What the metadata of every entry has."""
    return (
        bytes_field(PRODUCER, (raw.producer_name or "").encode())
        + number_field(SEQUENCE, first_id)
        + number_field(PUBLISH_TIME, raw.batch.publish_time_ms)
    )


def _messages(columns: Columns, kept: Sequence[int], ids: Sequence[int], indexes_from: int | None) -> Iterator[Buffer]:
    """These messages of a batch, each with its metadata: in pieces."""
    described = columns.keys is not None or columns.event_times_ms is not None or columns.properties is not None
    size, sequence = varint(ONE_BYTES << 3), varint(ONE_SEQUENCE << 3)
    values = columns.values
    for number, sequence_id in zip(kept, ids, strict=True):
        value = values[number]
        metadata = size + varint(len(value)) + sequence + varint(sequence_id)
        if described:
            metadata = _described(columns, number, _OF_MESSAGE) + metadata
        if indexes_from is not None:
            metadata += index_property(indexes_from + number)
        yield SIZE.pack(len(metadata)) + metadata
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
    kept = b"".join(metadata[each.start : each.end] for each in fields_of(metadata) if each.field != RAW_BYTES)
    metadata = kept + number_field(CODEC, PulsarCodec.ZLIB) + number_field(RAW_BYTES, len(payload))
    if len(metadata) + len(packed) > bytes_max:
        raise MessageTooLarge(
            f"entry {raw.entry.position} has {len(metadata) + len(packed)} bytes for a client of Pulsar, at most "
            f"{bytes_max} are delivered: read it with the SDK, or start the reader behind it",
            field="message", limit=bytes_max, message_id=str(raw.entry.position),
        )  # fmt: skip
    return metadata, packed
