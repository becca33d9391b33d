"""`consumer.flush` on a real cluster: the owner that owes the answers is killed, and another one gives them."""

import asyncio
import signal

import pytest

import oncelog
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.until import yield_to_loop

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_flush_is_answered_though_the_owner_is_killed(
    cluster: Cluster, client: oncelog.AsyncClient, kind: str
) -> None:
    """The owner is stopped before the acknowledgements are given, so it has answered none when it dies. What is flushed
    is in the statistics of the next owner at once, and never comes again."""
    topic = f"flushed-{kind}"
    producer = await client.create_producer(topic)
    await producer.send_many([b"%d" % number for number in range(30)])
    consumer = await client.subscribe(
        topic, subscription="billing", type=kind, start=oncelog.EARLIEST,  # type: ignore[arg-type]
    )  # fmt: skip
    messages = list(await consumer.receive_batch(20, max_wait=DEADLINE_S))
    await consumer.flush()
    name = await cluster.owner_of(topic)
    epoch = (await cluster.stats(topic))["owner_epoch"]
    cluster.signal(name, signal.SIGSTOP)
    acks = [consumer.ack_nowait(message) for message in messages[:10]]
    nacking = asyncio.ensure_future(consumer.nack(messages[15:], delay=3_600))
    flushing = asyncio.ensure_future(consumer.flush())
    await yield_to_loop()
    await cluster.kill(name)
    await flushing
    assert all(ack.result().durable for ack in acks)
    await nacking
    shown = await cluster.stats(topic)
    assert shown["owner_epoch"] > epoch
    billing = shown["subscriptions"]["billing"]
    assert (billing["msg_backlog"], billing["redelivered_messages"]) == (20, 5)
    await consumer.close()
    async with await client.subscribe(topic, subscription="billing", type=kind) as other:  # type: ignore[arg-type]
        again = await other.receive_batch(15, max_wait=DEADLINE_S)
        assert sorted(message.index for message in again) == [*range(10, 15), *range(20, 30)]
