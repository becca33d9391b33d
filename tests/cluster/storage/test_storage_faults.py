"""Storage nodes that die, stop responding, or lose their disk: acks continue while two of three nodes serve.

With fewer nodes nothing is acknowledged. Afterwards every acknowledged message is read back.
"""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import oncelog
from oncelog.core.errors import OncelogError
from oncelog.core.formats.outcome import ResultKind
from tests.cluster.cluster_fixture import DEADLINE_S, START_S, Cluster
from tests.cluster.loads import Load, Loads, by_future, read_all
from tests.cluster.sessions import SESSION_TIMEOUT_MS
from tests.cluster.until import until
from tests.cluster.wire_client import PublishWire, batch_of, instance_of

pytestmark = pytest.mark.asyncio

NODES = ("storage-1", "storage-2", "storage-3")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Ledgers roll often, so that every fault meets some ledgers at each step of their life."""
    settings = {"session_timeout_ms": SESSION_TIMEOUT_MS, "add_timeout_ms": 1_500, "ledger_entries_max": 200}
    with Cluster.running(tmp_path_factory.mktemp("storage"), **settings) as own:
        yield own


def log_of(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """The lines of the node's log."""
    return [json.loads(line) for line in (cluster.data / "logs" / f"{name}.log").read_text().splitlines()]


