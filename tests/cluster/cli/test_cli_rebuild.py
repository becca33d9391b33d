"""`oncelog admin backup rebuild`: records in ZooKeeper are damaged under load, and written anew."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import oncelog
from oncelog.core.formats.topic_record import DEDUP_CURSOR, decode_topic
from oncelog.core.ids import TopicId
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.loads import Load, Loads, by_list, read_all

NAME = "rebuilt-under-load"


@asynccontextmanager
async def zookeeper(cluster: Cluster) -> AsyncIterator[ZooKeeperSession]:
    session = await ZooKeeperSession.connect(cluster.serving("zookeeper"))
    try:
        yield session
    finally:
        await session.close()


async def damage(session: ZooKeeperSession, path: str) -> None:
    node = await session.read(path)
    assert node is not None, path
    assert (await session.write(path, b"\x00garbage", version=node.version)).status is WriteStatus.OK


def rebuild(cluster: Cluster, path: str) -> tuple[int, str]:
    done = cluster.run("admin", "backup", "rebuild", path, "--yes", "--timeout", "60")
    return done.returncode, (done.stdout + done.stderr).decode()


@pytest.mark.asyncio
@pytest.mark.hazard("unreadable-record")
async def test_damaged_records_are_rebuilt_under_load(cluster: Cluster) -> None:
    """Of a topic, its cursor, its last ledger, its name and the counter of ledgers. Every message that is acknowledged
    before, meanwhile or afterwards is stored once, and a subscription goes on where it was."""
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        load = Loads(Load("load", by_list(await client.create_producer(NAME, producer_name="load"))))
        consumer = await client.subscribe(NAME, subscription="billing", start=oncelog.EARLIEST)
        async with load.running():
            await load.answered_more(20)
            first = await consumer.receive()
            await consumer.ack(first)
            async with zookeeper(cluster) as session:
                topic_id = TopicId(first.message_id.topic_id)
                topic = paths.topic(topic_id)
                found = await session.read(topic)
                assert found is not None
                last = paths.ledger(decode_topic(found.data).ledgers[-1].ledger_id)
                name = f"{paths.NAMES}/public/default/{NAME}"
                for path in (topic, paths.cursor(topic_id, DEDUP_CURSOR), last, name, f"{paths.IDS}/ledger"):
                    await damage(session, path)
                    code, shown = await asyncio.to_thread(rebuild, cluster, path)
                    assert code == 0, shown
                    assert f"written  {path}" in shown
                    await load.answered_more(20)
            code, shown = await asyncio.to_thread(rebuild, cluster, topic)
            assert (code, "can be read" in shown) == (1, True), shown
        await consumer.close()
        load.check(await read_all(client, NAME))
        async with await client.subscribe(NAME, subscription="billing") as again:
            assert (await again.receive()).index > first.index
