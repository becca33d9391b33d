"""The entries of the ack log: what was written comes back, and anything else is a CorruptEntry."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.acks.ack_format import (
    ACK_CHANGE_BYTES_MAX,
    ACK_ENTRY_BYTES_MAX,
    decode_changes,
    encode_change,
    encode_changes,
    split_change,
)
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
from oncelog.core.formats.packed_fields import NUMBER_MAX
from oncelog.core.ids import Generation, SeekEpoch, SubscriptionNumber, TopicId

NUMBERS = st.integers(0, 300) | st.integers(0, NUMBER_MAX)
SUBSCRIPTIONS = NUMBERS.map(SubscriptionNumber)
EPOCHS = NUMBERS.map(SeekEpoch)
GENERATIONS = NUMBERS.map(Generation)
TEXTS = st.text(max_size=40)
IDS = st.binary(min_size=16, max_size=16).map(bytes.hex)
TOPICS = IDS.map(TopicId)
PROPERTIES = st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple)
RANGES = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=8).map(
    lambda pairs: (
        tuple(
            IndexRange(first, last)
            for first, last in zip(*[iter(sorted({end for pair in pairs for end in pair}))] * 2, strict=False)
        )
        or (IndexRange(pairs[0][0], pairs[0][0]),)
    )
)
REDELIVERIES = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=8, unique_by=lambda each: each[0]).map(
    lambda found: tuple(Redelivery(*each) for each in sorted(found))
)
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(
        SubscriptionCreated, SUBSCRIPTIONS, IDS, TEXTS, st.sampled_from(SubscriptionType), NUMBERS, TEXTS, PROPERTIES
    ),
    st.builds(SubscriptionDeleted, SUBSCRIPTIONS),
    st.builds(ConsumerActivated, SUBSCRIPTIONS, TEXTS, GENERATIONS),
    st.builds(Acked, SUBSCRIPTIONS, EPOCHS, RANGES),
    st.builds(AckedBelow, SUBSCRIPTIONS, EPOCHS, NUMBERS, GENERATIONS),
    st.builds(Redelivered, SUBSCRIPTIONS, EPOCHS, REDELIVERIES),
    st.builds(DeadLettered, SUBSCRIPTIONS, NUMBERS, TOPICS, NUMBERS),
    st.builds(DeadLetterPublished, SUBSCRIPTIONS, TOPICS, NUMBERS),
    st.builds(Sought, SUBSCRIPTIONS, EPOCHS, NUMBERS, st.booleans()),
    st.builds(PropertiesSet, SUBSCRIPTIONS, PROPERTIES),
    st.builds(MessagesSkipped, SUBSCRIPTIONS, EPOCHS, RANGES),
    st.builds(Evicted, SUBSCRIPTIONS, EPOCHS, RANGES, st.sampled_from(EvictionReason)),
    st.builds(EffectsBound, SUBSCRIPTIONS, EPOCHS, GENERATIONS, IDS, TEXTS, NUMBERS, st.booleans()),
    st.builds(Rewound, SUBSCRIPTIONS, EPOCHS, GENERATIONS, RANGES),
    st.builds(OffsetCommitted, SUBSCRIPTIONS, GENERATIONS, NUMBERS, TEXTS, NUMBERS),
)
ONE = SubscriptionNumber(1)
EPOCH = SeekEpoch(2)
TOPIC = TopicId("0f" * 16)
ONE_OF_EACH: tuple[Change, ...] = (
    SubscriptionCreated(ONE, "ab" * 16, "billing", SubscriptionType.SHARED, 300, "röle", (("a", "1"), ("b", "")),),
    SubscriptionDeleted(ONE),
    ConsumerActivated(ONE, "worker", Generation(3)),
    Acked(ONE, EPOCH, (IndexRange(5, 5), IndexRange(7, 400))),
    AckedBelow(ONE, EPOCH, 1000, Generation(3)),
    Redelivered(ONE, EPOCH, (Redelivery(5, 2, 0), Redelivery(6, 1, 1_700_000_000_000))),
    DeadLettered(ONE, 9, TOPIC, 0),
    DeadLetterPublished(ONE, TOPIC, 0),
    Sought(ONE, SeekEpoch(3), 4, redo=True),
    PropertiesSet(ONE, (("c", "2"),)),
    MessagesSkipped(ONE, EPOCH, (IndexRange(0, 2**40),)),
    Evicted(ONE, EPOCH, (IndexRange(1, 2),), EvictionReason.BACKLOG_QUOTA),
    EffectsBound(ONE, EPOCH, Generation(3), "cd" * 16, "invoices", 700, rebind=False),
    Rewound(ONE, SeekEpoch(3), Generation(3), (IndexRange(5, 5), IndexRange(7, 400))),
    OffsetCommitted(ONE, Generation(3), 1000, "pläce", 1_700_000_000_000),
)  # fmt: skip


def encoded(*changes: Change) -> bytes:
    return encode_changes([encode_change(change) for change in changes])


def read_or_refuse(data: bytes) -> None:
    """Bytes are refused, or they are what the changes that they give are encoded to."""
    try:
        changes = decode_changes(data)
    except CorruptEntry:
        return
    assert encoded(*changes) == data


@given(changes=st.lists(CHANGES, min_size=1, max_size=6))
def test_changes_round_trip_through_bytes(changes: list[Change]) -> None:
    """Every field of every change, any number of 63 bits."""
    assert list(decode_changes(encoded(*changes))) == changes


@given(
    gaps=st.lists(st.tuples(st.integers(0, 400) | st.integers(0, 2**40), st.integers(0, 200)), min_size=1, max_size=30)
)
def test_ranges_with_short_and_long_gaps_round_trip(gaps: list[tuple[int, int]]) -> None:
    """Numbers of one byte are read in runs, and longer ones stand at the start, in the middle and at the end."""
    ranges: list[IndexRange] = []
    following = 0
    for gap, more in gaps:
        ranges.append(IndexRange(following + gap, following + gap + more))
        following = ranges[-1].last + 1
    change = Acked(ONE, EPOCH, tuple(ranges))
    assert decode_changes(encoded(change)) == (change,)


def test_each_kind_of_change_round_trips() -> None:
    """A direct example, of all of them in one entry."""
    assert decode_changes(encoded(*ONE_OF_EACH)) == ONE_OF_EACH


def test_truncated_changes_are_corrupt() -> None:
    """Cut at every byte, or with one too many."""
    data = encoded(*ONE_OF_EACH)
    for cut in range(len(data)):
        with pytest.raises(CorruptEntry):
            decode_changes(data[:cut])
    with pytest.raises(CorruptEntry, match="too many"):
        decode_changes(data + b"\0")


def test_flipped_bits_never_give_two_readings() -> None:
    """Each bit of each byte: the entry is refused, or other changes were stored in exactly these bytes."""
    data = encoded(*ONE_OF_EACH)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        read_or_refuse(bytes(damaged))


@given(data=st.binary(max_size=60), at=st.integers(0, 250))
def test_arbitrary_bytes_are_refused_or_read_exactly(data: bytes, at: int) -> None:
    """Alone, in place of a part, and behind valid changes."""
    valid = encoded(*ONE_OF_EACH)
    for candidate in (data, b"\x01\x01" + data, valid[:at] + data, valid[:at] + data + valid[at + len(data) :]):
        read_or_refuse(candidate)


def test_another_format_and_an_empty_entry_are_corrupt() -> None:
    """A later version's changes must not be read as ours; no entry is written without a change."""
    with pytest.raises(CorruptEntry, match="format 4"):
        decode_changes(b"\x04" + encoded(*ONE_OF_EACH)[1:])
    with pytest.raises(CorruptEntry, match="no change"):
        decode_changes(b"\x01\x00")
    with pytest.raises(InvariantViolated):
        encode_changes([])


