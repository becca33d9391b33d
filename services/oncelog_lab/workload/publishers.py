"""The publishing clients. Each one connects, publishes and disconnects again and again, through all faults.

A session ends in one of two ways. Killed: its connections close while messages are in flight, and the client never
learns their fate. Closed: the client waits for all acknowledgements. At the end of the run all clients are closed.
"""

import asyncio
import math
import random
from collections.abc import Awaitable
from dataclasses import dataclass

from oncelog.client.client import AsyncClient
from oncelog.client.producing.producer import AsyncProducer
from oncelog.core.errors import InvalidArgument, OncelogError, StaleSequence
from oncelog_lab.access import ClusterAccess
from oncelog_lab.acknowledgements import AckRecord, SendFate
from oncelog_lab.workload.events import Emit
from oncelog_lab.workload.messages import GeneratedFile, message_key, message_value

#: Between two sends: far below the limit of a small cluster, so that a pause is caused by a fault and not by a queue.
_PERIOD_S = 0.25
#: For the steady clients, whose pauses are the result of the run. No measured pause is shorter.
_STEADY_PERIOD_S = 0.1
_BATCH_MAX = 5
_RECONNECT_AFTER_S = 0.3
#: A client with so many requests in flight sends nothing more, which bounds its memory during a fault.
_IN_FLIGHT_MAX = 4_000
#: How many lines a producer sends again after it lost its position.
_REPEATED_LINES = 25
FLUSH_DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class ClientSetup:
    """What all clients of a workload share. topic: of one client."""

    topic: str
    access: ClusterAccess
    record: AckRecord
    emit: Emit
    seed: int


class WorkloadPublisher:
    """Base of the publishers that use the SDK. `stopping` is set when the run ends."""

    def __init__(self, name: str, setup: ClientSetup) -> None:
        self.name = name
        self.setup = setup
        self.stopping = asyncio.Event()
        self.random = random.Random(f"{setup.seed} {name}")

    async def run(self) -> None:
        """Return after `stopping` is set and all messages are acknowledged, or after FLUSH_DEADLINE_S."""
        while True:
            # From here on a pause is caused by the cluster. The end of a session is caused by the client.
            self.setup.record.pauses.begins(self.name)
            while not await self._try_session():
                await self.wait(_RECONNECT_AFTER_S)
            if self.stopping.is_set():
                return

    async def _try_session(self) -> bool:
        """Whether the session ended as planned."""
        try:
            client = await self.setup.access.connect()
            try:
                await self.session(client)
            finally:
                await client.close(flush=False)
        except OncelogError as error:
            self.setup.emit("error", client=self.name, error=f"{error} [{error.code}]")
            return self.stopping.is_set()
        return True

    async def session(self, client: AsyncClient) -> None:
        """One session, with connections of its own."""
        raise NotImplementedError

    async def send_next(self, producer: AsyncProducer) -> None:
        """Send the next messages and record their fate."""
        raise NotImplementedError

    async def wait(self, seconds: float) -> None:
        """Wait so long, or until the run ends."""
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return

    async def record_fate(self, key: str, first: int, count: int, sending: Awaitable[object]) -> None:
        """Wait for one answer and record it. If cancelled, the fate stays unknown."""
        record = self.setup.record
        record.sent(key, first, count)
        try:
            await sending
        except OncelogError as error:
            # These errors are about the sequence id itself. Other errors are about one attempt.
            refused = isinstance(error, StaleSequence | InvalidArgument) and error.stored is False
            record.answered(key, first, count, SendFate.REFUSED if refused else SendFate.UNKNOWN)
            if not error.retriable:
                self.setup.emit("error", client=self.name, error=f"{error} [{error.code}]")
            return
        record.answered(key, first, count, SendFate.ACKNOWLEDGED)
        record.pauses.acknowledged(self.name)

    async def publish(
        self, producer: AsyncProducer, seconds: float, *, killed: bool, period_s: float = _PERIOD_S
    ) -> None:
        """Send at a fixed rate for so long. Then cancel what is in flight (killed), or wait for it."""
        in_flight: set[asyncio.Task[None]] = set()
        clock = asyncio.get_running_loop().time
        ends_at = clock() + seconds
        async with asyncio.TaskGroup() as tasks:
            while not self.stopping.is_set() and clock() < ends_at and producer.failure is None:
                if len(in_flight) < _IN_FLIGHT_MAX:
                    task = tasks.create_task(self.send_next(producer))
                    in_flight.add(task)
                    task.add_done_callback(in_flight.discard)
                await self.wait(period_s)
            if in_flight and (self.stopping.is_set() or not killed):
                await asyncio.wait(in_flight, timeout=FLUSH_DEADLINE_S)
            for task in in_flight:
                task.cancel()


class NamedPublisher(WorkloadPublisher):
    """Publishes a generated file under one producer name with explicit sequence ids. Resumes where the log ends."""

    def __init__(self, name: str, setup: ClientSetup) -> None:
        super().__init__(name, setup)
        self._file = GeneratedFile(name, setup.seed)
        self._next = 0
        self._sessions = 0

    async def open_producer(self, client: AsyncClient) -> AsyncProducer:
        producer = await client.create_producer(
            self.setup.topic, producer_name=f"chaos-{self.name}", on_unverified="accept"
        )
        self._next = self._file.after(producer.last_sequence_id)
        return producer

    async def session(self, client: AsyncClient) -> None:
        producer = await self.open_producer(client)
        self._sessions += 1
        if self._sessions % 2 == 0:
            # Like a producer that lost its position: it sends stored lines again, and nothing may be duplicated.
            self._next = max(0, self._next - _REPEATED_LINES)
        await self.publish(producer, self.random.uniform(3.0, 9.0), killed=self._sessions % 3 != 0)

    async def send_next(self, producer: AsyncProducer) -> None:
        first, count = self._next, self.random.randint(1, _BATCH_MAX)
        self._next += count
        lines = [self._file.line(number) for number in range(first, first + count)]
        sending = producer.send_many(
            [value for _, value in lines],
            sequence_ids=[offset for offset, _ in lines],
            keys=[message_key(self.name, number) for number in range(first, first + count)],
        )
        await self.record_fate(self.name, first, count, sending)


class SteadyPublisher(NamedPublisher):
    """Stays open for the whole run, so its pauses do not include the opening of a topic."""

    async def session(self, client: AsyncClient) -> None:
        producer = await self.open_producer(client)
        await self.publish(producer, math.inf, killed=False, period_s=_STEADY_PERIOD_S)


class AutomaticPublisher(WorkloadPublisher):
    """Publishes single messages under a name that the cluster assigns: a new producer in each session."""

    def __init__(self, name: str, setup: ClientSetup) -> None:
        super().__init__(name, setup)
        self._sessions = 0
        self._next = 0

    async def session(self, client: AsyncClient) -> None:
        producer = await client.create_producer(self.setup.topic)
        self._sessions, self._next = self._sessions + 1, 0
        await self.publish(producer, self.random.uniform(6.0, 15.0), killed=self._sessions % 2 == 1)

    async def send_next(self, producer: AsyncProducer) -> None:
        key, number = f"{self.name}.{self._sessions}", self._next
        self._next += 1
        sending = producer.send(message_value(key, number, self.setup.seed), key=message_key(self.name, number))
        await self.record_fate(key, number, 1, sending)
