"""One run: faults for a while, then they stop, and every message of every subscription is acknowledged."""

import random
from dataclasses import dataclass, replace

from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery.acknowledging import SHARED_TYPES
from oncelog.core.delivery.limits import NO_LIMITS, AckStateCheck
from oncelog.core.ids import OwnerEpoch
from oncelog.core.policies.ack_state_limit import AckStateLimit, PausePolicy
from oncelog.core.sdk.consumer.events import ConsumerSettings
from oncelog.verify.violation import Violation
from tests.oracles.consumption import ConsumptionHistory
from tests.simulation.consuming.chain import KEYS, DeadLetterTopic, MessageLog, ModelAckLog, TopicRecord
from tests.simulation.consuming.client import ConsumerClient, Habits
from tests.simulation.consuming.expiry import Expiry
from tests.simulation.consuming.owner import DEAD_LETTERS, PAUSED_TICKS_MAX, Faults, OwnerProcess, Parts, Rules
from tests.simulation.consuming.stalls import Stalls
from tests.simulation.network import Network, NetworkFaults
from tests.simulation.run import Outcome, outcome_of
from tests.simulation.world import Process, World

FAULTY_TICKS = 5_000
HEALED_TICKS = 40_000
STEPS_MAX = 60_000
MESSAGES = 60
#: the first seed of the runs with limits of the ack state
LIMITED = 120
#: the first seed of the runs with a time to live, a backlog quota and retention
LIMITED_END = 160
#: the first seed of the runs whose consumers read late, from streams that hold little
UNREAD = 200
#: the runs of CI; longer sweeps have more
CI_RUNS = 240
EVERY = (150, 900)
#: steps between two looks for what stands still
LOOK_EVERY = 10
#: in every eighth run an owner needs up to so many ticks for the rights of a request to attach
SLOW_CHECKS_EVERY, CHECK_TICKS_MAX = 8, 700
FAULTS = ("owner crashed", "topic moved", "client crashed", "client paused", "owner paused", "cut", "delete")


@dataclass(frozen=True, slots=True)
class SmallLimits(AckStateLimit):
    """ranges_max: the hard limit of the topic, in ranges instead of bytes."""

    ranges_max: int = 1000

    def full(self, state: SubscriptionsState) -> bool:
        return sum(each.acks.range_count for each in state.subscriptions.values()) >= self.ranges_max