def test_format_is_the_lowest_that_knows_the_changes() -> None:
    """A program of before offsets reads every entry that has none, and refuses the others."""
    bound, committed = ONE_OF_EACH[12], ONE_OF_EACH[14]
    assert [encoded(ONE_OF_EACH[0], each)[0] for each in ONE_OF_EACH] == [1] * 12 + [2, 2, 3]
    for form, change in ((1, bound), (1, committed), (2, committed), (3, bound)):
        with pytest.raises(CorruptEntry, match=f"not those of format {form}"):
            decode_changes(bytes([form]) + encoded(change)[1:])


def test_counts_that_exceed_the_bytes_are_corrupt() -> None:
    """A count of 2**62 parts ends the reading at once, before memory is reserved for them."""
    many = b"\xff\xff\xff\xff\xff\xff\xff\xff\x3f"
    for head in (b"\x01" + many, b"\x01\x01\x0a\x01" + many, b"\x01\x01\x04\x01\x00" + many):
        with pytest.raises(CorruptEntry):
            decode_changes(head + b"\x01\x02\x03")


def test_range_beyond_63_bits_is_corrupt() -> None:
    """Two numbers that fit give a sum that does not."""
    data = encoded(Acked(ONE, EPOCH, (IndexRange(NUMBER_MAX - 1, NUMBER_MAX),)))
    assert data[-1] == 1
    with pytest.raises(CorruptEntry, match="63 bits"):
        decode_changes(data[:-1] + b"\x02")


