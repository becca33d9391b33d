"""Entries as clients of Pulsar write them, made by protobuf and by hand: nothing here is the code that reads them.

The layouts are those of the Java client 4.0, the C++ client 4.2 (also Python and Node) and the Go client 0.15.
"""

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import cramjam
import lz4.block
import zstandard

from oncelog.core.formats.batch import Buffer, Checksum, PayloadFormat, encode_batch, encode_deltas
from oncelog.core.formats.pulsar import PulsarMessages
from oncelog.core.formats.wire.pulsar_metadata_pb2 import EncryptionKey, EntryMetadata, MessageMetadata, Property
from oncelog.core.ids import Generation, ProducerId
from tests.core.builders import PID, checksum

LZ4, ZLIB, ZSTD, SNAPPY = 1, 2, 3, 4


@dataclass(frozen=True)
class Sent:
    """One message that an application sends. value None: null."""

    sequence_id: int
    value: bytes | None = b""
    key: bytes | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time_ms: int = 0
    ordering_key: bytes | None = None


def numbered(ids: Sequence[int]) -> list[Sent]:
    return [Sent(number, b"value %d" % number) for number in ids]


def packed(codec: int, raw: bytes) -> bytes:
    match codec:
        case 1:
            return bytes(lz4.block.compress(raw, store_size=False))
        case 2:
            return zlib.compress(raw)
        case 3:
            return zstandard.ZstdCompressor().compress(raw)
        case 4:
            return bytes(cramjam.snappy.compress_raw(raw))
    return raw


def framed(metadata: bytes, payload: bytes) -> bytes:
    """The bytes from the mark on."""
    checked = len(metadata).to_bytes(4, "big") + metadata + payload
    return b"\x0e\x01" + checksum(checked, 0).to_bytes(4, "big") + checked


def summed(entry: bytes, by: Checksum) -> bytes:
    """The entry with this checksum, as clients write CRC32C."""
    return entry[:2] + by(entry[6:], 0).to_bytes(4, "big") + entry[6:]


def _described(metadata: EntryMetadata | MessageMetadata, sent: Sent) -> None:
    metadata.properties.extend(Property(name=name, value=value) for name, value in sent.properties.items())
    if sent.key is not None:
        try:
            sent.key.decode()
            metadata.key = sent.key
        except UnicodeDecodeError:
            metadata.key, metadata.key_in_base64 = base64.b64encode(sent.key), True
    if sent.event_time_ms:
        metadata.event_time = sent.event_time_ms
    if sent.ordering_key is not None:
        metadata.ordering_key = sent.ordering_key
    if sent.value is None:
        metadata.null_value = True


def outer(first: int, *, producer: str = "p", publish_time_ms: int = 1_764_000_000_000) -> EntryMetadata:
    return EntryMetadata(producer_name=producer, sequence_id=first, publish_time=publish_time_ms)


def inner(sent: Sequence[Sent], *, with_ids: bool = True) -> bytes:
    """The payload of a batch."""
    out = b""
    for each in sent:
        value = each.value or b""
        metadata = MessageMetadata(payload_bytes=len(value))
        if with_ids:
            metadata.sequence_id = each.sequence_id
        _described(metadata, each)
        data = metadata.SerializeToString()
        out += len(data).to_bytes(4, "big") + data + value
    return out


def finished(metadata: EntryMetadata, raw: bytes, codec: int = 0) -> bytes:
    if codec:
        metadata.codec = codec
    metadata.raw_bytes = len(raw)
    return framed(metadata.SerializeToString(), packed(codec, raw))


def plain(sent: Sent, *, producer: str = "p", codec: int = 0) -> bytes:
    """One message that is no batch."""
    metadata = outer(sent.sequence_id, producer=producer)
    _described(metadata, sent)
    return finished(metadata, sent.value or b"", codec)


def batched(
    sent: Sequence[Sent], *, producer: str = "p", codec: int = 0, with_ids: bool = True, with_highest: bool = True
) -> bytes:
    """with_ids False: a client that writes no id into messages. with_highest False: nor the highest one."""
    metadata = outer(sent[0].sequence_id, producer=producer)
    metadata.count = len(sent)
    if with_highest:
        metadata.highest_sequence_id = sent[-1].sequence_id
    return finished(metadata, inner(sent, with_ids=with_ids), codec)


def of_one_key(sent: Sequence[Sent], *, producer: str = "p", codec: int = 0) -> bytes:
    """A batch of Java's key-based builder: it is known by its highest id alone."""
    metadata = outer(sent[-1].sequence_id, producer=producer)
    metadata.highest_sequence_id = sent[-1].sequence_id
    metadata.count = len(sent)
    if (key := sent[0].key) is not None:
        metadata.key = key
    return finished(metadata, inner(sent), codec)


def encrypted(
    first: int, last: int | None = None, *, count: int | None = None, producer: str = "p", key: bytes | None = None,
    ciphertext: bytes = bytes(range(256)),
) -> bytes:  # fmt: skip
    """count None: no batch."""
    metadata = outer(first, producer=producer)
    if last is not None:
        metadata.highest_sequence_id = last
    if count is not None:
        metadata.count = count
    if key is not None:
        metadata.key = key
    metadata.encryption_keys.append(EncryptionKey(name="our-key", key=b"\x01\x02"))
    metadata.encryption_algorithm = "AES"
    metadata.encryption_parameters = bytes(12)
    metadata.raw_bytes = len(ciphertext) - 16
    return framed(metadata.SerializeToString(), ciphertext)


def as_batch(
    entry: bytes, ids: Sequence[int], *, unit: bool = False, count: int | None = None, pid: int = PID,
    generation: int = 1, publish_time_ms: int = 1_764_000_000_000,
) -> bytes:  # fmt: skip
    """Our header before an entry. ids: of a unit its first and its last one."""
    return encode_batch(
        entry,
        producer_id=ProducerId(pid),
        generation=Generation(generation),
        first=ids[0],
        last=ids[-1],
        count=len(ids) if count is None else count,
        publish_time_ms=publish_time_ms,
        checksum=checksum,
        deltas=b"" if unit else encode_deltas(ids),
        payload_format=PayloadFormat.PULSAR,
        unit=unit,
    )


def pack_pulsar(
    entry: Buffer, messages: PulsarMessages, *, producer_id: ProducerId, generation: Generation, checksum: Checksum
) -> bytes:
    """The batch that holds the entry of a client of Pulsar. messages: as `open_entry` has read them in it."""
    return encode_batch(
        entry,
        producer_id=producer_id,
        generation=generation,
        first=messages.first,
        last=messages.last,
        count=messages.count,
        publish_time_ms=messages.publish_time_ms,
        checksum=checksum,
        deltas=b"" if messages.unit or messages.ids is None else encode_deltas(messages.ids),
        payload_format=PayloadFormat.PULSAR,
        unit=messages.unit,
    )
