"""Processes that die or leave under load: clients continue, and no message is lost, duplicated or reordered.

The session timeout is longer than any deadline here, so no takeover in this file can have waited for a session to end.
"""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

import oncelog
from tests.cluster.clients.consuming import Consumption
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster, rest_path
from tests.cluster.kills import idle, just_seen, kill
from tests.cluster.loads import Following, Load, Loads, by_future, by_list, by_thread, read_all
from tests.cluster.until import until, yield_to_loop

pytestmark = pytest.mark.asyncio


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.running(tmp_path_factory.mktemp("failover"), metadata=2, session_timeout_ms=60_000) as own:
        yield own


@asynccontextmanager
async def every_producer(cluster: Cluster, client: oncelog.AsyncClient, topic: str) -> AsyncIterator[Loads]:
    """One load for each way of sending."""
    async with AsyncExitStack() as stack:
        sync = await asyncio.to_thread(oncelog.Client, cluster.url)
        stack.push_async_callback(asyncio.to_thread, sync.close)
        futures = await client.create_producer(topic, producer_name="futures")
        lists = await client.create_producer(topic, producer_name="lists")
        contiguous = await client.create_producer(topic, producer_name="contiguous", sequence_mode="contiguous")
        thread = await asyncio.to_thread(sync.create_producer, topic, producer_name="thread")
        loads = Loads(
            Load("futures", by_future(futures)),
            Load("lists", by_list(lists), count=50),
            Load("contiguous", by_list(contiguous, explicit=False), count=20),
            Load("thread", by_thread(thread), count=5, depth=1),
        )
        async with loads.running():
            yield loads


@asynccontextmanager
async def one_producer(client: oncelog.AsyncClient, topic: str) -> AsyncIterator[Loads]:
    loads = Loads(Load("importer", by_list(await client.create_producer(topic, producer_name="importer"))))
    async with loads.running():
        yield loads


async def test_killing_the_owner_twice_under_load_loses_no_message(
    cluster: Cluster, client: oncelog.AsyncClient
) -> None:
    """Every way of sending, and a reader at the end of the log, continue without help after two kills."""
    topic = "killed-owner"
    async with Following.running(client, topic) as following:
        async with every_producer(cluster, client, topic) as loads:
            for _ in range(2):
                stats = await cluster.stats(topic)
                await cluster.kill(await cluster.owner_of(topic), once=loads.under_way)
                await loads.answered_more()
                served = await cluster.served_by_another(topic, stats["owner_epoch"])
                assert served["takeovers"], "the new owner tells how it took over"
        stored = await read_all(client, topic)
        assert await following.has_all(len(stored))
    loads.check(stored)
    loads.check(following.messages)
    await cluster.healed()