@pytest.mark.hazard("oversized-ack-entry")
@pytest.mark.parametrize("kind", ["acked", "skipped", "evicted", "redelivered"])
def test_change_above_the_limit_is_split_in_order(kind: str) -> None:
    """Each part fits, and together they name the same messages in the same order."""
    rng = random.Random(kind)
    firsts = sorted(rng.sample(range(10_000_000), 3000))
    ranges = tuple(IndexRange(first, first) for first in firsts)
    messages = tuple(Redelivery(first, rng.randrange(9), rng.randrange(2**41)) for first in firsts)
    change: Change = {
        "acked": Acked(ONE, EPOCH, ranges),
        "skipped": MessagesSkipped(ONE, EPOCH, ranges),
        "evicted": Evicted(ONE, EPOCH, ranges, EvictionReason.TTL),
        "redelivered": Redelivered(ONE, EPOCH, messages),
    }[kind]  # type: ignore[assignment]
    parts = split_change(change, 1000)
    assert len(parts) > 5
    assert max(map(len, parts)) <= 1000
    found = decode_changes(encode_changes(parts))
    named = [each for part in found for each in getattr(part, "messages" if kind == "redelivered" else "ranges")]
    assert tuple(named) == (messages if kind == "redelivered" else ranges)
    assert {part[:2] for part in found} == {change[:2]}


def test_small_change_is_not_split() -> None:
    """It stays one change; one that cannot be split and exceeds the limit is a bug of the caller."""
    for change in ONE_OF_EACH:
        assert split_change(change) == [encode_change(change)]
    with pytest.raises(InvariantViolated):
        split_change(ONE_OF_EACH[0], 10)
    assert len(encode_changes([bytes(ACK_CHANGE_BYTES_MAX)])) <= ACK_ENTRY_BYTES_MAX


@pytest.mark.parametrize(
    "change",
    [
        Acked(ONE, EPOCH, ()),
        Acked(ONE, EPOCH, (IndexRange(5, 6), IndexRange(6, 7))),
        Acked(ONE, EPOCH, (IndexRange(5, 4),)),
        Redelivered(ONE, EPOCH, (Redelivery(5, 1, 0), Redelivery(5, 1, 0))),
        AckedBelow(ONE, EPOCH, -1, Generation(0)),
        SubscriptionDeleted(SubscriptionNumber(2**63)),
        DeadLetterPublished(ONE, TopicId("0F" * 16), 1),
        ConsumerActivated(ONE, "x" * 70_000, Generation(1)),
    ],
)
def test_invalid_change_is_never_written(change: Change) -> None:
    """No range, ranges that overlap or go backwards, numbers and texts beyond their limits."""
    with pytest.raises(InvariantViolated):
        encode_change(change)
