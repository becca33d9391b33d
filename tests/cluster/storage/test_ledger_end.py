"""The topic's owner is lost at once with two of three disks, or all three disks are replaced by old copies: the topic
waits with a reason until an operator gives up what is lost, and goes on with what the disks hold (hazards
index-given-twice, open-ledger-without-quorum and directory-went-back)."""

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess, run
from typing import Any

import pytest

import oncelog
from oncelog.core.errors import EntriesLost, ProducerFenced
from oncelog.core.formats.entry import GIVEN_UP_INDEXES
from oncelog.core.ids import Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.records.id_claim import Counter, IdClaim
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session.store_session import Versioned
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from oncelog.topic_owner.shell.id_source import IdSource
from tests.cluster.cluster_fixture import DEADLINE_S
from tests.cluster.kills import idle
from tests.cluster.lost_tail import new_ledger
from tests.cluster.until import until
from tests.fault_proof.faulty_cluster import FaultyCluster
from tests.fault_proof.random_faults import SETTINGS

pytestmark = pytest.mark.asyncio
TOPIC = "given-up"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    with FaultyCluster.running(tmp_path_factory.mktemp("ledger-end"), **SETTINGS) as own:
        yield own


async def _lose_two_disks(cluster: FaultyCluster) -> None:
    owner = await cluster.owner_of(TOPIC)
    with cluster.held():
        for node in cluster.storage_names[:2]:
            await cluster.kill(node, once=idle)
            cluster.wipe(node)
        await cluster.kill(owner, once=idle)
    await cluster.healed()


async def _waits_for_ledger(cluster: FaultyCluster) -> int:
    """The ledger that the topic's statistics name as the cause."""

    async def named() -> dict[str, Any]:
        waiting = (await cluster.stats(TOPIC)).get("waiting") or {}
        return waiting if waiting.get("code") == "ledger_unavailable" else {}

    waiting = await until(named, 2 * DEADLINE_S, every_s=0.1, waiting_for="the topic to say what it waits for")
    assert "ledger end" in json.dumps(waiting)
    return int(waiting["ledger_id"])


async def _leave_ledger(cluster: FaultyCluster, topic: str) -> None:
    """As an owner that is killed between creating the record of its next ledger and linking it."""
    stats = await cluster.stats(topic)
    session = await ZooKeeperSession.connect(cluster.serving("zookeeper"))
    try:
        ledgers, counter = LedgerStore(session), CounterStore(session, Counter.LEDGER)

        async def linked() -> Versioned[LedgerMetadata] | None:
            """The owner serves, and may link its first ledger later."""
            record = await TopicStore(session).read(TopicId(stats["topic_id"]))
            assert record is not None
            last = await ledgers.read(record.value.ledgers[-1].ledger_id)
            assert last is not None
            now = (last.value.state, last.value.owner_epoch)
            return last if now == (LedgerState.OPEN, stats["owner_epoch"]) else None

        last = await until(linked, DEADLINE_S, waiting_for="the open ledger of the present owner")
        assert last is not None
        ids = IdSource(IdClaim(Incarnation("d" * 32), block=1), counter)
        left = replace(last.value, ledger_id=LedgerId(await ids.next_id()))
        assert (await ledgers.write(left, version=ABSENT_VERSION)).status is WriteStatus.OK
    finally:
        await session.close()


async def _end(cluster: FaultyCluster, ledger_id: int, *words: str) -> CompletedProcess[str]:
    address = f"http://{cluster.serving('metadata-1', 'http')}"
    command = [sys.executable, "-m", "oncelog.cli", "admin", "ledger", "end", str(ledger_id), "--admin-url", address]
    return await asyncio.to_thread(run, [*command, *words], capture_output=True, text=True, check=False)


@pytest.mark.hazard("index-given-twice", "open-ledger-without-quorum")
async def test_topic_goes_on_when_an_operator_ends_its_ledger(cluster: FaultyCluster) -> None:
    """What the surviving disk holds is read, nothing is stored twice, and a number is given to one message only."""
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        producer = await client.create_producer(TOPIC, producer_name="importer")
        for first in range(0, 200, 10):
            await producer.send_many([b"%d" % number for number in range(first, first + 10)])
        await _lose_two_disks(cluster)
        ledger_id = await _waits_for_ledger(cluster)

        refused = await _end(cluster, ledger_id)
        assert refused.returncode != 0
        assert "--yes" in refused.stderr + refused.stdout
        ended = await _end(cluster, ledger_id, "--yes")
        assert ended.returncode == 0, ended.stderr
        print(ended.stdout)

        async with await client.create_producer(TOPIC, producer_name="importer") as successor:
            stored_before = successor.last_sequence_id
            result = await successor.send(b"after")
        assert result.sequence_id == stored_before + 1 <= 200
        reader = await client.create_reader(TOPIC)
        stored = [await reader.read_next()]
        while stored[-1].value != b"after":
            stored.append(await reader.read_next())
        values = [message.value for message in stored[:-1]]
        assert values == [b"%d" % number for number in range(len(values))]
        assert stored[-1].index >= GIVEN_UP_INDEXES
        await reader.close()