class ConsumingRun:
    """A seed, step by step."""

    def __init__(self, seed: int, rules: Rules | None = None) -> None:
        world = self.world = World(seed)
        rng = world.rng
        network = Network(world)
        if rng.random() < 0.7:
            network.faults = NetworkFaults(
                delay_max=rng.choice((3, 8, 25)), slow=rng.choice((0.0, 0.02, 0.1)),
                break_stream=rng.choice((0.0, 0.002, 0.01)),
            )  # fmt: skip
        log, self.history = MessageLog(), ConsumptionHistory()
        chain = ModelAckLog(log, self.history, lambda: world.steps)
        faults = Faults(rng.choice((5, 20, 120)), rng.choice((0.0, 0.03, 0.15)))
        if seed % SLOW_CHECKS_EVERY == 3:
            faults.check_ticks_max = CHECK_TICKS_MAX
        self.parts = Parts(
            world,
            network,
            log,
            chain,
            TopicRecord(),
            DeadLetterTopic(DEAD_LETTERS),
            rules or Rules(),
            faults,
            ack_limit=self._draw_judge(),
        )
        if UNREAD <= seed < CI_RUNS or (seed >= CI_RUNS and seed % 4 == 2):
            self.parts.stream_bytes_max = random.Random(f"{seed}/streams").choice((1, 3_000, 6_000, 12_000))
        if LIMITED_END <= seed < UNREAD or (seed >= CI_RUNS and seed % 4 == 1):
            self.parts.expiry = Expiry.draw(seed, lambda: world.now, self.parts.rules.clock_agrees)
            chain.check_change = self.parts.expiry.check
        self.owners = {name: OwnerProcess(self.parts, name) for name in ("o1", "o2")}
        self.healed = False
        self.stalls = Stalls()
        self.stale = rng.choice((0.0, 0.2, 0.5))
        self.clients = self._make_clients(rng)
        self.deletes = rng.random() < 0.3

    def _draw_judge(self) -> AckStateCheck:
        """The runs of CI from LIMITED on have limits that they meet, and every fourth run behind them."""
        seed = self.world.seed
        if seed < LIMITED or LIMITED_END <= seed < CI_RUNS or (seed >= CI_RUNS and seed % 4 != 0):
            return NO_LIMITS
        rng = random.Random(f"{self.world.seed}/limits")
        return SmallLimits(PausePolicy(True, rng.choice((0, 2, 5))), ranges_max=rng.choice((3, 6, 1000)))

    def _make_clients(self, rng: random.Random) -> list[ConsumerClient]:
        clients = []
        for number in range(rng.choice((1, 1, 2))):
            kind = rng.choice(list(SubscriptionType))
            habits = Habits(
                nack=rng.choice((0.0, 0.1, 0.3)), forget=rng.choice((0.0, 0.05)), cumulative=rng.choice((0.0, 0.4)),
                seek=rng.choice((0.0, 0.0, 0.01, 0.06)),
            )  # fmt: skip
            settings = {
                "receive_window": rng.choice((1, 4, 20)),
                "max_deliveries": rng.choice((0, 2, 3)),
                "ack_timeout_ms": rng.choice((0, 800)),
                "dead_letter_topic": "a/b/dead",
            }
            self.parts.chain.max_deliveries[f"s{number}"] = int(str(settings["max_deliveries"]))
            deaf = (
                self.parts.ack_limit is not NO_LIMITS
                and self.world.seed % 16 in (1, 4, 5, 9, 13)
                and kind in SHARED_TYPES
            )
            clients += [
                ConsumerClient(
                    self.parts, f"s{number}c{consumer}",
                    ConsumerSettings(f"s{number}", kind, f"c{consumer}", first_index=0, **settings),  # type: ignore[arg-type]
                    replace(habits, deaf=deaf and consumer == 0),
                    history=self.history, owners=self.owners, stale=self._stale,
                )
                for consumer in range(3)
            ]  # fmt: skip
        return clients

    def _stale(self) -> bool:
        return not self.healed and self.world.chance(self.stale)

    def run(self) -> None:
        for process in self.processes():
            process.start()
        self.take_over("o1")
        for number in range(MESSAGES // 3):
            self.world.after(number * FAULTY_TICKS // MESSAGES * 3 + 1, "messages are stored", self._store)
        self._next_fault()
        while self.world.now < FAULTY_TICKS:
            self._step()
        self.heal()
        deadline = self.world.now + HEALED_TICKS + 2 * PAUSED_TICKS_MAX
        while not self.complete():
            if self.world.now > deadline:
                raise Violation("liveness", f"not complete after {HEALED_TICKS} ticks: {self.state_line()}")
            self._step()

    def _step(self) -> None:
        if self.world.steps >= STEPS_MAX:
            raise Violation("liveness", f"still busy after {STEPS_MAX} steps: {self.state_line()}")
        if not self.world.step():
            raise Violation("liveness", f"nothing more happens: {self.state_line()}")
        ownership = self.owners[self.parts.record.owner].ownership if self.healed else None
        if ownership is not None and not ownership.over and self.world.steps % LOOK_EVERY == 0:
            self.stalls.look(ownership, self.clients, self.world.now)

    def processes(self) -> list[Process]:
        return [*self.owners.values(), *self.clients]

    def _store(self) -> None:
        rng, log = self.world.rng, self.parts.log
        log.store([rng.choice(KEYS) for _ in range(rng.randint(1, 5))])
        if self.parts.expiry is not None:
            self.parts.expiry.stored(log.next_index - len(self.parts.expiry.appended_ms))
        for owner in self.owners.values():
            ownership = owner.ownership
            if ownership is not None:
                owner.post(rng.randint(1, 5), "messages are durable", ownership.messages_end)

    # --- faults -------------------------------------------------------------------------------------------------------

    def take_over(self, name: str) -> None:
        record = self.parts.record
        if record.owner:
            record.former.append((record.owner, record.epoch))
            if record.owner != name:
                self.owners[record.owner].deposed()
        record.owner, record.epoch = name, OwnerEpoch(record.epoch + 1)
        self.owners[name].assign(record.epoch)

    def _other(self) -> str:
        return next(name for name in self.owners if name != self.parts.record.owner)

    def _next_fault(self) -> None:
        self.world.after(self.world.rng.randint(*EVERY), "a fault", self._inject)

    def _inject(self) -> None:
        if self.healed:
            return
        self._next_fault()
        rng, world = self.world.rng, self.world
        kind = rng.choice(FAULTS)
        owner = self.owners[self.parts.record.owner]
        client = rng.choice(self.clients)
        match kind:
            case "owner crashed" if owner.alive:
                if rng.random() < 0.5:
                    owner.fuse = rng.randint(0, 6)
                else:
                    owner.crash()
                world.after(rng.randint(50, 400), "takes over", lambda: self._after_crash(owner))
            case "topic moved":
                if self.owners[self._other()].alive:
                    self.take_over(self._other())
            case "client crashed" if client.alive:
                client.crash()
                world.after(rng.randint(20, 1_500), "starts", lambda: self._restart(client))
            case "client paused" if client.alive and not client.paused:
                client.pause()
                world.after(rng.randint(100, 2_500), "wakes", client.wake)
            case "owner paused" if owner.alive and not owner.paused:
                owner.pause()
                world.after(rng.randint(50, 1_500), "wakes", owner.wake)
                if self.owners[self._other()].alive and rng.random() < 0.7:
                    self.take_over(self._other())
            case "cut":
                ends = rng.choice([(owner.name, client.name), (client.name, owner.name)])
                self.parts.network.cuts[ends] = world.now + rng.randint(50, 800)
            case "delete" if self.deletes and owner.ownership is not None and not owner.paused:
                owner.ownership.delete(client.settings.subscription)
            case _:
                return
        world.count(kind)

    def _after_crash(self, owner: OwnerProcess) -> None:
        if owner.alive:
            owner.crash()
        if self.parts.record.owner == owner.name and self.owners[self._other()].alive:
            self.take_over(self._other())
        self.world.after(self.world.rng.randint(50, 400), "starts", lambda: self._restart(owner))

    def _restart(self, process: Process) -> None:
        if not process.alive:
            process.start()
            if process.name == self.parts.record.owner:
                self.take_over(process.name)

    def heal(self) -> None:
        """All processes run, the topic has an owner, and applications acknowledge everything."""
        self.healed, self.parts.faults.healed_at = True, self.world.now
        self.parts.network.heal()
        self.parts.faults.write_fails = 0.0
        self.parts.faults.check_ticks_max = min(self.parts.faults.check_ticks_max, 20)
        for process in self.processes():
            if process.paused:
                process.wake()
            process.fuse = -1
            self._restart(process)
        for client in self.clients:
            client.diligent = True
        self.take_over(self.parts.record.owner)

    # --- the end ------------------------------------------------------------------------------------------------------

    def complete(self) -> bool:
        """Every subscription that consumers want exists, and all of its messages are acknowledged.

        What waits at a consumer that never takes a message may stay there; but dispatch must not stay paused for it.
        """
        lacks = self.parts.chain.lacks()
        deaf = {client.settings.subscription for client in self.clients if client.habits.deaf}
        wanted = {client.settings.subscription for client in self.clients}
        if deaf and self.world.now < (self.parts.faults.healed_at or 0) + PAUSED_TICKS_MAX + HEALED_TICKS:
            return False
        return wanted <= set(lacks) and not any(missing for name, missing in lacks.items() if name not in deaf)

    def state_line(self) -> str:
        lacks = {name: missing[:6] for name, missing in self.parts.chain.lacks().items()}
        clients = {
            c.name: (c.session.state.value, len(c.session.requests), c.session.messages.held()) for c in self.clients
        }
        return f"{self.parts.record.owner} {self.parts.record.epoch}, not acknowledged: {lacks}, {clients}"


def run(seed: int, rules: Rules | None = None) -> Outcome:
    return outcome_of(ConsumingRun(seed, rules))
