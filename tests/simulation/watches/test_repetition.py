"""The oracle of what comes again to an exclusive or failover consumer, beside the core that delivers it."""

import pytest

from oncelog.core.acks.changes import SubscriptionType
from oncelog.verify.violation import Violation
from tests.core.delivery.subscription_world import EXCLUSIVE, FAILOVER, World
from tests.oracles.consumption import Repetition

ORDERED = [EXCLUSIVE, FAILOVER]


@pytest.mark.hazard("nack-counted-twice", "timeout-in-the-window")
@pytest.mark.parametrize("type_", ORDERED)
def test_negative_acknowledgement_during_the_repetition_leaves_the_order(type_: SubscriptionType) -> None:
    """The application works on 0 and 1 when 0 times out. It has 0 again, asks for 1 again, and gets 1 before 2."""
    world, repetition = World(messages=[3]), Repetition()
    consumer = world.subscribe("a", type_, window=2, ack_timeout_ms=1_000)
    world.receive(consumer, 0, 1)
    assert consumer.take() == [0, 1]
    world.pass_time(1_000)
    world.write()
    world.flow(consumer, 1, handed_out=2)
    assert consumer.got == [(0, 2)]
    repetition.received(0, [0, 1], asked_again=False)
    assert world.nack(consumer, 1, delay_ms=0, counts={}) is None
    world.flow(consumer, 2, handed_out=3)
    assert consumer.got == [(0, 2), (1, 2), (2, 1)]
    repetition.received(1, [0], asked_again=True)
    repetition.received(2, [0, 1], asked_again=False)


@pytest.mark.hazard("nack-counted-twice", "timeout-in-the-window")
@pytest.mark.parametrize("type_", ORDERED)
def test_negative_acknowledgement_of_a_delivery_before_the_repetition_leaves_the_order(type_: SubscriptionType) -> None:
    """The application asks for the first delivery of 1 again while it works on the second one; then both messages time
    out once more."""
    world, repetition = World(messages=[3]), Repetition()
    consumer = world.subscribe("a", type_, window=2, ack_timeout_ms=1_000)
    world.receive(consumer, 0, 1)
    world.pass_time(1_000)
    world.write()
    world.flow(consumer, 2, handed_out=2)
    world.receive(consumer, 0, 1)
    assert consumer.take() == [0, 1, 0, 1]
    assert world.nack(consumer, 1, delay_ms=0, counts={}) is None
    world.pass_time(1_000)
    world.write()
    world.flow(consumer, 3, handed_out=4)
    assert consumer.got == [(0, 3), (1, 3), (2, 1)]
    repetition.received(0, [0, 1], asked_again=False)
    repetition.received(1, [0, 1], asked_again=True)
    repetition.received(2, [0, 1], asked_again=False)


def test_message_that_was_asked_for_again_excuses_no_other_one() -> None:
    """0 came again, and 1, which the application asked for; 2 has to come before 3."""
    repetition = Repetition()
    repetition.received(0, [0, 1, 2], asked_again=False)
    repetition.received(1, [0, 2], asked_again=True)
    with pytest.raises(Violation, match="3 comes before 2"):
        repetition.received(3, [0, 1, 2], asked_again=False)
