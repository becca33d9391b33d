"""One run: faults for a while, then they stop and all work must complete; then the whole history is checked."""

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

from oncelog.core.formats.entry import EntryHeader
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import LedgerId, ProducerId
from oncelog.core.ledger.metadata import LedgerState
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.events import DrainRequested
from oncelog.verify.violation import Violation
from tests.oracles.appends import check_appends
from tests.oracles.leases import check_leases
from tests.oracles.reads import check_reads
from tests.simulation.cluster import Cluster, Rules
from tests.simulation.faults.faults import Faults
from tests.simulation.faults.storage_faults import all_whole, not_whole
from tests.simulation.servers.owners.topic_shell import TopicShell
from tests.simulation.servers.store.decoding import decode_ledger
from tests.simulation.servers.store.ledger_lists import listed_ledgers_of
from tests.simulation.shapes import HEALED_TICKS, Shape, draw_shape
from tests.simulation.watches.new_era import check_given_up
from tests.simulation.watches.unlisted_watch import check_left
from tests.simulation.world import World

STEPS_MAX = 60_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """problem: None if every oracle passed."""

    seed: int
    trace: int
    steps: int
    ticks: int
    counts: dict[str, int]
    problem: str | None


class Steps(Protocol):
    """A seed, step by step."""

    world: World

    def run(self) -> None:
        """All of it. Raises the first problem."""

    def state_line(self) -> str:
        """The state of all processes."""


def outcome_of(steps: Steps) -> Outcome:
    """Run all of it; a broken rule, of the cores or of the oracles, is the outcome's problem."""
    problem = None
    try:
        steps.run()
    except Exception as error:  # noqa: BLE001  whatever a core raises is what this run found
        problem = f"{type(error).__name__}: {error}"
    world = steps.world
    return Outcome(world.seed, world.trace, world.steps, world.now, world.counts, problem)