@pytest.mark.hazard("ack-before-delivery")
@pytest.mark.hazard("delivered-while-held")
async def test_no_acknowledged_message_comes_again_after_the_owner_is_killed(
    cluster: Cluster, client: oncelog.AsyncClient
) -> None:
    """Consumers of all four types continue without help after two kills of the owner, and miss nothing."""
    topic = "consumed"
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as second, AsyncExitStack() as stack:
        both = [client, second]
        loads = await stack.enter_async_context(one_producer(client, topic))
        consumptions = [
            await stack.enter_async_context(Consumption.running(clients, topic, kind, cumulative=cumulative))
            for clients, kind, cumulative in (
                ([client], "exclusive", True),
                (both, "failover", False),
                (both, "shared", False),
                (both, "key_shared", False),
            )
        ]
        for _ in range(2):
            for consumption in consumptions:
                await consumption.has_acked(len(consumption.acked) + 200)
            epoch = (await cluster.stats(topic))["owner_epoch"]
            await cluster.kill(
                await cluster.owner_of(topic),
                once=lambda: loads.under_way() and all(each.under_way() for each in consumptions),
            )
            await cluster.served_by_another(topic, epoch)
            await loads.answered_more()
        (load,) = loads.loads
        load.stop()
        await until(lambda: len(load.message_ids) == len(load.sent), DEADLINE_S)
        for consumption in consumptions:
            await consumption.has_acked(len(load.sent))
            consumption.check({(-1, index) for index in range(len(load.sent))})
    await (await client.create_producer(topic)).send(b"new")
    for consumption in consumptions:
        async with await client.subscribe(topic, subscription=consumption.name) as consumer:
            received = await consumer.receive(timeout=DEADLINE_S)
            assert received.value == b"new", f"{consumption.name}: not all is acknowledged"
    await cluster.healed()


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
    flushing = asyncio.ensure_future(consumer.flush())
    await yield_to_loop()
    nacking = asyncio.ensure_future(consumer.nack(messages[15:], delay=3_600))  # no flush waits for what comes after it
    await cluster.kill(name, once=lambda: not flushing.done())
    await flushing
    assert all(ack.result().durable for ack in acks)
    await nacking
    billing = (await cluster.served_by_another(topic, epoch))["subscriptions"]["billing"]
    assert (billing["msg_backlog"], billing["redelivered_messages"]) == (20, 5)
    await consumer.close()
    async with await client.subscribe(topic, subscription="billing", type=kind) as other:  # type: ignore[arg-type]
        again = await other.receive_batch(15, max_wait=DEADLINE_S)
        assert sorted(message.index for message in again) == [*range(10, 15), *range(20, 30)]


