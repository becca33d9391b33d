"""Consumers of whole entries on a real cluster, whose processes are killed while entries are held."""

import asyncio
from collections import Counter, deque
from typing import get_args

import pytest

import oncelog
from oncelog.client.gateways import (
    ConsumedEntry,
    EntryConsumer,
    EntryConsumerCallbacks,
    StartEdge,
    SubscriptionTypeName,
    open_entry_consumer,
)
from oncelog.core.acks.changes import IndexRange
from oncelog.core.errors import Conflict, SubscriptionNotFound
from oncelog.core.ids import SeekEpoch
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio
#: Entries of four messages. The client of the gateway asks for few at a time, and holds some unacknowledged.
ENTRIES, EACH = 40, 4
PERMITS, HELD = 10, 3


class Client:
    """The client of a gateway: it acknowledges the oldest of the entries that it has."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.consumer: EntryConsumer
        self.held: deque[ConsumedEntry] = deque()
        #: {message: how often it came}
        self.came: Counter[int] = Counter()
        self.acked: set[int] = set()
        self.again: list[int] = []
        self.recalled: list[IndexRange] = []
        self.moved: list[SeekEpoch] = []

    async def attach(self, client: oncelog.AsyncClient, kind: SubscriptionTypeName) -> None:
        callbacks = EntryConsumerCallbacks(recalled=self.recalled.extend, sought=self.moved.append)
        self.consumer = await open_entry_consumer(
            client, self.topic, "billing", kind, "door-1", start=StartEdge.EARLIEST, window_bytes=1_000_000,
            callbacks=callbacks, timeout=DEADLINE_S,
        )  # fmt: skip

    async def work(self, messages: int) -> None:
        """Until so many messages were acknowledged."""
        self.consumer.permits(PERMITS)
        while len(self.acked) < messages:
            entry = self.consumer.take()
            if entry is None and self.held and self.came.total() == messages:
                await self._ack(self.held.popleft())
            elif entry is None:
                await self.consumer.arrival()
            else:
                self._take(entry)
                if len(self.held) > HELD:
                    await self._ack(self.held.popleft())

    def _take(self, entry: ConsumedEntry) -> None:
        assert entry.messages == EACH, "an entry comes whole"
        indexes = [index for first, last in entry.ranges for index in range(first, last + 1)]
        self.again += [index for index in indexes if index in self.came]
        self.came.update(indexes)
        self.held.append(entry)
        self.consumer.permits(self.came.total() + PERMITS)

    async def _ack(self, entry: ConsumedEntry) -> None:
        assert (await self.consumer.ack(entry.ranges, entry.seek_epoch)).durable
        self.acked |= {index for first, last in entry.ranges for index in range(first, last + 1)}


@pytest.mark.hazard("delivered-while-held")
@pytest.mark.hazard("entry-above-the-permits")
async def test_killed_owner_costs_no_entry_and_repeats_none(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """What was acknowledged before the kill stays so. What the client holds stays with it, and does not come again."""
    one_kill = asyncio.Lock()
    async with asyncio.TaskGroup() as tasks:
        for kind in get_args(SubscriptionTypeName):
            tasks.create_task(_killed(kind, cluster, client, one_kill))


async def _killed(
    kind: SubscriptionTypeName, cluster: Cluster, client: oncelog.AsyncClient, one_kill: asyncio.Lock
) -> None:
    topic = f"entries-{kind}"
    producer = await client.create_producer(topic)
    for number in range(ENTRIES):
        await producer.send_many([b"%d" % number] * EACH, keys=[b"k"] * EACH)
    epoch = (await cluster.stats(topic))["owner_epoch"]
    own = Client(topic)
    await own.attach(client, kind)
    working = asyncio.ensure_future(own.work(ENTRIES * EACH))
    async with one_kill:
        if (await cluster.stats(topic)).get("owner_epoch") == epoch:
            await cluster.kill(await cluster.owner_of(topic), once=lambda: len(own.acked) > 5 * EACH)
    await cluster.served_by_another(topic, epoch)
    async with asyncio.timeout(DEADLINE_S):
        await working
    assert (set(own.came), own.again, own.recalled, own.moved) == (set(range(ENTRIES * EACH)), [], [], [])
    # Another kill, for the test of another kind, may have ended this owner, too.
    served = await cluster.served_by_another(topic, epoch)
    assert served["subscriptions"]["billing"]["msg_backlog"] == 0
    await own.consumer.seek(StartEdge.LATEST)
    await own.consumer.close()


async def test_last_consumer_deletes_the_subscription(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """With others connected it is refused, and the consumer goes on."""
    producer = await client.create_producer("left")
    await producer.send(b"message")

    async def attach(name: str, *, create: bool = True) -> EntryConsumer:
        return await open_entry_consumer(
            client, "left", "billing", "shared", name, start=StartEdge.EARLIEST, create=create, window_bytes=1,
            timeout=DEADLINE_S,
        )  # fmt: skip

    first, second = await attach("a"), await attach("b")
    with pytest.raises(Conflict):
        await first.unsubscribe()
    first.permits(1)
    await until(lambda: first.take() is not None, DEADLINE_S)
    await second.close()
    await first.unsubscribe()
    assert first.failure is not None
    with pytest.raises(SubscriptionNotFound):
        await attach("c", create=False)
