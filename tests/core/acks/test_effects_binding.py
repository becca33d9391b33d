"""What the log knows of a subscription's effects: the store they are in, and which messages it should have."""

import pytest

from oncelog.core.acks.ack_format import decode_changes, encode_change, encode_changes
from oncelog.core.acks.ack_state import EffectsBinding, Ignored, SubscriptionState
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
    Rewound,
    Sought,
)
from oncelog.core.errors import CorruptEntry
from oncelog.core.ids import Generation, SeekEpoch
from tests.core.builders import TOPIC, at
from tests.core.snapshots.test_subscriptions_snapshot import FIRST, ONE, Snapshots, created, single

STORE, OTHER_STORE = "5a" * 16, "0b" * 16
NONE = Generation(0)


def bound(
    store: str = STORE, effect: str = "invoices", epoch: int = 0, *, generation: int = 0, forgotten_below: int = 0,
    rebind: bool = False,
) -> EffectsBound:  # fmt: skip
    return EffectsBound(ONE, SeekEpoch(epoch), Generation(generation), store, effect, forgotten_below, rebind)


def rewound(epoch: int, *ranges: tuple[int, int], generation: int = 0) -> Rewound:
    return Rewound(ONE, SeekEpoch(epoch), Generation(generation), tuple(IndexRange(*each) for each in ranges))


def acked(*indexes: int, epoch: int = 0) -> Acked:
    return Acked(ONE, SeekEpoch(epoch), single(*indexes))


class Effects(Snapshots):
    """A subscription, its snapshots, and why changes had no effect."""

    def __init__(self, *changes: Change) -> None:
        super().__init__(created(), *changes)

    @property
    def state(self) -> SubscriptionState:
        return self.live.subscriptions[ONE]

    @property
    def binding(self) -> EffectsBinding:
        assert self.state.binding is not None
        return self.state.binding

    @property
    def consumed(self) -> list[tuple[int, int]]:
        return [(first, last) for first, last in self.binding.consumed.ranges()]

    def refused(self, change: Change) -> Ignored | None:
        (outcome,) = self.live.fold_changes(at(self.entries), [change])
        self.entries += 1
        return outcome


@pytest.mark.hazard("skipped-message-rewound", "skipped-message-counted-as-consumed")
def test_only_what_consumers_acknowledge_is_consumed() -> None:
    """Before the binding nothing is; then neither skipped nor evicted messages nor dead letters are."""
    effects = Effects(acked(0, 1), bound())
    assert effects.consumed == []
    effects.fold(MessagesSkipped(ONE, FIRST, single(2, 6)), Evicted(ONE, FIRST, single(3), EvictionReason.TTL))
    effects.fold(DeadLettered(ONE, 4, TOPIC, 0), DeadLettered(ONE, 9, TOPIC, 1), acked(4, 5, 6, 7))
    effects.fold(DeadLetterPublished(ONE, TOPIC, 1))
    assert effects.consumed == [(5, 5), (7, 7)]
    assert (effects.state.mark_delete, effects.state.acks.ranges()) == (8, [IndexRange(9, 9)])


def test_cumulative_acknowledgement_consumes_what_was_left() -> None:
    effects = Effects(ConsumerActivated(ONE, "w", Generation(1)), bound(generation=1))
    effects.fold(MessagesSkipped(ONE, FIRST, single(2)), AckedBelow(ONE, FIRST, 5, Generation(1)))
    assert effects.consumed == [(0, 1), (3, 4)]


@pytest.mark.hazard("two-stores-take-turns")
def test_subscription_belongs_to_one_store() -> None:
    """Another store is refused, whichever was written first, unless an operator says that it takes its place."""
    effects = Effects(bound(), acked(0))
    assert effects.refused(bound(OTHER_STORE)) is Ignored.OTHER_STORE
    assert effects.refused(bound(effect="mails")) is Ignored.OTHER_STORE
    effects.fold(bound(OTHER_STORE, rebind=True))
    assert (effects.binding.store_id, effects.consumed) == (OTHER_STORE, [(0, 0)])


def test_binding_and_rewind_of_a_deposed_consumer_have_no_effect() -> None:
    effects = Effects(ConsumerActivated(ONE, "w", Generation(1)), bound(generation=1), acked(0))
    effects.fold(ConsumerActivated(ONE, "v", Generation(2)))
    assert effects.refused(bound(generation=1, forgotten_below=1)) is Ignored.FENCED_GENERATION
    assert effects.refused(rewound(1, (0, 0), generation=1)) is Ignored.FENCED_GENERATION
    assert effects.refused(rewound(2, (0, 0), generation=2)) is Ignored.STALE_SEEK_EPOCH
    assert effects.refused(bound(generation=2, epoch=1)) is Ignored.STALE_SEEK_EPOCH
    effects.fold(rewound(1, (0, 0), generation=2))
    assert (effects.state.mark_delete, effects.consumed, effects.state.seek_epoch) == (0, [], 1)


def test_rewind_without_a_binding_has_no_effect() -> None:
    effects = Effects(acked(0))
    assert effects.refused(rewound(1, (0, 0))) is Ignored.NOT_BOUND
    assert (effects.state.mark_delete, effects.state.seek_epoch) == (1, 0)


