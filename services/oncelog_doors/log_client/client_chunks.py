"""A chunk as a client of Pulsar has sent it: checked before it is stored, and packed for the log.

    [metadata of the message, with uuid, number and count of chunks, bytes of all][a part of the value]

The part of the value becomes a chunk of the log, as those of the SDK (`oncelog.core.formats.chunks`). The metadata of
the last chunk becomes the message that names them: its columns for everyone, and as it came for clients of Pulsar. So
readers of the SDK, and everything else that knows chunks, read the message as one.

Clients compress and encrypt a value before they cut it. Then no reader of the SDK could join the message, so it is
refused. An ordering key is, too: consumers get messages in chunks by their key alone.
"""

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from oncelog.client.gateways import PackedEntry
from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.batch import PayloadFormat
from oncelog.core.formats.chunks import (
    CHUNKED_BYTES_MAX,
    CHUNKS_MAX,
    ChunkNames,
    encode_chunk,
    encode_chunk_names,
)
from oncelog.core.formats.columns import (
    Column,
    encode_column,
    encode_event_times,
    encode_keys,
    encode_properties,
    encode_values,
)
from oncelog.core.formats.pulsar import PulsarMessages, open_metadata
from oncelog.core.ids import SequenceId
from oncelog.core.sdk.producer.sequence_ids import BatchIds
from oncelog_doors.core.pulsar.chunked_sends import ChunkPlace
from oncelog_doors.core.pulsar.entry_cuts import (
    CHUNK_COUNT,
    CHUNK_NUMBER,
    CHUNKS_BYTES,
    CODEC,
    COUNT,
    ENCRYPTION,
    NULL_VALUE,
    ORDERING_KEY,
    UUID,
    split,
)
from oncelog_doors.core.pulsar.protobuf_fields import FoundField, fields_of
from oncelog_doors.core.pulsar.verdicts import Ids, Rejected

_HEAD = Struct(">HII")
_CHECKED_FROM = 6
_UUID_BYTES_MAX = 32 * 1024
_OF_CHUNKS = {UUID, CHUNK_COUNT, CHUNKS_BYTES, CHUNK_NUMBER}
#: {field of the metadata: why a message in chunks with it, other than 0, is not stored}
_NOT_STORED = {
    COUNT: "a batch is not sent in chunks",
    CODEC: "messages in chunks are stored without compression: switch it off for this producer, or compress the value "
    "in your program",
    NULL_VALUE: "a null value has no chunks",
}
#: {the same, with any content}
_NEVER_STORED = {
    ENCRYPTION: "messages in chunks are stored without encryption: encrypt the value in your program",
    ORDERING_KEY: "messages in chunks are delivered by their key: send them without an ordering key",
}


class PreparedChunk(NamedTuple):
    """sent: of this message; its metadata is that of this chunk, without what it says of chunks."""

    ids: Ids
    place: ChunkPlace
    data: memoryview
    sent: PulsarMessages
    metadata: bytes

    @property
    def key(self) -> bytes | None:
        return None if self.sent.keys is None else self.sent.keys[0]

    def packed(self, offset: int) -> PackedEntry:
        """The chunk for the log. offset: of its bytes in the value."""
        return self._packed(encode_chunk(offset, self.data), PayloadFormat.CHUNK)

    def message(self, names: ChunkNames) -> PackedEntry:
        """The message that names its chunks. Of the last one. Raises InvalidArgument."""
        sent = self.sent
        columns = [encode_values([b""])]
        if sent.keys is not None:
            columns.append(encode_keys(sent.keys))
        if sent.event_times_ms is not None:
            columns.append(encode_event_times(sent.event_times_ms))
        if sent.properties is not None:
            columns.append(encode_properties(sent.properties))
        columns += [encode_column(Column.PULSAR, [self.metadata]), encode_chunk_names(names)]
        return self._packed(b"".join(columns), PayloadFormat.CHUNKED)

    def _packed(self, payload: bytes, payload_format: PayloadFormat) -> PackedEntry:
        number = SequenceId(self.ids.sequence_id)
        return PackedEntry(payload, 1, BatchIds(number, number), payload_format, self.sent.publish_time_ms)


def prepared_chunk(
    entry: bytes, ids: Ids, message_count: int, *, producer_name: str, bytes_max: int
) -> PreparedChunk | Rejected:
    """ids, message_count: of SEND. bytes_max: the log's limit of a batch."""
    if len(entry) > bytes_max:
        return Rejected(f"a chunk of {len(entry)} bytes exceeds the limit of the log, {bytes_max}")
    try:
        _mark, checksum, _size = _HEAD.unpack_from(entry)
        if crc32c(memoryview(entry)[_CHECKED_FROM:]) != checksum:
            return Rejected(f"sequence id {ids}: the checksum of a chunk does not match its bytes")
        metadata, data = split(entry)
        fields = list(fields_of(metadata))
        refusal = _refusal(fields, len(data))
        if refusal is not None:
            return Rejected(f"sequence id {ids}: {refusal}")
        place = _place(fields, metadata)
        rest = b"".join(metadata[each.start : each.end] for each in fields if each.field not in _OF_CHUNKS)
        sent = open_metadata(rest)
    except InvalidArgument as error:
        return Rejected(f"sequence id {ids}: {error}")
    if sent.producer_name != producer_name:
        return Rejected(
            f"sequence id {ids}: the chunk names the producer {sent.producer_name[:100]!r}, and was sent by "
            f"{producer_name!r}"
        )
    if (sent.first, ids.last, message_count) != (ids.sequence_id, ids.sequence_id, 1):
        return Rejected(f"sequence id {ids}: the chunk has the sequence id {sent.first}, and 1 message")
    return PreparedChunk(ids, place, data, sent, rest)


def _refusal(fields: list[FoundField], data_bytes: int) -> str | None:
    for each in fields:
        if each.field in _NEVER_STORED or (each.field in _NOT_STORED and each.number):
            return _NEVER_STORED.get(each.field) or _NOT_STORED[each.field]
    found = {each.field: each.number for each in fields}
    for field, name in ((UUID, "uuid"), (CHUNK_COUNT, "num_chunks_from_msg"), (CHUNK_NUMBER, "chunk_id")):
        if field not in found:
            return f"a chunk has no {name}"
    count, total, number = found[CHUNK_COUNT], found.get(CHUNKS_BYTES, 0), found[CHUNK_NUMBER]
    if not 2 <= count <= CHUNKS_MAX:
        return f"num_chunks_from_msg is {count}, and at most {CHUNKS_MAX} chunks are stored: send larger ones"
    if number >= count:
        return f"chunk_id {number} is not below num_chunks_from_msg, {count}"
    if not count <= total <= CHUNKED_BYTES_MAX:
        return f"total_chunk_msg_size is {total}, at least {count} and at most {CHUNKED_BYTES_MAX} are stored"
    if not data_bytes:
        return f"chunk {number} has no bytes"
    if found[UUID] > _UUID_BYTES_MAX:
        return f"uuid has {found[UUID]} bytes, above {_UUID_BYTES_MAX}"
    return None


def _place(fields: list[FoundField], metadata: bytes) -> ChunkPlace:
    found = {each.field: each for each in fields}
    uuid = found[UUID]
    return ChunkPlace(
        metadata[uuid.content_at : uuid.end], found[CHUNK_NUMBER].number, found[CHUNK_COUNT].number,
        found[CHUNKS_BYTES].number,
    )  # fmt: skip
