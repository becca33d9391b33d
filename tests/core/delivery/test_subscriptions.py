"""The subscriptions of one topic: what skips write, what idle ones cost, and how many there may be."""

from oncelog.core.acks.changes import IndexRange, MessagesSkipped, SubscriptionCreated
from oncelog.core.delivery.attachments import CONSUMERS_MAX
from oncelog.core.delivery.events import AnswerAdmin, ConsumerOpening, CreateRequested, SkipRequested
from oncelog.core.delivery.limits import ROLE_SUBSCRIPTIONS_MAX, SUBSCRIPTIONS_MAX
from oncelog.core.errors import LimitReached, TooManyRequests
from oncelog.core.ids import SeekEpoch, SubscriptionNumber
from tests.core.acks.subscription_fold import fold_changes
from tests.core.delivery.subscription_world import SHARED, World


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