async def test_killed_node_loses_no_message(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """Each of the three nodes in turn, under load. Then everything is read with each of them stopped."""
    topic = "killed-node"
    async with (await Loads.of_two(client, topic)).running() as loads:
        for name in NODES:
            with cluster.held():
                await cluster.kill(name, once=loads.under_way)
                await loads.answered_more(300)
            await cluster.healed()
    for name in NODES:
        with cluster.stopped(name):
            loads.check(await read_all(client, topic))


async def test_stopped_node_loses_no_message(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """SIGSTOP keeps its connections and, for a while, its session. When it resumes in a new one, it is used again."""
    topic = "silent-node"
    async with (await Loads.of_two(client, topic)).running() as loads:
        with cluster.stopped("storage-2"):
            await loads.answered_more(500)
            await cluster.expire("storage-2")
            await loads.answered_more(500)
        await loads.answered_more(300)
    await cluster.healed()
    loads.check(await read_all(client, topic))


@pytest.mark.hazard("members-lost-in-turn")
async def test_wiped_node_is_a_new_node(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """It has lost its acknowledged entries and fences, so it is not asked for them (hazards former-incarnation,
    members-lost-in-turn)."""
    topic = "wiped-node"
    before = cluster.serving("storage-1", "incarnation")
    async with (await Loads.of_two(client, topic)).running() as loads:
        with cluster.held():
            await cluster.kill("storage-1", once=loads.under_way)
            await cluster.expire("storage-1")
            shutil.rmtree(cluster.data / "storage-1")
            await loads.answered_more()
        await cluster.healed()
        await loads.answered_more(500)
    assert cluster.serving("storage-1", "incarnation") != before
    loads.check(await read_all(client, topic))
    with cluster.stopped("storage-3"):
        loads.check(await read_all(client, topic))


async def test_two_dead_nodes_stop_acknowledgements_but_lose_nothing(
    cluster: Cluster, client: oncelog.AsyncClient
) -> None:
    """One copy is not an ack quorum. When one of the two is back, everything pending is stored once, in order."""
    topic = "two-dead"
    async with (await Loads.of_two(client, topic)).running() as loads:
        with cluster.held():
            await cluster.kill("storage-1", once=loads.under_way)
            await loads.answered_more()
            await cluster.kill("storage-2", once=loads.under_way)
            await until(lambda: open_ledger_state(cluster, topic, "open", negate=True), DEADLINE_S)
            stored = (await cluster.stats(topic))["message_count"]
            await until(lambda: open_ledger_state(cluster, topic, "waiting for storage nodes"), DEADLINE_S)
            assert (await cluster.stats(topic))["message_count"] == stored
            # The last answers may be on their way to the producers still. More never come.
            await until(lambda: loads.answered >= stored, DEADLINE_S, waiting_for="an answer for each stored message")
            assert loads.answered == stored
            shutil.move(cluster.data / "storage-1", cluster.data / "away")
            (cluster.data / "storage-1").write_text("no directory, so this node stays away")
        await loads.answered_more()
        assert cluster.processes["storage-1"]["state"] != "serving"
        (cluster.data / "storage-1").unlink()
        shutil.move(cluster.data / "away", cluster.data / "storage-1")
    await cluster.healed()
    loads.check(await read_all(client, topic))


async def open_ledger_state(cluster: Cluster, topic: str, state: str, *, negate: bool = False) -> bool:
    """Whether the topic's managed ledger is in this state, or with `negate` is not."""
    internal = await cluster.stats(topic, "internalStats")
    return bool(internal.get("open_ledger")) and (internal["open_ledger"]["state"] == state) is not negate


@pytest.mark.hazard("marks-of-a-failed-write")
async def test_failed_write_rolls_back_every_session(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """Id 6 is in flight on one session and joined on the next, with 7 after it: all three fail, and both ids are
    stored once when they are sent again. Only then is a duplicate reported (hazard marks-of-a-failed-write)."""
    topic = "failed-write"
    producer = await client.create_producer(topic, producer_name="importer")
    await producer.send(b"5", sequence_id=5)
    stats = await cluster.stats(topic)
    full = "public/default/failed-write"
    async with PublishWire.to(stats["owner_address"]) as one, PublishWire.to(stats["owner_address"]) as two:
        first = await one.granted(full, stats["topic_id"], "importer")
        instance = instance_of(first)
        with cluster.stopped("storage-1"), cluster.stopped("storage-2"):
            await one.send(first.session, 1, batch_of(instance, 6, [b"6"]))
            second = await two.granted(full, stats["topic_id"], "importer", resume=instance)
            await two.send(second.session, 1, batch_of(instance, 6, [b"6"]))
            await two.send(second.session, 2, batch_of(instance, 7, [b"7"]))
            for wire, session, request in ((one, first.session, 1), (two, second.session, 1), (two, second.session, 2)):
                fate = await wire.fate(session, request)
                assert isinstance(fate, OncelogError)
                assert fate.retriable
        await cluster.healed()
        third = await two.granted(full, stats["topic_id"], "importer", resume=instance)
        kinds = []
        for request, number in enumerate((6, 7, 6, 7)):
            await two.send(third.session, request, batch_of(instance, number, [b"%d" % number]))
            kinds += [part.kind for part in await two.stored(third.session, request)]
    assert kinds[2:] == [ResultKind.DUPLICATE, ResultKind.DUPLICATE]
    assert [message.value for message in await read_all(client, topic)] == [b"5", b"6", b"7"]


@pytest.mark.hazard("damaged-fence")
async def test_node_with_a_damaged_segment_starts_in_limbo(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """Acknowledged bytes are flipped: the node serves what is sound, and every acknowledged message is read."""
    topic = "damaged-segment"
    own = cluster.data / "storage-2"
    async with (await Loads.of_two(client, topic)).running() as loads:
        await loads.answered_more(300)
        with cluster.held():
            await cluster.kill("storage-2", once=loads.under_way)
            damaged = flip_in(own / "segments", b"futures 100")
        await cluster.healed()
        await loads.answered_more(300)
    (found,) = [line for line in log_of(cluster, "storage-2") if "starts in limbo" in line["msg"]]
    assert {hole["segment_id"] for hole in found["holes"]} == {int(damaged.stem, 16)}

    def ended() -> bool:
        return any("not in limbo any more" in line["msg"] for line in log_of(cluster, "storage-2"))

    await until(ended, START_S, every_s=0.1, waiting_for="a repaired ledger to leave limbo")
    loads.check(await read_all(client, topic))


def flip_in(segments: Path, content: bytes) -> Path:
    """Flip one bit of the last segment that holds `content`; returns the segment."""
    for segment in sorted(segments.glob("*.seg"), reverse=True):
        data = bytearray(segment.read_bytes())
        at = data.rfind(content)
        if at >= 0:
            data[at] ^= 1
            segment.write_bytes(data)
            return segment
    raise AssertionError(f"no segment holds {content!r}")


async def test_cluster_recovers_after_everything_is_killed_at_once(cluster: Cluster) -> None:
    """A power failure under load: acknowledged messages are there, and every producer continues where it was."""
    topic = "power-failure"
    former = await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S)
    load = Load("importer", by_future(await former.create_producer(topic, producer_name="importer")))
    loads, sending = Loads(load), asyncio.ensure_future(load.run())
    await loads.answered_more(100)
    await cluster.kill_all(once=loads.under_way)
    await former.close(flush=False)
    await asyncio.gather(sending, return_exceptions=True)
    acked = load.message_ids
    assert 100 <= len(acked) < len(load.sent)
    cluster.start()
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        again = await client.create_producer(topic, producer_name="importer")
        last = again.last_sequence_id
        assert len(acked) - 1 <= last < len(load.sent)
        stored = await read_all(client, topic)
        assert [message.value for message in stored] == load.sent[: last + 1]
        assert [message.message_id for message in stored[: len(acked)]] == acked
        numbers = (98, 99, last, last + 1)
        values = [*load.sent, b"importer %d" % len(load.sent)]
        results = [await again.send(values[number], sequence_id=number) for number in numbers]
        assert [result.duplicate for result in results] == [True, True, True, False]
        assert [result.message_id for result in results[:2]] == acked[98:100]
        assert (await cluster.stats(topic))["deduplication_enabled"]
