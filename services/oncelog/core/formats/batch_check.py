"""The owner's check of a batch before it is stored: that every reader can read it.

An entry that cannot be decoded stops every reader of its topic, and a count that is too high makes the topic's message
numbers jump. Therefore the header, the id deltas and the payload's columns are compared with each other.

Rules
- The columns are checked without building values: lengths are summed in C. Only properties are walked one by one,
  because each of them has its own structure.
- A compressed payload is decompressed once, at most to the size that its header declares, and that size is at most
  `raw_bytes_max`. The result is discarded: the bytes are stored as received.
- An entry of a client of Pulsar is read whole (`pulsar`), at most to EXPANSION_MAX times `raw_bytes_max`. Its header
  must say what the entry says, and the entry must name the producer of its session (hazard entry-of-another-producer).
- The same of a record batch of a client of Kafka (`kafka`): each record is read (hazard record-batch-that-lies). The
  ids must be those of its epoch and sequence, if the session is of its producer id.
- A chunk needs an offset and bytes, a message in chunks must name some and have no value of its own. Whether these are
  its chunks, `core.publishing.uploads` knows. If it has the metadata of a client of Pulsar, that must be its own.
- Every contradiction is InvalidBatch or MessageTooLarge, raised before anything is appended.
"""

from array import array
from collections.abc import Mapping, Sequence
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from oncelog.core.errors import CompressionUnavailable, InvalidBatch, MessageTooLarge
from oncelog.core.format_errors import UnknownFormat
from oncelog.core.formats import kafka
from oncelog.core.formats.batch import (
    AS_IT_CAME,
    HEADER_BYTES,
    LONG_CHECK_BYTES,
    BatchHeader,
    Buffer,
    Checksum,
    PayloadFormat,
    decode_batch,
    decode_ids,
    deltas_of,
    payload_of,
    peek_batch,
)
from oncelog.core.formats.chunks import decode_chunk, decode_chunk_names
from oncelog.core.formats.columns import LENGTH_BYTES, NONE_LENGTH, Column, split_columns, split_lengths
from oncelog.core.formats.compression import Compression
from oncelog.core.formats.epoched_ids import is_numbered
from oncelog.core.formats.kafka import check_batch as check_record_batch
from oncelog.core.formats.kafka import kafka_takes_long
from oncelog.core.formats.origin import unpack_origin
from oncelog.core.formats.payload import expand_columns, require_count, require_header
from oncelog.core.formats.pulsar import EXPANSION_MAX, RAW_BYTES_MAX, check_entry, open_metadata, pulsar_takes_long
from oncelog.core.names import KAFKA

#: Bytes of one event time.
_TIME_BYTES = 8
_PAYLOAD_FORMAT_AT = 3
_KEY_LENGTH = Struct("<H")
_VALUE_LENGTH = Struct("<I")


class BatchLimits(NamedTuple):
    """raw_bytes_max: bytes of id deltas and payload of one batch, as stored and also before compression."""

    raw_bytes_max: int


def check_batch(
    data: Buffer, checksum: Checksum, limits: BatchLimits, *, producer_name: str | None = None
) -> BatchHeader:
    """Return the header of a batch that can be stored. producer_name: of its session; None: not compared.

    Raises MessageTooLarge above the limits, InvalidBatch when header, id deltas and payload contradict each other.
    """
    limit = limits.raw_bytes_max
    if len(data) > HEADER_BYTES + limit:
        raise MessageTooLarge(f"a batch of {len(data)} bytes exceeds the limit of {limit}", field="batch", limit=limit)
    try:
        header = decode_batch(data, checksum)
    except UnknownFormat as error:
        raise InvalidBatch(error.message, field="payload_format") from error
    if header.payload_raw_bytes > limit:
        message = f"a batch of {header.payload_raw_bytes} bytes before compression exceeds the limit of {limit}"
        raise MessageTooLarge(message, field="payload", limit=limit)
    if header.payload_format == PayloadFormat.CHUNK:
        decode_chunk(expand_columns(header, payload_of(header, data)))
        return header
    if header.payload_format == PayloadFormat.PULSAR:
        _check_pulsar(header, data, checksum, limits, producer_name)
        return header
    if header.payload_format == PayloadFormat.KAFKA:
        _check_kafka(header, data, checksum, limits, producer_name)
        return header
    if header.count * LENGTH_BYTES > header.payload_raw_bytes:
        message = f"a payload of {header.payload_raw_bytes} bytes cannot hold {header.count} messages"
        raise InvalidBatch(message, field="count")
    check_payload(header, payload_of(header, data), producer_name=producer_name)
    return header


