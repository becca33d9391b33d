"""The payload format KAFKA: one record batch of a client of Kafka, of magic 2, as it came.

Numbers are big-endian (offset, size, field):

     0 8 base offset                    17 4 CRC32C of the rest          43 8 producer id, -1: none
     8 4 bytes behind this field        21 2 attributes: codec 0 to 4    51 2 producer epoch, -1: none
    12 4 partition leader epoch         23 4 last offset delta           53 4 base sequence, -1: none
    16 1 magic, 2                       27 8 base timestamp, ms          57 4 count of records
                                        35 8 largest timestamp, ms       61   records, perhaps compressed

A record is its size, then in so many bytes: attributes, 1 byte; timestamp delta; offset delta; key; value; count of
headers; for each header its key, which is text, and its value. All numbers in it are zigzag varints. Keys and values
have their size in front, -1: null.

`open_batch` is the only reader of these bytes. `check_batch` is for the owner and for a gateway, who check them before
they are stored: it refuses what `open_batch` cannot read, and builds nothing of records that are plain
(`checks.plain`). Base offset and leader epoch mean nothing here: the log numbers messages, and a gateway writes both
when it serves the batch.

Received bytes are untrusted: what contradicts itself raises InvalidBatch, which names the field and its limit, before
anything larger than the bytes, or than `raw_bytes_max`, is allocated.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from oncelog.core.errors import CompressionUnavailable, InvalidBatch, MessageTooLarge
from oncelog.core.formats.batch import LONG_CHECK_BYTES, LONG_CHECK_COUNT, Buffer, Checksum
from oncelog.core.formats.checks.plain import are_plain_records
from oncelog.core.formats.columns import Headers
from oncelog.core.formats.compression import PAYLOAD_RAW_BYTES_MAX, KafkaCodec, expand_kafka

MAGIC = 2
_HEAD = Struct(">qiibIhiqqqhii")
HEAD_BYTES = _HEAD.size
assert HEAD_BYTES == 61
#: The size of a batch does not count the fields up to and with the size.
_SIZED_FROM = 12
_CHECKED_FROM = 21
_MAGIC_AT = 16
#: {bit of the attributes: why a batch with it is not stored}
_NOT_STORED = {
    0x08: "has timestamps of a broker (LogAppendTime)",
    0x10: "belongs to a transaction",
    0x20: "is a control batch of a broker",
}
_CODEC_BITS = 0x07
#: A payload may be so many times as large as the largest message when it is decompressed.
EXPANSION_MAX = 16
RAW_BYTES_MAX = PAYLOAD_RAW_BYTES_MAX
#: Of one batch; clients send at most some ten thousands.
COUNT_MAX = 2**18
HEADERS_MAX = 2**20
#: So that each fits into a property.
HEADER_KEY_BYTES_MAX = 2**16 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_NO_TIME = -1
#: Of a number of 32 bits, and of one of 64.
INT_BYTES, LONG_BYTES = 5, 10
_INT_LIMIT, _LONG_LIMIT = 2**32, 2**64


class RecordBatchHead(NamedTuple):
    """producer_id -1: none; then epoch and base sequence mean nothing. base_sequence: of 32 bits, perhaps below 0 (see
    `epoched_ids`). count: also the largest offset delta + 1."""

    codec: KafkaCodec
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here


class KafkaRecords(NamedTuple):
    """The records of one batch. A list that no record has anything for is None, others have `count` items.

    values: empty where they are null; nulls: the indexes of those. timestamps_ms: None for -1, which is none. headers:
    in their order; a key may be there more than once.
    """

    head: RecordBatchHead
    values: Sequence[bytes]
    nulls: Sequence[int]
    keys: Sequence[bytes | None] | None
    timestamps_ms: Sequence[int | None] | None
    headers: Sequence[Headers] | None


def open_batch(batch: Buffer, *, raw_bytes_max: int = RAW_BYTES_MAX, checksum: Checksum | None = None) -> KafkaRecords:
    """Read one record batch that fills `batch` exactly. raw_bytes_max: of its records, decompressed. checksum: CRC32C;
    None: the batch's own is not compared, because the bytes around it are.

    Raises InvalidBatch, MessageTooLarge, CompressionUnavailable.
    """
    head = read_head(batch, checksum=checksum)
    return _walk(head, records_of(head, batch, raw_bytes_max=raw_bytes_max))


def check_batch(
    batch: Buffer, *, raw_bytes_max: int = RAW_BYTES_MAX, checksum: Checksum | None = None
) -> RecordBatchHead:
    """Raises as `open_batch` does, for the same batches."""
    head = read_head(batch, checksum=checksum)
    raw = records_of(head, batch, raw_bytes_max=raw_bytes_max)
    if not are_plain_records(raw, head.count, head.base_timestamp):
        _walk(head, raw)
    return head


def read_head(batch: Buffer, *, checksum: Checksum | None = None) -> RecordBatchHead:
    """Everything but the records. Raises InvalidBatch, MessageTooLarge for a batch of too many records."""
    view = memoryview(batch)
    if len(view) > _MAGIC_AT and view[_MAGIC_AT] != MAGIC:
        message = f"a record batch of magic {view[_MAGIC_AT]} is not stored: use a client of Kafka 0.11 or later"
        raise InvalidBatch(message, field="magic", limit=MAGIC)
    if len(view) < HEAD_BYTES:
        raise InvalidBatch(f"a record batch of {len(view)} bytes is cut off", field="batch_length", limit=HEAD_BYTES)
    (
        _, size, _, _, crc, attributes, last_delta, base_timestamp, max_timestamp, producer_id, producer_epoch,
        base_sequence, count,
    ) = _HEAD.unpack_from(view)  # fmt: skip
    if size != len(view) - _SIZED_FROM:
        message = f"a record batch states {size} bytes, and has {len(view) - _SIZED_FROM}: send one batch at a time"
        raise InvalidBatch(message, field="batch_length", limit=len(view) - _SIZED_FROM)
    if checksum is not None and checksum(view[_CHECKED_FROM:], 0) != crc:
        raise InvalidBatch("the checksum of a record batch does not match its bytes", field="checksum")
    head = RecordBatchHead(
        _codec_of(attributes), base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count
    )
    _check_head(head, last_delta)
    return head


def records_of(head: RecordBatchHead, batch: Buffer, *, raw_bytes_max: int = RAW_BYTES_MAX) -> bytes:
    """The bytes of the records, decompressed. Raises InvalidBatch, MessageTooLarge, CompressionUnavailable."""
    return bytes(expand_kafka(head.codec, memoryview(batch)[HEAD_BYTES:], raw_bytes_max))


def kafka_takes_long(batch: Buffer) -> bool:
    """Whether reading a record batch takes long. False also of one that cannot be read."""
    if len(batch) > LONG_CHECK_BYTES:
        return True
    try:
        head = read_head(batch)
        # A compressed one that is large is not tried: a decompression takes longer than a change of threads.
        if head.count > LONG_CHECK_COUNT or (head.codec and len(batch) > LONG_CHECK_BYTES // 4):
            return True
        if head.codec:
            records_of(head, batch, raw_bytes_max=LONG_CHECK_BYTES)
    except MessageTooLarge:
        return True
    except (InvalidBatch, CompressionUnavailable):
        return False
    return False


def _codec_of(attributes: int) -> KafkaCodec:
    for bit, why in _NOT_STORED.items():
        if attributes & bit:
            raise InvalidBatch(f"the record batch {why}: such batches are not stored", field="attributes")
    codec = attributes & _CODEC_BITS
    if attributes != codec or codec > max(KafkaCodec):
        raise InvalidBatch(f"attributes {attributes:#x} of a record batch are not known", field="attributes")
    return KafkaCodec(codec)


def _check_head(head: RecordBatchHead, last_delta: int) -> None:
    if head.count > COUNT_MAX:
        message = f"a record batch of {head.count} records exceeds {COUNT_MAX}: send smaller batches"
        raise MessageTooLarge(message, field="records_count", limit=COUNT_MAX)
    if head.count < 1 or last_delta != head.count - 1:
        message = f"a record batch counts {head.count} records, and its last offset delta is {last_delta}"
        raise InvalidBatch(message, field="records_count", limit=COUNT_MAX)
    # Without a producer id, clients write anything as epoch and base sequence: KafkaJS and Sarama write 0.
    if head.producer_id < -1 or (head.producer_id >= 0 and head.producer_epoch < 0):
        message = f"a record batch has producer id {head.producer_id} and epoch {head.producer_epoch}"
        raise InvalidBatch(message, field="producer_id")


# --- records ----------------------------------------------------------------------------------------------------------


def _walk(head: RecordBatchHead, raw: bytes) -> KafkaRecords:
    """Exactly `count` records fill the bytes."""
    values: list[bytes] = []
    nulls: list[int] = []
    keys: list[bytes | None] = []
    deltas: list[int] = []
    #: {index of the record: its headers}
    headers: dict[int, Headers] = {}
    budget = _Budget()
    at, count, bytes_total = 0, head.count, len(raw)
    try:
        for index in range(count):
            if at == bytes_total:
                message = f"a record batch counts {count} records, and has {index}"
                raise InvalidBatch(message, field="records_count", limit=index)
            # Most numbers have one byte, which is read here: a call takes longer than all the rest.
            byte = raw[at]
            size, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 128 else read_varint(raw, at)
            end = at + size
            if not at < end <= bytes_total:
                raise _cut_off(index, bytes_total - at)
            byte = raw[at + 1]  # the attributes of the record are in front, and have no meaning
            delta, at = (byte >> 1 ^ -(byte & 1), at + 2) if byte < 128 else read_varint(raw, at + 1, LONG_BYTES)
            deltas.append(delta)
            byte = raw[at]
            offset, at = (byte >> 1, at + 1) if byte < 128 and not byte & 1 else read_varint(raw, at)
            if offset != index:
                message = f"record {index} of a record batch has the offset delta {offset}"
                raise InvalidBatch(message, field="offset_delta", limit=index)
            byte = raw[at]
            size, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 128 else read_varint(raw, at)
            if size < 0:
                _require_null(index, size, "key")
                keys.append(None)
            else:
                keys.append(raw[at : at + size])
                at += size
            byte = raw[at]
            size, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 128 else read_varint(raw, at)
            if size < 0:
                _require_null(index, size, "value")
                nulls.append(index)
                values.append(b"")
            else:
                values.append(raw[at : at + size])
                at += size
            if raw[at]:
                headers[index], at = _headers(raw, at, index, end, budget)
            else:
                at += 1
            if at != end:
                raise InvalidBatch(f"record {index} of a record batch does not fill its size", field="record")
    except IndexError:
        raise _cut_off(len(values), bytes_total - at) from None
    if at != bytes_total:
        message = f"a record batch counts {count} records, and {bytes_total - at} bytes follow them"
        raise InvalidBatch(message, field="records_count", limit=count)
    return KafkaRecords(
        head,
        values,
        nulls,
        keys if keys.count(None) < count else None,
        _timestamps(head.base_timestamp, deltas),
        [headers.get(index, ()) for index in range(count)] if headers else None,
    )


def _timestamps(base: int, deltas: list[int]) -> list[int | None] | None:
    if not INT64_MIN < base + min(deltas) <= base + max(deltas) <= INT64_MAX:
        raise InvalidBatch("a record of a record batch has a timestamp of more than 64 bits", field="timestamp")
    none = _NO_TIME - base
    if deltas.count(none) == len(deltas):
        return None
    return [None if delta == none else base + delta for delta in deltas]


class _Budget:
    """How many headers a batch may have left."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = HEADERS_MAX


