"""Consumers whose messages take effect in a store: what a refusal advises, and how much a request may say."""

import pytest

from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.store_binding.bound_effects import EFFECTS_RANGES_MAX
from oncelog.core.delivery.store_binding.events import REASON_MAX, BindRequested, DeadLetterRequested, RewindRequested
from oncelog.core.errors import InvalidArgument, StoreMismatch
from oncelog.core.ids import Generation, SeekEpoch
from tests.core.delivery.subscription_world import FAILOVER, World

STORE = "5a" * 16
FIRST = SeekEpoch(0), Generation(1)


@pytest.mark.hazard("consumer-without-effects")
def test_refusal_of_a_consumer_without_effects_advises_no_rebinding() -> None:
    """It would harm the programs that have the store."""
    world = World(messages=[1])
    client = world.subscribe("a", FAILOVER, store_id=STORE, effect="invoices")
    world.post(BindRequested(client.number, 1, *FIRST))
    world.write()
    refused = world.subscribe("b", FAILOVER).answer
    assert isinstance(refused, StoreMismatch)
    assert "subscriptions peek" in refused.message
    assert "rebind" not in refused.message


def test_requests_that_say_too_much_are_refused() -> None:
    """A rewind of too many ranges, a dead letter with too long a reason."""
    world = World(messages=[2 * EFFECTS_RANGES_MAX + 2])
    client = world.subscribe("a", FAILOVER, store_id=STORE, effect="invoices", dead_letter_topic="dlq")
    world.post(BindRequested(client.number, 1, *FIRST))
    world.write()
    single = tuple(IndexRange(2 * number, 2 * number) for number in range(EFFECTS_RANGES_MAX + 1))
    world.post(RewindRequested(client.number, 2, *FIRST, single))
    world.post(DeadLetterRequested(client.number, 3, *FIRST, 0, "x" * (REASON_MAX + 1)))
    assert [type(world.answer(request)) for request in (2, 3)] == [InvalidArgument] * 2