def unpacks(header: BatchHeader) -> bool:
    """Whether checking the batch decompresses it."""
    return header.compression != Compression.NONE


def takes_long(data: Buffer) -> bool:
    """Whether the check of a batch must not hold other tasks up: of an entry of a gateway's client, each message is
    read."""
    if len(data) <= HEADER_BYTES or data[_PAYLOAD_FORMAT_AT] not in AS_IT_CAME:
        return False
    if len(data) > LONG_CHECK_BYTES:
        return True
    try:
        header = peek_batch(data)
    except (InvalidBatch, UnknownFormat):
        return False
    payload = payload_of(header, data)
    if header.payload_format == PayloadFormat.KAFKA:
        return kafka_takes_long(payload)
    return pulsar_takes_long(payload)


def _check_pulsar(
    header: BatchHeader, data: Buffer, checksum: Checksum, limits: BatchLimits, producer_name: str | None
) -> None:
    payload = payload_of(header, data)
    raw_bytes_max = min(EXPANSION_MAX * limits.raw_bytes_max, RAW_BYTES_MAX)
    try:
        entry = check_entry(payload, raw_bytes_max=raw_bytes_max, checksum=checksum)
    except CompressionUnavailable as error:
        raise InvalidBatch(error.message, field="compression") from error
    require_header(header, entry)
    if not header.unit and not _are_alike(decode_ids(header, deltas_of(header, data)), entry.ids or ()):
        raise InvalidBatch("the ids of the batch and of the messages in its entry differ", field="sequence_ids")
    _check_producer(entry.producer_name, producer_name)


def _are_alike(ids: Sequence[int], others: Sequence[int]) -> bool:
    """Ranges are compared by their ends."""
    return ids == others or (type(ids) is not type(others) and list(ids) == list(others))


def _check_kafka(
    header: BatchHeader, data: Buffer, checksum: Checksum, limits: BatchLimits, producer_name: str | None
) -> None:
    raw_bytes_max = min(kafka.EXPANSION_MAX * limits.raw_bytes_max, kafka.RAW_BYTES_MAX)
    try:
        head = check_record_batch(payload_of(header, data), raw_bytes_max=raw_bytes_max, checksum=checksum)
    except CompressionUnavailable as error:
        raise InvalidBatch(error.message, field="compression") from error
    require_count(header, head)
    number = None if producer_name is None else producer_name.removeprefix(KAFKA)
    if producer_name is None or number == producer_name or not (number or "").isdecimal():
        return
    if number != str(head.producer_id):
        message = f"the record batch is of producer id {head.producer_id}, and its session is of {producer_name!r}"
        raise InvalidBatch(message, field="producer_name")
    if not is_numbered(header.first, epoch=head.producer_epoch, sequence=head.base_sequence) or not header.dense:
        message = (
            f"the ids of the batch, {header.first}..{header.last}, are not those of epoch {head.producer_epoch}, "
            f"sequence {head.base_sequence} of the record batch in it"
        )
        raise InvalidBatch(message, field="sequence_ids")


