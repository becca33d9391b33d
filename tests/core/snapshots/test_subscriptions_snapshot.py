"""Subscriptions in snapshots: bases, deltas, tombstones, their size, and damaged bytes."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.acks.ack_set import AckSet
from oncelog.core.acks.ack_state import CommittedOffset, SubscriptionsState
from oncelog.core.acks.changes import (
    Acked,
    AckedBelow,
    Change,
    ConsumerActivated,
    DeadLettered,
    DeadLetterPublished,
    IndexRange,
    OffsetCommitted,
    PropertiesSet,
    Redelivered,
    Redelivery,
    Sought,
    SubscriptionCreated,
    SubscriptionDeleted,
    SubscriptionType,
)
from oncelog.core.acks.digest import state_digest
from oncelog.core.acks.roaring_blocks import BITSET_BYTES, BLOCK_INDEXES, Block, BlockForm, check_block
from oncelog.core.errors import CorruptEntry
from oncelog.core.ids import Generation, SeekEpoch, SubscriptionNumber
from oncelog.core.snapshots.ack_snapshot import CHUNK_BYTES, encode_subscriptions, restore_subscriptions
from tests.core.builders import TOPIC, at

ONE, TWO, THREE = SubscriptionNumber(1), SubscriptionNumber(2), SubscriptionNumber(3)
FIRST = SeekEpoch(0)
MANY = 3_000_000


def created(number: SubscriptionNumber = ONE, name: str = "s") -> SubscriptionCreated:
    return SubscriptionCreated(number, f"{number:032x}", name, SubscriptionType.SHARED, 0, "admin", (("a", "b"),))


def single(*indexes: int) -> tuple[IndexRange, ...]:
    return tuple(IndexRange(index, index) for index in indexes)


class Snapshots:
    """A live state, and the chunks of a base and its deltas."""

    def __init__(self, *changes: Change) -> None:
        self.live = SubscriptionsState()
        self.chunks: list[bytes] = []
        self.number = 0
        self.entries = 0
        self.fold(*changes)

    def fold(self, *changes: Change) -> None:
        for change in changes:
            assert self.live.fold_changes(at(self.entries), [change]) == [None]
            self.entries += 1

    def take(self, *, base: bool = False) -> list[bytes]:
        """Write a snapshot, restore the chain of snapshots and compare it with the live state."""
        self.number += 1
        taken = encode_subscriptions(self.number, self.live, base=base)
        self.live.snapshot_taken()
        self.chunks = taken if base else self.chunks + taken
        restored = self.restored()
        assert plain(restored) == plain(self.live)
        assert digests(restored) == digests(self.live)
        return taken

    def restored(self) -> SubscriptionsState:
        state = restore_subscriptions(self.chunks, self.live.position)
        if self.live.state_bytes < 100_000:
            state.check_invariants()
        assert (state.dirty, state.deleted) == ({}, {})
        assert not any(each.acks.dirty or each.acks.replaced for each in state.subscriptions.values())
        return state


def plain(state: SubscriptionsState) -> object:
    """Everything that a fold decides."""
    return (
        state.position,
        state.next_number,
        state.given_up,
        state.names,
        dict(sorted(state.subscriptions.items())),
    )


def digests(state: SubscriptionsState) -> dict[SubscriptionNumber, str]:
    return {number: state_digest(each) for number, each in sorted(state.subscriptions.items())}


def some() -> Snapshots:
    """A subscription with everything that it can have."""
    return Snapshots(
        created(),
        created(TWO, "other"),
        ConsumerActivated(ONE, "worker", Generation(3)),
        Sought(ONE, SeekEpoch(1), 5, redo=True),
        Acked(ONE, SeekEpoch(1), (IndexRange(7, 9), IndexRange(65_530, 65_540), IndexRange(2**40, 2**40))),
        Redelivered(ONE, SeekEpoch(1), (Redelivery(5, 3, 1_700_000_000_000), Redelivery(6, 1, 0))),
        DeadLettered(ONE, 12, TOPIC, 0),
        DeadLettered(ONE, 11, TOPIC, 1),
        Acked(TWO, FIRST, single(*range(1, 20_000, 2))),
        OffsetCommitted(TWO, Generation(2), 3, "pläce", 1_700_000_000_000),
    )


def test_base_holds_everything() -> None:
    """Acknowledgements in all three forms, counts, dead letters, epochs, properties."""
    snapshots = some()
    snapshots.take(base=True)
    forms = [block.form for block in snapshots.live.subscriptions[ONE].acks.blocks(changed=False)]
    assert forms == [BlockForm.RANGES, BlockForm.RANGES, BlockForm.ARRAY]
    assert [block.form for block in snapshots.live.subscriptions[TWO].acks.blocks(changed=False)] == [BlockForm.BITSET]


def test_delta_holds_what_changed() -> None:
    """The changed subscription with its changed blocks; the other one stays as the base has it."""
    snapshots = some()
    base = snapshots.take(base=True)
    snapshots.fold(Acked(TWO, FIRST, single(3 * BLOCK_INDEXES + 4)))
    (delta,) = snapshots.take()
    assert len(delta) < 200 < BITSET_BYTES < len(base[0])
    snapshots.fold(PropertiesSet(ONE, ()), AckedBelow(ONE, SeekEpoch(1), 65_600, Generation(3)))
    snapshots.take()
    assert snapshots.restored().subscriptions[ONE].mark_delete == 65_600
    assert len(snapshots.take()[0]) < 30


def test_format_is_the_lowest_that_knows_the_records() -> None:
    """A program of before offsets reads snapshots of topics to which no group has committed, and refuses the others."""
    snapshots = Snapshots(created())

    def form() -> int:
        return snapshots.take()[0][struct.calcsize("<qII") + 1]

    assert form() == 1
    snapshots.fold(Sought(ONE, SeekEpoch(1), 0, redo=True))
    assert form() == 2
    snapshots.fold(OffsetCommitted(ONE, Generation(1), 0, "", 0))
    assert form() == 3


def test_delta_has_the_newest_commit() -> None:
    """Forward and backward, and a seek of an operator keeps what the group has said."""
    snapshots = some()
    snapshots.take(base=True)
    for offset, metadata in ((70_000, "a"), (4, "b"), (4, "")):
        snapshots.fold(OffsetCommitted(ONE, Generation(3), offset, metadata, 7))
        snapshots.take()
        assert snapshots.restored().subscriptions[ONE].committed == CommittedOffset(offset, metadata, 7)
    snapshots.fold(Sought(ONE, SeekEpoch(3), 9, redo=False))
    snapshots.take()
    assert snapshots.restored().subscriptions[ONE].committed == CommittedOffset(4, "", 7)


@pytest.mark.hazard("late-ack-after-seek")
def test_seek_replaces_the_blocks_of_the_base() -> None:
    """Acknowledgements of the epoch before must not come back with an older snapshot's blocks."""
    snapshots = some()
    snapshots.take(base=True)
    snapshots.fold(Sought(TWO, SeekEpoch(1), 0, redo=False))
    snapshots.take()
    assert snapshots.restored().subscriptions[TWO].acks == AckSet(0)
    snapshots.fold(Acked(TWO, SeekEpoch(1), single(9)))
    snapshots.take()
    assert snapshots.restored().subscriptions[TWO].acks.ranges() == [IndexRange(9, 9)]


