"""Messages that come back: takeovers with deliveries out, lost consumers, negative acknowledgements, dead letters."""

from collections.abc import Sequence

import pytest

from oncelog.core.acks.changes import DeadLettered, IndexRange, SubscriptionType
from oncelog.core.delivery.events import (
    COUNTED_MAX,
    ConsumerActive,
    DeadLetterStored,
    DeadLetterTopicReplaced,
    DeadLetterTopicResolved,
    PublishDeadLetter,
    ResolveDeadLetterTopic,
)
from oncelog.core.errors import InvalidArgument, ServiceUnavailable
from oncelog.core.ids import TopicId
from tests.core.delivery.subscription_world import FAILOVER, KEY_SHARED, SHARED, Client, World

DLQ, OTHER_DLQ = TopicId("d1" * 16), TopicId("d2" * 16)


def kept(client: Client) -> list[tuple[int, int]]:
    return [(first, last) for first, last in client.subscribed.kept]


# --- takeovers and returns --------------------------------------------------------------------------------------------


@pytest.mark.hazard("delivered-while-held")
def test_reconnecting_consumer_keeps_what_it_presents() -> None:
    """The rest of what it had goes back: the former stream brought it, and the client dropped it."""
    world = World(messages=[4])
    consumer = world.subscribe("a", SHARED, window=10)
    assert consumer.take() == [0, 1, 2, 3]
    world.detach(consumer)
    again = world.reconnect(consumer, held=[1, 2], window=10)
    assert kept(again) == [(1, 2)]
    assert again.got == [(0, 1), (3, 1)]


@pytest.mark.hazard("delivered-while-held")
def test_subscribing_twice_delivers_again_what_the_first_stream_brought() -> None:
    """The client never saw the first answer, so nothing of that stream is with it (pulsar#20737)."""
    world = World(messages=[2])
    first = world.subscribe("a", SHARED, window=10)
    assert first.take() == [0, 1]
    second = world.subscribe("a", SHARED, window=10)
    assert second.got == [(0, 1), (1, 1)]


@pytest.mark.hazard("delivered-while-held")
def test_exclusive_holder_returns_with_its_generation_after_a_takeover() -> None:
    world = World(messages=[3])
    consumer = world.subscribe("a", window=10)
    world.take_over()
    world.store(1)
    again = world.reconnect(consumer, held=[0, 1], window=10, written=False)
    assert again.subscribed.generation == 1
    assert kept(again) == [(0, 1)]
    assert again.take() == [2, 3]


def test_takeover_waits_a_second_for_the_holder_and_no_longer() -> None:
    world = World(messages=[3])
    world.subscribe("b", FAILOVER, window=10)
    world.take_over()
    other = world.subscribe("a", FAILOVER, window=10)
    assert other.take() == []
    world.pass_time(999)
    world.write()
    assert other.take() == []
    world.pass_time(1)
    world.write()
    assert [active.generation for active in world.other(ConsumerActive)] == [2]
    assert other.take() == [0, 1, 2]


@pytest.mark.hazard("delivered-while-held")
def test_shared_messages_that_may_be_out_elsewhere_wait_a_second_after_a_takeover() -> None:
    world = World(messages=[3])
    first = world.subscribe("a", SHARED, window=2)
    world.take_over()
    world.store(1)
    second = world.subscribe("b", SHARED, window=10)
    assert second.take() == [3]
    first = world.reconnect(first, held=[0, 1], window=10)
    world.pass_time(1_000)
    assert first.take() + second.take() == [2]


def test_presented_message_that_another_consumer_has_is_not_kept() -> None:
    world = World(messages=[1])
    first = world.subscribe("a", SHARED, window=10)
    world.take_over()
    second = world.subscribe("b", SHARED, window=10)
    world.pass_time(1_000)
    assert second.take() == [0]
    assert kept(world.reconnect(first, held=[0])) == []


def test_presented_message_of_another_seek_epoch_is_not_kept() -> None:
    world = World(messages=[2])
    first = world.subscribe("a", SHARED, window=10)
    world.detach(first)
    world.seek(0)
    assert kept(world.reconnect(first, held=[0, 1])) == []


# --- delivery counts --------------------------------------------------------------------------------------------------


