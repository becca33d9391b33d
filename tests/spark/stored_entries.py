"""Entries as a log stores them, for tests of readers."""

from collections.abc import Mapping, Sequence

from crc32c import crc32c

from oncelog.client.values.messages import StoredBatch, open_entry
from oncelog.core.formats.batch import encode_batch, encode_deltas
from oncelog.core.formats.columns import (
    encode_event_times,
    encode_keys,
    encode_properties,
    encode_values,
)
from oncelog.core.formats.compression import Compression, compress_payload
from oncelog.core.formats.entry import EntryHeader, EntryKind, encode_header
from oncelog.core.ids import EntryId, Generation, LedgerId, OwnerEpoch, ProducerId, TopicId

TOPIC_ID = TopicId("0123456789abcdef0123456789abcdef")


def stored_entry(
    values: Sequence[bytes],
    *,
    base_index: int = 0,
    skip_first: int = 0,
    ids: Sequence[int] | None = None,
    keys: Sequence[bytes | None] | None = None,
    event_times_ms: Sequence[int | None] | None = None,
    properties: Sequence[Mapping[str, str]] | None = None,
    compression: Compression = Compression.NONE,
    producer_id: int = 7,
    place: tuple[int, int] = (3, 4),
) -> bytes:
    """One entry; ids default to 0, 1, 2 …"""
    payload = encode_values(values)
    if keys is not None:
        payload += encode_keys(keys)
    if event_times_ms is not None:
        payload += encode_event_times(event_times_ms)
    if properties is not None:
        payload += encode_properties(properties)
    ids = range(len(values)) if ids is None else ids
    batch = encode_batch(
        compress_payload(payload, compression), producer_id=ProducerId(producer_id), generation=Generation(1),
        first=ids[0], last=ids[-1], count=len(values), publish_time_ms=1_000, checksum=crc32c,
        deltas=encode_deltas(ids), compression=compression, payload_raw_bytes=len(payload),
    )  # fmt: skip
    header = EntryHeader(
        EntryKind.MESSAGES, LedgerId(place[0]), EntryId(place[1]), EntryId(-1), 0, OwnerEpoch(1), 2_000, base_index,
        skip_first, len(values) - skip_first, len(batch), TOPIC_ID,
    )  # fmt: skip
    return encode_header(header, batch, crc32c) + batch


def opened(data: bytes) -> StoredBatch:
    return open_entry(data, crc32c)
