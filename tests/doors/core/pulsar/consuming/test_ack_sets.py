"""Sets of messages, as clients, the table of a consumer and the log have them."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.acks.changes import IndexRange
from oncelog_doors.core.pulsar.consuming.ack_sets import (
    WORDS_MAX,
    all_bits,
    bits_of_ranges,
    bits_of_words,
    joined,
    ranges_of_bits,
    size_of,
    without,
    words_of_bits,
)
from tests.doors.core.pulsar.message_sets import indexes, ranges, set_bits

SETS = st.sets(st.integers(40, 260), max_size=60)
SOME = st.sets(st.integers(40, 260), min_size=1, max_size=60)


def number_of(bits: Iterable[int]) -> int:
    return sum(1 << bit for bit in bits)


@pytest.mark.parametrize(
    ("words", "bits"),
    [
        ((), 0), ((0,), 0), ((5,), 5), ((-1,), 2**64 - 1), ((2**64 - 1,), 2**64 - 1), ((2**63,), 2**63),
        ((-(2**63), 1), 2**63 | 2**64), ((0, 0, 4), 2**130), ((1, 0, 0), 1),
    ],
)  # fmt: skip
def test_words_are_read_as_signed_or_unsigned_numbers(words: tuple[int, ...], bits: int) -> None:
    assert bits_of_words(words) == bits


def test_words_of_more_messages_than_a_batch_has_are_refused() -> None:
    assert bits_of_words((0,) * WORDS_MAX) == 0
    assert bits_of_words((0,) * (WORDS_MAX + 1)) is None


@given(st.sets(st.integers(0, 300)))
def test_words_for_a_client_are_signed_and_hold_the_set(bits: set[int]) -> None:
    """Without zeros at the end; but one for the empty set, which no words at all would not say."""
    words = words_of_bits(number_of(bits))
    assert set_bits([word % 2**64 for word in words]) == sorted(bits)
    assert all(-(2**63) <= word < 2**63 for word in words)
    assert words[-1] or words == (0,)


@given(SOME, SETS)
def test_a_bit_is_a_message_that_was_sent(sends: set[int], others: set[int]) -> None:
    """The bits count the sent messages, with holes or without; what was not sent has none."""
    places, sent = sorted(sends), ranges(sends)
    bits = bits_of_ranges(sent, ranges(others))
    assert set_bits([bits]) == [] or bits.bit_length() <= len(places)
    assert {places[bit] for bit in range(len(places)) if bits >> bit & 1} == sends & others
    assert ranges_of_bits(sent, bits) == ranges(sends & others)
    assert without(sent, ranges(others)) == ranges(sends - others)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=12))
def test_joined_ranges_are_few_and_ascend(parts: list[tuple[int, int]]) -> None:
    """Also of ranges that overlap."""
    given_parts = [IndexRange(first, first + more) for first, more in parts]
    assert joined(given_parts) == ranges(set(indexes(given_parts)))
    assert size_of(joined(given_parts)) == len(set(indexes(given_parts)))


def test_large_sets_with_holes_take_linear_time() -> None:
    """65,536 messages of which every second one is in the set: one pass, not one for each hole."""
    sent = (IndexRange(10, 10 + 2**16 - 1),)
    bits = all_bits(2**16) // 3
    assert len(ranges_of_bits(sent, bits)) == 2**15
    assert bits_of_ranges(sent, ranges_of_bits(sent, bits)) == bits