@pytest.mark.hazard("wrong-delivery-count")
def test_lost_consumer_counts_only_what_it_had_begun() -> None:
    """Counting what was prefetched, five crashes would make dead letters of 10,000 innocents."""
    world = World(messages=[10])
    first = world.subscribe("a", SHARED, window=10)
    world.flow(first, 10, handed_out=4, begun=[2, 3])
    world.detach(first)
    world.pass_time(1_000)
    world.write()
    second = world.subscribe("b", SHARED, window=20)
    assert second.got == [(i, 2 if i in (2, 3) else 1) for i in range(10)]


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


@pytest.mark.hazard("wrong-delivery-count")
def test_lost_consumer_that_reported_nothing_counts_its_oldest_message() -> None:
    """A message that kills its consumers would never be counted (pulsar#5881)."""
    world = World(messages=[3])
    for _ in range(3):
        consumer = world.subscribe("a", SHARED, window=10)
        consumer.take()
        world.detach(consumer)
        world.pass_time(1_000)
        world.write()
    assert world.subscribe("b", SHARED, window=10).got == [(0, 4), (1, 1), (2, 1)]


def test_count_of_a_lost_consumer_is_written_again_when_it_was_dropped() -> None:
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10)
    world.detach(consumer)
    world.pass_time(1_000)
    world.fail()
    world.write()
    assert world.subscribe("b", SHARED, window=10).got == [(0, 2)]


@pytest.mark.hazard("wrong-delivery-count")
def test_negative_acknowledgement_survives_a_takeover_with_count_and_delay() -> None:
    """Forgotten delays make a storm of redeliveries after each takeover."""
    world = World(messages=[2])
    consumer = world.subscribe("a", SHARED, window=10)
    assert world.nack(consumer, 0, delay_ms=60_000) is None
    world.take_over()
    second = world.subscribe("b", SHARED, window=10)
    world.pass_time(30_000)
    assert second.got == [(1, 1)]
    world.pass_time(30_000)
    assert second.got == [(1, 1), (0, 2)]


def test_negative_acknowledgements_without_a_delay_back_off() -> None:
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10)
    for wait_ms in (1_000, 2_000, 4_000):
        world.nack(consumer, 0)
        consumer.take()
        world.pass_time(wait_ms - 1)
        assert consumer.take() == []
        world.pass_time(1)
        assert consumer.indexes == [0]


def test_negative_acknowledgement_that_was_not_written_leaves_the_message_outstanding() -> None:
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10)
    consumer.take()
    world.nack(consumer, 0, delay_ms=0, written=False)
    world.fail()
    assert isinstance(world.answers[-1].error, ServiceUnavailable)
    world.pass_time(10_000)
    assert consumer.take() == []
    assert world.nack(consumer, 0, delay_ms=0) is None
    assert consumer.got == [(0, 2)]


def test_message_is_not_lost_when_its_consumer_goes_during_a_negative_acknowledgement() -> None:
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10)
    world.nack(consumer, 0, delay_ms=0, written=False)
    world.detach(consumer)
    world.pass_time(1_000)
    world.fail()
    world.write()
    assert world.subscribe("b", SHARED, window=10).got == [(0, 2)]


def test_acknowledgement_behind_a_negative_one_wins() -> None:
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10)
    consumer.take()
    world.nack(consumer, 0, delay_ms=0, written=False)
    world.ack(consumer, 0, written=False)
    world.write()
    assert world.acked() == [0]
    assert consumer.take() == []


def test_time_out_delivers_to_another_consumer() -> None:
    world = World(messages=[2])
    first = world.subscribe("a", SHARED, window=2, ack_timeout_ms=10_000)
    second = world.subscribe("b", SHARED, window=10)
    world.receive(first, 0, 1)
    world.ack(first, 1)
    world.pass_time(9_000)
    assert second.take() == []
    world.pass_time(1_000)
    world.write()
    assert first.recalled == [0]
    assert second.got == [(0, 2)]


@pytest.mark.hazard("wrong-delivery-count")
def test_seek_clears_counts() -> None:
    world = World(messages=[1])
    consumer = world.subscribe("a", SHARED, window=10)
    world.nack(consumer, 0, delay_ms=0)
    world.seek(0)
    assert consumer.got == [(0, 1)]


def test_counts_in_flight_at_a_seek_are_void() -> None:
    world = World(messages=[2])
    consumer = world.subscribe("a", SHARED, window=10)
    other = world.subscribe("b", SHARED, window=10)
    world.nack(consumer, 0, delay_ms=60_000, written=False)
    world.seek(0, written=False)
    world.detach(consumer, lost=False)
    world.write()
    assert other.take() == [0, 1]


