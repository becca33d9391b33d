"""PIP-299: new messages are withheld while the ack state is over its limit, and there is always a way out."""

from oncelog.core.acks.ack_state import SubscriptionState
from oncelog.core.delivery import acknowledging
from oncelog.core.errors import TooManyRequests
from tests.core.delivery.subscription_world import SHARED, RangeLimit, World


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


def test_acknowledgements_in_memory_are_bounded() -> None:
    world = World(messages=[6])
    consumer = world.subscribe("a", SHARED, window=10)
    world.topic.set_ack_state_limit(RangeLimit(1_000, full=True))
    world.subscription._acks.in_memory.add_range(1 << 40, (1 << 40) + acknowledging.IN_MEMORY_MAX)
    assert isinstance(world.ack(consumer, 3), TooManyRequests)
