"""What all connections of Pulsar's clients share: the cluster, limits, paces and what is counted."""

from collections.abc import Callable, Mapping, Sized
from typing import Protocol, assert_never

from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.connections.home import ConnectionHome, Drained
from oncelog_doors.connections.ports import Timers
from oncelog_doors.core.pulsar.due_refusals import DueRefusals
from oncelog_doors.core.pulsar.send_budget import (
    BudgetEffect,
    DropProducer,
    ProducerKey,
    ReadAgain,
    SendBudget,
    StopReading,
)
from oncelog_doors.core.pulsar.sends import Sends
from oncelog_doors.core.shared.admissions import Admissions
from oncelog_doors.core.shared.pace import Pace
from oncelog_doors.pulsar.door_counts import DoorCounts
from oncelog_doors.pulsar.ports import ClusterPort
from oncelog_doors.pulsar.producer_slot import ProducerSlot


class OpenConnection(Drained, Protocol):
    """What is done to a connection from outside."""

    @property
    def slots(self) -> Mapping[int, ProducerSlot]:
        """{producer id: producer}"""

    @property
    def consumers(self) -> Sized:
        """Readers and consumers."""

    @property
    def holds(self) -> frozenset[str]:
        """Why nothing is read; empty: it is."""

    def hold(self, reason: str) -> None: ...
    def release(self, reason: str) -> None: ...


class Home(ConnectionHome[OpenConnection]):
    """What the connections of a door share."""

    def __init__(
        self,
        cluster: ClusterPort,
        timers: Timers,
        *,
        server_version: str,
        budget: SendBudget | None = None,
        admissions: Admissions | None = None,
        sends: type[Sends] = Sends,
    ) -> None:
        """sends: decides what clients are answered; the proof against Pulsar's rule has another one."""
        super().__init__(timers, admissions)
        self.cluster = cluster
        self.server_version = server_version
        self.sends = sends
        self.budget = budget or SendBudget()
        self.due = DueRefusals()
        self.pace = Pace()
        self.counts = DoorCounts()
        #: of consumers, which end with their connections, once the cluster has back what their clients hold
        self.consuming = BackgroundTasks()
        self._opening_count = 0
        self._cancel_tick: Callable[[], None] | None = None

    def next_opening(self) -> int:
        self._opening_count += 1
        return self._opening_count

    def refused(self) -> None:
        self.counts.connections_refused += 1

    def gone(self, number: int) -> None:
        self.connections.pop(number, None)
        self.perform_budget(self.budget.disconnected(number))
        super().gone(number)

    async def before_tasks_end(self) -> None:
        """Consumers give back what their clients hold."""
        await self.consuming.ended()

    def perform_budget(self, effects: list[BudgetEffect]) -> None:
        for effect in effects:
            match effect:
                case StopReading():
                    self.connections[effect.connection].hold("budget")
                case ReadAgain():
                    self.connections[effect.connection].release("budget")
                case DropProducer():
                    self._drop(effect.producer)
                case _:
                    assert_never(effect)
        if self._cancel_tick is not None:
            self._cancel_tick()
        due_ms = self.budget.next_ms
        self._cancel_tick = None if due_ms is None else self.timers.at(due_ms, self._tick)

    def _tick(self) -> None:
        self.perform_budget(self.budget.tick(self.timers.now_ms()))

    def _drop(self, producer: ProducerKey) -> None:
        slots = self.connections[producer.connection].slots.values()
        for slot in [slot for slot in slots if slot.key == producer]:
            slot.drop()

    @property
    def producer_count(self) -> int:
        return sum(len(connection.slots) for connection in self.connections.values())

    @property
    def consumer_count(self) -> int:
        return sum(len(connection.consumers) for connection in self.connections.values())
