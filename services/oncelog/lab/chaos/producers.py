"""The publishing clients of the workload. Each runs life after life until it is told to stop, and survives every fault.

A life ends in one of two ways. Killed: its connections are closed with messages in flight, whose fate it never learns.
Closed: what is in flight is waited for. At the end of the run every client is closed, so nothing stays unknown that
could be known.
"""

import asyncio
import math
import random
from bisect import bisect_right
from collections.abc import Awaitable

from oncelog.client.client import AsyncClient
from oncelog.client.producer import AsyncProducer
from oncelog.core.errors import InvalidArgument, OncelogError, StaleSequence
from oncelog.lab.chaos.access import Access
from oncelog.lab.chaos.checker import Fate, message_value
from oncelog.lab.chaos.report_lines import Record, Say

#: Between two sends. So slow that a small cluster is far from its limit: a pause is to be the fault's, not a queue's.
_PERIOD_S = 0.25
#: Of those whose pauses are the figures: none is seen to be shorter than this.
_STEADY_PERIOD_S = 0.1
_BATCH_MAX = 5
_AGAIN_S = 0.3
#: Beyond it a client that waits sends nothing more: what a fault keeps waiting must not fill the memory.
_IN_FLIGHT_MAX = 4_000
#: How many lines a producer that forgot where it was sends again.
_FORGOTTEN_LINES = 25
FLUSH_DEADLINE_S = 120.0


class GeneratedFile:
    """An endless file of lines; the sequence id of a line is the offset of its first byte."""

    def __init__(self, client: str, seed: int) -> None:
        self.client = client
        self._seed = seed
        self._offsets = [0]

    def line(self, number: int) -> tuple[int, bytes]:
        """(offset, value) of a line, from 0."""
        while len(self._offsets) <= number + 1:
            written = len(self._offsets) - 1
            size = len(message_value(self.client, written, self._seed)) + 1
            self._offsets.append(self._offsets[-1] + size)
        return self._offsets[number], message_value(self.client, number, self._seed)

    def after(self, offset: int) -> int:
        """Number of the first line that begins behind `offset`."""
        while self._offsets[-1] <= offset:
            self.line(len(self._offsets))
        return bisect_right(self._offsets, offset)


class Publisher:
    """What both kinds share: lives, and what is said of trouble. `stopping` is set when the run ends."""

    def __init__(self, name: str, topic: str, access: Access, record: Record, say: Say, seed: int) -> None:
        self.name = name
        self.topic = topic
        self.stopping = asyncio.Event()
        self.record = record
        self.seed = seed
        self.chance = random.Random(f"{seed} {name}")
        self._access = access
        self._say = say

    async def run(self) -> None:
        """Until stopped; then what is in flight is answered, or FLUSH_DEADLINE_S are over."""
        while True:
            # From here on a pause is the cluster's doing; the end of a life was its own.
            self.record.pulse.begins(self.name)
            while not await self._try_to_live():
                await self.wait(_AGAIN_S)
            if self.stopping.is_set():
                return

    async def _try_to_live(self) -> bool:
        """Whether a life came to the end that was meant for it."""
        try:
            client = await self._access.connect()
            try:
                await self.live(client)
            finally:
                await client.close(flush=False)  # one that is killed waits for nothing
        except OncelogError as error:
            self._say("trouble", client=self.name, error=f"{error} [{error.code}]")
            return self.stopping.is_set()
        return True

    async def live(self, client: AsyncClient) -> None:
        """One life, on connections of its own; they are closed behind it."""
        raise AssertionError("a publisher has a way to live")

    async def wait(self, seconds: float) -> None:
        """So long, or until the run ends."""
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return

    async def fate(self, key: str, first: int, count: int, sending: Awaitable[object]) -> None:
        """Wait for one answer and record it; cancelled, it stays unknown."""
        try:
            await sending
        except OncelogError as error:
            # Of the id itself, whoever sent it; other failures speak of one sending alone.
            never = isinstance(error, StaleSequence | InvalidArgument) and error.stored is False
            self.record.answer(key, first, count, Fate.FAILED if never else Fate.INFO)
            if not error.retriable:
                self._say("trouble", client=self.name, error=f"{error} [{error.code}]")
            return
        self.record.answer(key, first, count, Fate.STORED)
        self.record.pulse.acked(self.name)

    async def publish(
        self, producer: AsyncProducer, life_s: float, *, killed: bool, period_s: float = _PERIOD_S
    ) -> None:
        """Send at the pace for so long, then be killed, or wait for what is in flight."""
        flying: set[asyncio.Task[None]] = set()
        clock = asyncio.get_running_loop().time
        ends_at = clock() + life_s
        async with asyncio.TaskGroup() as tasks:
            while not self.stopping.is_set() and clock() < ends_at and producer.failure is None:
                if len(flying) < _IN_FLIGHT_MAX:
                    task = tasks.create_task(self.send_next(producer))
                    flying.add(task)
                    task.add_done_callback(flying.discard)
                await self.wait(period_s)
            if flying and (self.stopping.is_set() or not killed):
                await asyncio.wait(flying, timeout=FLUSH_DEADLINE_S)
            for task in flying:
                task.cancel()

    async def send_next(self, producer: AsyncProducer) -> None:
        """Hand over what comes next."""
        raise AssertionError(f"a publisher has something to send to {producer.topic}")


