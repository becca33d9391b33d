"""The fold of the ack log, compared with a model on plain sets after random changes."""

import random

import pytest

from oncelog.core.acks.ack_format import decode_changes, encode_change, encode_changes
from oncelog.core.acks.ack_state import Ignored, SubscriptionsState
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
from oncelog.core.ids import (
    BEFORE_ALL,
    EntryId,
    Generation,
    LedgerId,
    Position,
    SeekEpoch,
    SubscriptionNumber,
    TopicId,
)
from oncelog.core.snapshots.ack_snapshot import encode_subscriptions, restore_subscriptions
from oncelog.verify.violation import Violation
from tests.oracles.ack_model import AckModel

INDEXES = 60
STORES = ("5a" * 16, "5b" * 16)
DEAD_LETTER_TOPICS = (TopicId("0a" * 16), TopicId("0b" * 16))


def random_ranges(rng: random.Random) -> tuple[IndexRange, ...]:
    ends = sorted(rng.sample(range(INDEXES), 2 * rng.randint(1, 4)))
    return tuple(IndexRange(first, last) for first, last in zip(ends[::2], ends[1::2], strict=True))


def random_change(rng: random.Random) -> Change:
    """A change of a few subscriptions; about half of them contradict the state and must have no effect."""
    number, epoch = SubscriptionNumber(rng.randint(1, 6)), SeekEpoch(rng.choice((0, 0, 0, 1, 1, 2)))
    generation, topic = Generation(rng.randint(0, 3)), rng.choice(DEAD_LETTER_TOPICS)
    messages = tuple(Redelivery(first, 1, 0) for first, _ in random_ranges(rng))
    return rng.choices(
        (
            SubscriptionCreated(
                number, f"{rng.getrandbits(128):032x}", rng.choice("abc"), SubscriptionType.SHARED, rng.randrange(9)
            ),
            SubscriptionDeleted(number),
            ConsumerActivated(number, "worker", generation),
            Acked(number, epoch, random_ranges(rng)),
            AckedBelow(number, epoch, rng.randrange(INDEXES), generation),
            Redelivered(number, epoch, messages),
            DeadLettered(number, rng.randrange(INDEXES), topic, rng.randrange(3)),
            DeadLetterPublished(number, topic, rng.randrange(3)),
            Sought(number, SeekEpoch(epoch + 1), rng.randrange(INDEXES), redo=rng.random() < 0.5),
            PropertiesSet(number, (("key", "value"),)),
            MessagesSkipped(number, epoch, random_ranges(rng)),
            Evicted(number, epoch, random_ranges(rng), EvictionReason.TTL),
            EffectsBound(
                number,
                epoch,
                generation,
                rng.choice(STORES),
                "effect",
                rng.choice((0, 0, rng.randrange(9))),
                rebind=rng.random() < 0.1,
            ),
            Rewound(number, SeekEpoch(epoch + 1), generation, random_ranges(rng)),
            OffsetCommitted(number, generation, rng.randrange(INDEXES), rng.choice(("", "m")), rng.randrange(9)),
        ),
        (3, 1, 3, 9, 3, 3, 6, 3, 2, 1, 1, 1, 3, 3, 3),
    )[0]


@pytest.mark.parametrize("seed", range(60))
def test_fold_agrees_with_plain_sets(seed: int) -> None:
    """Entries of one or more changes, through their bytes; invariants and model after each."""
    rng = random.Random(seed)
    state, model = SubscriptionsState(), AckModel()
    for entry in range(80):
        changes = [random_change(rng) for _ in range(rng.choice((1, 1, 1, 2, 5)))]
        stored = decode_changes(encode_changes([encode_change(change) for change in changes]))
        state.fold_changes(Position(LedgerId(1), EntryId(entry)), stored)
        for change in changes:
            model.apply(change)
        state.check_invariants()
        model.compare(state, range(INDEXES + 2))


@pytest.mark.parametrize("seed", range(40))
def test_snapshot_and_replay_equal_the_fold(seed: int) -> None:
    """snapshot(P) + replay(P..end) == fold(whole chain), for a base and the deltas up to any place in the chain."""
    rng = random.Random(1000 + seed)
    entries = [tuple(random_change(rng) for _ in range(rng.choice((1, 2, 4)))) for _ in range(80)]
    cuts = sorted(rng.sample(range(len(entries)), 5))
    live, chunks = SubscriptionsState(), list[bytes]()
    states: list[SubscriptionsState] = []
    for entry, changes in enumerate(entries):
        live.fold_changes(Position(LedgerId(1), EntryId(entry)), changes)
        if entry in cuts:
            base = not chunks or rng.random() < 0.2
            taken = encode_subscriptions(entry, live, base=base)
            chunks = taken if base else chunks + taken
            live.snapshot_taken()
            states.append(restore_subscriptions(chunks, live.position))
    for restored in states:
        for entry in range(restored.position.entry_id + 1, len(entries)):
            restored.fold_changes(Position(LedgerId(1), EntryId(entry)), entries[entry])
        restored.check_invariants()
        assert (restored.position, restored.next_number) == (live.position, live.next_number)
        assert restored.names == live.names
        assert restored.subscriptions == live.subscriptions


def test_random_changes_reach_each_reason_to_ignore() -> None:
    """The comparison above means something only if the changes that must be ignored occur."""
    ignored = dict.fromkeys(Ignored, 0)
    first = [
        SubscriptionCreated(SubscriptionNumber(number), "ab" * 16, name, SubscriptionType.SHARED, 0)
        for number, name in enumerate("abcde", 1)
    ]
    for seed in range(20):
        rng, state = random.Random(seed), SubscriptionsState()
        changes = [*first, *(random_change(rng) for _ in range(200))]
        state.fold_changes(Position(LedgerId(1), EntryId(0)), changes)
        for reason, count in state.ignored.items():
            ignored[reason] += count
    assert min(ignored.values()) > 0


def test_model_reports_a_lost_acknowledgement() -> None:
    """A fold that misses a change is a violation."""
    created = SubscriptionCreated(SubscriptionNumber(1), "ab" * 16, "s", SubscriptionType.SHARED, 0)
    acked = Acked(SubscriptionNumber(1), SeekEpoch(0), (IndexRange(2, 3),))
    state, model = SubscriptionsState(), AckModel()
    assert state.position == BEFORE_ALL
    state.fold_changes(Position(LedgerId(1), EntryId(0)), [created])
    model.apply(created)
    model.compare(state, range(5))
    model.apply(acked)
    with pytest.raises(Violation, match="message 2"):
        model.compare(state, range(5))
