"""What the payload of a batch holds, whatever its format: as columns.

    COLUMNS   decoded from the payload, decompressed
    CHUNKED   the same, without the value, which is in chunks
    PULSAR    made of the entry of a client of Pulsar, with two that are never stored: which values are null, and the
              ids of a unit
    KAFKA     made of the record batch of a client of Kafka, with two that are never stored: which values are null, and
              headers

So everything that reads messages knows one form only. What a program cannot read has an error of its own, which is no
damage: nothing is skipped or acknowledged for it.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate

from oncelog.core.errors import ChunkedMessage, InvalidBatch
from oncelog.core.format_errors import MessageEncrypted
from oncelog.core.formats.batch import (
    BatchHeader,
    Buffer,
    PayloadFormat,
    deltas_of,
    order_ids,
    payload_of,
)
from oncelog.core.formats.columns import Columns, Headers, Values, decode_columns
from oncelog.core.formats.compression import Compression, expand
from oncelog.core.formats.kafka import KafkaRecords, RecordBatchHead, open_batch
from oncelog.core.formats.pulsar import EntryHead, PulsarMessages, open_entry


def read_columns(header: BatchHeader, payload: Buffer) -> Columns:
    """The columns of a payload as stored; never decompresses to more than the header and the limit allow.

    Raises InvalidBatch when the bytes contradict the header, CompressionUnavailable, MessageEncrypted, and
    ChunkedMessage for a message in chunks: its columns lack the value, and nobody may take them for the whole message.
    """
    if header.payload_format == PayloadFormat.PULSAR:
        return columns_of(open_payload(header, payload))
    if header.payload_format == PayloadFormat.KAFKA:
        return columns_of_records(open_records(header, payload))
    if header.payload_format != PayloadFormat.COLUMNS:
        raise ChunkedMessage("the value of the message is in chunks, which only readers and consumers of the SDK join")
    return decode_columns(expand_columns(header, payload), header.count)


def shown_columns(header: BatchHeader, payload: Buffer) -> Columns:
    """As `read_columns`, for those that need no values: a message in chunks or an encrypted one has none here."""
    if header.payload_format == PayloadFormat.KAFKA:
        return read_columns(header, payload)
    if header.payload_format != PayloadFormat.PULSAR:
        return decode_columns(expand_columns(header, payload), header.count)
    messages = open_payload(header, payload)
    return columns_of(messages) if messages.encryption is None else encrypted_columns(messages)


def expand_columns(header: BatchHeader, payload: Buffer) -> Buffer:
    """The bytes of columns, also of a message in chunks, but not of PULSAR and KAFKA. Raises InvalidBatch,
    CompressionUnavailable."""
    if header.compression == Compression.NONE:
        _check_length(header, payload)
        return payload
    return expand(header.compression, payload, header.payload_raw_bytes)


def open_payload(header: BatchHeader, payload: Buffer) -> PulsarMessages:
    """The messages of the entry of a client of Pulsar, also of an encrypted one. Raises InvalidBatch,
    CompressionUnavailable."""
    _check_length(header, payload)
    messages = open_entry(payload)
    require_header(header, messages)
    return messages


def open_records(header: BatchHeader, payload: Buffer) -> KafkaRecords:
    """The records of the record batch of a client of Kafka. Raises InvalidBatch, CompressionUnavailable."""
    _check_length(header, payload)
    records = open_batch(payload)
    require_count(header, records.head)
    return records


def require_count(header: BatchHeader, head: RecordBatchHead) -> None:
    """Raises InvalidBatch if header and record batch contradict each other. Publish times are the gateway's."""
    if header.count != head.count:
        message = f"count of the batch is {header.count}, and of the record batch in it {head.count}"
        raise InvalidBatch(message, field="count")


def require_header(header: BatchHeader, messages: EntryHead | PulsarMessages) -> None:
    """Raises InvalidBatch if header and entry contradict each other, but for the ids of messages."""
    stated = (header.first, header.last, header.count, header.unit, header.publish_time_ms)
    found = (messages.first, messages.last, messages.count, messages.unit, messages.publish_time_ms)
    for name, one, other in zip(("first", "last", "count", "unit", "publish_time_ms"), stated, found, strict=True):
        if one != other:
            raise InvalidBatch(f"{name} of the batch is {one}, and of the entry in it {other}", field=name)


def columns_of(messages: PulsarMessages) -> Columns:
    """Raises MessageEncrypted."""
    if messages.encryption is not None:
        keys = ", ".join(sorted(messages.encryption.keys))
        raise MessageEncrypted(
            f"the message is encrypted by its producer {messages.producer_name!r} (keys: {keys}): readers and "
            "consumers with on_encrypted='pass', and `oncelog read -o json --on-encrypted pass`, get it as it is, for "
            "a program that has the key"
        )
    nulls = frozenset(messages.nulls)
    return Columns(
        Values(memoryview(b"".join(messages.values)), list(accumulate(map(len, messages.values), initial=0))),
        messages.keys,
        messages.event_times_ms,
        messages.properties,
        nulls=[index in nulls for index in range(messages.count)] if nulls else None,
        ids=messages.ids if messages.unit else None,
    )


def columns_of_records(records: KafkaRecords) -> Columns:
    """Headers whose values are text are properties, too; of several with one key, the last one."""
    nulls, headers = frozenset(records.nulls), records.headers
    return Columns(
        Values(memoryview(b"".join(records.values)), list(accumulate(map(len, records.values), initial=0))),
        records.keys,
        records.timestamps_ms,
        None if headers is None else [properties_of(each) for each in headers],
        nulls=[index in nulls for index in range(records.head.count)] if nulls else None,
        headers=headers,
    )


def properties_of(headers: Headers) -> dict[str, str]:
    """Of each key the last header, if its value is text."""
    found: dict[str, str] = {}
    for key, value in dict(headers).items():
        if value is not None:
            with suppress(UnicodeDecodeError):
                found[key] = value.decode()
    return found


def encrypted_columns(messages: PulsarMessages) -> Columns:
    """What an encrypted entry shows of its messages: empty values, keys, times and properties."""
    return Columns(
        Values(memoryview(b""), [0] * (messages.count + 1)),
        messages.keys,
        messages.event_times_ms,
        messages.properties,
        encryption=messages.encryption,
    )


def message_ids(header: BatchHeader, deltas: Buffer, columns: Columns) -> Sequence[int]:
    """The id of each message. columns: of the batch. Only its producer knows the ids of an encrypted unit with holes:
    they are then those of `order_ids`. Raises InvalidBatch."""
    return order_ids(header, deltas) if columns.ids is None else columns.ids


def ids_within(header: BatchHeader, body: Buffer) -> Sequence[int]:
    """The id of each message of a whole batch. Raises InvalidBatch, CompressionUnavailable."""
    ids = open_payload(header, payload_of(header, body)).ids if header.unit else None
    return order_ids(header, deltas_of(header, body)) if ids is None else ids


def _check_length(header: BatchHeader, payload: Buffer) -> None:
    if header.payload_raw_bytes != len(payload):
        raise InvalidBatch("an uncompressed payload contradicts its two lengths", field="payload")
