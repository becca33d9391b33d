"""The ack time-out runs while an application has a message; ordered types get everything from there on again."""

import pytest

from oncelog.core.acks.changes import DeadLettered, EvictionReason, SubscriptionType
from oncelog.core.delivery.events import DeadLetterTopicResolved, NackRequested, ResolveDeadLetterTopic
from oncelog.core.ids import TopicId
from tests.core.delivery.subscription_world import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, RangeLimit, World, ranges

DLQ = TopicId("d1" * 16)
TYPES = [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED]
ORDERED = [EXCLUSIVE, FAILOVER]


@pytest.mark.hazard("timeout-in-the-window")
@pytest.mark.parametrize("type_", TYPES)
def test_message_that_no_application_has_received_has_no_time_out(type_: SubscriptionType) -> None:
    """What waits behind a slow message would become dead letters that nobody has seen."""
    world = World(messages=[60])
    consumer = world.subscribe(
        "a", type_, window=100, ack_timeout_ms=1_000, max_deliveries=1, dead_letter_topic="a/b/dead"
    )
    world.receive(consumer, 0, window=100)
    world.pass_time(60_000)
    world.write()
    for asked in world.other(ResolveDeadLetterTopic):
        world.post(DeadLetterTopicResolved(asked.number, asked.topic, DLQ))
    assert [change.index for change, _ in world.chain if isinstance(change, DeadLettered)] == [0]


@pytest.mark.hazard("timeout-in-the-window")
@pytest.mark.parametrize("type_", ORDERED)
def test_ordered_types_get_everything_from_the_timed_out_message_on_again(type_: SubscriptionType) -> None:
    """With the timed-out message alone, the ones behind it would come before it."""
    world = World(messages=[3, 3])
    consumer = world.subscribe("a", type_, window=6, ack_timeout_ms=10_000)
    world.receive(consumer, 0, 1)
    world.pass_time(9_000)
    world.receive(consumer, 0, 1, 2, 3, window=20)
    world.ack(consumer, 0)
    world.store(1)
    consumer.take()
    world.pass_time(1_000)
    assert consumer.recalled == [1, 2, 3, 4, 5, 6]
    world.store(1)
    assert consumer.got == []
    world.write()
    # 2 and 3 were received, so this is their second delivery; the others waited in the consumer's window.
    assert consumer.got == [(1, 2), (2, 2), (3, 2), (4, 1), (5, 1), (6, 1), (7, 1)]


@pytest.mark.hazard("timeout-in-the-window")
def test_order_is_kept_when_the_counts_of_a_time_out_are_dropped() -> None:
    world = World(messages=[4])
    consumer = world.subscribe("a", EXCLUSIVE, window=10, ack_timeout_ms=10_000)
    world.receive(consumer, 0, 1, window=10)
    consumer.take()
    world.pass_time(10_000)
    world.fail()
    assert consumer.take() == []
    world.write()
    assert consumer.got == [(0, 2), (1, 2), (2, 1), (3, 1)]


@pytest.mark.hazard("timeout-in-the-window")
def test_acknowledgement_in_flight_stops_the_time_out() -> None:
    """It comes again only if the acknowledgement is dropped, and then at once."""
    world = World(messages=[2])
    consumer = world.subscribe("a", EXCLUSIVE, window=10, ack_timeout_ms=1_000)
    world.receive(consumer, 0, 1, window=10)
    world.ack(consumer, 0, written=False)
    world.ack(consumer, 1, written=False)
    world.pass_time(5_000)
    assert consumer.recalled == []
    world.fail()
    consumer.take()
    world.pass_time(250)
    world.write()
    assert consumer.got == [(0, 2), (1, 2)]


@pytest.mark.hazard("timeout-in-the-window")
def test_report_of_a_former_delivery_starts_no_time() -> None:
    """It was written before the repeated delivery reached the consumer, where it waits now."""
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10, ack_timeout_ms=1_000)
    world.receive(consumer, 0, window=10)
    world.pass_time(1_000)
    world.write()
    assert consumer.got == [(0, 1), (0, 2)]
    world.flow(consumer, 10, handed_out=1, begun=[0], arrived=1)
    world.pass_time(60_000)
    world.write()
    assert consumer.take() == [0, 0]
    world.flow(consumer, 10, handed_out=2, begun=[0], arrived=2)
    world.pass_time(1_000)
    world.write()
    assert consumer.got == [(0, 3)]


@pytest.mark.hazard("late-ack-after-seek", "timeout-in-the-window")
def test_report_of_a_former_seek_epoch_starts_no_time() -> None:
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10, ack_timeout_ms=1_000)
    world.seek(0)
    assert consumer.take() == [0]
    world.flow(consumer, 10, handed_out=1, begun=[0], epoch=0)
    world.pass_time(60_000)
    world.write()
    assert consumer.take() == []


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


@pytest.mark.hazard("timeout-in-the-window")
@pytest.mark.parametrize("jump_ms", [86_400_000, -86_400_000])
def test_jump_of_the_clock_neither_ends_a_time_out_nor_stops_it(jump_ms: int) -> None:
    """The same for an owner that was paused: what consumers said meanwhile waits to be read."""
    world = World(messages=[1])
    world.step.now_ms = 10**12
    consumer = world.subscribe("a", SHARED, window=10, ack_timeout_ms=10_000)
    world.receive(consumer, 0, window=10)
    consumer.take()
    world.step.now_ms += jump_ms
    world.pass_time(8_000)
    world.write()
    assert consumer.take() == []
    world.pass_time(3_000)
    world.write()
    assert consumer.got == [(0, 2)]