@pytest.mark.hazard("wrong-delivery-count")
def test_delivery_before_a_seek_does_not_count_after_it() -> None:
    """Another consumer becomes the active one by the same entry as the seek: it releases what the former one had begun
    when the state has the new seek epoch already. Found by the simulation of consumers, seed 710510."""
    world = World(messages=[2])
    former = world.subscribe("b", FAILOVER, window=10)
    assert former.take() == [0, 1]
    world.flow(former, 10, handed_out=1, begun=[0])
    active = world.subscribe("a", FAILOVER, window=0, written=False, priority=-1)
    world.seek(0, written=False)
    world.write()
    world.flow(active, 10)
    assert active.got == [(0, 1), (1, 1)]
    assert not world.state.subscriptions[world.number].redeliveries


# --- dead letters -----------------------------------------------------------------------------------------------------


def poisoned(*messages: int, poison: Sequence[int] = (0,), type_: SubscriptionType = SHARED) -> tuple[World, Client]:
    """A world in which `poison` was delivered as often as it may."""
    world = World(messages=messages or [2])
    consumer = world.subscribe("a", type_, window=100, max_deliveries=2, dead_letter_topic="dlq")
    for _ in range(2):
        world.nack(consumer, *poison, delay_ms=0)
    return world, consumer


def resolve(world: World, topic_id: TopicId = DLQ) -> None:
    for asked in world.other(ResolveDeadLetterTopic):
        world.post(DeadLetterTopicResolved(asked.number, asked.topic, topic_id))


def published(world: World) -> list[tuple[int, TopicId, int]]:
    return [(each.index, each.topic_id, each.sequence) for each in world.other(PublishDeadLetter)]


@pytest.mark.hazard("dead-letter-number-lost")
def test_dead_letter_has_a_durable_number_before_it_is_published() -> None:
    """With the number in memory, another message gets it after a crash and is lost as a duplicate."""
    world, consumer = poisoned()
    consumer.take()
    resolve(world)
    assert [type(change) for change, _ in world.chain] == [DeadLettered]
    assert published(world) == []
    world.write()
    assert published(world) == [(0, DLQ, 0)]
    assert world.acked() == []
    world.post(DeadLetterStored(world.number, DLQ, 0))
    world.write()
    assert world.acked() == [0]
    assert consumer.take() == []


@pytest.mark.hazard("former-consumer-acks")
def test_answer_reports_that_a_stored_dead_letter_counts_as_acknowledged() -> None:
    """Its consumer never receives it again, and would end every cumulative acknowledgement before it."""
    world, consumer = poisoned(3, type_=FAILOVER)
    resolve(world)
    world.write()
    assert world.ack(consumer, below=0) is None
    assert world.answers[-1].acked_below == 0
    world.post(DeadLetterStored(world.number, DLQ, 0))
    world.write()
    assert world.ack(consumer, below=0) is None
    assert world.answers[-1].acked_below == 1
    assert world.ack(consumer, below=3) is None
    assert world.answers[-1].acked_below == 3


@pytest.mark.hazard("dead-letter-number-lost")
def test_pending_dead_letters_are_published_again_in_order_after_a_takeover() -> None:
    world, _ = poisoned(4, poison=[2, 1])
    resolve(world)
    world.write()
    assert published(world) == [(1, DLQ, 0), (2, DLQ, 1)]
    world.take_over()
    assert published(world) == [(1, DLQ, 0), (2, DLQ, 1)]
    world.post(DeadLetterStored(world.number, DLQ, 1))
    world.post(DeadLetterStored(world.number, DLQ, 1))
    assert len(world.chain) == 1
    world.write()
    assert world.acked() == [1, 2]


@pytest.mark.hazard("dead-letter-number-lost")
def test_numbers_of_dropped_dead_letters_are_given_again() -> None:
    """A number that no message has would be a gap in the dead-letter topic for ever."""
    world, consumer = poisoned(4, poison=[0])
    resolve(world)
    world.fail()
    for _ in range(2):
        world.nack(consumer, 3, delay_ms=0)
    world.write()
    assert published(world) == [(0, DLQ, 0), (3, DLQ, 1)]


@pytest.mark.hazard("pending-dead-letter-trimmed")
def test_seek_cancels_no_pending_dead_letter() -> None:
    """A number that is never published is a hole."""
    world, consumer = poisoned()
    resolve(world)
    world.write()
    world.other(PublishDeadLetter)
    world.seek(0)
    assert consumer.take() == [1]
    world.take_over()
    assert published(world) == [(0, DLQ, 0)]


