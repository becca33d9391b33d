"""The ack time-out runs while an application has a message; ordered types get everything from there on again."""

import pytest

from oncelog.core.delivery.events import NackRequested
from oncelog.core.ids import TopicId
from tests.core.delivery.subscription_world import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, World, ranges

DLQ = TopicId("d1" * 16)
TYPES = [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED]
ORDERED = [EXCLUSIVE, FAILOVER]


@pytest.mark.hazard("timeout-in-the-window")
@pytest.mark.parametrize("timeout_ms", [1, 86_400_000])
def test_shortest_and_longest_time_outs(timeout_ms: int) -> None:
    """Never early, and late by a sixteenth or half a second."""
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10, ack_timeout_ms=timeout_ms)
    world.pass_time(1_000)
    world.receive(consumer, 0, window=10)
    consumer.take()
    world.pass_time(timeout_ms - 1)
    world.write()
    assert consumer.take() == []
    world.pass_time(timeout_ms // 16 + 500)
    world.write()
    assert consumer.got == [(0, 2)]


# --- a request counts the delivery that it means ----------------------------------------------------------------------


@pytest.mark.hazard("nack-counted-twice")
def test_negative_acknowledgement_of_an_older_client_counts() -> None:
    """It does not say which delivery it means."""
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10)
    for request in (1_000, 1_001):
        world.post(NackRequested(consumer.number, request, consumer.subscribed.seek_epoch, ranges(0), 0))
        world.write()
    assert consumer.got == [(0, 1), (0, 2), (0, 3)]
