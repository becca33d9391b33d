"""Producers under load, and the check of their topic: every message is stored once, in order, at its position."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field

import oncelog
from oncelog.core.errors import LedgerUnavailable, OncelogError
from tests.cluster.until import until

DEADLINE_S = 30.0
#: Between two groups while nobody waits for answers: full speed takes the cores from processes that start meanwhile.
PERIOD_S = 0.02
#: A load goes on at full speed for this long after an awaited answer, so that a fault meets requests on their way.
FAST_S = 0.2

#: Sends values whose first sequence id is given, and returns the message id of each.
Send = Callable[[int, Sequence[bytes]], Awaitable[Sequence[oncelog.MessageId | None]]]


def by_future(producer: oncelog.AsyncProducer) -> Send:
    """One future for each message, explicit ids."""

    async def send(first: int, values: Sequence[bytes]) -> Sequence[oncelog.MessageId | None]:
        futures = [producer.send_nowait(value, sequence_id=first + at) for at, value in enumerate(values)]
        return [(await future).message_id for future in futures]

    return send


def by_list(producer: oncelog.AsyncProducer, *, explicit: bool = True) -> Send:
    """send_many; without explicit ids the producer numbers them from 0."""

    async def send(first: int, values: Sequence[bytes]) -> Sequence[oncelog.MessageId | None]:
        ids = range(first, first + len(values)) if explicit else None
        result = await producer.send_many(values, sequence_ids=ids)
        assert (result.first, result.last) == (first, first + len(values) - 1)
        return list(result.message_ids)

    return send


def by_thread(producer: oncelog.Producer) -> Send:
    """The synchronous client, one message at a time."""

    def send_each(first: int, values: Sequence[bytes]) -> list[oncelog.MessageId | None]:
        return [producer.send(value, sequence_id=first + at).message_id for at, value in enumerate(values)]

    async def send(first: int, values: Sequence[bytes]) -> Sequence[oncelog.MessageId | None]:
        return await asyncio.to_thread(send_each, first, values)

    return send


async def passed(at_s: float) -> None:
    """Return at this time of the monotonic clock."""
    await until(lambda: time.monotonic() >= at_s, max(0.0, at_s - time.monotonic()) + DEADLINE_S)


@dataclass(eq=False)
class Load:
    """One producer. It has up to `depth` groups of `count` messages unanswered. While answers are awaited, and for
    FAST_S afterwards, it has always so many; at other times it begins a group in PERIOD_S. slow: it always
    does, and a long run fits into memory."""

    name: str
    send: Send
    count: int = 10
    depth: int = 3
    slow: bool = False
    sent: list[bytes] = field(default_factory=list)
    #: of each acknowledged message, in the order of `sent`
    message_ids: list[oncelog.MessageId | None] = field(default_factory=list)
    #: the longest time between two responses
    gap_max_s: float = 0.0
    _stopping: bool = False
    _last_answer_s: float = 0.0
    _begun_s: float = 0.0
    _fast_until_s: float = 0.0

    def hurry(self, until_s: float) -> None:
        """At full speed until then, unless it is slow."""
        self._fast_until_s = 0.0 if self.slow else until_s

    async def run(self) -> None:
        """Send until `stop`, then wait for every answer."""
        groups: list[asyncio.Task[Sequence[oncelog.MessageId | None]]] = []
        self._last_answer_s = time.monotonic()
        try:
            while not self._stopping or groups:
                if not self._stopping and len(groups) < self.depth:
                    if time.monotonic() >= self._fast_until_s:
                        await passed(self._begun_s + PERIOD_S)
                    self._begun_s = time.monotonic()
                    first = len(self.sent)
                    values = [b"%s %d" % (self.name.encode(), first + at) for at in range(self.count)]
                    self.sent += values
                    groups.append(asyncio.ensure_future(self.send(first, values)))
                    continue
                self.message_ids += await groups[0]
                del groups[0]
                now_s = time.monotonic()
                self.gap_max_s = max(self.gap_max_s, now_s - self._last_answer_s)
                self._last_answer_s = now_s
        finally:
            for group in groups:
                group.cancel()

    def stop(self) -> None:
        self._stopping = True


class Loads:
    """Some loads that run together."""

    def __init__(self, *loads: Load) -> None:
        self.loads = loads
        #: what the topic held at the end of `checked`
        self.stored: list[oncelog.Message] = []

    @classmethod
    async def of_two(cls, client: oncelog.AsyncClient, topic: str, *, slow: bool = False) -> "Loads":
        """A producer of futures, and one of lists. slow: see `Load`; one group after the other."""
        sends = {
            "futures": by_future(await client.create_producer(topic, producer_name="futures")),
            "lists": by_list(await client.create_producer(topic, producer_name="lists")),
        }
        if slow:
            return cls(*(Load(name, send, depth=1, slow=True) for name, send in sends.items()))
        return cls(*(Load(name, send) for name, send in sends.items()))

    @classmethod
    @asynccontextmanager
    async def checked(
        cls, client: oncelog.AsyncClient, topic: str, *, slow: bool = False, read: bool = False
    ) -> AsyncIterator["Loads"]:
        """The producers of `of_two` send inside the block, whatever happens there. At its end the topic is checked.

        read: a reader follows from before the first message to the last, and must see the same.
        """
        loads = await cls.of_two(client, topic, slow=slow)
        async with Following.running(client, topic) if read else nullcontext() as following:
            async with loads.running():
                yield loads
            loads.stored = await read_all(client, topic)
            loads.check(loads.stored)
            if following is not None:
                loads.check(await following.has_all(len(loads.stored)))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Loads"]:
        """All loads send inside the block. At its end every message has a response."""
        tasks = [asyncio.ensure_future(load.run()) for load in self.loads]
        try:
            await self.answered_more(20)
            yield self
            for load in self.loads:
                load.stop()
            async with asyncio.timeout(DEADLINE_S):
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def answered_more(self, count: int = 60) -> None:
        """Return when each load has received this many further responses."""
        wanted = {load: len(load.message_ids) + count for load in self.loads}
        with self.hurrying():
            await until(
                lambda: all(len(load.message_ids) >= least for load, least in wanted.items()),
                DEADLINE_S,
                waiting_for=f"{count} more answers for {[load.name for load in self.loads]}",
            )

    def under_way(self) -> bool:
        """Whether each load has messages without a response: they are somewhere between it and the disks. A kill at
        this moment meets the cluster at work."""
        return all(len(load.sent) > len(load.message_ids) for load in self.loads)

    @contextmanager
    def hurrying(self) -> Iterator[None]:
        """At full speed inside the block, and for FAST_S afterwards."""
        for load in self.loads:
            load.hurry(math.inf)
        yield
        for load in self.loads:
            load.hurry(time.monotonic() + FAST_S)

    @property
    def answered(self) -> int:
        """How many messages have a response."""
        return sum(len(load.message_ids) for load in self.loads)

    @property
    def gap_max_s(self) -> float:
        return max(load.gap_max_s for load in self.loads)

    def check(self, stored: Sequence[oncelog.Message], *, whole: bool = True) -> None:
        """Nothing lost, nothing twice, nothing out of order, and each where its answer said.

        whole: there is nothing else in the topic.
        """
        assert not whole or [message.index for message in stored] == list(range(len(stored)))
        places = [message.message_id for message in stored]
        assert places == sorted(set(places))
        for load in self.loads:
            own = [message for message in stored if message.producer_name == load.name]
            assert [message.value for message in own] == load.sent
            assert [message.sequence_id for message in own] == list(range(len(load.sent)))
            told = zip(load.message_ids, own, strict=True)
            assert [place for place, message in told if place not in {None, message.message_id}] == []
        assert len(stored) == sum(len(load.sent) for load in self.loads)


async def read_all(client: oncelog.AsyncClient, topic: str) -> list[oncelog.Message]:
    """All messages that the topic holds now."""
    found: list[oncelog.Message] = []
    async with asyncio.timeout(DEADLINE_S), await client.create_reader(topic) as reader:
        while True:
            try:
                if not await reader.has_message_available():
                    return found
                found += await reader.read_batch()
            except LedgerUnavailable:
                continue  # storage nodes are away for a while: the deadline decides


@dataclass(eq=False)
class Following:
    """A reader that continues through all faults."""

    messages: list[oncelog.Message] = field(default_factory=list)
    failure: OncelogError | None = None

    @classmethod
    @asynccontextmanager
    async def running(cls, client: oncelog.AsyncClient, topic: str) -> AsyncIterator["Following"]:
        own = cls()
        async with await client.create_reader(topic) as reader:
            task = asyncio.ensure_future(own._read(reader))
            try:
                yield own
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _read(self, reader: oncelog.AsyncReader) -> None:
        try:
            while True:
                try:
                    self.messages += await reader.read_batch()
                except LedgerUnavailable:
                    continue  # the reader goes on trying
        except OncelogError as error:
            self.failure = error

    async def has_all(self, count: int) -> list[oncelog.Message]:
        await until(lambda: len(self.messages) >= count or self.failure, DEADLINE_S, waiting_for=f"{count} messages")
        assert self.failure is None
        return self.messages
