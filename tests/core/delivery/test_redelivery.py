"""Bounds of what is counted at once, and a client that does not say which delivery it means."""

import pytest

from oncelog.core.delivery.events import COUNTED_MAX, NackRequested
from oncelog.core.errors import InvalidArgument
from tests.core.delivery.subscription_world import SHARED, World, ranges


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


@pytest.mark.hazard("nack-counted-twice")
def test_negative_acknowledgement_of_an_older_client_counts() -> None:
    """It does not say which delivery it means."""
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10)
    for request in (1_000, 1_001):
        world.post(NackRequested(consumer.number, request, consumer.subscribed.seek_epoch, ranges(0), 0))
        world.write()
    assert consumer.got == [(0, 1), (0, 2), (0, 3)]