def _headers(raw: bytes, at: int, index: int, end: int, budget: _Budget) -> tuple[Headers, int]:
    """The headers of a record that ends at `end`, and where they end. Raises IndexError where the bytes end."""
    count, at = read_varint(raw, at)
    budget.left -= max(count, 0)
    if budget.left < 0:
        message = f"a record batch has more than {HEADERS_MAX} headers: send smaller batches"
        raise MessageTooLarge(message, field="headers", limit=HEADERS_MAX)
    if not 0 <= count <= end - at:
        raise _cut_off(index, end - at, "headers")
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        byte = raw[at]
        size, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 128 else read_varint(raw, at)
        if not 0 <= size <= HEADER_KEY_BYTES_MAX:
            message = f"record {index} of a record batch has a header whose key has {size} bytes"
            raise InvalidBatch(message, field="headers", limit=HEADER_KEY_BYTES_MAX)
        try:
            key = str(raw[at : at + size], "utf-8")
        except UnicodeDecodeError as error:
            message = f"record {index} of a record batch has a header whose key is not UTF-8"
            raise InvalidBatch(message, field="headers") from error
        at += size
        byte = raw[at]
        size, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 128 else read_varint(raw, at)
        if size < 0:
            _require_null(index, size, "header")
            found.append((key, None))
        else:
            found.append((key, raw[at : at + size]))
            at += size
        if at > end:
            raise _cut_off(index, end - at, "headers")
    return tuple(found), at


