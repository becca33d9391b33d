"""An owner whose ack log a test appends to."""

import copy
from dataclasses import replace

from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.acks.changes import (
    Change,
    PropertiesSet,
    SubscriptionCreated,
    SubscriptionType,
)
from oncelog.core.chain.managed_ledger import EntriesAnswered
from oncelog.core.ids import SubscriptionNumber
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.snapshots.snapshot_writer import SnapshotSettings
from oncelog.core.topic.serving import Serving, TopicSettings
from tests.core.builders import A, B
from tests.core.topic.topic_world import SETTINGS, Owner, World

NUMBER = SubscriptionNumber(1)
CREATED = SubscriptionCreated(NUMBER, "5" * 32, "billing", SubscriptionType.SHARED, 0)
#: Every snapshot is due at once.
OFTEN = replace(SETTINGS, snapshot=SnapshotSettings(interval_ms=0, gap_ms=0, deltas_max=2))


def numbered(number: int) -> PropertiesSet:
    return PropertiesSet(NUMBER, (("number", str(number)),))


class Chain:
    """An owner that appends changes, and what it hears of them."""

    def __init__(self, world: World, owner: Owner) -> None:
        self.world = world
        self.owner = owner
        self.settled_tokens: list[object] = []
        self.dropped_tokens: list[object] = []
        self.serving.acks.user = self

    @classmethod
    def new(cls, settings: TopicSettings = SETTINGS) -> "Chain":
        world = World()
        chain = cls(world, Owner(world, "o1", settings).take_over())
        chain.append((CREATED, 0))
        chain.owner.run()
        assert chain.settled_tokens == [0]
        return chain

    @property
    def serving(self) -> Serving:
        assert self.owner.core.serving is not None
        return self.owner.core.serving

    def settled(self, tokens: list[object]) -> None:
        self.settled_tokens += tokens

    def dropped(self, tokens: list[object]) -> None:
        self.dropped_tokens += tokens

    def append(self, *changes: tuple[Change, object]) -> "Chain":
        """Append changes in one step of the topic."""
        for change, token in changes:
            self.serving.acks.append(change, token)
        self.serving.end_step()
        effects = self.owner.core._step.take()
        self.owner.queue += effects
        self.owner.effects += effects
        self.serving.check_invariants()
        return self

    def number(self, *numbers: int) -> "Chain":
        return self.append(*((numbered(number), number) for number in numbers))

    def entries(self) -> list[int]:
        """The count of entries in each ledger of the chain."""
        return [len(self.world.entries_of(ledger_id)) for ledger_id in self.world.record.acks]

    def fail_ledger(self) -> None:
        """Two members of the open ledger of the chain fail."""
        writer = self.serving.acks.ledgers.writer
        assert writer is not None
        for member in (A, B):
            self.owner.handle(EntriesAnswered(writer.ledger_id, member, [], AppendStatus.READ_ONLY))


def shown(state: SubscriptionsState) -> object:
    return state.position, state.next_number, state.names, copy.deepcopy(state.subscriptions)


def shown_of(owner: Owner) -> object:
    assert owner.core.serving is not None, owner.effects[-3:]
    return shown(owner.core.serving.acks.state)
