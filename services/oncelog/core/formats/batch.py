"""The format of a batch: packed once by the producer and stored verbatim.

Layout, little-endian, 64 bytes of header (offset, size, field):

     0 1 magic 0xB7          8 8 producer id          40 8 publish time, ms since 1970
     1 1 format 1           16 4 generation           48 4 id deltas, bytes (0: ids are dense)
     2 1 compression        20 4 count of messages    52 4 payload, bytes as stored
     3 1 payload format     24 8 first sequence id    56 4 payload, bytes before compression
     4 4 CRC32C of the rest 32 8 last sequence id     60 4 flags

Then the id deltas, one varint for each message but the first: (id - previous id - 1); only when there are holes. Then
the payload (see `columns` and `compression`; for a message in chunks, `chunks`; for what a client of Kafka or Pulsar
has packed, `kafka` and `pulsar`). The owner checks the payload before it stores the batch (see `batch_check`); storage
nodes never look inside.

Flag UNIT 1: the header does not say which ids the messages have, only that `first` is the lowest and `last` the highest
id that the batch is known by. It is stored as a whole, or not at all. It has no id deltas, and only entries of clients
of Pulsar may be such batches.

The checksum function is passed in: `checksum(data, value) -> int`, CRC32C in production.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from struct import Struct
from typing import NamedTuple

from oncelog.core.errors import InvalidBatch, InvalidSequenceId, InvariantViolated
from oncelog.core.format_errors import UnknownFormat
from oncelog.core.ids import SEQUENCE_ID_MAX, Generation, ProducerId, SequenceId

Buffer = bytes | bytearray | memoryview
Checksum = Callable[[Buffer, int], int]

MAGIC = 0xB7
FORMAT = 1
_HEADER = Struct("<BBBBIQIIqqqIIII")
HEADER_BYTES = _HEADER.size
assert HEADER_BYTES == 64
#: Largest number of messages in a batch whose ids have holes, because its id deltas are decoded one by one.
SPARSE_IDS_MAX = 65_536
#: An id is below 2**63, and a byte of a varint holds seven bits of it.
_DELTA_BYTES_MAX = 9
#: Messages in entries of gateways' clients are read one by one in Python, for 1 to 2 us each, and a change of threads
#: takes 35. So an entry takes long if it has more messages, or more bytes with or without its compression. A caller
#: reads it in another thread, beside other tasks.
LONG_CHECK_BYTES, LONG_CHECK_COUNT = 64 * 1024, 1_000
_CRC_START = 8
_CRC = Struct("<I")
_GENERATION, _GENERATION_AT = Struct("<I"), 16
_PUBLISH_TIME, _PUBLISH_TIME_AT = Struct("<q"), 40


def checksum_of(data: Buffer, checksum: Checksum) -> int:
    """The checksum of a batch or an entry: of all bytes but 4..8, where the checksum itself is stored."""
    view = memoryview(data)
    return checksum(view[_CRC_START:], checksum(view[:4], 0))


def checksum_as_of(data: Buffer, *, generation: int, publish_time_ms: int, checksum: Checksum) -> int:
    """The checksum that this batch would have if it had been packed by that generation at that time."""
    header = bytearray(memoryview(data)[:HEADER_BYTES])
    _GENERATION.pack_into(header, _GENERATION_AT, generation)
    _PUBLISH_TIME.pack_into(header, _PUBLISH_TIME_AT, publish_time_ms)
    return checksum(memoryview(data)[HEADER_BYTES:], checksum_of(header, checksum))


class PayloadFormat(IntEnum):
    """Of the payload: columns; a part of the value of one message; the columns of one message whose value is in such
    chunks (see `chunks`); or as it came, a record batch of a client of Kafka (see `kafka`), or an entry of a client of
    Pulsar (see `pulsar`)."""

    COLUMNS = 1
    CHUNK = 2
    CHUNKED = 3
    KAFKA = 4
    PULSAR = 5


_PAYLOAD_FORMATS = frozenset(PayloadFormat)
#: A part of a message, and the message that names its parts.
IN_CHUNKS = frozenset((PayloadFormat.CHUNK, PayloadFormat.CHUNKED))
#: What clients of other protocols have packed. They have compressed it, too.
AS_IT_CAME = frozenset((PayloadFormat.KAFKA, PayloadFormat.PULSAR))
#: The version of processes (`core.process_version`) that reads and writes AS_IT_CAME.
AS_IT_CAME_VERSION = 9
_UNIT = 1


class BatchHeader(NamedTuple):
    """The header of a batch. first <= last; count == last - first + 1 exactly when the ids are dense.

    compression: see `compression`. The header can be read whether or not its reader knows the number.
    checksum: as stored in the header, not verified; 0 in a header that was not read from bytes.
    unit: see the module. Then first, last and count say nothing about each other, but that first <= last.
    """

    producer_id: ProducerId
    generation: Generation
    first: SequenceId
    last: SequenceId
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here
    publish_time_ms: int
    compression: int
    payload_format: int
    ids_bytes: int
    payload_bytes: int
    payload_raw_bytes: int
    checksum: int = 0
    unit: bool = False

    @property
    def dense(self) -> bool:
        return self.ids_bytes == 0 and not self.unit

    @property
    def bytes_total(self) -> int:
        return HEADER_BYTES + self.ids_bytes + self.payload_bytes


def encode_deltas(ids: Sequence[int]) -> bytes:
    """Return the delta column of ascending ids, b"" when they are dense. Raises InvalidSequenceId for others."""
    if isinstance(ids, range) and ids.step == 1:
        return b""  # not one by one: a header of 64 bytes may claim four billion ids
    if ids[-1] - ids[0] == len(ids) - 1 and all(b - a == 1 for a, b in pairwise(ids)):
        return b""
    out = bytearray()
    append = out.append
    previous = ids[0]
    for i in range(1, len(ids)):
        value = ids[i] - previous - 1
        if value < 0:
            raise InvalidSequenceId(f"sequence_ids[{i}] must be above its predecessor {previous}", field="sequence_ids")
        previous = ids[i]
        while value > 127:
            append(value & 127 | 128)
            value >>= 7
        append(value)
    return bytes(out)


def decode_ids(header: BatchHeader, deltas: Buffer) -> Sequence[int]:
    """Return the batch's ids in order: a range when dense. Raises InvalidBatch when deltas, count and last disagree.
    Not for a unit, whose ids only its payload knows."""
    if header.unit:
        raise InvariantViolated("the header of a unit does not say which ids its messages have")
    if header.dense:
        return range(header.first, header.last + 1)
    if not deltas:
        raise InvalidBatch("the id deltas are cut off", field="sequence_ids")
    if max(deltas) < 128:  # one byte each, the common case: a running sum at C speed
        steps = [header.first, *(d + 1 for d in bytes(deltas))]
    else:
        steps = [header.first]
        value = shift = 0
        for byte in bytes(deltas):
            value |= (byte & 127) << shift
            if byte & 128:
                shift += 7
                if shift > 63:  # no id needs more; without this limit, hostile bytes could grow one number for ever
                    raise InvalidBatch("an id delta is longer than an id", field="sequence_ids")
            else:
                steps.append(value + 1)
                value = shift = 0
        if shift:
            raise InvalidBatch("the id deltas end inside a number", field="sequence_ids")
    ids = list(accumulate(steps))
    if len(ids) != header.count or ids[-1] != header.last:
        raise InvalidBatch("the id deltas contradict count or last sequence id", field="sequence_ids")
    return ids


def order_ids(header: BatchHeader, deltas: Buffer) -> Sequence[int]:
    """By what a producer's batches are ordered, one number for each message: its id, but for a unit, of which only the
    first and the last number are known. Never descending. Raises InvalidBatch."""
    if not header.unit:
        return decode_ids(header, deltas)
    if header.last - header.first == header.count - 1:
        return range(header.first, header.last + 1)
    return [header.first, *[header.last] * (header.count - 1)]


def encode_batch(
    payload: Buffer,
    *,
    producer_id: ProducerId,
    generation: Generation,
    first: int,
    last: int,
    count: int,
    publish_time_ms: int,
    checksum: Checksum,
    deltas: bytes = b"",
    compression: int = 0,
    payload_raw_bytes: int | None = None,
    payload_format: PayloadFormat = PayloadFormat.COLUMNS,
    unit: bool = False,
) -> bytes:
    """Pack one batch. first..last inclusive; deltas as `encode_deltas` gives them; compression: that of the payload."""
    header = bytearray(
        _HEADER.pack(
            MAGIC, FORMAT, compression, payload_format, 0, producer_id, generation, count, first, last,
            publish_time_ms, len(deltas), len(payload), len(payload) if payload_raw_bytes is None else
            payload_raw_bytes, _UNIT if unit else 0, )
    )  # fmt: skip
    crc = checksum_of(header, checksum)
    if deltas:
        crc = checksum(deltas, crc)
    _CRC.pack_into(header, 4, checksum(payload, crc))
    return b"".join((header, deltas, payload))


def peek_batch(data: Buffer) -> BatchHeader:
    """Read the header of a batch; the payload may be cut off. Raises InvalidBatch when the header is inconsistent, and
    UnknownFormat for a format of a later version."""
    if len(data) < HEADER_BYTES:
        raise InvalidBatch(f"a batch of {len(data)} bytes is shorter than its header of {HEADER_BYTES}", field="batch")
    (
        magic, form, compression, payload_format, crc, pid, generation, count, first, last, publish_time_ms,
        ids_bytes, payload_bytes, raw_bytes, flags,
    ) = _HEADER.unpack_from(data)  # fmt: skip
    if magic != MAGIC or form != FORMAT:
        raise InvalidBatch(f"not a batch of format {FORMAT}: magic {magic:#x}, format {form}", field="batch")
    if payload_format not in _PAYLOAD_FORMATS or flags > _UNIT:
        raise _unknown(payload_format, flags)
    if payload_format in IN_CHUNKS and (count != 1 or compression):
        raise InvalidBatch("a message in chunks is a batch of its own, and not compressed", field="batch")
    if compression and payload_format in AS_IT_CAME:
        raise InvalidBatch("an entry of a gateway's client is compressed by the client, not again", field="compression")
    if flags:
        _check_unit(payload_format, first, last, count, ids_bytes)
    else:
        dense = last - first == count - 1
        if count < 1 or first < 0 or last > SEQUENCE_ID_MAX or last - first < count - 1 or dense != (ids_bytes == 0):
            raise InvalidBatch(f"sequence ids {first}..{last} contradict a count of {count}", field="sequence_ids")
        if not dense:
            _check_delta_bytes(count, ids_bytes)
    return BatchHeader(
        pid,
        generation,
        first,
        last,
        count,
        publish_time_ms,
        compression,
        payload_format,
        ids_bytes,
        payload_bytes,
        raw_bytes,
        crc,
        bool(flags),
    )


def _unknown(payload_format: int, flags: int) -> UnknownFormat:
    what = f"payload format {payload_format}" if payload_format not in _PAYLOAD_FORMATS else f"flags {flags:#x}"
    return UnknownFormat(
        f"{what} of a batch is not known to this version: upgrade the program that reads it",
        payload_format=payload_format,
        flags=flags,
    )


def _check_unit(payload_format: int, first: int, last: int, count: int, ids_bytes: int) -> None:
    if payload_format != PayloadFormat.PULSAR:
        raise InvalidBatch("only an entry of a client of Pulsar may be stored as a unit", field="flags")
    if not 0 <= first <= last <= SEQUENCE_ID_MAX or not 1 <= count <= SPARSE_IDS_MAX or ids_bytes:
        message = f"a unit of {count} messages has ids {first}..{last}, and {ids_bytes} bytes of id deltas"
        raise InvalidBatch(message, field="sequence_ids", limit=SPARSE_IDS_MAX)


def _check_delta_bytes(count: int, ids_bytes: int) -> None:
    """Bound the cost of decoding the deltas, before any of them is read."""
    if count > SPARSE_IDS_MAX:
        message = f"a batch of {count} messages with holes in their ids exceeds {SPARSE_IDS_MAX}: send smaller batches"
        raise InvalidBatch(message, field="count", limit=SPARSE_IDS_MAX)
    if not count - 1 <= ids_bytes <= (count - 1) * _DELTA_BYTES_MAX:
        raise InvalidBatch(f"{ids_bytes} bytes of id deltas contradict a count of {count}", field="sequence_ids")


def decode_batch(data: Buffer, checksum: Checksum) -> BatchHeader:
    """Read and check one batch that fills `data` exactly, its id deltas included.

    Raises InvalidBatch for every contradiction, because the bytes are untrusted, and UnknownFormat.
    """
    try:
        header = peek_batch(data)
    except UnknownFormat:
        if checksum_of(data, checksum) == _CRC.unpack_from(data, 4)[0]:
            raise
        raise _damaged() from None
    if header.bytes_total != len(data):
        raise InvalidBatch("the batch's lengths do not add up to its size", field="batch", limit=len(data))
    if checksum_of(data, checksum) != header.checksum:
        raise _damaged()
    if not header.dense and not header.unit:
        decode_ids(header, deltas_of(header, data))
    return header


def _damaged() -> InvalidBatch:
    return InvalidBatch("the batch's checksum does not match its bytes", field="batch")


def deltas_of(header: BatchHeader, data: Buffer) -> Buffer:
    """The delta column inside the batch's bytes; empty when dense."""
    return memoryview(data)[HEADER_BYTES : HEADER_BYTES + header.ids_bytes]


def payload_of(header: BatchHeader, data: Buffer) -> memoryview:
    """The payload as stored, a slice without a copy."""
    return memoryview(data)[HEADER_BYTES + header.ids_bytes : HEADER_BYTES + header.ids_bytes + header.payload_bytes]


def read_cost(batch: BatchHeader, body: Buffer) -> int:
    """Of reading a stored batch, as the bytes that take about as long: above LONG_CHECK_BYTES it takes long."""
    return max(len(body), batch.payload_raw_bytes, batch.count * LONG_CHECK_BYTES // LONG_CHECK_COUNT)
