"""PIP-299: new messages are withheld while the ack state is over its limit, and there is always a way out."""

import pytest

from oncelog.core.acks.ack_state import SubscriptionState
from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery import acknowledging
from oncelog.core.delivery.limits import NO_LIMITS
from oncelog.core.errors import TooManyRequests
from tests.core.delivery.subscription_world import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, Client, RangeLimit, World


def paused(type_: SubscriptionType = SHARED, *, window: int = 6) -> tuple[World, Client]:
    """A world in which `window` messages are out, 1, 3 and 5 are acknowledged, and the others are withheld."""
    world = World()
    consumer = world.subscribe("a", type_, window=window)
    world.store(10, ["k", "l", "k", "l", "k", "l", "m", "m", "m", "m"])
    world.topic.set_ack_state_limit(RangeLimit())
    assert consumer.take() == list(range(window))
    world.ack(consumer, 1, 3, 5)
    world.flow(consumer, 100, handed_out=window)
    return world, consumer


@pytest.mark.parametrize("type_", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
def test_no_new_messages_while_the_ack_state_is_over_its_limit(type_: SubscriptionType) -> None:
    world, consumer = paused(type_)
    assert consumer.take() == []
    blocked = world.subscription.blocked()
    assert blocked is not None
    assert (blocked.reason, blocked.lowest_hole, blocked.holder) == ("ranges", 0, "a")
    world.ack(consumer, 0, 2)
    assert consumer.take() == []
    world.ack(consumer, 4)
    assert consumer.take() == [6, 7, 8, 9]
    assert world.subscription.blocked() is None


@pytest.mark.parametrize("type_", [SHARED, KEY_SHARED])
@pytest.mark.hazard("dispatch-paused-for-ever")
def test_holes_get_a_time_out_and_go_to_any_consumer_with_credit(type_: SubscriptionType) -> None:
    """Every hole is with a consumer that never acknowledges."""
    world, consumer = paused(type_)
    world.flow(consumer, 0, handed_out=6)
    other = world.subscribe("b", type_, window=100)
    world.pass_time(59_000)
    world.write()
    assert other.take() == []
    world.pass_time(4_000)
    world.write()
    assert other.take() == [0, 2, 4]
    world.ack(other, 0, 2, 4)
    assert world.subscription.blocked() is None


@pytest.mark.hazard("dispatch-paused-for-ever")
def test_delays_end_while_new_messages_are_withheld() -> None:
    """Every hole is delayed by an hour."""
    world = World(messages=[4])
    consumer = world.subscribe("a", SHARED, window=10)
    consumer.take()
    world.nack(consumer, 0, delay_ms=3_600_000)
    world.topic.set_ack_state_limit(RangeLimit(0))
    world.ack(consumer, 1)
    assert consumer.take() == [0]
    world.nack(consumer, 0, delay_ms=3_600_000)
    assert consumer.got == [(0, 3)]


@pytest.mark.hazard("dispatch-paused-for-ever")
def test_pause_is_judged_when_the_topic_is_loaded() -> None:
    """Nothing would look after a takeover, and the limit may have been lowered."""
    world, consumer = paused()
    world.ack_limit = RangeLimit()
    world.take_over()
    consumer = world.subscribe("b", SHARED, window=100)
    world.pass_time(1_000)
    assert consumer.take() == [0, 2, 4]
    world.ack(consumer, 0, 2, 4)
    assert consumer.take() == [6, 7, 8, 9]


def test_pause_ends_when_the_policy_is_switched_off() -> None:
    world, consumer = paused()
    assert world.subscription.blocked() is not None
    world.topic.set_ack_state_limit(NO_LIMITS)
    world.settle()
    assert consumer.take() == [6, 7, 8, 9]


def test_messages_that_were_delivered_before_are_no_new_ones() -> None:
    """A consumer is lost while new messages are withheld: what it held above the holes is delivered again."""
    world, consumer = paused(window=8)
    world.detach(consumer, lost=False)
    other = world.subscribe("b", SHARED, window=100)
    assert other.take() == [0, 2, 4, 6, 7]


def test_rejected_messages_without_any_acknowledgement_stay_deliverable_after_a_takeover() -> None:
    """Their counts are part of the state, so they have to go for it to shrink."""
    world = World(messages=[3])
    consumer = world.subscribe("a", SHARED, window=10)
    world.nack(consumer, 0, 1, delay_ms=3_600_000)
    world.ack_limit = AlwaysPaused()
    world.take_over()
    consumer = world.subscribe("a", SHARED, window=10)
    world.pass_time(1_000)
    assert consumer.take() == [0, 1]


class AlwaysPaused(RangeLimit):
    def pause_reason(self, state: SubscriptionState, *, paused: bool) -> str:
        return "bytes"


@pytest.mark.hazard("ack-state-at-its-limit")
def test_acknowledgement_at_the_hard_limit_is_in_memory_only() -> None:
    """It hides its message, moves no mark, and is written first when there is room."""
    world = World(messages=[6])
    consumer = world.subscribe("a", SHARED, window=10)
    consumer.take()
    world.topic.set_ack_state_limit(RangeLimit(1_000, full=True))
    world.ack(consumer, 3)
    assert (world.answers[-1].error, world.answers[-1].durable) == (None, False)
    assert world.acked() == []
    world.detach(consumer, lost=False)
    consumer = world.subscribe("b", SHARED, window=10)
    assert consumer.take() == [0, 1, 2, 4, 5]
    world.topic.set_ack_state_limit(RangeLimit(1_000))
    world.fail()
    assert world.acked() == []
    world.write()
    assert world.acked() == [3]


def test_acknowledgement_that_lowers_the_state_is_always_durable() -> None:
    world = World(messages=[6])
    consumer = world.subscribe("a", SHARED, window=10)
    world.ack(consumer, 2)
    world.topic.set_ack_state_limit(RangeLimit(1_000, full=True))
    world.ack(consumer, 0)
    world.ack(consumer, 1)
    assert all(answer.durable for answer in world.answers)
    assert world.acked() == [0, 1, 2]


def test_lowest_acknowledgements_in_memory_are_written_although_the_state_is_full() -> None:
    """The state does not grow by them. If all its holes
    were in memory, it would stay full for ever, and dispatch paused."""
    world = World(messages=[8])
    consumer = world.subscribe("a", SHARED, window=10)
    world.ack(consumer, 5)
    world.topic.set_ack_state_limit(RangeLimit(1_000, full=True))
    for index in (3, 1, 2):
        world.ack(consumer, index)
    assert [answer.durable for answer in world.answers] == [True, False, False, False]
    world.ack(consumer, 0)
    assert world.acked() == [0, 1, 2, 3, 5]
    world.fail()
    assert world.acked() == [0, 1, 2, 3, 5]


def test_acknowledgements_in_memory_are_bounded() -> None:
    world = World(messages=[6])
    consumer = world.subscribe("a", SHARED, window=10)
    world.topic.set_ack_state_limit(RangeLimit(1_000, full=True))
    world.subscription._acks.in_memory.add_range(1 << 40, (1 << 40) + acknowledging.IN_MEMORY_MAX)
    assert isinstance(world.ack(consumer, 3), TooManyRequests)
