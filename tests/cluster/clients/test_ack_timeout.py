"""Ack time-outs on a real cluster: a slow application, and what its consumers receive."""

import asyncio
from collections import Counter
from typing import get_args

import pytest

import oncelog
from oncelog.client.consuming.subscribing import SubscriptionTypeName
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.loads import read_all
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio
DEADLINE_S = 120.0
MESSAGES, MAX_DELIVERIES = 60, 2
#: the application never acknowledges these
STUCK = {0, 20, 40}


async def work() -> None:
    """The application needs a tenth of a second for a message."""
    loop = asyncio.get_running_loop()
    ready_at = loop.time() + 0.1
    await until(lambda: loop.time() >= ready_at, DEADLINE_S)


@pytest.mark.hazard("timeout-in-the-window")
async def test_dead_letters_were_received_and_order_is_kept(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """Every message is in the window at once, and the application needs several time-outs for all of them; the topics
    move meanwhile. All types at once, because the application mostly waits."""
    one_kill = asyncio.Lock()
    async with asyncio.TaskGroup() as tasks:
        for kind in get_args(SubscriptionTypeName):
            tasks.create_task(_dead_letters_of(kind, cluster, client, one_kill))


async def _dead_letters_of(
    kind: SubscriptionTypeName, cluster: Cluster, client: oncelog.AsyncClient, one_kill: asyncio.Lock
) -> None:
    """one_kill: held from the question who owns the topic to the end of that owner. Topics share owners: one that the
    kill of another task has moved needs no kill of its own."""
    topic, received = f"slow-{kind}", Counter[int]()
    first_received: list[int] = []
    producer = await client.create_producer(topic)
    await producer.send_many([b"%d" % n for n in range(MESSAGES)], keys=[b"a" if n % 2 else b"b" for n in range(60)])
    epoch = (await cluster.stats(topic))["owner_epoch"]

    async def handle(consumer: oncelog.AsyncConsumer) -> None:
        async for message in consumer:
            if not received[message.index]:
                first_received.append(message.index)
            received[message.index] += 1
            await work()
            if message.index not in STUCK:
                await consumer.ack(message)

    async with await client.subscribe(
        topic, subscription="billing", type=kind, start=oncelog.EARLIEST, ack_timeout=1.0,
        max_deliveries=MAX_DELIVERIES,
    ) as consumer:  # fmt: skip
        handling = asyncio.ensure_future(handle(consumer))
        async with one_kill:
            if (await cluster.stats(topic)).get("owner_epoch") == epoch:
                await cluster.kill(await cluster.owner_of(topic), once=lambda: len(received) > 10)
        await cluster.served_by_another(topic, epoch)

        async def done() -> bool:
            found = (await cluster.stats(topic)).get("subscriptions", {}).get("billing", {})
            return int(found.get("msg_backlog", -1)) == 0

        await until(done, DEADLINE_S, every_s=0.2, waiting_for="every message to be handled")
        handling.cancel()
        await asyncio.gather(handling, return_exceptions=True)
    dead = [int(letter.value) for letter in await read_all(client, f"{topic}-billing-DLQ")]
    assert {index: received[index] for index in dead if received[index] < MAX_DELIVERIES} == {}
    assert set(dead) >= STUCK
    assert sorted(first_received) == list(range(MESSAGES))
    if kind in ("exclusive", "failover"):
        assert first_received == sorted(first_received)
    if kind == "key_shared":
        assert [n for n in first_received if n % 2] == list(range(1, MESSAGES, 2))
        assert [n for n in first_received if not n % 2] == list(range(0, MESSAGES, 2))