@pytest.mark.hazard(
    "index-given-twice",
    "open-ledger-without-quorum",
    "directory-went-back",
    "older-disk-is-missing",
    "prepared-ledger-is-left",
)
async def test_topic_goes_on_when_all_disks_are_of_the_past(cluster: FaultyCluster, tmp_path: Path) -> None:
    """What is newer is given up ledger by ledger, and told to producers and readers. No ledger id, message id, epoch or
    generation is given again. What was acknowledged meanwhile is delivered again. In the end no node is in limbo, also
    not for a ledger that the killed owner had created and no list names."""
    topic, nodes = "all-disks-old", cluster.storage_names
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        producer = await client.create_producer(topic, producer_name="importer")
        consumer = await client.subscribe(topic, subscription="audit", start=oncelog.EARLIEST, on_corrupt="skip")
        told = [(await producer.send(b"%d" % number)).message_id for number in range(10)]
        with cluster.held():
            for node in nodes:
                await cluster.kill(node, once=idle)
                shutil.copytree(cluster.data / node, tmp_path / node)
        await cluster.healed()
        for first in range(10, 500, 10):
            found = await producer.send_many([b"%d" % number for number in range(first, first + 10)])
            told += found.message_ids
        received = [await consumer.receive(timeout=DEADLINE_S) for _ in told]
        await consumer.ack_cumulative(received[-1])
        await new_ledger(cluster, topic)
        before = await cluster.stats(topic)
        owner = await cluster.owner_of(topic)
        await _leave_ledger(cluster, topic)
        with cluster.held():
            for node in nodes:
                await cluster.kill(node, once=idle)
                cluster.wipe(node)
                shutil.copytree(tmp_path / node, cluster.data / node)
            await cluster.kill(owner, once=idle)
        await cluster.healed()

        async def served() -> dict[str, Any]:
            stats = await cluster.stats(topic)
            waiting = stats.get("waiting") or {}
            if "ledger end" in waiting.get("help", ""):
                await _end(cluster, waiting["ledger_id"], "--yes")
            return stats if stats.get("phase") == "serving" else {}

        after = await until(served, 4 * DEADLINE_S, every_s=0.5, waiting_for="the topic to be served")
        assert after["owner_epoch"] > before["owner_epoch"]
        with pytest.raises(ProducerFenced):
            await producer.send(b"by the instance that was told of more")
        async with await client.create_producer(topic, producer_name="importer") as successor:
            assert successor.last_sequence_id == 9
            result = await successor.send(b"after")
        newest = told[-1]
        assert newest is not None
        assert result.message_id is not None
        assert result.message_id > newest
        # The open ledger ends where the copies end, and of closed ones the entries are lost: either is told.
        async with await client.create_reader(topic, on_corrupt="skip") as reader:
            for number in range(10):
                message = await reader.read_next()
                assert (message.value, message.message_id) == (b"%d" % number, told[number])
            message = await reader.read_next()
            assert message.value == b"after"
            assert message.index >= GIVEN_UP_INDEXES
        async with await client.create_reader(topic, start=newest) as ahead:
            with pytest.raises(EntriesLost, match="on_corrupt='skip'"):
                await ahead.read_next()
        assert (await consumer.receive(timeout=DEADLINE_S)).index == 0

        async def complete() -> bool:
            # If the killed owner had the topic of the test before, its last ledger lacks its end, too.
            lacking = await cluster.get("/admin/v2/storage/ledgers?state=unavailable")
            for ledger in lacking["ledgers"]:
                await _end(cluster, ledger["ledger_id"], "--yes")
            drill = await cluster.get("/admin/v2/cluster/drill")
            used = [node["state"] for node in drill["nodes"]] == ["used"] * len(nodes)
            if drill["state"] == "done" and used:
                return True
            if drill["state"] != "running":
                await cluster.request("POST", "/admin/v2/cluster/drill")
            return False

        await until(complete, 4 * DEADLINE_S, every_s=1, waiting_for="a restore to be able to use every node")
