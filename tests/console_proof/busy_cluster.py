"""A cluster with something to look at: topics, producers, subscriptions and the traces of failures.

`public/shop/orders` has what its page can show: ledgers and snapshots, a producer that sent everything twice, one that
was fenced by its successor, one with a name of markup, consumers that hold messages, a message that nobody can handle
(dead letters), a takeover. Beside it are a partitioned topic, one without messages, and a subscription whose backlog
grows. `traffic` publishes and consumes until it is cancelled.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import oncelog
from oncelog.core.errors import DeadlineExceeded, ProducerFenced
from oncelog_lab.bench.baseline import ticks
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster, rest_path
from tests.cluster.kills import idle

NAMESPACE = "public/shop"
ORDERS = f"{NAMESPACE}/orders"
SUBSCRIPTION = "billing"
PARTITIONED = f"{NAMESPACE}/clicks"
MARKUP = '<img src=x onerror=alert(1)><script>alert("2")</script>' + "&amp;{{7*7}}" * 3 + "'\"`" + "ü" * 100
#: Small ledgers and frequent snapshots, so that a short log has many of both.
SETTINGS = {"ledger_entries_max": 60, "snapshot_entries_max": 100, "snapshot_interval_ms": 1_000}
_PER_SECOND, _SECONDS_MAX = 20, 3_600.0
_RECEIVE_S = 5.0


async def fill(cluster: Cluster, client: oncelog.AsyncClient, *, messages: int = 200, kill: bool = True) -> None:
    """Write what the pages show. Halfway the owner of ORDERS is killed, or only closes the topic."""
    await cluster.change("PUT", f"/admin/v2/namespaces/{NAMESPACE}")
    await cluster.change("PUT", f"/admin/v2/persistent/{PARTITIONED}/partitions", json=4)
    await cluster.change("PUT", f"/admin/v2/persistent/{NAMESPACE}/nothing-yet")
    await _publish(client, messages)
    await _consume(client)
    if kill:
        await cluster.kill(await cluster.owner_of(ORDERS), once=idle)
    else:
        await cluster.change("PUT", f"{rest_path(ORDERS)}/unload")
    await _publish(client, messages, first=messages)
    await _successor(client)
    async with await client.create_producer(PARTITIONED, producer_name="web") as clicks:
        await clicks.send_many([b"/%d" % n for n in range(200)], keys=[b"user-%d" % (n % 9) for n in range(200)])
    async with await client.subscribe(PARTITIONED, subscription="audit", start=oncelog.EARLIEST):
        pass  # a subscription that nobody reads


async def _publish(client: oncelog.AsyncClient, messages: int, *, first: int = 0) -> None:
    """Each in an entry of its own. The next importer sends the last ones again, some with another value."""
    ids = range(first, first + messages)
    async with await client.create_producer(ORDERS, producer_name="importer") as importer:
        for number in ids:
            await importer.send(
                b'{"order": %d, "lines": [{"sku": "A-%d", "count": 2}]}' % (number, number % 7),
                sequence_id=number, key=b"customer-%d" % (number % 5), properties={"source": "import", "try": "1"},
            )  # fmt: skip
    async with await client.create_producer(ORDERS, producer_name="importer", on_content_differs="accept") as again:
        results = [await again.send(b"again", sequence_id=number) for number in ids[-20:]]
    assert all(result.duplicate for result in results)
    async with await client.create_producer(ORDERS, producer_name=MARKUP) as hostile:
        for _ in range(5):
            await hostile.send(MARKUP.encode(), key=MARKUP.encode(), properties={MARKUP[:50]: MARKUP})
        await hostile.send(bytes(range(256)))


async def _consume(client: oncelog.AsyncClient) -> None:
    """Acknowledge some, with holes; refuse others until they are dead letters."""
    async with await client.subscribe(
        ORDERS,
        subscription=SUBSCRIPTION,
        type="shared",
        start=oncelog.EARLIEST,
        max_deliveries=2,
        consumer_name="first",
    ) as consumer:
        bad = 0
        while bad < 3:
            message = await consumer.receive(timeout=DEADLINE_S)
            if message.index % 25 == 3:
                bad += message.delivery_count == 2
                await consumer.nack(message, delay=0)
            elif message.index % 40 != 7:
                await consumer.ack(message)


async def _successor(client: oncelog.AsyncClient) -> None:
    """A producer whose next instance fences it."""
    async with await client.create_producer(ORDERS, producer_name="web-shop") as former:
        await former.send(b"one")
        async with await client.create_producer(ORDERS, producer_name="web-shop") as successor:
            await successor.send(b"two")
            with suppress(ProducerFenced):
                await former.send(b"three")


@asynccontextmanager
async def traffic(client: oncelog.AsyncClient) -> AsyncIterator[None]:
    """Publish and consume inside the block, also while processes are killed."""
    tasks = [asyncio.create_task(work) for work in (_producing(client), _consuming(client), _hoarding(client))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
    failed = [each for each in done if isinstance(each, Exception)]
    if failed:
        raise ExceptionGroup("the traffic ended by itself", failed)


async def _producing(client: oncelog.AsyncClient) -> None:
    drawn = random.Random(1)
    async with await client.create_producer(ORDERS, producer_name="checkout") as producer:
        async for number in ticks(per_second=_PER_SECOND, seconds=_SECONDS_MAX):
            await producer.send_many([b'{"order": %d}' % number] * drawn.randint(1, 4))


async def _consuming(client: oncelog.AsyncClient) -> None:
    async with await client.subscribe(ORDERS, subscription="dashboard", type="shared", consumer_name="one") as consumer:
        async for message in consumer:
            await consumer.ack(message)


async def _hoarding(client: oncelog.AsyncClient) -> None:
    """Holds what it got: holes with a holder, and a backlog that grows."""
    async with await client.subscribe(
        ORDERS, subscription=SUBSCRIPTION, type="shared", consumer_name="slow", receive_window=100
    ) as consumer:
        held: list[oncelog.Message] = []
        while True:
            with suppress(DeadlineExceeded):
                held.append(await consumer.receive(timeout=_RECEIVE_S))
                if len(held) % 5 == 0:
                    await consumer.ack(held[-1])