@pytest.mark.hazard("recreated-subscription")
def test_deletion_between_base_and_delta_is_not_undone() -> None:
    """The delta has a tombstone, also where the name has a new subscription by then, and numbers go on."""
    snapshots = some()
    snapshots.take(base=True)
    snapshots.fold(SubscriptionDeleted(ONE))
    snapshots.take()
    assert list(snapshots.restored().subscriptions) == [TWO]
    snapshots.fold(SubscriptionDeleted(TWO), created(THREE, "other"))
    snapshots.take()
    restored = snapshots.restored()
    assert restored.names == {"other": THREE}
    assert restored.next_number == 4
    snapshots.fold(SubscriptionDeleted(THREE))
    snapshots.take(base=True)
    assert snapshots.restored().next_number == 4


def test_topic_without_subscriptions_has_no_chunk() -> None:
    """Most topics have none."""
    assert encode_subscriptions(1, SubscriptionsState(), base=True) == []
    assert plain(restore_subscriptions([], at(-1, -1))) == plain(SubscriptionsState())


@pytest.mark.hazard("oversized-ack-entry")
def test_every_second_index_takes_a_bit_and_a_half_at_most() -> None:
    """Every second one acknowledged, the worst case: bytes of state and snapshot, and the size of each chunk."""
    snapshots = Snapshots(created())
    full = MANY // BLOCK_INDEXES
    every_second = [
        Block(number, BlockForm.BITSET, BLOCK_INDEXES // 2, b"\xaa" * BITSET_BYTES) for number in range(full)
    ]
    acks = snapshots.live.subscriptions[ONE].acks = AckSet.of_blocks(0, every_second)
    acks.add(single(*range(full * BLOCK_INDEXES + 1, MANY, 2)))
    assert (acks.acked_count, acks.range_count) == (MANY // 2, MANY // 2)
    taken = snapshots.take(base=True)
    assert sum(map(len, taken)) <= acks.state_bytes + 1000
    assert acks.state_bytes <= MANY // 5, "two megabytes for ten million"
    assert len(taken) > 1
    assert max(map(len, taken)) <= CHUNK_BYTES


def test_large_states_are_cut_into_chunks() -> None:
    """Blocks of more than 2 MB, messages to redeliver and dead letters: no chunk exceeds its limit."""
    rng = random.Random(7)
    snapshots = Snapshots(created())
    one = snapshots.live.subscriptions[ONE]
    data = [rng.randbytes(BITSET_BYTES) for _ in range(8)]
    blocks = [
        Block(number, BlockForm.BITSET, int.from_bytes(data[number % 8], "little").bit_count(), data[number % 8])
        for number in range(1, 400)
    ]
    one.acks = AckSet.of_blocks(0, blocks)
    indexes = range(10**9, 10**9 + 60_000, 2)
    snapshots.fold(Redelivered(ONE, FIRST, tuple(Redelivery(index, 300, 1_700_000_000_000) for index in indexes)))
    for sequence in range(9000):
        one.dead_lettered(DeadLettered(ONE, 10**10 + sequence, TOPIC, sequence))
    taken = snapshots.take(base=True)
    assert sum(map(len, taken)) > 3_000_000
    assert max(map(len, taken)) <= CHUNK_BYTES
    one.dead_letters_published(DeadLetterPublished(ONE, TOPIC, 8999))
    snapshots.live.dirty[ONE] = None
    delta = snapshots.take()
    assert sum(map(len, delta)) < 1_000_000


def test_digest_depends_on_the_state_and_not_on_its_history() -> None:
    """Also of a block that was dense, of which few indexes are left."""
    dense, sparse = Snapshots(created()), Snapshots(created())
    dense.fold(Acked(ONE, FIRST, single(*range(1, 20_000, 2))))
    dense.fold(Acked(ONE, FIRST, (IndexRange(0, 19_990),)))
    sparse.fold(Acked(ONE, FIRST, (IndexRange(0, 19_991),)), Acked(ONE, FIRST, single(19_993, 19_995, 19_997, 19_999)))
    assert dense.live.subscriptions[ONE].acks == sparse.live.subscriptions[ONE].acks
    assert digests(dense.live) == digests(sparse.live)
    seen = {digests(dense.live)[ONE]}
    for change in (
        Acked(ONE, FIRST, single(30_000)),
        Redelivered(ONE, FIRST, (Redelivery(20_000, 1, 0),)),
        ConsumerActivated(ONE, "worker", Generation(3)),
        DeadLettered(ONE, 20_002, TOPIC, 0),
        Sought(ONE, SeekEpoch(1), 5, redo=True),
    ):
        dense.fold(change)
        seen.add(digests(dense.live)[ONE])
    assert len(seen) == 6


@given(offsets=st.sets(st.integers(0, 300) | st.integers(0, BLOCK_INDEXES - 1), min_size=1), mark=st.integers(0, 400))
def test_blocks_are_restored_from_any_mark(offsets: set[int], mark: int) -> None:
    """A block of an older snapshot may hold indexes below the mark; they are dropped, and counts agree."""
    acks = AckSet()
    acks.add([IndexRange(offset + 1, offset + 1) for offset in offsets])
    restored = AckSet.of_blocks(mark, acks.blocks(changed=False))
    restored.check_invariants()
    expected = AckSet(mark)
    expected.add([IndexRange(offset + 1, offset + 1) for offset in offsets])
    assert restored == expected


def test_damaged_chunks_are_refused_or_restored_within_bounds() -> None:
    """Flipped bits and cut bytes give CorruptEntry and no other error, and never reach the bitmap library unchecked.

    The checksum of the snapshot refuses them before; this is the second line.
    """
    snapshots = some()
    (chunk,) = snapshots.take(base=True)
    small = chunk[:600]
    for bit in range(8 * len(small)):
        damaged = bytearray(chunk)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            restore_subscriptions([bytes(damaged)], at(0))
        except CorruptEntry:
            continue
    for cut in range(0, len(chunk), 7):
        with pytest.raises(CorruptEntry):
            restore_subscriptions([chunk[:cut]], at(0))


@pytest.mark.parametrize(
    "block",
    [
        Block(1, BlockForm.ARRAY, 2, b"\x05\0\x05\0"),
        Block(1, BlockForm.ARRAY, 2, b"\x06\0\x05\0"),
        Block(1, BlockForm.ARRAY, 0, b""),
        Block(1, BlockForm.ARRAY, 3, b"\x05\0\x06\0"),
        Block(1, BlockForm.BITSET, 100, b"\1" * BITSET_BYTES),
        Block(1, BlockForm.BITSET, 8193, b"\1" * BITSET_BYTES),
        Block(1, BlockForm.BITSET, 8192, b"\1" * (BITSET_BYTES - 1)),
        Block(1, BlockForm.RANGES, 0, b""),
        Block(1, BlockForm.RANGES, 2, b"\x05\0\0\0\x06\0\0\0"),
        Block(1, BlockForm.RANGES, 3, b"\x05\0\0\0\x07\0\0\0"),
        Block(1, BlockForm.RANGES, 2, b"\xff\xff\x01\0"),
        Block(1, BlockForm.RANGES, 1, b"\x05\0\0"),
    ],
)
def test_invalid_block_is_corrupt(block: Block) -> None:
    """Not ascending, a wrong count, a wrong size, beyond the end of the block."""
    with pytest.raises(CorruptEntry):
        check_block(block)
