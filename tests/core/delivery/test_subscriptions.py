"""The subscriptions of one topic: creation, deletion, abandoned requests, and steps back beside a trim."""

import pytest

from oncelog.core.acks.changes import (
    EvictionReason,
    IndexRange,
    MessagesSkipped,
    SubscriptionCreated,
    SubscriptionDeleted,
)
from oncelog.core.delivery.attachments import CONSUMERS_MAX
from oncelog.core.delivery.events import (
    AnswerAdmin,
    ConsumerOpening,
    ConsumerOpeningAbandoned,
    CreateRequested,
    DeleteRequested,
    MessagesEvicted,
    SkipRequested,
)
from oncelog.core.delivery.limits import ROLE_SUBSCRIPTIONS_MAX, SUBSCRIPTIONS_MAX
from oncelog.core.errors import Conflict, LimitReached, NotOwner, ServiceUnavailable, SubscriptionGone, TooManyRequests
from oncelog.core.ids import SeekEpoch, SubscriptionNumber
from tests.core.acks.subscription_fold import fold_changes
from tests.core.delivery.subscription_world import EXCLUSIVE, SHARED, World, ranges


def changes(world: World) -> list[type]:
    return [type(change) for change, _ in world.chain]


def test_requests_for_a_new_subscription_wait_for_its_creation() -> None:
    world = World(messages=[3])
    first = world.subscribe("a", SHARED, written=False)
    second = world.subscribe("b", SHARED, written=False)
    assert changes(world) == [SubscriptionCreated]
    assert world.clients == {}
    world.write()
    assert first.subscribed.subscription_id == second.subscribed.subscription_id
    assert (first.subscribed.created, second.subscribed.created) == (True, False)


def test_creation_that_was_not_written_is_answered_and_gives_its_number_again() -> None:
    world = World(messages=[3])
    consumer = world.subscribe("a", SHARED, written=False)
    world.fail()
    assert isinstance(consumer.answer, ServiceUnavailable)
    assert world.subscribe("a", SHARED).subscribed.number == 1


def test_new_subscription_begins_inside_of_the_log() -> None:
    world = World(messages=[3])
    latest = world.subscribe("a", SHARED, first_index=2**63 - 1, window=10)
    world.store(2)
    assert latest.take() == [3, 4]


@pytest.mark.hazard("seek-below-a-trim")
def test_step_back_waits_for_a_trim_in_flight() -> None:
    """A seek below the target of the trim would become durable, and its messages be gone."""
    world = World(messages=[5, 5])
    world.subscribe("a", SHARED)
    world.topic.trim_began(5)
    world.seek(2, written=False)
    new = world.subscribe("a", SHARED, subscription="new", first_index=0, written=False)
    assert world.chain == []
    world.topic.trim_ended(5)
    world.settle()
    assert changes(world) == [SubscriptionCreated]
    world.write()
    assert world.state.subscriptions[new.subscribed.number].acks.mark_delete == 5


@pytest.mark.hazard("seek-below-a-trim")
def test_step_back_in_flight_names_its_place_to_trims() -> None:
    world = World(messages=[5, 5])
    world.subscribe("a", SHARED)
    assert world.topic.steps_back_to() is None
    world.seek(7, written=False)
    world.subscribe("a", SHARED, subscription="new", first_index=3, written=False)
    assert world.topic.steps_back_to() == 3
    world.write()
    assert world.topic.steps_back_to() is None


@pytest.mark.hazard("recreated-subscription")
def test_subscribing_during_a_deletion_waits_and_begins_a_new_subscription() -> None:
    world = World(messages=[2])
    former = world.subscribe("a", SHARED)
    world.post(DeleteRequested(1, "s", force=True))
    new = world.subscribe("b", SHARED, written=False)
    assert changes(world) == [SubscriptionDeleted]
    world.write()
    assert isinstance(former.ended, SubscriptionGone)
    assert new.subscribed.subscription_id != former.subscribed.subscription_id
    assert new.subscribed.number != former.subscribed.number


def test_deletion_that_was_not_written_leaves_the_subscription() -> None:
    world = World(messages=[2])
    world.subscribe("a", SHARED)
    world.post(DeleteRequested(1, "s", force=True))
    waiting = world.subscribe("b", SHARED, written=False)
    world.fail()
    assert isinstance(world.other(AnswerAdmin)[0].error, ServiceUnavailable)
    assert waiting.subscribed.number == world.number


def test_subscription_with_consumers_is_deleted_only_by_force() -> None:
    world = World(messages=[2])
    world.subscribe("a", SHARED)
    world.post(DeleteRequested(1, "s"))
    assert isinstance(world.other(AnswerAdmin)[0].error, Conflict)


def test_abandoned_request_leaves_no_consumer() -> None:
    """The client's stream broke while its grant was in flight: the next one is granted."""
    world = World(messages=[2])
    world.detach(world.subscribe("a", EXCLUSIVE), lost=False)
    waiting = world.subscribe("b", EXCLUSIVE, written=False)
    world.post(ConsumerOpeningAbandoned(waiting.opening.call))
    second = world.subscribe("c", EXCLUSIVE, window=10)
    assert waiting.answer is None
    assert second.take() == [0, 1]


def test_skip_over_many_holes_is_one_range() -> None:
    """A change of a range for each hole would not fit into an entry."""
    world = World(messages=[10])
    consumer = world.subscribe("a", SHARED, window=100)
    consumer.take()
    world.ack(consumer, 1, 3, 5)
    world.post(SkipRequested(1, world.number, count=4))
    assert world.chain[-1][0] == MessagesSkipped(world.number, SeekEpoch(0), (IndexRange(0, 6),))
    world.write()
    assert world.state.subscriptions[world.number].acks.mark_delete == 7


