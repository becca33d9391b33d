"""The acknowledged indexes of a subscription, compared with plain sets."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.acks.ack_set import AckSet
from oncelog.core.acks.changes import IndexRange
from oncelog.core.acks.roaring_blocks import BLOCK_INDEXES

#: Small indexes, and indexes around the ends of some blocks, with absent blocks between them.
INDEXES = st.one_of(
    st.integers(0, 60),
    st.builds(lambda block, offset: block * BLOCK_INDEXES + offset, st.sampled_from((1, 2, 2, 5)), st.integers(-6, 6)),
)
RANGES = st.builds(lambda first, more: IndexRange(first, first + more), INDEXES, st.integers(0, 12))
WIDE = st.builds(lambda first, last: IndexRange(min(first, last), max(first, last)), INDEXES, INDEXES)
STEPS = st.lists(st.lists(RANGES, max_size=40) | st.integers(0, 70), max_size=15)
WIDE_STEPS = st.lists(st.lists(RANGES, max_size=40) | st.lists(WIDE, min_size=1, max_size=1) | INDEXES, max_size=8)


def ranges_of(indexes: set[int]) -> list[IndexRange]:
    found: list[IndexRange] = []
    for index in sorted(indexes):
        if found and found[-1].last == index - 1:
            found[-1] = IndexRange(found[-1].first, index)
        else:
            found.append(IndexRange(index, index))
    return found


def check(acks: AckSet, acked: set[int], end: int) -> None:
    """The set under test says the same as the plain set of all acknowledged indexes below `end`."""
    acks.check_invariants()
    mark_delete = next(index for index in range(end + 1) if index not in acked)
    above = {index for index in acked if index > mark_delete}
    assert acks.mark_delete == mark_delete
    assert acks.ranges() == ranges_of(above)
    assert acks.range_count == len(ranges_of(above))
    assert acks.acked_count == len(above)
    assert acks.hole_count == (max(above) + 1 - mark_delete - len(above) if above else 0)
    first, below = BLOCK_INDEXES - 1, 5 * BLOCK_INDEXES
    assert acks.acked_between(first, below) == sum(first <= index < below for index in acked)


def compare(steps: list[list[IndexRange] | int]) -> None:
    """Apply the steps to both sets and compare them after each one."""
    acks, acked = AckSet(), set[int]()
    for step in steps:
        if isinstance(step, int):
            acks.add_below(step)
            acked.update(range(step))
        else:
            acks.add(step)
            for first, last in step:
                acked.update(range(first, last + 1))
        check(acks, acked, 6 * BLOCK_INDEXES)


@given(steps=STEPS)
def test_ack_set_agrees_with_a_plain_set(steps: list[list[IndexRange] | int]) -> None:
    """Ranges in any order, overlapping, over the ends of blocks, and cumulative steps."""
    compare(steps)


@settings(max_examples=8)
@given(steps=WIDE_STEPS)
def test_wide_ranges_agree_with_a_plain_set(steps: list[list[IndexRange] | int]) -> None:
    """Ranges and cumulative steps over whole blocks."""
    compare(steps)


@pytest.mark.parametrize("seed", range(3))
def test_questions_agree_with_a_plain_set(seed: int) -> None:
    """Which index is next, which ranges are open, how many are not, whether one is acknowledged."""
    rng = random.Random(seed)
    acks, acked = AckSet(40), set(range(40))
    for _ in range(60):
        first, more = rng.randrange(500), rng.randrange(6)
        acks.add([IndexRange(first, first + more)])
        acked.update(range(first, first + more + 1))
    assert acked == {index for index in range(600) if acks.contains(index)}
    check(acks, acked, 600)
    for start in range(520):
        assert acks.next_unacked(start) == next(i for i in range(start, 600) if i not in acked)
    for _ in range(200):
        start, below, most = rng.randrange(520), rng.randrange(560), rng.randrange(1, 9)
        wanted = ranges_of({index for index in range(start, below) if index not in acked})[:most]
        assert acks.unacked_ranges(start, below, most) == wanted
        assert acks.acked_between(start, below) == len(acked & set(range(start, below)))
    for below in (0, 300, 600):
        left = [index for index in range(below) if index not in acked]
        ends = [acks.after_unacked(count, below) for count in range(1, 620)]
        assert ends[: len(left)] == [index + 1 for index in left]
        assert set(ends[len(left) :]) == {max(below, acks.mark_delete)}
        assert acks.after_unacked(0, below) == acks.mark_delete


def test_range_that_ends_with_its_block_is_followed_by_an_absent_block() -> None:
    """The last index of a block is acknowledged, the next blocks have none, and a later one has."""
    acks, end, later = AckSet(), 2 * BLOCK_INDEXES, 10 * BLOCK_INDEXES
    acks.add([IndexRange(end - 3, end - 1), IndexRange(later, later)])
    assert acks.next_unacked(end - 2) == end
    acks.add_below(end - 3)
    assert acks.mark_delete == end
    acks.check_invariants()


def test_acknowledging_in_order_keeps_no_range() -> None:
    """A consumer that acknowledges each message in turn leaves a mark and no state."""
    acks = AckSet()
    for index in range(1000):
        acks.add([IndexRange(index, index)])
    assert (acks.mark_delete, acks.range_count, acks.state_bytes) == (1000, 0, 0)


def test_changed_blocks_are_those_that_gained_indexes() -> None:
    """A snapshot's delta writes these blocks alone."""
    acks = AckSet()
    acks.add([IndexRange(5, 5), IndexRange(3 * BLOCK_INDEXES - 1, 3 * BLOCK_INDEXES)])
    assert sorted(acks.dirty) == [0, 2, 3]
    acks.dirty.clear()
    acks.add([IndexRange(7, 7)])
    assert sorted(acks.dirty) == [0]


def test_state_of_every_second_message_is_bounded_by_bitsets() -> None:
    """state_bytes is an upper bound of what the blocks take; a range takes 4 bytes, a block 8 KiB at most."""
    acks = AckSet()
    acks.add([IndexRange(index, index) for index in range(1, 1000, 2)])
    assert acks.range_count == 500
    assert 2000 <= acks.state_bytes <= 2100
    acks.add([IndexRange(index, index) for index in range(1, 10 * BLOCK_INDEXES, 2)])
    assert acks.range_count == 5 * BLOCK_INDEXES
    assert acks.state_bytes <= 10 * 8300


def test_index_beyond_32_bits_is_kept() -> None:
    """Indexes have 64 bits; a given-up ledger alone leaves out 2**31 of them."""
    acks = AckSet(2**40)
    acks.add([IndexRange(2**40 + 2, 2**40 + 2)])
    assert acks.next_unacked(0) == 2**40
    assert acks.contains(2**40 + 2)
    acks.add([IndexRange(2**40, 2**40 + 1)])
    assert acks.mark_delete == 2**40 + 3
    acks.check_invariants()


def test_leap_over_given_up_indexes_takes_little_state() -> None:
    """2**31 indexes that no message has are one range, above or below the mark."""
    acks = AckSet()
    acks.add([IndexRange(1, 1 << 31)])
    assert acks.range_count == 1
    assert acks.state_bytes < 1_000_000
    acks.add([IndexRange(0, 0)])
    assert (acks.mark_delete, acks.state_bytes) == ((1 << 31) + 1, 0)