class Run:
    """A seed, step by step."""

    def __init__(
        self,
        seed: int,
        rules: Rules | None = None,
        shape: Shape | None = None,
        changes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """shape: None: that of the seed. changes: fields of the shape that are others."""
        self.world = World(seed)
        shape = replace(shape if shape is not None else draw_shape(self.world), **changes)  # type: ignore[arg-type]
        self.cluster = Cluster(self.world, shape, rules or Rules())
        self.faults = Faults(self.cluster, shape.only_faults)
        self.cluster.start()

    def state_line(self) -> str:
        return self.cluster.state_line()

    def run(self) -> None:
        """Raises the first problem."""
        self.faults.start()
        self.until(self.cluster.shape.faulty_ticks)
        self.heal()
        self.check_history()

    def until(self, tick: int) -> None:
        while self.world.now < tick:
            self.step()

    def step(self) -> None:
        if self.world.steps >= STEPS_MAX:
            raise Violation("liveness", f"still busy after {STEPS_MAX} steps: {self.state_line()}")
        if not self.world.step():
            raise Violation("liveness", f"nothing more happens: {self.state_line()}")

    # --- the end ------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Faults stop; all pending work completes, and then every topic is closed cleanly."""
        self.faults.heal()
        for workload in self.cluster.ack_workloads.values():
            workload.stop()
        consumption = self.cluster.consumption.values()
        for each in consumption:
            each.heal()
        healed, ticks = self.world.now, self.cluster.shape.healed_ticks
        deadline = healed + ticks
        while not (
            self._complete()
            and all(one.answered_began >= healed for one in self.cluster.questioners.values())
            and (not self.cluster.shape.repair or all_whole(self.faults))
        ):
            if self.world.now > deadline:
                lacks = self._lacks(healed)
                raise Violation("liveness", f"after {ticks} ticks it lacks {lacks}: {self.state_line()}")
            self.step()
            for each in consumption:
                each.look()
        self._let_leases_end()
        self._check_copies()
        check_left(self.cluster.store)
        self._close_topics()

    def _let_leases_end(self) -> None:
        """All their holders leave. The ids expire, and leave the memory of their owners."""
        deadline = self.world.now + HEALED_TICKS
        while self.cluster.lease_clients and not all(
            self._without_leases(watch.record) for watch in self.cluster.watch.topics.values()
        ):
            if self.world.now > deadline:
                raise Violation("liveness", f"leases do not expire within {HEALED_TICKS} ticks: {self.state_line()}")
            for client in self.cluster.lease_clients:
                if client.alive:  # or a fault has started it again
                    client.crash()
            self.step()

    def _without_leases(self, record: TopicRecord) -> bool:
        shell = self._shell_of(record)
        if shell is None or shell.core.serving is None:
            return False
        return not any(producer.lifetime_ms for producer in shell.core.serving.log.table.state.producers.values())

    def _check_copies(self) -> None:
        """In a run with repair every listed CLOSED ledger is whole."""
        if self.cluster.shape.repair:
            for ledger_id in listed_ledgers_of(self.cluster.store):
                data, _ = self.cluster.store.get(f"ledgers/{ledger_id}")
                record = None if data is None else decode_ledger(data)
                if record is not None and record.state is LedgerState.CLOSED:
                    self.cluster.watch.copies.check_whole(record)

    def _complete(self) -> bool:
        """Every topic is served by the owner its record names, and every input has its answers.

        A name without a running producer gets one once more.
        """
        open_ones = [client for client in self.cluster.producers if not client.source.complete]
        for client in open_ones:
            if client.app.fenced > 2 and not any(
                c.source is client.source and c.alive and not c.app.retired for c in open_ones
            ):
                client.app.fenced = 0
                client.post(1, "is started once more", client._again)
        return (
            not open_ones
            and all(each.complete for each in self.cluster.consumption.values())
            and (self.cluster.doors is None or not self.cluster.doors.unfinished)
            and self.cluster.eras.is_over
            and all(self._served(watch.record) for watch in self.cluster.watch.topics.values())
        )

    def _lacks(self, healed: int) -> str:
        """What a run waits for. healed: the tick at which the faults stopped."""
        cluster = self.cluster
        lacks: dict[str, Sequence[object]] = {
            "inputs": [client.name for client in cluster.producers if not client.source.complete],
            "consumption of": [topic for topic, each in cluster.consumption.items() if not each.complete],
            "programs": [] if cluster.doors is None else cluster.doors.unfinished,
            "restores": [] if cluster.eras.is_over else [f"after era {cluster.store.era}"],
            "service of": [topic for topic, watch in cluster.watch.topics.items() if not self._served(watch.record)],
            "answers to": [name for name, one in cluster.questioners.items() if one.answered_began < healed],
            "copies of ledgers": list(not_whole(self.faults)) if cluster.shape.repair else [],
        }
        return "; ".join(f"{what} {', '.join(map(str, names))}" for what, names in lacks.items() if names)

    def _served(self, record: TopicRecord) -> bool:
        shell = self._shell_of(record)
        return shell is not None and (shell.core.serving is None or shell.core.serving.acks.idle)

    def _shell_of(self, record: TopicRecord) -> TopicShell | None:
        """At the owner that serves the topic as its record says."""
        owner = next((o for o in self.cluster.owners.values() if o.alive and o.incarnation == record.owner), None)
        shell = owner.topics.get(record.topic_id) if owner is not None else None
        if shell is None or shell.core.phase is not Phase.SERVING or shell.epoch != record.owner_epoch:
            return None
        return shell

    def _close_topics(self) -> None:
        """Topics are no longer placed; each owner drains those that it serves."""
        deadline = self.world.now + HEALED_TICKS
        for replica in self.cluster.metadata:
            replica.crash()
        while not all(self._closed(watch.topic_id) for watch in self.cluster.watch.topics.values()):
            if self.world.now > deadline:
                raise Violation("liveness", f"topics do not close: {self.state_line()}")
            for watch in self.cluster.watch.topics.values():
                self._close(watch.record)
            self.step()

    def _close(self, record: TopicRecord) -> None:
        """The owner that the record names drains the topic. It takes it over first if nobody has told it of a placement
        that was being written when the last replica ended, or if it left without its last ledger CLOSED, for the reply
        to that was lost.
        """
        topic_id = record.topic_id
        for owner in self.cluster.owners.values():
            shell = owner.topics.get(topic_id)
            if shell is not None and shell.core.phase is Phase.SERVING:
                if shell.core.serving and not shell.core.serving.draining:
                    shell.handle(DrainRequested())
            elif (
                owner.alive and owner.incarnation == record.owner and (shell is None or shell.over)
                and not self._closed(topic_id) and not owner.gave_up_at(topic_id)
            ):  # fmt: skip
                owner.assign(topic_id)

    def _closed(self, topic_id: str) -> bool:
        watch = next(w for w in self.cluster.watch.topics.values() if w.topic_id == topic_id)
        last = [*watch.ledgers[-1:], *watch.acks.ledgers[-1:]]
        return bool(watch.ledgers) and all(ledger_id in self.cluster.watch.closed for ledger_id in last)

    # --- the history --------------------------------------------------------------------------------------------------

    def check_history(self) -> None:
        """Raises Violation."""
        watch = self.cluster.watch
        owners: dict[ProducerId, tuple[str, str]] = {}
        for topic_id, (history, producers, _) in self.cluster.clients.items():
            topic = watch.topics[topic_id]
            watch.fold_closed(topic, LedgerId(1 << 62))
            check_given_up(watch, topic)
            check_appends(history, topic.fold, dedup_enabled=self._checked)
            check_reads(
                history, topic.fold, trimmed=topic.trimmed, listed_again=topic.listed_again, left_out=topic.left_out
            )
            for producer in topic.fold.everyone():
                pid = producer.producer_id
                other = owners.setdefault(pid, (topic_id, producer.name))
                if other != (topic_id, producer.name):
                    raise Violation("ids never repeat", f"producer id {pid} is {other} and {(topic_id, producer.name)}")
            leases = self.cluster.shape.leases
            if leases is not None:
                self.world.count("producer expired", len(topic.fold.expired))
                check_leases(self.cluster.leases[topic_id], topic.fold, leases.policy)
            if topic_id in self.cluster.ack_workloads:
                topic.acks.check(self.cluster.ack_workloads[topic_id].history, watch.closed)
            if topic_id in self.cluster.consumption:
                self.cluster.consumption[topic_id].check(topic.acks.folded(watch.closed))
            for client in producers:
                self._check_input(client.source.name, client.source.ids, topic_id)
            if self.cluster.doors is not None and self.cluster.doors.topic_id == topic_id:
                self.cluster.doors.check(topic.fold)

    def _checked(self, header: EntryHeader) -> bool:
        return not any(start <= header.append_time_ms < end for start, end in self.faults.dedup_off)

    def _check_input(self, name: str | None, ids: Sequence[int], topic_id: str) -> None:
        """A completed input is in the log as a whole."""
        fold = next(w.fold for w in self.cluster.watch.topics.values() if w.topic_id == topic_id)
        if name is None:
            return
        places = [producer.places for producer in fold.everyone() if producer.name == name]
        missing = [i for i in ids if not any(i in stored for stored in places)]
        if missing:
            raise Violation("no loss", f"of the input of {name!r} the log lacks {missing[:5]}")


def run(seed: int, rules: Rules | None = None) -> Outcome:
    """One run. Its garbage is collected when it has ended: before, the collector would look again and again at what
    the run holds, and free little."""
    gc.disable()
    try:
        return outcome_of(Run(seed, rules))
    finally:
        gc.enable()