def test_rewind_takes_consumed_messages_only() -> None:
    """Skipped messages inside of the ranges stay acknowledged, and so does everything outside."""
    effects = Effects(bound(), MessagesSkipped(ONE, FIRST, single(2)), acked(0, 1, 3, 4, 6))
    effects.fold(rewound(1, (1, 3), (6, 900)))
    assert effects.consumed == [(0, 0), (4, 4)]
    assert (effects.state.mark_delete, effects.state.acks.ranges()) == (1, [IndexRange(2, 2), IndexRange(4, 4)])
    effects.fold(acked(1, 3, 6, epoch=1))
    assert effects.consumed == [(0, 1), (3, 4), (6, 6)]


@pytest.mark.hazard("redo-restored-to-before")
def test_redo_begins_anew_and_a_plain_seek_does_not() -> None:
    """A step back alone is filtered by the store, so the messages stay consumed; a redo tells from where on they are to
    take effect again. What is before that stays consumed."""
    effects = Effects(bound(), acked(0, 1, 2, 5))
    effects.fold(Sought(ONE, SeekEpoch(1), 1, redo=False))
    assert (effects.consumed, effects.state.redo_epoch) == ([(0, 2), (5, 5)], 0)
    effects.fold(acked(1, epoch=1), Sought(ONE, SeekEpoch(2), 1, redo=True), acked(1, epoch=2))
    assert (effects.consumed, effects.state.redo_epoch, effects.state.redo_index) == ([(0, 1)], 2, 1)


@pytest.mark.parametrize("redo", [False, True])
def test_seek_back_over_a_skipped_message_takes_the_skip_back(redo: bool) -> None:
    """The operator asks for it again. Beyond it in the store it is filtered; it is acknowledged by a consumer then, and
    a store that is restored to before it gets it, so that its first effect is late rather than lost."""
    effects = Effects(bound(), MessagesSkipped(ONE, FIRST, single(2)), acked(0, 1, 3, 4))
    assert effects.consumed == [(0, 1), (3, 4)]
    effects.fold(Sought(ONE, SeekEpoch(1), 1, redo=redo))
    assert (effects.state.mark_delete, effects.state.acks.ranges()) == (1, [])
    effects.fold(acked(1, 2, 3, 4, epoch=1), rewound(2, (2, 4)))
    assert (effects.state.mark_delete, effects.consumed) == (2, [(0, 1)])


@pytest.mark.hazard("skipped-message-rewound")
@pytest.mark.parametrize("redo", [False, True])
def test_seek_behind_a_skipped_message_leaves_it_skipped(redo: bool) -> None:
    """Also when the store is restored to before both."""
    effects = Effects(bound(), MessagesSkipped(ONE, FIRST, single(2)), acked(0, 1, 3, 4))
    effects.fold(Sought(ONE, SeekEpoch(1), 4, redo=redo), acked(4, epoch=1), rewound(2, (1, 4)))
    assert (effects.state.acks.mark_delete, effects.state.acks.ranges()) == (1, [IndexRange(2, 2)])


@pytest.mark.hazard("redo-hides-what-is-before-it")
def test_redo_keeps_what_is_consumed_before_it() -> None:
    """Behind it nothing is consumed, also far ahead; before all that was known, the knowledge begins there."""
    effects = Effects(bound(), acked(*range(10), 12), bound(forgotten_below=4))
    effects.fold(Sought(ONE, SeekEpoch(1), 8, redo=True))
    assert (effects.consumed, effects.binding.consumed.known_from, effects.binding.consumed.forgotten_below) == (
        [(4, 7)], 4, 4,
    )  # fmt: skip
    effects.fold(acked(8, 9, epoch=1), Sought(ONE, SeekEpoch(2), 2, redo=True), acked(2, 3, epoch=2))
    assert (effects.consumed, effects.binding.consumed.known_from, effects.binding.consumed.forgotten_below) == (
        [(2, 3)], 2, 2,
    )  # fmt: skip


def test_what_is_forgotten_is_told() -> None:
    effects = Effects(bound(), acked(*range(10), 12), bound(forgotten_below=4))
    assert (effects.consumed, effects.binding.consumed.forgotten_below) == ([(4, 9), (12, 12)], 4)
    effects.fold(bound(forgotten_below=2), bound(forgotten_below=11))
    assert (effects.consumed, effects.binding.consumed.forgotten_below) == ([(12, 12)], 11)


def test_snapshots_hold_it() -> None:
    """Bases and deltas, before and after a rewind, which takes blocks of earlier snapshots back."""
    effects = Effects(bound(), acked(*range(0, 200_000, 3)))
    effects.take(base=True)
    effects.fold(acked(1, 70_001))
    effects.take()
    effects.fold(rewound(1, (0, 140_000)), acked(5, epoch=1))
    effects.take()
    effects.fold(bound(epoch=1, forgotten_below=150_000))
    effects.take()
    effects.fold(Sought(ONE, SeekEpoch(2), 7, redo=True))
    effects.take()
    effects.take(base=True)
    assert effects.restored().subscriptions[ONE].redo_index == 7


def test_entry_of_effects_has_its_own_format() -> None:
    """An owner that does not know these changes refuses the entry; entries without them are as they were."""
    assert encode_changes([encode_change(acked(1))])[0] == 1
    data = encode_changes([encode_change(acked(1)), encode_change(bound())])
    assert data[0] == 2
    with pytest.raises(CorruptEntry, match="not those of format 1"):
        decode_changes(b"\x01" + data[1:])
