"""Entries as a client of Pulsar reads them: by protobuf, without the code that writes them."""

import struct
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from crc32c import crc32c

from oncelog.core.formats.wire.pulsar_metadata_pb2 import EntryMetadata, MessageMetadata


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
