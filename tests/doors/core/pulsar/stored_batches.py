"""Entries as the log holds them, for the tests of what clients of Pulsar are sent."""

from collections.abc import Mapping, Sequence

from oncelog.core.formats.batch import PayloadFormat, encode_batch, encode_deltas, peek_batch
from oncelog.core.formats.chunks import ChunkName, ChunkNames, encode_chunk_names
from oncelog.core.formats.columns import (
    Column,
    encode_column,
    encode_event_times,
    encode_keys,
    encode_properties,
    encode_values,
)
from oncelog.core.formats.compression import Compression, compress_payload
from oncelog.core.formats.entry import EntryHeader, EntryKind
from oncelog.core.ids import EntryId, Generation, LedgerId, OwnerEpoch, ProducerId, TopicId
from oncelog_doors.core.pulsar.deliveries import RawBatch
from tests.core.builders import checksum

PUBLISHED_MS, APPENDED_MS = 1_764_000_000_123, 1_764_000_000_456


def stored(
    data: bytes, *, ledger_id: int = 5, entry_id: int = 3, skip_first: int = 0, base_index: int = 100,
    producer_name: str | None = "importer",
) -> RawBatch:  # fmt: skip
    """data: the batch with its header."""
    batch = peek_batch(data)
    entry = EntryHeader(
        EntryKind.MESSAGES, LedgerId(ledger_id), EntryId(entry_id), EntryId(entry_id - 1), len(data), OwnerEpoch(1),
        APPENDED_MS + entry_id, base_index, skip_first, batch.count - skip_first, len(data), TopicId("0f" * 16),
    )  # fmt: skip
    return RawBatch(entry, batch, memoryview(data), producer_name)


def columns(
    values: Sequence[bytes],
    ids: Sequence[int] | None = None,
    *,
    keys: Sequence[bytes | None] | None = None,
    times_ms: Sequence[int | None] | None = None,
    properties: Sequence[Mapping[str, str]] | None = None,
    compression: Compression = Compression.NONE,
    publish_time_ms: int = PUBLISHED_MS,
) -> bytes:
    """A batch of the SDK."""
    ids = range(len(values)) if ids is None else ids
    raw = encode_values(values)
    if keys is not None:
        raw += encode_keys(keys)
    if times_ms is not None:
        raw += encode_event_times(times_ms)
    if properties is not None:
        raw += encode_properties(properties)
    payload = compress_payload(raw, compression)
    return encode_batch(
        payload, producer_id=ProducerId(1), generation=Generation(1), first=ids[0], last=ids[-1], count=len(ids),
        publish_time_ms=publish_time_ms, checksum=checksum, deltas=encode_deltas(ids), compression=compression,
        payload_raw_bytes=len(raw),
    )  # fmt: skip


def in_chunks(
    chunks: Sequence[bytes], sequence_id: int = 7, *, metadata: bytes | None = None, key: bytes | None = None
) -> bytes:
    """A message in chunks, which are in front of it. metadata: of a client of Pulsar."""
    names = [ChunkName(EntryId(number), 1) for number in range(len(chunks))]
    payload = encode_values([b""])
    if key is not None:
        payload += encode_keys([key])
    if metadata is not None:
        payload += encode_column(Column.PULSAR, [metadata])
    payload += encode_chunk_names(ChunkNames(LedgerId(5), sum(map(len, chunks)), tuple(names)))
    return encode_batch(
        payload, producer_id=ProducerId(1), generation=Generation(1), first=sequence_id, last=sequence_id, count=1,
        publish_time_ms=PUBLISHED_MS, checksum=checksum, payload_format=PayloadFormat.CHUNKED,
    )  # fmt: skip


def of_client(entry: bytes, ids: Sequence[int], *, publish_time_ms: int = PUBLISHED_MS, unit: bool = False) -> bytes:
    """A batch that holds the entry of a client. ids: of its messages; of a unit, as many, of which the ends count."""
    return encode_batch(
        entry, producer_id=ProducerId(1), generation=Generation(1), first=ids[0], last=ids[-1], count=len(ids),
        publish_time_ms=publish_time_ms, checksum=checksum, deltas=b"" if unit else encode_deltas(ids),
        payload_format=PayloadFormat.PULSAR, unit=unit,
    )  # fmt: skip
