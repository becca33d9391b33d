"""The subscriptions in the snapshots of a topic: all of them in a base, the changed ones in a delta.

Body of a SUBSCRIPTIONS_CHUNK: snapshot number 8, chunk index 4, records 4; then the records, each a tag (one byte) and
its fields (`formats.packed_fields`). The first record of a snapshot is HEAD.

    1 HEAD          format, next subscription number, given-up ledgers
    2 DELETED       number: a tombstone, so that a base does not revive the subscription (hazard recreated-subscription)
    3 SUBSCRIPTION  number, replaced, UUID, name, type, role, properties, seek epoch, redo epoch, generation, active
                    consumer, mark_delete, (dead-letter topic UUID, next sequence) of each; what follows of the same
                    number up to the next SUBSCRIPTION belongs to it
    4 REDELIVERIES  number, messages as in an entry of the ack log
    5 DEAD_LETTERS  number, count, then index, topic UUID, sequence of each
    6 BLOCK         number, block, form, count of indexes, bytes (`roaring_blocks`)
    7 REDO          number, redo index; only behind a seek that wants effects redone
    8 EFFECTS       number, replaced, UUID of the store, effect, known from, forgotten below, mark_delete of what was
                    consumed; only of a bound subscription
    9 CONSUMED      number, block of what was consumed, as in BLOCK
   10 COMMITTED     number, position, metadata, time ms; only of a subscription to which a group has committed

The format is 3 if the snapshot has a record with tag 10, 2 if it has one with a tag from 7 on, otherwise 1.

A delta has the blocks that changed since the snapshot before; `replaced` says that no former block counts, as after a
seek. Blocks below mark_delete are dropped, and everything else of a subscription is complete in its records.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from struct import Struct
from sys import intern

from oncelog.core.acks.ack_format import read_redeliveries, read_type, write_redeliveries
from oncelog.core.acks.ack_set import AckSet
from oncelog.core.acks.ack_state import (
    CommittedOffset,
    DeadLetterPosition,
    EffectsBinding,
    SubscriptionsState,
    SubscriptionState,
)
from oncelog.core.acks.consumed import Consumed
from oncelog.core.acks.roaring_blocks import BLOCK_BITS, Block, BlockForm, check_block
from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.packed_fields import FieldReader, FieldWriter
from oncelog.core.ids import Generation, Position, SeekEpoch, SubscriptionNumber, TopicId

FORMAT = 1
FORMAT_WITH_EFFECTS = 2
FORMAT_WITH_OFFSETS = 3
#: A chunk ends before this size, as those of producers do.
CHUNK_BYTES = 256 * 1024
_CHUNK = Struct("<qII")
#: Messages to redeliver, and dead letters, in one record; at most 27 and 34 bytes each.
_PART = 4096


class _Tag(IntEnum):
    HEAD = 1
    DELETED = 2
    SUBSCRIPTION = 3
    REDELIVERIES = 4
    DEAD_LETTERS = 5
    BLOCK = 6
    REDO = 7
    EFFECTS = 8
    CONSUMED = 9
    COMMITTED = 10


# --- encoding ---------------------------------------------------------------------------------------------------------


def encode_subscriptions(number: int, state: SubscriptionsState, *, base: bool) -> list[bytes]:
    """The chunk bodies of snapshot `number`: of everything, or of what changed. At least one, or none for a base of a
    topic that never had a subscription."""
    if base and not state.subscriptions and not state.ever_used:
        return []
    chunks: list[bytes] = []
    records: list[bytes] = []
    size = 0
    for record in _records(state, base=base):
        if records and size + len(record) > CHUNK_BYTES - _CHUNK.size:
            chunks.append(_CHUNK.pack(number, len(chunks), len(records)) + b"".join(records))
            records, size = [], 0
        records.append(record)
        size += len(record)
    chunks.append(_CHUNK.pack(number, len(chunks), len(records)) + b"".join(records))
    return chunks


def _records(state: SubscriptionsState, *, base: bool) -> Iterator[bytes]:
    written = state.subscriptions if base else state.dirty
    head = _record(_Tag.HEAD)
    head.number(max((_format_of(state.subscriptions[number]) for number in written), default=FORMAT))
    head.number(state.next_number)
    head.number(state.given_up)
    yield bytes(head.data)
    if not base:
        for number in state.deleted:
            yield bytes(_record(_Tag.DELETED, number).data)
    for number in written:
        yield from _subscription_records(state.subscriptions[number], base=base)


def _format_of(each: SubscriptionState) -> int:
    if each.committed is not None:
        return FORMAT_WITH_OFFSETS
    return FORMAT_WITH_EFFECTS if each.redo_epoch or each.binding else FORMAT


def _record(tag: _Tag, number: int | None = None) -> FieldWriter:
    writer = FieldWriter()
    writer.number(tag)
    if number is not None:
        writer.number(number)
    return writer


def _subscription_records(each: SubscriptionState, *, base: bool) -> Iterator[bytes]:
    writer = _record(_Tag.SUBSCRIPTION, each.number)
    writer.number(base or each.acks.replaced)
    writer.id(each.subscription_id)
    writer.text(each.name)
    writer.number(each.type)
    writer.text(each.role)
    writer.texts(each.properties)
    writer.number(each.seek_epoch)
    writer.number(each.redo_epoch)
    writer.number(each.generation)
    writer.text(each.active_consumer)
    writer.number(each.acks.mark_delete)
    writer.number(len(each.dead_letter_next))
    for topic_id, following in each.dead_letter_next.items():
        writer.id(topic_id)
        writer.number(following)
    yield bytes(writer.data)
    messages = (each.redeliveries[index] for index in sorted(each.redeliveries))
    while part := list(islice(messages, _PART)):
        writer = _record(_Tag.REDELIVERIES, each.number)
        write_redeliveries(writer, part)
        yield bytes(writer.data)
    dead_letters = iter(each.dead_letters.items())
    while pending := list(islice(dead_letters, _PART)):
        writer = _record(_Tag.DEAD_LETTERS, each.number)
        writer.number(len(pending))
        for index, place in pending:
            writer.number(index)
            writer.id(place.topic_id)
            writer.number(place.sequence)
        yield bytes(writer.data)
    yield from _block_records(_Tag.BLOCK, each.number, each.acks, base=base)
    if each.redo_epoch:
        writer = _record(_Tag.REDO, each.number)
        writer.number(each.redo_index)
        yield bytes(writer.data)
    if each.binding is not None:
        consumed = each.binding.consumed
        writer = _record(_Tag.EFFECTS, each.number)
        writer.number(base or consumed.set.replaced)
        writer.id(each.binding.store_id)
        writer.text(each.binding.effect)
        writer.number(consumed.known_from)
        writer.number(consumed.forgotten_below)
        writer.number(consumed.set.mark_delete)
        yield bytes(writer.data)
        yield from _block_records(_Tag.CONSUMED, each.number, consumed.set, base=base)
    if each.committed is not None:
        writer = _record(_Tag.COMMITTED, each.number)
        writer.number(each.committed.position)
        writer.text(each.committed.metadata)
        writer.number(each.committed.time_ms)
        yield bytes(writer.data)


def _block_records(tag: _Tag, number: int, acks: AckSet, *, base: bool) -> Iterator[bytes]:
    for block in acks.blocks(changed=not (base or acks.replaced)):
        writer = _record(tag, number)
        writer.number(block.number)
        writer.number(block.form)
        writer.number(block.count)
        writer.number(len(block.data))
        yield bytes(writer.data) + block.data


# --- decoding ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Restored:
    """A subscription of which the blocks are still apart. consumed_below: mark_delete of what was consumed."""

    state: SubscriptionState
    mark_delete: int
    blocks: dict[int, Block] = field(default_factory=dict)
    consumed_below: int = 0
    consumed: dict[int, Block] = field(default_factory=dict)

    def whole(self) -> SubscriptionState:
        self.state.acks = AckSet.of_blocks(self.mark_delete, self.blocks.values())
        if self.state.binding is not None:
            self.state.binding.consumed.set = AckSet.of_blocks(self.consumed_below, self.consumed.values())
        return self.state


def restore_subscriptions(chunks: Sequence[Buffer], position: Position) -> SubscriptionsState:
    """The state as of `position`, from the chunks of a base and its deltas, in order. Raises CorruptEntry."""
    state = SubscriptionsState()
    state.position = position
    found: dict[SubscriptionNumber, _Restored] = {}
    for chunk in chunks:
        if len(chunk) < _CHUNK.size:
            raise CorruptEntry(f"a chunk of subscriptions of {len(chunk)} bytes")
        _, _, count = _CHUNK.unpack_from(chunk)
        reader = FieldReader(memoryview(chunk)[_CHUNK.size :])
        for _ in range(count):
            _read_record(reader, state, found)
        reader.end()
    for each in found.values():
        state.restore(each.whole())
    return state


def _read_record(reader: FieldReader, state: SubscriptionsState, found: dict[SubscriptionNumber, _Restored]) -> None:
    tag = reader.number()
    if tag == _Tag.HEAD:
        form = reader.number()
        if form not in (FORMAT, FORMAT_WITH_EFFECTS, FORMAT_WITH_OFFSETS):
            known = f"formats {FORMAT} to {FORMAT_WITH_OFFSETS}"
            raise CorruptEntry(f"subscriptions in format {form}; this version reads {known}")
        state.next_number = SubscriptionNumber(reader.number())
        state.given_up = reader.number()
        return
    number = SubscriptionNumber(reader.number())
    if tag == _Tag.DELETED:
        found.pop(number, None)
    elif tag == _Tag.SUBSCRIPTION:
        _read_subscription(reader, number, found)
    elif number not in found:
        raise CorruptEntry(f"a snapshot has a part of subscription {number}, and not the subscription")
    elif tag == _Tag.REDELIVERIES:
        found[number].state.redelivered(read_redeliveries(reader))
    elif tag == _Tag.DEAD_LETTERS:
        for _ in range(reader.count(bytes_min=18)):
            index = reader.number()
            found[number].state.dead_letters[index] = DeadLetterPosition(TopicId(reader.id()), reader.number())
    elif tag == _Tag.BLOCK:
        block = _read_block(reader)
        found[number].blocks[block.number] = block
    elif tag == _Tag.REDO:
        found[number].state.redo_index = reader.number()
    elif tag == _Tag.EFFECTS:
        _read_effects(reader, found[number])
    elif tag == _Tag.CONSUMED:
        block = _read_block(reader)
        found[number].consumed[block.number] = block
    elif tag == _Tag.COMMITTED:
        found[number].state.committed = CommittedOffset(reader.number(), reader.text(), reader.number())
    else:
        raise CorruptEntry(f"a record of subscriptions has tag {tag}, which this version does not support")


def _read_subscription(
    reader: FieldReader, number: SubscriptionNumber, found: dict[SubscriptionNumber, _Restored]
) -> None:
    replaced = reader.number()
    subscription_id, name, subscription_type = reader.id(), reader.text(), read_type(reader)
    role, properties = intern(reader.text()), reader.texts()
    seek_epoch, redo_epoch = SeekEpoch(reader.number()), SeekEpoch(reader.number())
    generation, active_consumer = Generation(reader.number()), reader.text()
    mark_delete = reader.number()
    following = {TopicId(reader.id()): reader.number() for _ in range(reader.count(bytes_min=17))}
    former = found.get(number)
    found[number] = _Restored(
        SubscriptionState(
            number, subscription_id, name, subscription_type, AckSet(), role, properties, seek_epoch, redo_epoch,
            generation, active_consumer, dead_letter_next=following,
        ),
        mark_delete,
        {} if replaced or former is None else former.blocks,
        consumed={} if former is None else former.consumed,
    )  # fmt: skip


def _read_effects(reader: FieldReader, restored: _Restored) -> None:
    if reader.number():
        restored.consumed.clear()
    store_id, effect = reader.id(), reader.text()
    consumed = Consumed(reader.number(), forgotten_below=reader.number())
    restored.state.binding = EffectsBinding(store_id, effect, consumed)
    restored.consumed_below = reader.number()


def _read_block(reader: FieldReader) -> Block:
    number, form, count = reader.number(), reader.number(), reader.number()
    data = reader.bytes(reader.number())
    if form not in (0, 1, 2) or number >= 1 << 63 - BLOCK_BITS:
        raise CorruptEntry(f"block {number} of acknowledgements has form {form}")
    block = Block(number, BlockForm(form), count, data)
    check_block(block)
    return block
