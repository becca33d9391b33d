"""The subscriptions of a topic and their consumers, drawn from the seed, and the oracles of what they see."""

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.ids import OwnerEpoch, TopicId
from oncelog.core.policies.ack_state_limit import PausePolicy
from oncelog.core.policies.retention_rules import CLOCK_SKEW_MS_MAX, BacklogQuota, QuotaAction, RetentionPolicy
from oncelog.core.policies.topic_policies import TopicPolicies
from oncelog.core.sdk.consumer.events import ConsumerSettings
from oncelog.core.topic.serving import Serving
from oncelog.verify.violation import Violation
from tests.oracles.consumption import ConsumptionHistory, Place
from tests.oracles.effects_fold import EffectsFold
from tests.simulation.consumers.client import WORK_TICKS, ConsumerClient, ConsumerParts, Habits
from tests.simulation.consumers.durable_acks import DurableAcks
from tests.simulation.consumers.effects_client import EffectsClient
from tests.simulation.consumers.effects_store import EFFECT, STORE_ID, SimulatedStore
from tests.simulation.consumers.messages import DeadLetterTopic, StoredMessages
from tests.simulation.consumers.owner_end import OwnerGate
from tests.simulation.consumers.stalls import Stalls

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.servers.owners.topic_shell import TopicShell

_ORDERED = [SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER]
#: steps between two looks for what stands still
LOOK_EVERY = 10
HOUR_MS = 3_600_000
#: The owners' clocks begin here, so that none is before 1970.
EPOCH_MS = 10 * HOUR_MS
#: so many subscriptions have consumers of whole entries, as gateways do
WHOLE_ENTRIES = 0.15
#: in every eighth run an owner needs up to so many ticks for the rights of a request to attach
SLOW_CHECKS_EVERY, CHECK_TICKS_MAX = 8, 700


@dataclass(frozen=True, slots=True)
class ConsumerShape:
    """What limits the consumers of a run. ack_state_bytes_max: the hard limit; None: of the product. stream_bytes_max:
    of what waits until they read it; None: they read at once. skews: by how much the clock of each owner is ahead;
    empty: all clocks show the true time. effects: messages take effect in a store, to which the subscription is
    bound."""

    policies: TopicPolicies = field(default_factory=TopicPolicies)
    ack_state_bytes_max: int | None = None
    stream_bytes_max: int | None = None
    skews: tuple[int, ...] = ()
    effects: bool = False

    @property
    def expires(self) -> bool:
        return not self.policies.keeps_everything


def draw_consumer_shape(seed: int) -> ConsumerShape:
    """A quarter of the runs each has limits of the ack state, policies of age and size, streams that hold little."""
    rng = random.Random(f"{seed}/consumer shape")
    match seed % 4:
        case 0:
            pause = PausePolicy(enabled=True, unacked_ranges_max=rng.choice((0, 2, 5)))
            return ConsumerShape(TopicPolicies(pause=pause), ack_state_bytes_max=rng.choice((60, 120, 1 << 20)))
        case 1:
            skews = tuple(rng.choice((0, 0, 30_000, -30_000, HOUR_MS, -HOUR_MS)) for _ in range(3))
            skews, late_ms = rng.choice((((), 0), (skews, CLOCK_SKEW_MS_MAX)))
            quota = BacklogQuota(QuotaAction.EVICT, bytes_max=rng.choice((600, 1_500, 1 << 20)))
            retention = RetentionPolicy(time_ms=rng.choice((None, 0, late_ms + 900)))
            if retention.time_ms is None:
                retention = RetentionPolicy(size_bytes=0)
            return ConsumerShape(
                TopicPolicies(retention, rng.choice((late_ms + 400, late_ms + 400, 1 << 40)), quota), skews=skews
            )
        case 2:
            return ConsumerShape(stream_bytes_max=rng.choice((1, 3_000, 6_000, 12_000)))
    return ConsumerShape()


