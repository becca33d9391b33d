"""Entries as a client of Pulsar reads and writes them: by protobuf, without the code that makes those of a door."""

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from crc32c import crc32c

from oncelog.core.formats.wire.pulsar_metadata_pb2 import EntryMetadata, MessageMetadata, Property
from oncelog_doors.pulsar.frames import build_entry
from tests.doors.core.pulsar.stored_batches import PUBLISHED_MS


class Got(NamedTuple):
    """One message, as a client reads it. value: None: null."""

    sequence_id: int
    value: bytes | None
    key: bytes = b""
    key_in_base64: bool = False
    event_time: int = 0
    properties: Mapping[str, str] = {}


def read(entry: bytes) -> tuple[EntryMetadata, list[Got]]:
    """As a client does it, by protobuf."""
    mark, checksum, size = struct.unpack_from(">HII", entry)
    assert mark == 0x0E01
    assert checksum == crc32c(entry[6:])
    metadata = EntryMetadata.FromString(entry[10 : 10 + size])
    payload = entry[10 + size :]
    if metadata.codec == 2:
        payload = zlib.decompress(payload)
        assert len(payload) == metadata.raw_bytes
    if not metadata.HasField("count"):
        return metadata, [got(metadata, payload)]
    messages, at = [], 0
    for _ in range(metadata.count):
        (size,) = struct.unpack_from(">I", payload, at)
        one = MessageMetadata.FromString(payload[at + 4 : at + 4 + size])
        at += 4 + size + one.payload_bytes
        messages.append(got(one, payload[at - one.payload_bytes : at]))
    assert at == len(payload)
    return metadata, messages


def got(metadata: EntryMetadata | MessageMetadata, value: bytes) -> Got:
    properties = {each.name: each.value for each in metadata.properties}
    shown = None if metadata.null_value else value
    return Got(metadata.sequence_id, shown, metadata.key, metadata.key_in_base64, metadata.event_time, properties)


def client_entry(ids: Sequence[int], *, codec: int = 0, with_ids: bool = True, **more: Any) -> bytes:
    """A batch of a client, with everything that its messages may have."""
    payload = b""
    for number in ids:
        value = b"value %d" % number
        one = MessageMetadata(payload_bytes=len(value), key=b"k%d" % number, event_time=number)
        if with_ids:
            one.sequence_id = number
        if number % 3 == 0:
            value, one.payload_bytes, one.null_value = b"", 0, True
        one.properties.append(Property(name="n", value=str(number)))
        data = one.SerializeToString()
        payload += struct.pack(">I", len(data)) + data + value
    metadata = EntryMetadata(
        producer_name="importer", sequence_id=ids[0], publish_time=PUBLISHED_MS, count=len(ids),
        highest_sequence_id=ids[-1], codec=codec, raw_bytes=len(payload), schema_version=b"\x00\x07", **more,
    )  # fmt: skip
    # A field that is not known here.
    known = metadata.SerializeToString() + b"\x82\x02\x03abc"
    return build_entry(known, zlib.compress(payload) if codec == 2 else payload)
