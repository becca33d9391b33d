"""A message whose value is in chunks: how a chunk, and the message that names its chunks, are packed.

    CHUNK     u64 offset of the chunk in the value, then the chunk's bytes
    CHUNKED   the columns of one message (see `columns`): an empty value, its key, event time and properties if it has
              them, and the column CHUNKS: u64 ledger id, u64 bytes of the value, u32 chunks, u32 zero, then for each
              chunk u64 entry id, u32 CRC32C of its batch

Both are payloads of a batch of one message (see `batch`), uncompressed. All chunks are in the ledger of their message.
The checksum of a batch covers its header and its bytes, so the checksums that a message names fix its whole value.
"""

import itertools
from struct import Struct
from typing import NamedTuple

from oncelog.core.errors import InvalidBatch
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.columns import COLUMN_HEADER_BYTES, Column, encode_column, split_columns
from oncelog.core.ids import EntryId, LedgerId

#: The largest value of a message in chunks.
CHUNKED_BYTES_MAX = 1 << 30
#: What readers and consumers join, unless their client says otherwise.
CHUNKED_BYTES_DEFAULT = 64 * 1024 * 1024
#: So that the message that names them fits beside the largest key and properties.
CHUNKS_MAX = 4096

_OFFSET = Struct("<Q")
_HEAD = Struct("<QQII")
_CHUNK = Struct("<QI")
OFFSET_BYTES = _OFFSET.size


class ChunkName(NamedTuple):
    """entry_id: in the ledger of the message. checksum: of the chunk's batch, as in its header."""

    entry_id: EntryId
    checksum: int


class ChunkNames(NamedTuple):
    """What a message says of its chunks, in the order of the value. value_bytes: of all of them."""

    ledger_id: LedgerId
    value_bytes: int
    chunks: tuple[ChunkName, ...]


def encode_chunk(offset: int, data: Buffer) -> bytes:
    return _OFFSET.pack(offset) + data


def decode_chunk(payload: Buffer) -> tuple[int, memoryview]:
    """(offset, bytes) of a CHUNK. Raises InvalidBatch."""
    if len(payload) <= OFFSET_BYTES:
        raise InvalidBatch("a chunk has no bytes", field="payload")
    (offset,) = _OFFSET.unpack_from(payload)
    if offset + len(payload) - OFFSET_BYTES > CHUNKED_BYTES_MAX:
        message = f"a chunk at {offset} is beyond the largest value in chunks, {CHUNKED_BYTES_MAX} bytes"
        raise InvalidBatch(message, field="payload", limit=CHUNKED_BYTES_MAX)
    return offset, memoryview(payload)[OFFSET_BYTES:]


def encode_chunk_names(names: ChunkNames) -> bytes:
    """The column CHUNKS, for behind the others."""
    head = _HEAD.pack(names.ledger_id, names.value_bytes, len(names.chunks), 0)
    return encode_column(Column.CHUNKS, [head, *(_CHUNK.pack(*chunk) for chunk in names.chunks)])


def names_bytes(chunks: int) -> int:
    """Bytes of the column CHUNKS of a message with so many."""
    return COLUMN_HEADER_BYTES + _HEAD.size + chunks * _CHUNK.size


def decode_chunk_names(payload: Buffer) -> ChunkNames:
    """Of a CHUNKED payload. Raises InvalidBatch, before anything is built from a count that the bytes do not hold."""
    columns = split_columns(payload, 1)
    content = columns.get(Column.CHUNKS)
    if content is None or len(content) < _HEAD.size:
        raise InvalidBatch("a message in chunks does not name them", field="payload")
    ledger_id, value_bytes, count, zero = _HEAD.unpack_from(content)
    if zero or not 1 <= count <= CHUNKS_MAX or len(content) != _HEAD.size + count * _CHUNK.size:
        raise InvalidBatch(f"{count} chunks contradict their bytes, or {CHUNKS_MAX}", field="payload", limit=CHUNKS_MAX)
    if not count <= value_bytes <= CHUNKED_BYTES_MAX:
        message = f"a value of {value_bytes} bytes contradicts its {count} chunks, or the limit of {CHUNKED_BYTES_MAX}"
        raise InvalidBatch(message, field="payload", limit=CHUNKED_BYTES_MAX)
    chunks = tuple(ChunkName(EntryId(at), crc) for at, crc in _CHUNK.iter_unpack(content[_HEAD.size :]))
    if any(after.entry_id <= before.entry_id for before, after in itertools.pairwise(chunks)):
        raise InvalidBatch("the entries of the chunks do not ascend", field="payload")
    return ChunkNames(LedgerId(ledger_id), value_bytes, chunks)