class TopicConsumption:
    """The subscriptions of one topic, their consumers and what becomes of their messages."""

    def __init__(self, cluster: "Cluster", topic_id: TopicId, shape: ConsumerShape) -> None:
        parts, self._watch = cluster.owner_parts, cluster.watch.topics[topic_id]
        self._cluster = cluster
        self._topic_id = topic_id
        self._rng = random.Random(f"{cluster.world.seed}/consumers/{topic_id}")
        self.history = ConsumptionHistory()
        self.log = StoredMessages(parts, self._watch)
        self.dead_letters = DeadLetterTopic()
        self.acks = DurableAcks(parts, self._watch, cluster.watch.closed, self.log, self.history, shape.policies)
        self.check_ticks_max = CHECK_TICKS_MAX if cluster.world.seed % SLOW_CHECKS_EVERY == 3 else 0
        self._stale = self._rng.choice((0.0, 0.2, 0.5))
        self._stalls = Stalls()
        self._healed = False
        self.clients: list[ConsumerClient] = []
        #: {subscription: its store of effects}
        self.stores: dict[str, SimulatedStore] = {}
        for number in range(self._rng.choice((1, 1, 2))):
            self._add_subscription(f"s{number}", effects=shape.effects)
        cluster.store.observers.append(lambda path, *_: self._record_changed(path))

    def _add_subscription(self, name: str, *, effects: bool) -> None:
        rng, cluster = self._rng, self._cluster
        kind = rng.choice(_ORDERED if effects else list(SubscriptionType))
        habits = Habits(
            nack=rng.choice((0.0, 0.1, 0.3, 0.5)), forget=rng.choice((0.0, 0.05)), cumulative=rng.choice((0.0, 0.4)),
            seek=rng.choice((0.0, 0.01, 0.04)),
            take_ticks=rng.choice((WORK_TICKS, WORK_TICKS, (300, 900))),
        )  # fmt: skip
        window, deliveries, timeout = rng.choice((1, 4, 20)), rng.choice((0, 2, 2, 3)), rng.choice((0, 800))
        store_id, effect = (STORE_ID, EFFECT) if effects else ("", "")
        if effects:
            deliveries, timeout = 0, 0
            self.acks.effects[name] = EffectsFold()
            self.stores[name] = SimulatedStore(cluster.world, f"{cluster.world.seed}/store/{name}")
        # By a generator of its own, so that other runs do not change.
        whole = not effects and random.Random(f"{cluster.world.seed}/whole entries/{name}").random() < WHOLE_ENTRIES
        if whole:
            cluster.world.count("whole entries")
        self.acks.max_deliveries[name] = deliveries
        gates = {owner.name: OwnerGate(owner, self._topic_id) for owner in cluster.owners.values()}
        parts = ConsumerParts(cluster.world, cluster.network, self.log, self.history, gates, self._route)
        if any(cluster.owner_parts.skews.values()):
            # A delay ends by the clock of the present owner, which may be hours behind that of the former one.
            parts = replace(parts, nack_delays_ms=(0,))
        for number in range(3):
            settings = ConsumerSettings(
                name, kind, f"c{number}", first_index=0, receive_window=window, max_deliveries=deliveries,
                ack_timeout_ms=timeout, dead_letter_topic="a/b/dead", store_id=store_id, effect=effect,
                whole_entries=whole,
            )  # fmt: skip
            title = f"{name}c{number}"
            if effects:
                self.clients.append(EffectsClient(parts, title, settings, habits, self.stores[name]))
            else:
                self.clients.append(ConsumerClient(parts, title, settings, habits))

    def _route(self) -> tuple[str, OwnerEpoch]:
        """Where a look-up leads: to the owner by the record, or to a former one."""
        world, record = self._cluster.world, self._watch.record
        former = [epoch for epoch in self._watch.owners if epoch < record.owner_epoch]
        if former and not self._healed and world.chance(self._stale):
            world.count("stale route of a consumer")
            epoch = world.rng.choice(former)
            return self._watch.owners[epoch], epoch
        return (record.owner or "").split(".")[0], record.owner_epoch

    # --- what happens -------------------------------------------------------------------------------------------------

    def stepped(self, shell: "TopicShell") -> None:
        """The core of the topic has taken one event at an owner; its effects are not performed yet."""
        self.log.look(shell.confirmed)
        if shell.core.serving is not None:
            self.acks.durable(shell.core.serving.acks.state.position)

    def _record_changed(self, path: str) -> None:
        if path == f"topics/{self._topic_id}":
            self.acks.record_changed()

    def heal(self) -> None:
        self._healed = True
        self.check_ticks_max = min(self.check_ticks_max, 20)
        for client in self.clients:
            client.diligent = True
        for store in self.stores.values():
            store.heal()

    def _serving(self) -> Serving | None:
        """At the owner that the record names."""
        epoch = self._watch.record.owner_epoch
        for owner in self._cluster.owners.values():
            shell = owner.topics.get(self._topic_id)
            if owner.alive and shell is not None and shell.epoch == epoch and shell.core.serving is not None:
                return shell.core.serving
        return None

    def look(self) -> None:
        """Between two steps after the last fault. Raises Violation."""
        world = self._cluster.world
        if world.steps % LOOK_EVERY == 0 and (serving := self._serving()) is not None:
            epoch = self._watch.record.owner_epoch
            self._stalls.look(serving.subscriptions, self.clients, epoch=epoch, now=world.now)
            paused = sum(bool(each.pause_reason) for each in serving.subscriptions)
            world.count("dispatch paused", paused)

    # --- the end ------------------------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether the present owner's durable state has every message of all subscriptions acknowledged."""
        serving, wanted = self._serving(), {client.settings.subscription for client in self.clients}
        if serving is None:
            return False
        state, end = serving.acks.state, serving.log.table.state.next_index
        marks = {name: state.subscriptions[number].acks.mark_delete for name, number in state.names.items()}
        acknowledged = wanted <= marks.keys() and all(mark == end for mark in marks.values())
        return acknowledged and not any(self._lacked_effects().values())

    def _lacked_effects(self) -> dict[str, list[int]]:
        """{subscription: the messages whose effects its store lacks}"""
        end, found = self.log.next_index, {}
        for name, store in self.stores.items():
            content = store.content
            found[name] = self.acks.effects[name].lacks(content.era, content.applied, end)
        return found

    def check(self, fold: SubscriptionsState) -> None:
        """At the end. fold: of the whole ack log. Raises Violation."""
        present = {Place(each.subscription_id, each.seek_epoch): each for each in fold.subscriptions.values()}
        for place, seen in self.history.places.items():
            known = present.get(place)
            missing = [] if known is None else [i for i in seen.acknowledged if not known.acks.contains(i)]
            if missing:
                raise Violation("acks durable", f"messages {missing[:5]} at {place} were acknowledged")

    def state_line(self) -> str:
        clients = " ".join(
            f"{c.name}:{c.session.state.value},{len(c.session.requests)},{c.session.messages.held()}"
            for c in self.clients
            if c.life
        )
        clients += f" effects lacked {self._lacked_effects()}" if self.stores else ""
        return f"{clients} | lack { ({name: lacks[:6] for name, lacks in self.acks.lacks().items()}) }"
