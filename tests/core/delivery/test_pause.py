"""PIP-299: when new messages are withheld because of the ack state, when they go on, and the hard limit."""

from dataclasses import replace

import pytest

from oncelog.core.acks.ack_set import AckSet
from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.acks.changes import (
    Acked,
    Change,
    IndexRange,
    MessagesSkipped,
    Redelivered,
    Redelivery,
    Sought,
    SubscriptionCreated,
    SubscriptionType,
)
from oncelog.core.acks.roaring_blocks import BITSET_BYTES, BLOCK_INDEXES, Block, BlockForm
from oncelog.core.delivery.limits import AckStateCheck
from oncelog.core.ids import SeekEpoch, SubscriptionNumber
from oncelog.core.policies.ack_state_limit import TOPIC_STATE_BYTES_MAX, AckStateLimit, PausePolicy
from tests.core.builders import at

MESSAGES = 200
ONE = SubscriptionNumber(1)
FIRST = SeekEpoch(0)
ON = PausePolicy(enabled=True, unacked_ranges_max=50)
OFF = PausePolicy(enabled=False, unacked_ranges_max=50)


def single(*indexes: int) -> tuple[IndexRange, ...]:
    return tuple(IndexRange(index, index) for index in indexes)


class World:
    """One subscription of 200 messages, with the limit of 50 ranges of SubscriptionPauseOnAckStatPersistTest."""

    def __init__(self, policy: PausePolicy = ON, kind: SubscriptionType = SubscriptionType.SHARED) -> None:
        self.ack_limit: AckStateCheck = AckStateLimit(policy)
        self.state = SubscriptionsState()
        self.paused = False
        self.entries = 0
        self.fold(SubscriptionCreated(ONE, "ab" * 16, "s", kind, 0))

    @property
    def acks(self) -> AckSet:
        return self.state.subscriptions[ONE].acks

    def fold(self, change: Change) -> bool:
        """Fold a change and ack_limit; returns whether new messages are withheld."""
        self.state.fold_changes(at(self.entries), [change])
        self.entries += 1
        return self.look()

    def look(self, ack_limit: AckStateCheck | None = None) -> bool:
        self.ack_limit = ack_limit or self.ack_limit
        self.paused = bool(self.ack_limit.pause_reason(self.state.subscriptions[ONE], paused=self.paused))
        return self.paused

    def ack(self, *indexes: int) -> bool:
        return self.fold(Acked(ONE, FIRST, single(*indexes)))


def paused_world(kind: SubscriptionType = SubscriptionType.SHARED) -> World:
    """Every odd message is acknowledged, as in Pulsar's test."""
    world = World(ON, kind)
    assert world.ack(*range(1, MESSAGES, 2))
    return world


def test_messages_are_withheld_above_the_limit_and_not_at_it() -> None:
    """50 ranges are allowed, 51 are not; the reason names both numbers."""
    world = World()
    assert not world.ack(*range(1, 101, 2))
    assert world.ack(102)
    reason = world.ack_limit.pause_reason(world.state.subscriptions[ONE], paused=False)
    assert reason == "51 acknowledged ranges, limit 50"


def test_policy_that_is_off_withholds_nothing() -> None:
    """Whatever the state is, and whether the ack log can be written or not."""
    world = World(OFF)
    assert not world.ack(*range(1, MESSAGES, 2))
    assert not world.look(AckStateLimit(OFF, writable=False))


@pytest.mark.parametrize("kind", SubscriptionType)
def test_policy_withholds_and_releases_for_every_type(kind: SubscriptionType) -> None:
    """Pulsar's exclusive and failover subscriptions never pause, and lose acknowledgements at a restart."""
    world = World(OFF, kind)
    assert not world.ack(*range(1, MESSAGES, 2))
    assert world.look(AckStateLimit(ON))
    assert not world.look(AckStateLimit(OFF))
    assert world.look(AckStateLimit(ON))


def test_acknowledging_the_rest_releases() -> None:
    """Filling holes lowers the state down to nothing."""
    world = paused_world()
    assert not world.ack(*range(0, MESSAGES, 2))
    assert world.acks.mark_delete == MESSAGES


@pytest.mark.parametrize(
    "change",
    [
        MessagesSkipped(ONE, FIRST, (IndexRange(0, 150),)),
        MessagesSkipped(ONE, FIRST, (IndexRange(0, MESSAGES - 1),)),
        Sought(ONE, SeekEpoch(1), 0, redo=False),
        Sought(ONE, SeekEpoch(1), MESSAGES, redo=False),
    ],
    ids=["skip", "clear backlog", "seek", "reset"],
)
def test_skip_clear_and_seek_release(change: Change) -> None:
    """They acknowledge the holes, or begin with an empty state."""
    assert not paused_world().fold(change)


