"""A new consumer of an exclusive subscription, while the holder may come back after a takeover."""

import pytest

from oncelog.core.delivery.events import ConsumerOpeningAbandoned
from oncelog.core.errors import ConsumerBusy, NotOwner
from tests.core.delivery.subscription_world import Client, World


def after_takeover_of_a_closed_holder() -> tuple[World, Client, Client]:
    """The holder of an exclusive subscription has closed, the topic is taken over, and another consumer subscribes."""
    world = World(messages=[3])
    holder = world.subscribe("a", window=10)
    world.detach(holder, lost=False)
    world.take_over()
    return world, holder, world.subscribe("b")


@pytest.mark.hazard("activation-not-durable")
def test_exclusive_subscribe_after_a_takeover_waits_until_no_holder_can_return() -> None:
    """A new owner does not know that the former holder has closed: ConsumerBusy would be wrong, and final for a client.
    A message that is stored meanwhile is delivered, too."""
    world, _, other = after_takeover_of_a_closed_holder()
    assert other.answer is None
    world.store(1)
    world.pass_time(1_000)
    world.write()
    assert other.subscribed.generation == 2
    world.flow(other, 10)
    assert other.take() == [0, 1, 2, 3]
    world.store(1)
    assert other.take() == [4]


def test_exclusive_subscribe_that_waited_is_busy_when_the_holder_returns() -> None:
    world, holder, other = after_takeover_of_a_closed_holder()
    third = world.subscribe("c")
    again = world.reconnect(holder, held=[0], window=10)
    assert again.subscribed.generation == 1
    assert isinstance(other.answer, ConsumerBusy)
    assert isinstance(third.answer, ConsumerBusy)
    assert again.take() == [1, 2]


def test_first_exclusive_subscribe_that_waited_gets_the_subscription() -> None:
    world, _, other = after_takeover_of_a_closed_holder()
    third = world.subscribe("c")
    world.pass_time(1_000)
    world.write()
    assert other.subscribed.generation == 2
    assert isinstance(third.answer, ConsumerBusy)


def test_exclusive_subscribe_that_waits_can_be_withdrawn_and_ends_with_the_topic() -> None:
    world, _, other = after_takeover_of_a_closed_holder()
    third = world.subscribe("c")
    world.post(ConsumerOpeningAbandoned(other.opening.call))
    world.topic.end(NotOwner("the topic has another owner"))
    world.settle()
    assert other.answer is None
    assert isinstance(third.answer, NotOwner)


def test_seek_ends_the_wait_of_an_exclusive_subscribe() -> None:
    """Nothing that the former holder has counts any more."""
    world, _, other = after_takeover_of_a_closed_holder()
    world.seek(1)
    assert other.subscribed.generation == 2
    world.flow(other, 10)
    assert other.take() == [1, 2]