@pytest.mark.hazard("late-ack-after-seek", "wrong-delivery-count")
@pytest.mark.parametrize("resolved", ["before the seek is durable", "behind it"])
def test_seek_voids_a_dead_letter_that_has_no_number_yet(resolved: str) -> None:
    """No delivery of before the seek counts. The message must not become a dead letter when its next consumer is lost,
    nor by a decision that is written behind the seek."""
    world, consumer = poisoned()
    world.seek(0, written=False)
    if resolved == "before the seek is durable":
        resolve(world)
    world.write()
    assert consumer.got[-2:] == [(0, 1), (1, 1)]
    world.flow(consumer, 100, handed_out=consumer.sent, begun=[0])
    world.detach(consumer, lost=False)
    resolve(world)
    world.write()
    assert published(world) == []
    assert world.subscribe("b", SHARED, window=10).got == [(0, 2), (1, 1)]


@pytest.mark.hazard("late-ack-after-seek", "dead-letter-number-lost")
def test_dead_letter_waits_for_a_seek_that_is_not_written() -> None:
    world, _ = poisoned()
    world.seek(0, written=False)
    resolve(world)
    world.fail()
    world.write()
    assert published(world) == [(0, DLQ, 0)]


@pytest.mark.hazard("pending-dead-letter-trimmed")
def test_late_acknowledgement_cancels_no_pending_dead_letter() -> None:
    world, consumer = poisoned()
    resolve(world)
    world.write()
    assert world.ack(consumer, 0) is None
    world.take_over()
    assert published(world)[-1] == (0, DLQ, 0)


@pytest.mark.hazard("pending-dead-letter-trimmed")
def test_pending_dead_letters_of_a_recreated_topic_are_decided_anew() -> None:
    """Number 57 would be a gap for ever in the new topic."""
    world, _ = poisoned(4, poison=[0, 1])
    resolve(world)
    world.write()
    world.post(DeadLetterStored(world.number, DLQ, 0))
    world.write()
    world.other(PublishDeadLetter)
    world.post(DeadLetterTopicReplaced(world.number, DLQ, OTHER_DLQ))
    world.write()
    assert published(world) == [(1, OTHER_DLQ, 0)]


def test_dead_letter_waits_for_its_topic_and_asks_again() -> None:
    world, consumer = poisoned()
    consumer.take()
    asked = world.other(ResolveDeadLetterTopic)
    world.post(DeadLetterTopicResolved(asked[0].number, asked[0].topic, None))
    world.pass_time(5_000)
    resolve(world)
    world.write()
    assert published(world) == [(0, DLQ, 0)]
    assert consumer.take() == []


def test_too_many_deliveries_of_a_former_owner_make_a_dead_letter() -> None:
    world = World(messages=[2])
    consumer = world.subscribe("a", SHARED, window=10)
    for _ in range(3):
        world.nack(consumer, 0, delay_ms=0)
    world.take_over()
    consumer = world.subscribe("a", SHARED, window=10, max_deliveries=3, dead_letter_topic="dlq")
    world.pass_time(1_000)
    assert consumer.take() == [1]
    resolve(world)
    world.write()
    assert published(world) == [(0, DLQ, 0)]


def test_dead_letter_of_a_key_lets_the_key_go_on() -> None:
    world = World()
    consumer = world.subscribe("a", KEY_SHARED, window=100, max_deliveries=1, dead_letter_topic="dlq")
    world.store(2, ["k", "k"])
    consumer.take()
    world.nack(consumer, 0, delay_ms=0)
    assert consumer.take() == []
    resolve(world)
    world.write()
    assert published(world) == [(0, DLQ, 0)]
    assert consumer.take() == [1]


def test_skipping_acknowledges_what_is_outstanding() -> None:
    world = World(messages=[4])
    consumer = world.subscribe("a", SHARED, window=2)
    world.skip(count=3)
    assert world.acked() == [0, 1, 2]
    world.flow(consumer, 10, handed_out=2)
    assert consumer.indexes == [0, 1, 3]


def test_clearing_the_backlog_acknowledges_everything_below() -> None:
    world = World(messages=[4])
    world.subscribe("a", SHARED)
    world.skip(below=4)
    assert world.state.subscriptions[world.number].acks.mark_delete == 4
    assert world.state.subscriptions[world.number].acks.contains(IndexRange(3, 3).first)
