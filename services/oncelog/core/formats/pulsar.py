"""The payload format PULSAR: one entry of a client of Pulsar, as it came.

    [0x0e01][CRC32C][metadata size][metadata][payload]

Numbers are big-endian: the mark has two bytes, the others four. The checksum is over everything behind it. Metadata is
a protobuf message (`wire.pulsar_metadata`). It says how the payload is compressed and what the payload is:

    without a count    the value of one message, of which the metadata has key, properties and the like
    with a count       so many times [size][metadata of the message][value], numbers of four bytes
    with encryption    bytes that only a program with the producer's key can read; they hold one of the two

`open_entry` is the only reader of these bytes. `check_entry` is for the owner and for a gateway, who check them before
they are stored: it refuses what `open_entry` cannot read, and builds nothing of messages that are plain
(`checks.plain`). No byte of an entry is built again.

Ids
- Each message of a batch has an id of its own. They ascend, and the metadata has the first and perhaps the last one.
- Clients that write no ids into messages: the ids are those from the first to the last one, if that is their count.
- UNIT (`batch`): a batch of one key from Java has the highest id alone, because batches of other keys have ids between
  its own. Encrypted batches do not show the ids of their messages. Both are stored as a whole, or not at all.

Received bytes are untrusted: what contradicts itself raises InvalidBatch, which names the field and its limit, before
anything larger than the bytes, or than `raw_bytes_max`, is allocated.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping, Sequence
from operator import lt
from struct import Struct
from typing import NamedTuple

from google.protobuf.message import DecodeError

from oncelog.core.errors import InvalidBatch, MessageTooLarge
from oncelog.core.formats.batch import LONG_CHECK_BYTES, LONG_CHECK_COUNT, SPARSE_IDS_MAX, Buffer, Checksum
from oncelog.core.formats.checks.plain import are_plain_messages
from oncelog.core.formats.compression import PulsarCodec, expand_pulsar
from oncelog.core.formats.encryption import Encryption
from oncelog.core.formats.wire.pulsar_metadata_pb2 import EntryMetadata, MessageMetadata, Property
from oncelog.core.ids import SEQUENCE_ID_MAX, SequenceId

MARK = 0x0E01
_HEAD = Struct(">HII")
HEAD_BYTES = _HEAD.size
#: The checksum is over the bytes from here on.
_CHECKED_FROM = 6
_SIZE = Struct(">I")
#: Of two fields with numbers below 16.
_TAGS_BYTES = 2
#: A payload may be so many times as large as the largest message when it is decompressed.
EXPANSION_MAX = 16
#: Of readers, who do not know the limit of the owner: that of the largest owner.
RAW_BYTES_MAX = EXPANSION_MAX * 16 * 1024 * 1024
#: Of one entry; a message takes at least a few bytes, and clients send at most some thousands.
COUNT_MAX = SPARSE_IDS_MAX
TEXT_BYTES_MAX = 32 * 1024
PROPERTIES_MAX = 1000
_CODECS = frozenset(PulsarCodec)
#: {field of the metadata: why an entry with it is not stored}
_NOT_STORED = {
    "chunks": "is a part of a message in chunks",
    "deliver_at_time": "is to be delivered later",
    "marker_type": "is a marker of a broker",
    "transaction_low": "belongs to a transaction",
    "transaction_high": "belongs to a transaction",
    "replicated_from": "is a copy of another cluster",
}


class EntryHead(NamedTuple):
    """What an entry says of all its messages together. first, last, unit: as in `BatchHeader`. ids: of each message;
    None if only its producer can read them."""

    producer_name: str
    publish_time_ms: int
    first: SequenceId
    last: SequenceId
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here
    unit: bool
    ids: Sequence[int] | None


class PulsarMessages(NamedTuple):
    """The messages of one entry. A list that no message has anything for is None, others have `count` items.

    The first fields are as in EntryHead.
    values: empty if the entry is encrypted; nulls: the indexes of messages whose value is null. ordering_keys: by what
    key_shared subscriptions deliver, where it is not the key. encryption: then keys and properties are those that the
    entry shows.
    """

    producer_name: str
    publish_time_ms: int
    first: SequenceId
    last: SequenceId
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here
    unit: bool
    ids: Sequence[int] | None
    values: Sequence[bytes] = ()
    nulls: Sequence[int] = ()
    keys: Sequence[bytes | None] | None = None
    ordering_keys: Sequence[bytes | None] | None = None
    event_times_ms: Sequence[int | None] | None = None
    properties: Sequence[Mapping[str, str]] | None = None
    encryption: Encryption | None = None


def open_entry(
    entry: Buffer, *, raw_bytes_max: int = RAW_BYTES_MAX, checksum: Checksum | None = None
) -> PulsarMessages:
    """Read one entry. raw_bytes_max: of its payload, decompressed. checksum: None: the entry's own is not compared,
    because the bytes around it are.

    Raises InvalidBatch, MessageTooLarge, CompressionUnavailable.
    """
    return _messages(*_outer(entry, checksum), raw_bytes_max)


def check_entry(entry: Buffer, *, raw_bytes_max: int = RAW_BYTES_MAX, checksum: Checksum | None = None) -> EntryHead:
    """Raises as `open_entry` does, for the same entries."""
    metadata, payload = _outer(entry, checksum)
    first, count = metadata.sequence_id, metadata.count
    last = first + count - 1
    if 1 <= count <= COUNT_MAX and not metadata.encryption_keys and metadata.highest_sequence_id in (0, last):
        raw = _expanded(metadata, payload, raw_bytes_max)
        if last <= SEQUENCE_ID_MAX and are_plain_messages(raw, count, first):
            ids = range(first, last + 1)
            return EntryHead(
                metadata.producer_name, metadata.publish_time, SequenceId(first), SequenceId(last), count, False, ids
            )
        found = _batch(metadata, raw, count)
    else:
        found = _messages(metadata, payload, raw_bytes_max)
    return EntryHead(
        found.producer_name, found.publish_time_ms, found.first, found.last, found.count, found.unit, found.ids
    )


def open_metadata(metadata: Buffer) -> PulsarMessages:
    """What the metadata of a message says of it, without its value. It says nothing of chunks. Raises InvalidBatch."""
    return open_entry(_HEAD.pack(MARK, 0, len(metadata)) + metadata)


def pulsar_takes_long(entry: Buffer) -> bool:
    """Whether reading an entry takes long, by what it says. False also of one that cannot be read."""
    if len(entry) > LONG_CHECK_BYTES:
        return True
    try:
        metadata, _ = _outer(entry, None)
    except InvalidBatch:
        return False
    return metadata.raw_bytes > LONG_CHECK_BYTES or metadata.count > LONG_CHECK_COUNT


# --- the metadata of the entry ----------------------------------------------------------------------------------------


def _outer(entry: Buffer, checksum: Checksum | None) -> tuple[EntryMetadata, memoryview]:
    """Metadata and payload, as it is stored."""
    view = memoryview(entry)
    if len(view) < HEAD_BYTES:
        raise InvalidBatch(f"an entry of {len(view)} bytes is cut off", field="entry", limit=HEAD_BYTES)
    mark, stated, metadata_bytes = _HEAD.unpack_from(view)
    if mark != MARK:
        raise InvalidBatch(f"an entry begins with {mark:#06x}, and not with {MARK:#06x}", field="magic")
    if metadata_bytes > len(view) - HEAD_BYTES:
        message = f"an entry of {len(view)} bytes has metadata of {metadata_bytes} bytes"
        raise InvalidBatch(message, field="metadata_size", limit=len(view) - HEAD_BYTES)
    if checksum is not None and checksum(view[_CHECKED_FROM:], 0) != stated:
        raise InvalidBatch("the checksum of an entry does not match its bytes", field="checksum")
    try:
        metadata = EntryMetadata.FromString(bytes(view[HEAD_BYTES : HEAD_BYTES + metadata_bytes]))
    except DecodeError as error:
        raise InvalidBatch("the metadata of an entry cannot be read", field="metadata") from error
    _check_outer(metadata)
    return metadata, view[HEAD_BYTES + metadata_bytes :]


def _check_outer(metadata: EntryMetadata) -> None:
    for name in ("producer_name", "sequence_id", "publish_time"):
        if not metadata.HasField(name):
            raise InvalidBatch(f"the metadata of an entry has no {name}", field=name)
    for name, why in _NOT_STORED.items():
        if metadata.HasField(name) and (name != "chunks" or metadata.chunks > 1):  # type: ignore[arg-type]
            raise InvalidBatch(f"the entry {why}: such messages are not stored", field=name)
    _check_id(metadata.sequence_id, "sequence_id")
    _check_id(metadata.highest_sequence_id, "highest_sequence_id")
    _check_id(metadata.publish_time, "publish_time")
    _check_text(len(metadata.producer_name), "producer_name")


def _check_id(number: int, field: str) -> None:
    if number > SEQUENCE_ID_MAX:
        raise InvalidBatch(f"{field} {number} is above {SEQUENCE_ID_MAX}", field=field, limit=SEQUENCE_ID_MAX)


def _check_text(size: int, field: str) -> None:
    if size > TEXT_BYTES_MAX:
        raise InvalidBatch(f"{field} has {size} bytes, above {TEXT_BYTES_MAX}", field=field, limit=TEXT_BYTES_MAX)


def _expanded(metadata: EntryMetadata, payload: memoryview, raw_bytes_max: int) -> bytes:
    """The payload without its compression."""
    if metadata.codec not in _CODECS:
        raise InvalidBatch(f"compression {metadata.codec} is none of Pulsar's", field="compression", limit=max(_CODECS))
    codec = PulsarCodec(metadata.codec)
    raw_bytes = len(payload) if codec is PulsarCodec.NONE else metadata.raw_bytes
    if raw_bytes > raw_bytes_max:
        message = f"a payload of {raw_bytes} bytes without its compression exceeds the limit of {raw_bytes_max}"
        raise MessageTooLarge(message, field="uncompressed_size", limit=raw_bytes_max)
    return bytes(expand_pulsar(codec, payload, raw_bytes))


# --- messages ---------------------------------------------------------------------------------------------------------


def _messages(metadata: EntryMetadata, payload: memoryview, raw_bytes_max: int) -> PulsarMessages:
    count = metadata.count if metadata.HasField("count") else 1
    if not 1 <= count <= COUNT_MAX:
        raise InvalidBatch(f"a batch counts {count} messages", field="num_messages_in_batch", limit=COUNT_MAX)
    if metadata.encryption_keys:
        return _encrypted(metadata, count)
    raw = _expanded(metadata, payload, raw_bytes_max)
    if not metadata.HasField("count"):
        return _one(metadata, raw)
    return _batch(metadata, raw, count)


def _encrypted(metadata: EntryMetadata, count: int) -> PulsarMessages:
    """What the entry shows of its messages. One that is no batch has an id that everyone can read."""
    batch = metadata.HasField("count")
    first = last = metadata.sequence_id
    if batch and metadata.highest_sequence_id:
        last = metadata.highest_sequence_id
        if last < first or first < last < first + count - 1:
            raise _contradicted(first, last, count)
    key = _key_of(metadata)
    keys = None if key is None else [key] * count
    ordering = metadata.ordering_key if metadata.HasField("ordering_key") else None
    _check_text(len(ordering or b""), "ordering_key")
    properties = _properties_of(metadata.properties)
    return PulsarMessages(
        metadata.producer_name,
        metadata.publish_time,
        SequenceId(first),
        SequenceId(last),
        count,
        batch,
        None if batch else [first],
        keys=keys,
        ordering_keys=None if ordering is None else [ordering] * count,
        event_times_ms=[metadata.event_time] * count if metadata.event_time else None,
        properties=[properties] * count if properties else None,
        encryption=Encryption(
            {each.name: each.key for each in metadata.encryption_keys},
            metadata.encryption_algorithm,
            metadata.encryption_parameters,
        ),
    )


def _one(metadata: EntryMetadata, value: bytes) -> PulsarMessages:
    sequence_id = metadata.sequence_id
    if metadata.highest_sequence_id not in (0, sequence_id):
        raise _contradicted(sequence_id, metadata.highest_sequence_id, 1)
    key = _key_of(metadata)
    ordering = metadata.ordering_key if metadata.HasField("ordering_key") else None
    _check_text(len(ordering or b""), "ordering_key")
    properties = _properties_of(metadata.properties)
    return PulsarMessages(
        metadata.producer_name,
        metadata.publish_time,
        SequenceId(sequence_id),
        SequenceId(sequence_id),
        1,
        False,
        [sequence_id],
        values=[b"" if metadata.null_value else value],
        nulls=[0] if metadata.null_value else (),
        keys=None if key is None else [key],
        ordering_keys=None if ordering is None else [ordering],
        event_times_ms=[_time(metadata.event_time)] if metadata.event_time else None,
        properties=[properties] if properties else None,
    )


class _Rows:
    """The messages of a batch, one after the other."""

    __slots__ = ("event_times", "ids", "keys", "nulls", "ordering", "properties", "values")

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.ids: list[int] = []
        self.nulls: list[int] = []
        #: {index of the message: what it has}
        self.keys: dict[int, bytes] = {}
        self.ordering: dict[int, bytes] = {}
        self.event_times: dict[int, int] = {}
        self.properties: dict[int, dict[str, str]] = {}

    def add(self, index: int, one: MessageMetadata, value: bytes) -> None:
        if one.compacted_out:
            raise InvalidBatch(f"message {index} of a batch is compacted", field="compacted_out")
        if one.HasField("sequence_id"):
            self.ids.append(one.sequence_id)
        if one.null_value:
            self.nulls.append(index)
            value = b""
        self.values.append(value)
        if (key := _key_of(one)) is not None:
            self.keys[index] = key
        if one.HasField("ordering_key"):
            _check_text(len(one.ordering_key), "ordering_key")
            self.ordering[index] = one.ordering_key
        if one.event_time:
            self.event_times[index] = _time(one.event_time)
        if one.properties:
            self.properties[index] = _properties_of(one.properties)


def _batch(metadata: EntryMetadata, raw: bytes, count: int) -> PulsarMessages:
    rows = _rows(raw, count)
    ids, first, last, unit = _ids(metadata, rows.ids, count)
    each = range(count)
    return PulsarMessages(
        metadata.producer_name,
        metadata.publish_time,
        SequenceId(first),
        SequenceId(last),
        count,
        unit,
        ids,
        values=rows.values,
        nulls=rows.nulls,
        keys=[rows.keys.get(i) for i in each] if rows.keys else None,
        ordering_keys=[rows.ordering.get(i) for i in each] if rows.ordering else None,
        event_times_ms=[rows.event_times.get(i) for i in each] if rows.event_times else None,
        properties=[rows.properties.get(i, {}) for i in each] if rows.properties else None,
    )


def _rows(raw: bytes, count: int) -> _Rows:
    """Exactly `count` messages fill the payload."""
    rows = _Rows()
    ids, values = rows.ids, rows.values
    at, end = 0, len(raw)
    size_of, parse = _SIZE.unpack_from, MessageMetadata.FromString
    try:
        for index in range(count):
            if at + _SIZE.size > end:
                raise InvalidBatch(
                    f"a batch counts {count} messages, and has {index}", field="num_messages_in_batch", limit=index
                )
            size = size_of(raw, at)[0]
            value_at = at + _SIZE.size + size
            if value_at > end:
                raise _cut_off(index, "single_metadata_size", end - at)
            one = parse(raw[at + _SIZE.size : value_at])
            value_bytes, sequence_id = one.payload_bytes, one.sequence_id
            at = value_at + value_bytes
            # Most messages have these two fields alone, which their size shows: asking for each of the others takes
            # longer than all the rest.
            alone = value_bytes > 0 < sequence_id and size == _TAGS_BYTES + (
                (value_bytes.bit_length() + 6) // 7 + (sequence_id.bit_length() + 6) // 7
            )
            if alone and at <= end:
                ids.append(sequence_id)
                values.append(raw[value_at:at])
                continue
            if not one.HasField("payload_bytes") or not value_at <= at <= end:
                raise _cut_off(index, "payload_size", end - value_at)
            rows.add(index, one, raw[value_at:at])
    except DecodeError as error:
        raise InvalidBatch(
            f"the metadata of message {len(rows.values)} of a batch cannot be read", field="single_metadata"
        ) from error
    if at != end:
        message = f"a batch counts {count} messages, and {end - at} bytes follow them"
        raise InvalidBatch(message, field="num_messages_in_batch", limit=count)
    return rows


def _cut_off(index: int, field: str, left: int) -> InvalidBatch:
    return InvalidBatch(f"message {index} of a batch claims more bytes than there are", field=field, limit=left)


def _ids(metadata: EntryMetadata, given: list[int], count: int) -> tuple[Sequence[int], int, int, bool]:
    """(ids, first, last, whether it is a unit)."""
    first, highest = metadata.sequence_id, metadata.highest_sequence_id
    if not given:
        last = highest if metadata.HasField("highest_sequence_id") else first
        if last - first != count - 1:
            raise _contradicted(first, last, count)
        return range(first, last + 1), first, last, False
    if len(given) != count:
        raise InvalidBatch(f"{len(given)} of {count} messages of a batch have an id", field="sequence_id", limit=count)
    _check_id(max(given), "sequence_id")
    ascending = all(map(lt, given, given[1:]))
    if ascending and given[0] == first and highest in (0, given[-1]):
        return given, first, given[-1], False
    if ascending and given[-1] == first and highest in (0, first):
        return given, first, first, True
    message = (
        f"the ids of messages, {given[0]}..{given[-1]}, contradict those of their batch, {first}..{highest or first}"
    )
    raise InvalidBatch(message, field="sequence_id")


def _contradicted(first: int, last: int, count: int) -> InvalidBatch:
    return InvalidBatch(f"ids {first}..{last} contradict a count of {count}", field="highest_sequence_id", limit=count)


def _key_of(metadata: EntryMetadata | MessageMetadata) -> bytes | None:
    """None: it has none, or it is null."""
    if not metadata.HasField("key") or metadata.null_key:
        return None
    key = metadata.key
    _check_text(len(key), "partition_key")
    if not metadata.key_in_base64:
        return key
    try:
        return b64decode(key, validate=True)
    except (Base64Error, ValueError) as error:
        raise InvalidBatch(f"a key is not base64: {error}", field="partition_key") from error


def _time(time_ms: int) -> int:
    _check_id(time_ms, "event_time")
    return time_ms


def _properties_of(pairs: Sequence[Property] | Iterable[Property]) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, each in enumerate(pairs):
        if number == PROPERTIES_MAX:
            message = f"a message has more than {PROPERTIES_MAX} properties"
            raise InvalidBatch(message, field="properties", limit=PROPERTIES_MAX)
        # At most four bytes a character: exact only where it matters.
        if 4 * max(len(each.name), len(each.value)) > TEXT_BYTES_MAX:
            _check_text(len(each.name.encode()), "properties")
            _check_text(len(each.value.encode()), "properties")
        found[each.name] = each.value
    return found
