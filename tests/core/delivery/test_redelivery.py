"""Messages that come back: takeovers with deliveries out, lost consumers, negative acknowledgements, dead letters."""

import pytest

from oncelog.core.delivery.events import (
    COUNTED_MAX,
)
from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import TopicId
from tests.core.delivery.subscription_world import SHARED, World

DLQ, OTHER_DLQ = TopicId("d1" * 16), TopicId("d2" * 16)


# --- takeovers and returns --------------------------------------------------------------------------------------------


# --- delivery counts --------------------------------------------------------------------------------------------------


@pytest.mark.hazard("wrong-delivery-count")
def test_counts_of_a_lost_consumer_are_bounded() -> None:
    """A record for each of millions of messages would hold up all topics of the owner."""
    count = COUNTED_MAX + 5
    world = World(messages=[count])
    first = world.subscribe("a", SHARED, window=count)
    world.flow(first, count, handed_out=count, begun=range(count))
    world.detach(first, lost=False)
    world.write()
    second = world.subscribe("b", SHARED, window=count)
    assert second.got == [(i, 2 if i < COUNTED_MAX else 1) for i in range(count)]


@pytest.mark.hazard("wrong-delivery-count")
def test_one_negative_acknowledgement_is_of_a_bounded_number_of_messages() -> None:
    count = COUNTED_MAX + 5
    world = World(messages=[count])
    consumer = world.subscribe("a", SHARED, window=count)
    assert isinstance(world.nack(consumer, *range(count)), InvalidArgument)
    assert world.nack(consumer, *range(COUNTED_MAX), delay_ms=0) is None


@pytest.mark.hazard("wrong-delivery-count")
def test_many_messages_time_out_at_several_ticks() -> None:
    count = COUNTED_MAX + 5
    world = World(messages=[count])
    first = world.subscribe("a", SHARED, window=count, ack_timeout_ms=10_000)
    second = world.subscribe("b", SHARED, window=count)
    world.receive(first, *range(count))
    world.pass_time(10_000)
    world.write()
    assert second.indexes == list(range(COUNTED_MAX))
    world.pass_time(1)
    world.write()
    assert second.indexes == list(range(count))
    assert len(first.recalled) == count


# --- dead letters -----------------------------------------------------------------------------------------------------