@pytest.mark.hazard("wrong-delivery-count")
async def test_messages_of_a_killed_consumer_go_to_another_one(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """Only what it had received counts as delivered to it."""
    topic = "killed-consumer"
    await (await client.create_producer(topic)).send_many([b"%d" % i for i in range(100)])
    program = (
        "import oncelog, sys\n"
        "consumer = oncelog.Client(sys.argv[1]).subscribe(sys.argv[2], subscription='s', type='shared',"
        " start=oncelog.EARLIEST)\n"
        "acked = consumer.receive_batch(10, max_wait=30)\n"
        "consumer.receive_batch(5, max_wait=30)\n"
        "consumer.ack_nowait(acked)\n"
        "consumer.flush()\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cluster.url, topic, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        assert await child.stdout.readline() == b"ready\n"
        async with await client.subscribe(topic, subscription="s", type="shared") as consumer:
            await kill(child.pid, once=just_seen)
            await child.wait()
            batch = await consumer.receive_batch(90, max_wait=DEADLINE_S)
    assert {message.index: message.delivery_count for message in batch} == {
        index: 2 if index < 15 else 1 for index in range(10, 100)
    }


async def test_unload_under_load_moves_the_topic(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """The topic is closed first and moves to the other owner, and back."""
    topic = "unloaded"
    async with every_producer(cluster, client, topic) as loads:
        owners = [await cluster.owner_of(topic)]
        for _ in range(2):
            epoch = (await cluster.stats(topic))["owner_epoch"]
            await cluster.change("PUT", f"{rest_path(topic)}/unload")
            await cluster.served_by_another(topic, epoch)
            await loads.answered_more()
            owners.append(await cluster.owner_of(topic))
    assert owners[0] == owners[2] != owners[1]
    loads.check(await read_all(client, topic))


async def test_terminated_owner_hands_its_topics_over(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """After SIGTERM the metadata services move each topic: the owner writes a snapshot, answers requests and closes
    ledgers. So the next owner replays only what follows the snapshot, and no ledger is closed needlessly."""
    topic = "drained"
    async with one_producer(client, topic) as loads:
        await loads.answered_more(2_000)
        (load,) = loads.loads
        entries = len({(at.ledger_id, at.entry_id) for at in load.message_ids if at is not None})
        owner = await cluster.owner_of(topic)
        pid = cluster.signal(owner, signal.SIGTERM)
        epoch = 1
        served = await cluster.served_by_another(topic, epoch)
        await loads.answered_more()
        await until(lambda: cluster.processes[owner]["pid"] != pid, DEADLINE_S)
    assert served["takeovers"][-1]["replayed_entries"] < entries
    loads.check(await read_all(client, topic))
    log = (cluster.data / "logs" / f"{owner}.log").read_text()
    assert '"handed_over": true' in log
    assert "no metadata service took the last" not in log
    assert "topics were not closed" not in log
    await cluster.healed()


async def test_open_topics_need_no_metadata_service(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """With one of two dead, look-ups use the other; with both dead, open topics continue."""
    async with one_producer(client, "without-metadata") as loads:
        with cluster.held():
            await cluster.kill("metadata-1", once=loads.under_way)
            await loads.answered_more()
            async with one_producer(client, "by-the-other-replica") as others:
                await others.answered_more()
            await cluster.kill("metadata-2", once=loads.under_way)
            await loads.answered_more()
    await cluster.healed()
    loads.check(await read_all(client, "without-metadata"))
    others.check(await read_all(client, "by-the-other-replica"))


async def test_rolling_restart_of_metadata_services_moves_no_topic(
    cluster: Cluster, client: oncelog.AsyncClient
) -> None:
    """Open topics continue at their epoch, and look-ups are answered by the other replica."""
    topic = "metadata-rolls"
    async with one_producer(client, topic) as loads:
        epoch = (await cluster.stats(topic))["owner_epoch"]
        for name in ("metadata-1", "metadata-2"):
            pid = cluster.signal(name, signal.SIGTERM)
            await (await client.create_producer(f"{topic}-{name}", producer_name="importer")).send(b"x", sequence_id=0)
            await loads.answered_more()
            await until(lambda name=name, pid=pid: cluster.processes[name]["pid"] != pid, DEADLINE_S)  # type: ignore[misc]
            await cluster.healed()
        assert (await cluster.stats(topic))["owner_epoch"] == epoch
    loads.check(await read_all(client, topic))


async def test_owner_killed_while_a_metadata_service_is_dead_is_replaced(
    cluster: Cluster, client: oncelog.AsyncClient
) -> None:
    """The other replica alone detects the death and places the topic."""
    topic = "one-replica"
    async with one_producer(client, topic) as loads:
        owner = await cluster.owner_of(topic)
        with cluster.held():
            await cluster.kill("metadata-1", once=loads.under_way)
            await cluster.kill(owner, once=loads.under_way)
            await loads.answered_more()
    await cluster.healed()
    loads.check(await read_all(client, topic))


async def test_open_topics_need_no_zookeeper(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """ZooKeeper is killed and restarted: publishing and queries continue meanwhile, and operations that need records
    continue afterwards."""
    async with one_producer(client, "without-zookeeper") as loads:
        with cluster.held():
            await cluster.kill("zookeeper", once=loads.under_way)
            await loads.answered_more(300)
            before = await client.last_message_id("without-zookeeper")
            await loads.answered_more()
            after = await client.last_message_id("without-zookeeper")
            assert before is not None
            assert after is not None
            assert before < after
            opening = asyncio.ensure_future(client.create_producer("after-zookeeper", producer_name="importer"))
            await loads.answered_more()
            assert not opening.done()
        late = Loads(Load("importer", by_list(await opening)))
        async with late.running():
            await late.answered_more()
    await cluster.healed()
    loads.check(await read_all(client, "without-zookeeper"))
    late.check(await read_all(client, "after-zookeeper"))


async def test_port_of_a_killed_server_stays_reserved(cluster: Cluster) -> None:
    """Another process could take a free port, and the server could not restart there."""
    known = [*(cluster.serving(f"metadata-{n}", what) for n in (1, 2) for what in ("address", "http"))]
    known.append(cluster.serving("zookeeper"))
    with cluster.held():
        for name in ("metadata-1", "metadata-2", "zookeeper"):
            await cluster.kill(name, once=idle)
        for address in known:
            host, _, port = address.rpartition(":")
            with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
                other.bind((host, int(port)))
    await cluster.healed()
