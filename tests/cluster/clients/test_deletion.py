"""Deleting topics of a running cluster: real processes, from the request to the entries on the storage node."""

import asyncio
import re
from collections.abc import Iterator

import httpx
import pytest

import oncelog
from oncelog.core.errors import InvalidArgument, NotOwner, TopicNotFound
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster, rest_path
from tests.cluster.until import until
from tests.cluster.wire_client import PublishWire, batch_of, instance_of

pytestmark = pytest.mark.asyncio


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with Cluster.running(directory, storage_nodes=1, owners=1, collect_interval_ms=300) as own:
        yield own


async def ledgers_on_the_node(cluster: Cluster) -> int:
    async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE_S, verify=False) as http:
        text = (await http.get(f"http://{cluster.serving('storage-1', 'health')}/metrics")).text
    found = re.search(r"^oncelog_storage_ledgers(?:{.*})? (\S+)$", text, re.MULTILINE)
    assert found, text
    return int(float(found[1]))


@pytest.mark.hazard("recreated-topic")
async def test_recreated_topic_is_empty_and_old_clients_get_an_error(cluster: Cluster) -> None:
    """Producers and readers of the deleted topic get an error with the reason. The new topic has none of its ids or
    messages."""
    flights = rest_path("flights")
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        producer = await client.create_producer("flights", producer_name="importer")
        for number in range(3):
            await producer.send(b"old %d" % number)
        reader = await client.create_reader("flights", start=oncelog.EARLIEST)
        first = await reader.read_next(timeout=DEADLINE_S)
        for _ in range(2):
            await reader.read_next(timeout=DEADLINE_S)
        old = await cluster.get(flights)
        assert await ledgers_on_the_node(cluster) > 0

        waiting = asyncio.ensure_future(reader.read_next(timeout=DEADLINE_S))
        await cluster.change("DELETE", flights)
        for ended in (producer.send(b"late"), waiting):
            # By the owner that it was deleted from, or by a look-up when that has just gone.
            with pytest.raises(TopicNotFound, match=r"deleted|no topic|does not exist"):
                await ended
        assert (await cluster.request("GET", flights)).status_code == 404

        async def dropped() -> bool:
            return await ledgers_on_the_node(cluster) == 0

        await until(dropped, DEADLINE_S, every_s=0.1, waiting_for="the storage node to drop the entries")

        again = await client.create_producer("flights", producer_name="importer")
        assert again.last_sequence_id == -1
        assert (await again.send(b"new")).sequence_id == 0
        new = await cluster.get(flights)
        assert new["topic_id"] != old["topic_id"]
        anew = await client.create_reader("flights", start=oncelog.EARLIEST)
        message = await anew.read_next(timeout=DEADLINE_S)
        assert (message.value, message.index, message.sequence_id) == (b"new", 0, 0)
        with pytest.raises(InvalidArgument, match="another topic"):
            await client.create_reader("flights", start=first.message_id)


async def test_deleted_topic_gives_its_space_back(cluster: Cluster) -> None:
    """Its entries fill several segments, which are removed from the disk. The last one is still written."""
    segments = cluster.data / "storage-1" / "segments"

    def files() -> int:
        return len(list(segments.glob("*.seg")))

    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        producer = await client.create_producer("large", producer_name="importer")
        for _ in range(40):
            await producer.send(bytes(1 << 20))
    assert files() >= 5
    await cluster.change("DELETE", rest_path("large"))

    async def removed() -> bool:
        return files() <= 2

    await until(removed, 3 * DEADLINE_S, every_s=0.1, waiting_for="compaction to remove the segments")


async def test_deleted_topic_acknowledges_nothing(cluster: Cluster) -> None:
    """Its owner is paused, and resumes with batches in its socket. Until its session ends, the response is a
    retriable error."""
    path = rest_path("paused")
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        producer = await client.create_producer("paused", producer_name="importer")
        await producer.send(b"before")
    topic_id = (await cluster.get(path))["topic_id"]
    owner = await cluster.owner_of("paused")
    async with PublishWire.to(cluster.serving(owner)) as wire:
        granted = await wire.granted("public/default/paused", topic_id, "left-behind")
        instance = instance_of(granted)
        await wire.send(granted.session, 1, batch_of(instance, 0, [b"stored"]))
        await wire.stored(granted.session, 1)
        with cluster.stopped(owner):
            for number in range(1, 4):
                await wire.send(granted.session, 1 + number, batch_of(instance, number, [b"too late"]))
            answers: list[int] = []

            async def deleted() -> bool:
                answers.append((await cluster.request("DELETE", path)).status_code)
                return answers[-1] != 503

            await until(deleted, DEADLINE_S, waiting_for="the deletion to be answered")
            # A deletion that was answered with 503 continues, and may end between two requests: then there is no topic.
            assert answers[-1] == 204 or (len(answers) > 1 and answers[-1] == 404), answers
        assert isinstance(await wire.fate(granted.session, 2), TopicNotFound | NotOwner)
        assert list(wire.answers[granted.session]) == [1]
    assert (await cluster.request("GET", path)).status_code == 404
    await cluster.healed()


async def test_partitioned_topic_can_be_recreated_after_its_deletion(cluster: Cluster) -> None:
    """At once and repeatedly, while its partitions are in use."""
    path = rest_path("again") + "/partitions"
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        for _ in range(3):
            await cluster.change("PUT", path, json=3)
            for number in range(3):
                producer = await client.create_producer(f"again-partition-{number}", producer_name="importer")
                assert (await producer.send(b"one")).sequence_id == 0
                await producer.close()
            await cluster.change("DELETE", path)


async def test_partitioned_topic_is_deleted_with_its_partitions(cluster: Cluster) -> None:
    """All partitions that were used. The producer of one of them gets an error."""
    split = rest_path("split")
    await cluster.change("PUT", f"{split}/partitions", json=2)
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        producer = await client.create_producer("split-partition-1", producer_name="importer")
        await producer.send(b"one")
        await cluster.change("DELETE", f"{split}/partitions")
        with pytest.raises(TopicNotFound):
            await producer.send(b"late")
    assert (await cluster.request("GET", f"{split}-partition-1")).status_code == 404
    assert (await cluster.request("GET", "/admin/v2/namespaces/public/default")).status_code == 200
