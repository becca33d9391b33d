"""Random changes of subscriptions, appended to the ack log of each topic by every owner that believes to serve it.

The changes need no consumers. So the ack log, the takeover of both chains and the snapshots are driven by all faults
without the rules of delivery. Chance comes from a generator of its own. In runs of GROUP_SEEDS, groups commit offsets,
too.
"""

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.acks.changes import (
    Acked,
    AckedBelow,
    Change,
    ConsumerActivated,
    IndexRange,
    OffsetCommitted,
    PropertiesSet,
    Redelivered,
    Redelivery,
    Sought,
    SubscriptionCreated,
    SubscriptionDeleted,
    SubscriptionType,
)
from oncelog.core.delivery.subscriptions import Subscriptions
from oncelog.core.ids import ConsumerNumber, Generation, SeekEpoch, SubscriptionNumber, TopicId
from oncelog.core.topic.serving import Serving
from oncelog.core.topic.topic import Topic
from oncelog.core.topic_events.effects import TopicEffect
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.servers.owners.owner_server import OwnerServer

#: between two appends to a topic
PAUSE_TICKS = (2, 60)
#: subscriptions of a topic, the deleted ones included
SUBSCRIPTIONS_MAX = 12
#: In these runs groups commit offsets, too. The others keep what they have found.
GROUP_SEEDS = range(1_910_000, 1_960_000)


@dataclass(frozen=True, slots=True)
class AppendChanges:
    """Append these changes in one step."""

    changes: tuple[Change, ...]


@dataclass(slots=True)
class AckHistory:
    """What became of the changes of one topic. Each change is appended once; its token is itself.

    settled: for each life of the topic at an owner, in order. A deposed owner may hear late of what is in the chain.
    """

    settled: list[list[Change]] = field(default_factory=list)
    dropped: list[Change] = field(default_factory=list)


class Recorder:
    """Where one owner's ack log reports what became of its changes (AckLogUser)."""

    def __init__(self, world: World, history: AckHistory) -> None:
        self._world = world
        self._history = history
        self._settled: list[Change] = []
        history.settled.append(self._settled)

    def settled(self, tokens: list[Any]) -> None:
        self._world.count("change settled", len(tokens))
        self._settled += tokens

    def dropped(self, tokens: list[Any]) -> None:
        self._world.count("change dropped", len(tokens))
        self._history.dropped += tokens


class ChangingTopic(Topic):
    """A topic that also takes AppendChanges."""

    recorder: Recorder

    def handle(self, event: Any, *, now_ms: int) -> list[TopicEffect]:
        if not isinstance(event, AppendChanges):
            effects = super().handle(event, now_ms=now_ms)
            self._listen(self.serving)
            return effects
        self._step.now_ms = now_ms
        if self.serving is not None:
            for change in event.changes:
                self.serving.acks.append(change, change)
            self.serving.end_step()
        return self._step.take()

    def _listen(self, serving: Serving | None) -> None:
        """The workload takes the place of the subscriptions, which would not expect its changes."""
        if serving is not None and serving.acks.user is not self.recorder:
            serving.acks.user = self.recorder
            serving.subscriptions = Subscriptions(
                self._step, SubscriptionsState(), serving.acks.append, first_index=0, next_index=0,
                first_consumer=ConsumerNumber(1), new_id=lambda: "",
            )  # fmt: skip


class AckWorkload:
    """Appends to one topic until it is stopped."""

    def __init__(self, world: World, owners: "dict[str, OwnerServer]", topic_id: TopicId) -> None:
        self.world = world
        self.topic_id = topic_id
        self.history = AckHistory()
        self._owners = owners
        self._rng = random.Random(f"{world.seed}/acks/{topic_id}")
        self._stopped = False
        self._any_groups = world.seed in GROUP_SEEDS
        #: subscriptions, generations and changes so far
        self._subscriptions = 0
        self._generations = 0
        self._changes = 0
        #: {subscription: its seek epoch}
        self._epochs: dict[int, int] = {}
        #: subscriptions whose deletion was requested
        self._deleted: dict[int, None] = {}

    def start(self) -> None:
        self.world.after(self._rng.randint(*PAUSE_TICKS), f"changes of {self.topic_id[-4:]}", self._go_on)

    def stop(self) -> None:
        self._stopped = True

    def _go_on(self) -> None:
        if self._stopped:
            return
        for owner in self._owners.values():
            shell = owner.topics.get(self.topic_id)
            if shell is not None and owner.alive and shell.core.serving is not None:
                self._look(shell.core.serving)
                event = AppendChanges(tuple(self._draw() for _ in range(self._rng.choice((1, 1, 2, 5)))))
                owner.post(1, "appends changes", lambda s=shell, e=event: s.handle(e))  # type: ignore[misc]
        self.start()

    def recorder(self) -> Recorder:
        return Recorder(self.world, self.history)

    def _look(self, serving: Serving) -> None:
        """A commit may step back, which only the fold knows."""
        if self._any_groups:
            known = serving.acks.state.subscriptions.values()
            self._epochs |= {each.number: max(each.seek_epoch, self._epochs.get(each.number, 0)) for each in known}

    def _commit(self, number: SubscriptionNumber) -> OffsetCommitted:
        """Of the newest generation, of a later one, or of an earlier one, which must not count."""
        rng = self._rng
        if rng.random() < 0.2:
            self._generations += 1
        generation = Generation(max(0, self._generations - rng.choice((0, 0, 0, 1, 2))))
        self.world.count("offset committed")
        return OffsetCommitted(number, generation, rng.randint(0, 400), str(self._changes), self._changes)

    def _draw(self) -> Change:
        rng = self._rng
        self._changes += 1
        if not self._subscriptions or (rng.random() < 0.03 and self._subscriptions < SUBSCRIPTIONS_MAX):
            self._subscriptions += 1
            number = SubscriptionNumber(self._subscriptions)
            return SubscriptionCreated(
                number, f"{self._changes:032x}", f"s{number}", rng.choice(list(SubscriptionType)), rng.randint(0, 5)
            )
        number = SubscriptionNumber(rng.randint(1, self._subscriptions))
        epoch = SeekEpoch(self._epochs.get(number, 0))
        first = rng.randint(0, 400)
        if self._any_groups and rng.random() < 0.4:
            return self._commit(number)
        kind = rng.random()
        if kind < 0.5:
            ranges = (IndexRange(first, first + rng.randint(0, 20)), IndexRange(1000 + self._changes, 2000))
            return Acked(number, epoch, ranges)
        if kind < 0.6:
            return AckedBelow(number, epoch, self._changes, Generation(self._generations))
        if kind < 0.7:
            return Redelivered(number, epoch, (Redelivery(first, 1 + self._changes, 0),))
        if kind < 0.8:
            self._generations += 1
            return ConsumerActivated(number, f"c{self._changes}", Generation(self._generations))
        if kind < 0.83:
            self._epochs[number] = epoch + 1
            return Sought(number, SeekEpoch(epoch + 1), first, redo=bool(self._changes % 2))
        if kind < 0.84 and number not in self._deleted:
            self._deleted[number] = None
            return SubscriptionDeleted(number)
        return PropertiesSet(number, (("change", str(self._changes)),))