@pytest.mark.hazard("timeout-in-the-window")
def test_time_out_counts_once_when_its_recall_is_lost_with_the_stream() -> None:
    """The consumer keeps the message over a reconnection: it has received it once, and that counts already."""
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10, ack_timeout_ms=1_000, max_deliveries=2, dead_letter_topic="dlq")
    world.receive(consumer, 0)
    world.pass_time(1_000)
    world.write()
    world.take_over()
    again = world.reconnect(consumer, held=[0], begun=[0], window=10)
    assert [tuple(each) for each in again.subscribed.kept] == [(0, 0)]
    world.pass_time(2_000)
    world.write()
    assert again.got == [(0, 2)]


@pytest.mark.hazard("dispatch-paused-for-ever", "timeout-in-the-window")
def test_hole_that_waits_in_a_window_goes_to_another_consumer_uncounted() -> None:
    """While dispatch is paused a hole must not stay with an application that takes nothing."""
    world = World(messages=[6])
    deaf = world.subscribe("a", SHARED, window=6, ack_timeout_ms=1_000, max_deliveries=1, dead_letter_topic="dlq")
    world.topic.set_ack_state_limit(RangeLimit())
    world.ack(deaf, 1, 3, 5)
    other = world.subscribe("b", SHARED, window=100)
    world.pass_time(65_000)
    assert world.chain == []
    assert other.got == [(0, 1), (2, 1), (4, 1)]


# --- a request counts the delivery that it means ----------------------------------------------------------------------


@pytest.mark.hazard("nack-counted-twice")
def test_repeated_negative_acknowledgement_counts_once_over_a_takeover() -> None:
    """It was durable at the former owner, and its answer was lost."""
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10)
    world.nack(consumer, 0, delay_ms=0)
    world.take_over()
    again = world.reconnect(consumer, held=[0], begun=[0], window=10)
    assert world.nack(again, 0, delay_ms=0, counts={}) is None
    assert again.got == [(0, 2)]


@pytest.mark.hazard("nack-counted-twice")
def test_repeated_negative_acknowledgement_returns_what_counts_more_often_already() -> None:
    """The former owner counted it, and then the loss of the consumer, which it took for a loss of the message. The
    consumer keeps its delivery, the first one: nobody else would ever get the message."""
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10)
    world.nack(consumer, 0, delay_ms=500)
    world.pass_time(500)
    assert consumer.got == [(0, 1), (0, 2)], "the second one is lost on its way"
    world.receive(consumer, 0)
    world.detach(consumer)
    world.pass_time(60_000)
    world.write()
    world.take_over()
    again = world.reconnect(consumer, held=[0], begun=[0], window=10)
    assert world.nack(again, 0, delay_ms=0, counts={}) is None
    assert again.got == [(0, 3)]


@pytest.mark.hazard("delivered-while-held", "nack-counted-twice")
def test_consumer_keeps_a_message_that_came_again_after_its_delay() -> None:
    """The state has the delay of the former delivery until the message is acknowledged."""
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10)
    world.nack(consumer, 0, delay_ms=500)
    world.pass_time(500)
    assert consumer.got == [(0, 1), (0, 2)]
    world.take_over()
    again = world.reconnect(consumer, held=[0], begun=[0], counts={0: 2}, window=10)
    world.pass_time(60_000)
    assert [tuple(each) for each in again.subscribed.kept] == [(0, 0)]
    assert again.got == []


@pytest.mark.hazard("nack-counted-twice")
def test_negative_acknowledgement_of_a_former_delivery_leaves_the_newer_one() -> None:
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10, ack_timeout_ms=1_000)
    world.receive(consumer, 0, window=10)
    world.pass_time(1_000)
    world.write()
    assert consumer.got == [(0, 1), (0, 2)]
    assert world.nack(consumer, 0, delay_ms=0, counts={}) is None
    assert consumer.got == [(0, 1), (0, 2)]
    assert world.nack(consumer, 0, delay_ms=0, counts={0: 2}) is None
    assert consumer.got == [(0, 1), (0, 2), (0, 3)]


@pytest.mark.hazard("nack-counted-twice")
def test_delivery_that_counts_is_not_counted_again_when_its_consumer_is_lost() -> None:
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10)
    world.nack(consumer, 0, delay_ms=0)
    world.take_over()
    again = world.reconnect(consumer, held=[0], begun=[0])
    world.detach(again)
    world.pass_time(1_000)
    world.fail()
    world.write()
    assert world.subscribe("b", SHARED, window=10).got == [(0, 2)]


@pytest.mark.hazard("nack-counted-twice")
def test_negative_acknowledgement_of_an_older_client_counts() -> None:
    """It does not say which delivery it means."""
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10)
    for request in (1_000, 1_001):
        world.post(NackRequested(consumer.number, request, consumer.subscribed.seek_epoch, ranges(0), 0))
        world.write()
    assert consumer.got == [(0, 1), (0, 2), (0, 3)]


@pytest.mark.hazard("timeout-in-the-window")
@pytest.mark.parametrize("type_", ORDERED)
def test_delivery_in_order_waits_for_a_skip_in_flight(type_: SubscriptionType) -> None:
    """If the skip is dropped, its messages are delivered after all: later ones must not have come before."""
    world = World(messages=[4])
    consumer = world.subscribe("a", type_, window=1)
    assert consumer.take() == [0]
    world.topic.evict(world.number, ranges(1, 2), EvictionReason.TTL)
    world.receive(consumer, 0, window=10)
    assert consumer.take() == []
    world.fail()
    assert consumer.take() == [1, 2, 3]