def check_payload(header: BatchHeader, payload: Buffer, *, producer_name: str | None = None) -> None:
    """Raises InvalidBatch unless `decode_columns` can read the payload. producer_name: as of `check_batch`."""
    try:
        raw = expand_columns(header, payload)
    except CompressionUnavailable as error:
        raise InvalidBatch(error.message, field="compression") from error
    columns = split_columns(raw, header.count)
    check_columns(columns, header.count)
    if header.payload_format == PayloadFormat.CHUNKED:
        decode_chunk_names(raw)
        if Column.PULSAR in columns:
            _check_metadata(header, columns[Column.PULSAR], producer_name)
        if len(columns[Column.VALUES]) != LENGTH_BYTES:
            raise InvalidBatch("a message in chunks has a value besides them", field="payload")
    elif Column.CHUNKS in columns:
        raise InvalidBatch("only a message in chunks names chunks", field="payload")


def _check_metadata(header: BatchHeader, metadata: Buffer, producer_name: str | None) -> None:
    """Of a message in chunks of a client of Pulsar: it is sent to such clients as it is."""
    sent = open_metadata(metadata)
    if (sent.first, sent.count, sent.unit, sent.encryption) != (header.first, 1, False, None):
        raise InvalidBatch(f"the metadata of message {header.first} is of another one", field="sequence_id")
    _check_producer(sent.producer_name, producer_name)


def _check_producer(found: str, producer_name: str | None) -> None:
    """producer_name: of the session; None: not compared."""
    if producer_name not in (None, found):
        message = f"the entry names producer {found[:100]!r}, and its session is of {producer_name!r}"
        raise InvalidBatch(message, field="producer_name")


def check_columns(columns: Mapping[int, memoryview], count: int) -> None:
    """columns: as `split_columns` gives them. Raises InvalidBatch unless they are those of `count` messages."""
    values = columns[Column.VALUES]
    lengths, data = split_lengths(values, count, "values")
    if not _alike(values, count, len(data)) and sum(lengths) != len(data):
        raise _contradiction("values", data)
    if (keys := columns.get(Column.KEYS)) is not None:
        lengths, data = split_lengths(keys, count, "keys")
        missing = array("I", lengths).count(NONE_LENGTH)
        if sum(lengths) - missing * NONE_LENGTH != len(data):
            raise _contradiction("keys", data)
    times = columns.get(Column.EVENT_TIMES)
    if times is not None and len(times) != _TIME_BYTES * count:
        raise InvalidBatch(f"the event times are not {count} numbers of 8 bytes", field="payload", limit=len(times))
    if (properties := columns.get(Column.PROPERTIES)) is not None:
        lengths, data = split_lengths(properties, count, "properties")
        if sum(lengths) != len(data):
            raise _contradiction("properties", data)
        _check_properties(lengths, bytes(data))
    if (origin := columns.get(Column.ORIGIN)) is not None:
        unpack_origin(origin, count)


def _alike(values: memoryview, count: int, data_bytes: int) -> bool:
    """Whether all values have the same length and fill the column: the common case, found by one comparison."""
    width = data_bytes // count
    lengths = bytes(values[: count * LENGTH_BYTES])  # comparing bytes is ten times as fast as comparing a memoryview
    return width * count == data_bytes and lengths == width.to_bytes(LENGTH_BYTES, "little") * count


def _contradiction(column: str, data: Buffer) -> InvalidBatch:
    return InvalidBatch(f"the {column}' lengths do not add up to their bytes", field="payload", limit=len(data))


def _check_properties(lengths: "memoryview | array[int]", data: bytes) -> None:
    """Walk the keys and values of every message; their sections fill `data` exactly."""
    ascii_only = data.isascii()  # the common case: every slice of ASCII is valid UTF-8
    at = end = 0
    try:
        for length in lengths:
            end += length
            while at < end:
                key = at + _KEY_LENGTH.size
                key_end = key + _KEY_LENGTH.unpack_from(data, at)[0]
                value = key_end + _VALUE_LENGTH.size
                at = value + _VALUE_LENGTH.unpack_from(data, key_end)[0]
                if not ascii_only:
                    data[key:key_end].decode()
                    data[value:at].decode()
            if at != end:
                raise InvalidBatch("a property claims more bytes than there are", field="payload", limit=len(data))
    except (ValueError, struct_error) as error:
        raise InvalidBatch(f"the properties of a message are malformed: {error}", field="payload") from error