@pytest.mark.hazard("dispatch-paused-for-ever")
def test_messages_go_on_below_eighty_percent() -> None:
    """From 50 down to 40 ranges they stay withheld, so that not every acknowledgement changes it."""
    world = paused_world()
    holes = iter(range(0, MESSAGES, 2))
    while world.acks.range_count > 41:
        assert world.ack(next(holes))
    assert world.ack(next(holes))
    assert world.acks.range_count == 40
    assert not world.ack(next(holes))
    assert world.acks.range_count == 39
    later = MESSAGES
    while world.acks.range_count < 50:
        later += 2
        assert not world.ack(later)
    assert world.ack(later + 2)


@pytest.mark.hazard("dispatch-paused-for-ever")
def test_state_is_judged_at_load_and_at_a_lowered_limit() -> None:
    """Pulsar looks again only after the next acknowledgement, which a waiting consumer may never send."""
    world = World(PausePolicy(enabled=True, unacked_ranges_max=1000))
    assert not world.ack(*range(1, MESSAGES, 2))
    assert world.look(AckStateLimit(ON))
    assert AckStateLimit(ON).pause_reason(world.state.subscriptions[ONE], paused=False)
    assert not world.look(AckStateLimit(PausePolicy(enabled=True, unacked_ranges_max=126)))


@pytest.mark.hazard("dispatch-paused-for-ever")
@pytest.mark.parametrize("limit", [0, 1])
@pytest.mark.parametrize("field", ["ranges", "bytes"])
def test_smallest_limits_have_a_way_out(limit: int, field: str) -> None:
    """80 % of 0 or 1 is reached by an empty state."""
    policy = PausePolicy(enabled=True, unacked_ranges_max=limit)
    if field == "bytes":
        policy = PausePolicy(enabled=True, state_bytes_max=limit)
    world = World(policy)
    assert world.ack(1, 3)
    assert world.ack(0)
    assert not world.ack(2)


@pytest.mark.parametrize(
    "policy", [PausePolicy(enabled=True, unacked_ranges_max=0), PausePolicy(enabled=True, state_bytes_max=0)]
)
def test_limit_of_zero_withholds_while_any_message_is_acknowledged_out_of_order(policy: PausePolicy) -> None:
    """That is what 0 means: not "no limit", and not "no acknowledgement". In order, nothing is withheld."""
    world = World(policy)
    assert not world.ack(0)
    assert world.ack(2)
    assert not world.ack(1)


@pytest.mark.hazard("dispatch-paused-for-ever")
def test_messages_are_withheld_while_the_ack_log_cannot_be_written() -> None:
    """What would be delivered could not be acknowledged; it goes on when the chain can be written again."""
    world = World()
    assert world.look(AckStateLimit(ON, writable=False))
    assert not world.look(AckStateLimit(ON))


@pytest.mark.hazard("dispatch-paused-for-ever")
def test_delivery_counts_withhold_nothing() -> None:
    """Only acknowledgements can lower the state. Counts without one would withhold messages for ever."""
    world = World(PausePolicy(enabled=True, state_bytes_max=100))
    counted = tuple(Redelivery(index, 2, 0) for index in range(MESSAGES))
    assert not world.fold(Redelivered(ONE, FIRST, counted))


def test_state_of_too_many_bytes_withholds() -> None:
    """The second limit."""
    world = World(PausePolicy(enabled=True, state_bytes_max=1000))
    assert not world.ack(*range(1, 300, 2))
    assert world.ack(*range(1, 600, 2))
    assert not world.ack(*range(0, 400, 2))


@pytest.mark.hazard("ack-state-at-its-limit")
def test_topic_is_full_at_its_hard_limit_and_not_before() -> None:
    """With or without the policy."""
    world = World(OFF)
    half, bits = BLOCK_INDEXES // 2, b"\xaa" * BITSET_BYTES

    def grown(blocks: int) -> AckSet:
        return AckSet.of_blocks(0, [Block(number, BlockForm.BITSET, half, bits) for number in range(blocks)])

    acks = grown(8000)
    assert acks.state_bytes < TOPIC_STATE_BYTES_MAX
    world.state.restore(replace(world.state.subscriptions[ONE], acks=acks))
    assert not world.ack_limit.full(world.state)
    world.state.restore(replace(world.state.subscriptions[ONE], acks=grown(8200)))
    assert world.ack_limit.full(world.state)
