"""The topic record names effects before an entry of the ack log has them."""

import pytest

from oncelog.core.acks.changes import EffectsBound
from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.formats.topic_record import FORMAT_WITH_HEADS
from oncelog.core.ids import Generation, SeekEpoch
from tests.core.acks.ack_log import CREATED, NUMBER, Chain, shown, shown_of
from tests.core.topic.topic_world import Owner, World

BOUND = EffectsBound(NUMBER, SeekEpoch(0), Generation(0), "5a" * 16, "invoices", 0, rebind=False)


def effects_formats(chain: Chain) -> set[int]:
    """The formats of the topic record beneath which entries with changes about effects were sent."""
    found = set()
    while True:
        for effect in chain.owner.queue:
            if isinstance(effect, SendAdds) and effect.purpose is LedgerPurpose.ACKS:
                found |= {chain.world.record.format for add in effect.adds if bytes(add.parts[1])[:1] == b"\x02"}
        if not chain.owner.step():
            return found


@pytest.mark.parametrize("steps", range(12))
def test_change_about_effects_at_any_step_of_an_opening(steps: int) -> None:
    """While the first ledger is opened and linked."""
    world = World()
    chain = Chain(world, Owner(world, "o1").take_over())
    chain.append((CREATED, 0))
    for _ in range(steps):
        chain.owner.step()
    chain.append((BOUND, 1))
    assert effects_formats(chain) == {FORMAT_WITH_HEADS}
    assert chain.settled_tokens == [0, 1]
    bound = chain.serving.acks.state.subscriptions[NUMBER].binding
    assert bound is not None
    assert bound.store_id == "5a" * 16
    other = Owner(world, "o2").take_over()
    assert shown_of(other) == shown(chain.serving.acks.state)