def test_concurrent_skips_of_a_number_add_up() -> None:
    """Each skips its own messages, behind what is being acknowledged; if that is not written, neither is the skip."""
    world = World(messages=[12])
    consumer = world.subscribe("a", SHARED, window=100)
    consumer.take()
    world.ack(consumer, 1, 3)
    world.ack(consumer, 0, 5, written=False)
    for call, count in ((1, 2), (2, 2), (3, 1)):
        world.post(SkipRequested(call, world.number, count=count))
    world.write()
    assert world.acked() == list(range(9)), "0, 1, 3, 5 and five others"
    world.post(SkipRequested(4, world.number, count=1))
    world.fail()
    world.skip(count=1)
    assert world.acked() == list(range(10))
    world.post(SkipRequested(5, world.number, count=9))
    world.skip(count=9)
    assert world.acked() == list(range(12))


def test_evicted_messages_are_counted_once_they_are_durable() -> None:
    """By reason; an eviction that was not written counts nothing."""
    world = World(messages=[6])
    world.subscribe("a", SHARED)
    world.topic.evict(world.number, ranges(0, 1, 3), EvictionReason.TTL)
    assert world.other(MessagesEvicted) == []
    world.fail()
    world.topic.evict(world.number, ranges(0, 1, 3), EvictionReason.BACKLOG_QUOTA)
    world.write()
    assert world.other(MessagesEvicted) == [MessagesEvicted(EvictionReason.BACKLOG_QUOTA, 3, "s")]


def test_draining_answers_what_is_in_flight_and_then_ends_every_consumer() -> None:
    world = World(messages=[3])
    consumer = world.subscribe("a", SHARED, window=2)
    world.ack(consumer, 0, written=False)
    world.topic.drain()
    assert isinstance(world.ack(consumer, 1, written=False), NotOwner)
    assert isinstance(world.subscribe("b", SHARED, written=False).answer, NotOwner)
    world.store(1)
    world.flow(consumer, 10, handed_out=2)
    assert consumer.take() == [0, 1]
    world.write()
    assert world.acked() == [0]
    assert sum(answer.error is None for answer in world.answers) == 1
    world.topic.end(NotOwner("moved"))
    world.settle()
    assert isinstance(consumer.ended, NotOwner)


def test_idle_subscriptions_cost_nothing_when_time_passes() -> None:
    """Not even while their consumers are connected; each event wakes those that it concerns."""
    world = World(messages=[2])
    client = world.subscribe("a", SHARED, window=10, subscription="busy")
    for name in ("b", "c"):
        world.subscribe(name, SHARED, window=10, subscription=name, first_index=2)
    world.detach(world.subscribe("d", SHARED, subscription="left", first_index=2), lost=False)
    world.pass_time(10_000)

    def ticking() -> list[str]:
        return [each.state.name for each in world.topic.activity.ticking]

    assert ticking() == ["busy"]
    world.ack(client, 0, 1)
    world.pass_time(250)
    assert ticking() == []
    world.store(1)
    assert client.take()[-1] == 2
    world.detach(client)
    world.pass_time(250)
    assert ticking() == ["busy", "b", "c"]


def test_subscription_takes_a_limited_number_of_consumers() -> None:
    """Further ones are refused; one that comes back in place of its former stream is not."""
    world = World()
    first = world.subscribe("first", SHARED)
    for call in range(1, CONSUMERS_MAX):
        name = f"c{call}"
        world.topic.handle(ConsumerOpening(call, "s", SHARED, name, name.encode()))
    world.step.effects.clear()
    refused = world.subscribe("one more", SHARED).answer
    assert isinstance(refused, TooManyRequests)
    assert refused.details == {"field": "consumer_name", "limit": 1_000}
    assert world.reconnect(first).subscribed.consumer > first.number


def test_topic_takes_a_limited_number_of_subscriptions() -> None:
    """An existing one takes consumers as before."""
    world = World()
    created = [
        SubscriptionCreated(SubscriptionNumber(number), f"{number:032x}", f"s{number}", SHARED, 0)
        for number in range(1, SUBSCRIPTIONS_MAX + 1)
    ]
    fold_changes(world.state, created)
    world.take_over()
    refused = world.subscribe("a", SHARED, subscription="one more").answer
    assert isinstance(refused, LimitReached)
    assert refused.details == {"field": "subscription", "limit": 1_000}
    world.post(CreateRequested(1, "one more", 0))
    assert [type(answer.error) for answer in world.other(AnswerAdmin)] == [LimitReached]
    assert world.subscribe("a", SHARED, subscription="s7").subscribed.number == 7


def test_role_creates_a_limited_number_of_subscriptions_of_a_topic() -> None:
    """One role cannot use up the subscriptions of a topic: each keeps its messages for ever. Creations in flight
    count, and another role creates its own."""
    world = World()
    created = [
        SubscriptionCreated(SubscriptionNumber(number), f"{number:032x}", f"s{number}", SHARED, 0, "billing")
        for number in range(1, ROLE_SUBSCRIPTIONS_MAX)
    ]
    fold_changes(world.state, created)
    world.take_over()
    last = world.subscribe("a", SHARED, subscription="last", role="billing", written=False)
    refused = world.subscribe("a", SHARED, subscription="one more", role="billing", written=False).answer
    assert isinstance(refused, LimitReached)
    assert refused.details == {"field": "subscription", "limit": 500}
    assert "role billing" in refused.message
    other = world.subscribe("a", SHARED, subscription="other", role="audit", written=False)
    world.write()
    assert (other.subscribed.number, last.subscribed.number) == (501, 500)
