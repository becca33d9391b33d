"""The body of an entry of kind ACK_STATE: one or more changes of a topic's subscriptions, which take effect together.

Layout: format, count of changes, then each change: its tag (one byte) and its fields. Numbers are varints
(`formats.packed_fields`), a UUID is 16 bytes, an enum is its number, texts and lists begin with their length or count.

     1 SubscriptionCreated  number, UUID, name, type, first index, role, properties
     2 SubscriptionDeleted  number
     3 ConsumerActivated      number, consumer name, generation
     4 Acked                number, seek epoch, ranges
     5 AckedBelow           number, seek epoch, below, generation
     6 Redelivered          number, seek epoch, (index - former index - 1, deliveries, not before ms) of each message
     7 DeadLettered         number, index, topic UUID, sequence
     8 DeadLetterPublished  number, topic UUID, sequence
     9 Sought               number, seek epoch, mark_delete, redo
    10 PropertiesSet        number, properties
    11 MessagesSkipped      number, seek epoch, ranges
    12 Evicted              number, seek epoch, ranges, reason
    13 EffectsBound         number, seek epoch, generation, UUID of the store, effect, forgotten below, rebind
    14 Rewound              number, seek epoch, generation, ranges
    15 OffsetCommitted      number, generation, offset, metadata, time ms

ranges: bytes, then the gap before each range (of the first one: its first index) and its length minus one.

A reader refuses what it does not know, because a change that is left out may be an acknowledgement. So the format
number changes when a tag or a field does: it is 3 in an entry with tag 15, 2 in one with tag 13 or 14, otherwise 1.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from oncelog.core.acks.changes import (
    Acked,
    AckedBelow,
    Change,
    ConsumerActivated,
    DeadLettered,
    DeadLetterPublished,
    EffectsBound,
    Evicted,
    EvictionReason,
    IndexRange,
    MessagesSkipped,
    OffsetCommitted,
    PropertiesSet,
    Redelivered,
    Redelivery,
    Rewound,
    Sought,
    SubscriptionCreated,
    SubscriptionDeleted,
    SubscriptionType,
)
from oncelog.core.errors import CorruptEntry, InvariantViolated
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.packed_fields import NUMBER_MAX, FieldReader, FieldWriter, gaps_of, ranges_of
from oncelog.core.ids import Generation, SeekEpoch, SubscriptionNumber, TopicId

FORMAT = 1
FORMAT_WITH_EFFECTS = 2
FORMAT_WITH_OFFSETS = 3
#: The lowest tags of formats 2 and 3.
_FIRST_OF_EFFECTS = 13
_FIRST_OF_OFFSETS = 15
#: The body of one entry. Far below the limit of an entry, so that one change never delays the next ones for long.
ACK_ENTRY_BYTES_MAX = 1024 * 1024
#: Format, and the count of changes.
_HEAD_BYTES_MAX = 10
#: The most that one change takes.
ACK_CHANGE_BYTES_MAX = ACK_ENTRY_BYTES_MAX - _HEAD_BYTES_MAX


def encode_changes(encoded: Sequence[bytes]) -> bytes:
    """The body of an entry with these changes, each as `encode_change` gives it; at least one."""
    if not encoded:
        raise InvariantViolated("an entry of the ack log has no change")
    writer = FieldWriter()
    writer.number(_format_of(change[0] for change in encoded))
    writer.number(len(encoded))
    return bytes(writer.data) + b"".join(encoded)


def decode_changes(body: Buffer) -> tuple[Change, ...]:
    """Raises CorruptEntry unless the body is one that `encode_changes` gives."""
    reader = FieldReader(body)
    form = reader.number()
    if form not in (FORMAT, FORMAT_WITH_EFFECTS, FORMAT_WITH_OFFSETS):
        raise CorruptEntry(f"ack state of format {form}; this version reads formats 1 to {FORMAT_WITH_OFFSETS}")
    count = reader.count(bytes_min=2)
    if count == 0:
        raise CorruptEntry("an entry of the ack log has no change")
    changes = tuple(_decode_change(reader) for _ in range(count))
    reader.end()
    if form != _format_of(_TAGS[type(change)] for change in changes):
        raise CorruptEntry(f"the changes are not those of format {form}")
    return changes


def _format_of(tags: Iterable[int]) -> int:
    highest = max(tags)
    if highest >= _FIRST_OF_OFFSETS:
        return FORMAT_WITH_OFFSETS
    return FORMAT_WITH_EFFECTS if highest >= _FIRST_OF_EFFECTS else FORMAT


def split_change(change: Change, bytes_max: int = ACK_CHANGE_BYTES_MAX) -> list[bytes]:
    """Encode a change; one that is larger than the limit becomes several, with a part of its messages each."""
    data = encode_change(change)
    if len(data) <= bytes_max:
        return [data]
    halves: tuple[Change, ...] = ()
    match change:
        case Acked(ranges=ranges) | MessagesSkipped(ranges=ranges) | Evicted(ranges=ranges) if len(ranges) > 1:
            half = len(ranges) // 2
            halves = (change._replace(ranges=ranges[:half]), change._replace(ranges=ranges[half:]))
        case Redelivered(messages=messages) if len(messages) > 1:
            half = len(messages) // 2
            halves = (change._replace(messages=messages[:half]), change._replace(messages=messages[half:]))
    if not halves:
        raise InvariantViolated(f"a change of {len(data)} bytes exceeds the limit of {bytes_max}")
    return [piece for part in halves for piece in split_change(part, bytes_max)]


# --- encoding ---------------------------------------------------------------------------------------------------------


def encode_change(change: Change) -> bytes:
    """The tag and the fields of one change."""
    writer = FieldWriter()
    writer.number(_TAGS[type(change)])
    writer.number(change.number)
    match change:
        case SubscriptionCreated():
            writer.id(change.subscription_id)
            writer.text(change.name)
            writer.number(change.type)
            writer.number(change.first_index)
            writer.text(change.role)
            writer.texts(change.properties)
        case SubscriptionDeleted():
            pass
        case ConsumerActivated():
            writer.text(change.consumer_name)
            writer.number(change.generation)
        case Acked() | MessagesSkipped():
            writer.number(change.seek_epoch)
            writer.numbers(_gaps(change.ranges))
        case AckedBelow():
            writer.number(change.seek_epoch)
            writer.number(change.below)
            writer.number(change.generation)
        case Redelivered():
            writer.number(change.seek_epoch)
            write_redeliveries(writer, change.messages)
        case DeadLettered():
            writer.number(change.index)
            writer.id(change.topic_id)
            writer.number(change.sequence)
        case DeadLetterPublished():
            writer.id(change.topic_id)
            writer.number(change.sequence)
        case Sought():
            writer.number(change.seek_epoch)
            writer.number(change.mark_delete)
            writer.number(change.redo)
        case PropertiesSet():
            writer.texts(change.properties)
        case Evicted():
            writer.number(change.seek_epoch)
            writer.numbers(_gaps(change.ranges))
            writer.number(change.reason)
        case EffectsBound():
            writer.number(change.seek_epoch)
            writer.number(change.generation)
            writer.id(change.store_id)
            writer.text(change.effect)
            writer.number(change.forgotten_below)
            writer.number(change.rebind)
        case Rewound():
            writer.number(change.seek_epoch)
            writer.number(change.generation)
            writer.numbers(_gaps(change.ranges))
        case OffsetCommitted():
            writer.number(change.generation)
            writer.number(change.offset)
            writer.text(change.metadata)
            writer.number(change.time_ms)
    return bytes(writer.data)


def _gaps(ranges: Sequence[IndexRange]) -> list[int]:
    if not ranges:
        raise InvariantViolated("a change of the ack log names no message")
    return gaps_of(ranges)


def write_redeliveries(writer: FieldWriter, messages: Iterable[Redelivery]) -> None:
    """Ascending by index."""
    numbers: list[int] = []
    following = 0
    for message in messages:
        numbers += (message.index - following, message.deliveries, message.not_before_ms)
        following = message.index + 1
    writer.numbers(numbers)


# --- decoding ---------------------------------------------------------------------------------------------------------


def read_ranges(reader: FieldReader) -> tuple[IndexRange, ...]:
    """At least one range. Raises CorruptEntry."""
    firsts, lasts = ranges_of(reader.numbers())
    if not firsts:
        raise CorruptEntry("a change of the ack log names no message")
    return tuple(map(IndexRange._make, zip(firsts, lasts, strict=True)))


def read_redeliveries(reader: FieldReader) -> tuple[Redelivery, ...]:
    numbers = reader.numbers()
    if len(numbers) % 3:
        raise CorruptEntry("the last message to redeliver is cut off")
    found: list[Redelivery] = []
    following = 0
    for i in range(0, len(numbers), 3):
        index = following + numbers[i]
        if index > NUMBER_MAX:
            raise CorruptEntry("a message to redeliver has an index beyond 63 bits")
        found.append(Redelivery(index, numbers[i + 1], numbers[i + 2]))
        following = index + 1
    return tuple(found)


def _read_flag(reader: FieldReader) -> bool:
    value = reader.number()
    if value > 1:
        raise CorruptEntry(f"a flag of {value}")
    return bool(value)


def _read_epoch(reader: FieldReader) -> SeekEpoch:
    return SeekEpoch(reader.number())


def read_type(reader: FieldReader) -> SubscriptionType:
    """Raises CorruptEntry."""
    try:
        return SubscriptionType(reader.number())
    except ValueError as error:
        raise CorruptEntry(str(error)) from error


def _read_reason(reader: FieldReader) -> EvictionReason:
    try:
        return EvictionReason(reader.number())
    except ValueError as error:
        raise CorruptEntry(str(error)) from error


def _read_generation(reader: FieldReader) -> Generation:
    return Generation(reader.number())


def _read_topic(reader: FieldReader) -> TopicId:
    return TopicId(reader.id())


_Field = Callable[[FieldReader], Any]
_NUMBER, _TEXT, _TEXTS = FieldReader.number, FieldReader.text, FieldReader.texts
#: {tag: the change, and how its fields after the number are read, in the order of its class}
_CHANGES: dict[int, tuple[type[Change], tuple[_Field, ...]]] = {
    1: (SubscriptionCreated, (FieldReader.id, _TEXT, read_type, _NUMBER, _TEXT, _TEXTS)),
    2: (SubscriptionDeleted, ()),
    3: (ConsumerActivated, (_TEXT, _read_generation)),
    4: (Acked, (_read_epoch, read_ranges)),
    5: (AckedBelow, (_read_epoch, _NUMBER, _read_generation)),
    6: (Redelivered, (_read_epoch, read_redeliveries)),
    7: (DeadLettered, (_NUMBER, _read_topic, _NUMBER)),
    8: (DeadLetterPublished, (_read_topic, _NUMBER)),
    9: (Sought, (_read_epoch, _NUMBER, _read_flag)),
    10: (PropertiesSet, (_TEXTS,)),
    11: (MessagesSkipped, (_read_epoch, read_ranges)),
    12: (Evicted, (_read_epoch, read_ranges, _read_reason)),
    13: (EffectsBound, (_read_epoch, _read_generation, FieldReader.id, _TEXT, _NUMBER, _read_flag)),
    14: (Rewound, (_read_epoch, _read_generation, read_ranges)),
    15: (OffsetCommitted, (_read_generation, _NUMBER, _TEXT, _NUMBER)),
}
_TAGS: dict[type[Change], int] = {change: tag for tag, (change, _) in _CHANGES.items()}


def _decode_change(reader: FieldReader) -> Change:
    tag = reader.number()
    if tag not in _CHANGES:
        raise CorruptEntry(f"a change of the ack log has tag {tag}, which this version does not support")
    change, fields = _CHANGES[tag]
    number = SubscriptionNumber(reader.number())
    return change(number, *(read(reader) for read in fields))