class NamedProducer(Publisher):
    """Publishes a generated file under one name with ids of its own; killed, it resumes where the log says."""

    def __init__(self, name: str, topic: str, access: Access, record: Record, say: Say, seed: int) -> None:
        super().__init__(name, topic, access, record, say, seed)
        self._file = GeneratedFile(name, seed)
        self._next = 0
        self._lives = 0

    async def live(self, client: AsyncClient) -> None:
        producer = await client.create_producer(self.topic, producer_name=f"chaos-{self.name}")
        self._next = self._file.after(producer.last_sequence_id)
        self._lives += 1
        if self._lives % 2 == 0:
            # One that has lost its place sends again what is stored: it must be told so, and nothing doubled.
            self._next = max(0, self._next - _FORGOTTEN_LINES)
        await self.publish(producer, self.chance.uniform(3.0, 9.0), killed=self._lives % 3 != 0)

    async def send_next(self, producer: AsyncProducer) -> None:
        first, count = self._next, self.chance.randint(1, _BATCH_MAX)
        self._next += count
        lines = [self._file.line(number) for number in range(first, first + count)]
        self.record.invoke(self.name, first, count)
        sending = producer.send_many([value for _, value in lines], sequence_ids=[offset for offset, _ in lines])
        await self.fate(self.name, first, count, sending)


class SteadyProducer(NamedProducer):
    """Stays open from beginning to end: its pauses are those of a topic that is open, and nothing else's."""

    async def live(self, client: AsyncClient) -> None:
        producer = await client.create_producer(self.topic, producer_name=f"chaos-{self.name}")
        self._next = self._file.after(producer.last_sequence_id)
        await self.publish(producer, math.inf, killed=False, period_s=_STEADY_PERIOD_S)


class AutomaticProducer(Publisher):
    """Publishes single messages under a name that the cluster assigns; each life is another producer."""

    def __init__(self, name: str, topic: str, access: Access, record: Record, say: Say, seed: int) -> None:
        super().__init__(name, topic, access, record, say, seed)
        self._life = 0
        self._next = 0

    async def live(self, client: AsyncClient) -> None:
        producer = await client.create_producer(self.topic)
        self._life, self._next = self._life + 1, 0
        await self.publish(producer, self.chance.uniform(6.0, 15.0), killed=self._life % 2 == 1)

    async def send_next(self, producer: AsyncProducer) -> None:
        key, number = f"{self.name}.{self._life}", self._next
        self._next += 1
        self.record.invoke(key, number, 1)
        await self.fate(key, number, 1, producer.send(message_value(key, number, self.seed)))