def _require_null(index: int, size: int, what: str) -> None:
    if size != -1:
        raise InvalidBatch(f"record {index} of a record batch has a {what} of {size} bytes", field=what, limit=-1)


def read_varint(raw: bytes, at: int, bytes_max: int = INT_BYTES) -> tuple[int, int]:
    """(number, where it ends). Raises IndexError where the bytes end, and InvalidBatch for one of more bytes or bits
    than a number of its kind has."""
    byte = raw[at]
    if byte < 128:
        return byte >> 1 ^ -(byte & 1), at + 1
    if raw[at + 1] < 128:
        value = byte & 127 | raw[at + 1] << 7
        return value >> 1 ^ -(value & 1), at + 2
    value = shift = 0
    for end in range(at, at + bytes_max):
        byte = raw[end]
        value |= (byte & 127) << shift
        if byte < 128 and value < (_INT_LIMIT if bytes_max == INT_BYTES else _LONG_LIMIT):
            return value >> 1 ^ -(value & 1), end + 1
        if byte < 128:
            break
        shift += 7
    raise InvalidBatch(f"a number in a record has more than {bytes_max} bytes", field="varint", limit=bytes_max)


def _cut_off(index: int, left: int, field: str = "record") -> InvalidBatch:
    return InvalidBatch(f"record {index} of a record batch claims more bytes than there are", field=field, limit=left)
