"""One subscription: what no story says, because it looks into the core or counts up to a limit."""

from dataclasses import replace

import pytest

from oncelog.core.delivery import acknowledging
from oncelog.core.delivery.subscription import DEFERRED_MAX
from oncelog.core.errors import ServiceUnavailable, StaleSeekEpoch, TooManyRequests
from tests.core.delivery.subscription_world import FAILOVER, SHARED, Client, RangeLimit, World


@pytest.mark.hazard("activation-not-durable")
def test_request_to_attach_that_was_overtaken_ends_no_newer_stream() -> None:
    """A client that waits too long asks again, and an owner looks up the rights of each request on its own. The first
    request, if it came into effect last, would end the consumer that the second one has attached."""
    world = World(messages=[2])
    first = world.subscribe("a", SHARED, instance="one", window=10)
    late = world.openings[0] = Client(replace(first.opening, call=0))
    world.post(late.opening)
    assert isinstance(late.answer, ServiceUnavailable)
    assert first.ended is None
    assert first.take() == [0, 1]


def test_few_requests_wait_for_a_seek_in_flight() -> None:
    world = World(messages=[2])
    consumer = world.subscribe("a", SHARED, window=10)
    world.seek(0, written=False)
    answers = [world.ack(consumer, 0, written=False) for _ in range(DEFERRED_MAX + 1)]
    assert set(answers[:-1]) == {"waits"}
    assert isinstance(answers[-1], TooManyRequests)
    world.write()
    assert isinstance(world.ack(consumer, 0, epoch=0), StaleSeekEpoch)


def test_look_ahead_reads_nothing_without_credit() -> None:
    world = World(messages=[5] * 50)
    world.reads_answered = False
    consumer = world.subscribe("a", SHARED)
    assert world.reads == []
    world.flow(consumer, 5)
    assert [read.first_index for read in world.reads] == [0]
    world.flow(consumer, 5)
    assert len(world.reads) == 1


def test_partitions_are_spread_over_failover_consumers() -> None:
    world = World(messages=[1], partition=1)
    world.subscribe("a", FAILOVER, window=10)
    second = world.subscribe("b", FAILOVER, window=10)
    assert second.take() == [0]


def test_acknowledgements_in_memory_are_bounded() -> None:
    world = World(messages=[6])
    consumer = world.subscribe("a", SHARED, window=10)
    world.topic.set_ack_state_limit(RangeLimit(1_000, full=True))
    world.subscription._acks.in_memory.add_range(1 << 40, (1 << 40) + acknowledging.IN_MEMORY_MAX)
    assert isinstance(world.ack(consumer, 3), TooManyRequests)
