"""Entries of clients, of which only some messages are delivered.

    a known prefix (`skip_first`)    the others, as they came
    a part for one consumer          its messages, each with its index in the topic as a property

The batch is written again without compression, with what is kept of it; all else that its client wrote stays, also what
is not known here. Encrypted batches cannot be cut: their messages are not visible.
"""

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct

from oncelog.core.errors import InvalidBatch
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.compression import PulsarCodec, expand_pulsar
from oncelog.core.formats.pulsar import RAW_BYTES_MAX
from oncelog_doors.core.pulsar.protobuf_fields import bytes_field, fields_of, number_field

SIZE = Struct(">I")
_HEAD = Struct(">HII")
_ENTRY_MARK = 0x0E01
_CODECS = frozenset(PulsarCodec)

# Fields of the metadata of an entry.
PRODUCER, SEQUENCE, PUBLISH_TIME, PROPERTY, KEY = 1, 2, 3, 4, 6
CODEC, RAW_BYTES, COUNT, EVENT_TIME, ENCRYPTION = 8, 9, 11, 12, 13
KEY_IN_BASE64, ORDERING_KEY, HIGHEST, NULL_VALUE = 17, 18, 24, 25
# Of a chunk of a message: which message, how many chunks, their bytes, and its number.
UUID, CHUNK_COUNT, CHUNKS_BYTES, CHUNK_NUMBER = 26, 27, 28, 29
# Fields of the metadata of a message in a batch.
ONE_PROPERTY, ONE_KEY, ONE_BYTES, ONE_EVENT_TIME, ONE_KEY_IN_BASE64, ONE_SEQUENCE = 1, 2, 3, 5, 6, 8

#: The property that names a message of a part: its batch_index there is another one than in the entry.
INDEX_PROPERTY = b"oncelog.index"
_REWRITTEN = {SEQUENCE, CODEC, RAW_BYTES, COUNT, HIGHEST}


def index_property(index: int) -> bytes:
    """A field of the metadata of a message in a batch. index: in the topic."""
    return bytes_field(ONE_PROPERTY, bytes_field(1, INDEX_PROPERTY) + bytes_field(2, b"%d" % index))


def split(entry: Buffer) -> tuple[bytes, memoryview]:
    """Metadata and payload of an entry. Raises InvalidBatch."""
    view = memoryview(entry)
    if len(view) < _HEAD.size:
        raise InvalidBatch(f"an entry of {len(view)} bytes is cut off", field="entry", limit=_HEAD.size)
    mark, _checksum, metadata_bytes = _HEAD.unpack_from(view)
    if mark != _ENTRY_MARK or metadata_bytes > len(view) - _HEAD.size:
        message = f"an entry begins with {mark:#06x}, and has metadata of {metadata_bytes} bytes"
        raise InvalidBatch(message, field="metadata_size", limit=len(view) - _HEAD.size)
    return bytes(view[_HEAD.size : _HEAD.size + metadata_bytes]), view[_HEAD.size + metadata_bytes :]


def has_field(metadata: bytes, field: int) -> bool:
    return any(each.field == field for each in fields_of(metadata))


def cut(entry: Buffer, count: int, kept: Sequence[int], *, indexes_from: int | None = None) -> tuple[bytes, bytes]:
    """Metadata and payload of a batch with some of its messages.

    count: of its messages. kept: the numbers of those that stay, ascending from 0. indexes_from: the index in the topic
    of message 0, if each one is to say its own; None: messages stay as they came. Raises InvalidBatch,
    CompressionUnavailable.
    """
    metadata, payload = split(entry)
    found = numbers_of(metadata)
    if found.get(COUNT) != count or ENCRYPTION in found:
        message = f"an entry of {count} messages counts {found.get(COUNT)}, or is encrypted: it cannot be cut"
        raise InvalidBatch(message, field="num_messages_in_batch", limit=count)
    raw = memoryview(expanded(found, payload))
    pieces: list[Buffer] = []
    ids: list[int] = []
    wanted = iter(kept)
    number = next(wanted)
    for at, (start, value_at, end, sequence_id) in enumerate(messages_in(raw, kept[-1] + 1)):
        if at != number:
            continue
        ids.append(found.get(SEQUENCE, 0) + at if sequence_id is None else sequence_id)
        if indexes_from is None:
            pieces.append(raw[start:end])
        else:
            one = bytes(raw[start + SIZE.size : value_at]) + index_property(indexes_from + at)
            pieces += (SIZE.pack(len(one)), one, raw[value_at:end])
        number = next(wanted, -1)
    rest = b"".join(pieces)
    as_written = b"".join(
        metadata[each.start : each.end] for each in fields_of(metadata) if each.field not in _REWRITTEN
    )
    highest = number_field(HIGHEST, ids[-1]) if HIGHEST in found else b""
    front = number_field(SEQUENCE, ids[0]) + number_field(RAW_BYTES, len(rest)) + number_field(COUNT, len(kept))
    return as_written + front + highest, rest


def numbers_of(metadata: bytes) -> dict[int, int]:
    """{field: its value, of kinds that are numbers, else the size}."""
    return {each.field: each.number for each in fields_of(metadata)}


def expanded(found: Mapping[int, int], payload: Buffer) -> Buffer:
    """The payload without the compression of its client. The owner has checked it before it was stored. found: of the
    metadata. Raises InvalidBatch, CompressionUnavailable."""
    codec, raw_bytes = found.get(CODEC, PulsarCodec.NONE), found.get(RAW_BYTES, 0)
    if codec not in _CODECS or raw_bytes > RAW_BYTES_MAX:
        message = f"compression {codec} with {raw_bytes} bytes in it is none of Pulsar's"
        raise InvalidBatch(message, field="compression", limit=RAW_BYTES_MAX)
    return expand_pulsar(PulsarCodec(codec), payload, raw_bytes)


def messages_in(raw: memoryview, count: int) -> Iterator[tuple[int, int, int, int | None]]:
    """The first messages of a batch: (where each begins, where its value does, its end, its sequence id or None).
    Raises InvalidBatch."""
    at = 0
    for number in range(count):
        if at + SIZE.size > len(raw):
            raise _cut_off(number, len(raw))
        value_at = at + SIZE.size + SIZE.unpack_from(raw, at)[0]
        one = {each.field: each.number for each in fields_of(bytes(raw[at + SIZE.size : value_at]))}
        end = value_at + one.get(ONE_BYTES, 0)
        if end > len(raw):
            raise _cut_off(number, len(raw))
        yield at, value_at, end, one.get(ONE_SEQUENCE)
        at = end


def _cut_off(number: int, limit: int) -> InvalidBatch:
    return InvalidBatch(f"message {number} of a batch is cut off", field="payload", limit=limit)
