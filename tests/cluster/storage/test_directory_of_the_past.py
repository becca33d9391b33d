"""Directories that went back in time: what a storage node acknowledged is never missing in silence (hazards
directory-went-back, copied-directory)."""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import oncelog
from oncelog.core.ids import Incarnation
from oncelog.log_storage.directory.segment_format import FIRST_GROUP, RecordLocation, SegmentHeader
from oncelog.log_storage.directory.segment_scan import SegmentScan
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.kills import idle
from tests.cluster.loads import read_all
from tests.cluster.storage.storage_nodes import StorageCluster
from tests.cluster.until import until
from tests.fault_proof.faulty_cluster import FaultyCluster
from tests.fault_proof.random_faults import SETTINGS

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("directory-went-back")]
VALUES = [b"%d" % number for number in range(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    with FaultyCluster.running(tmp_path_factory.mktemp("past"), **SETTINGS) as own:
        yield own


def copied(path: Path, *, to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(path, to)


def used_of(directory: Path) -> tuple[Path, int]:
    """The last segment, and the bytes that it holds."""
    last = max((directory / "segments").glob("*.seg"))
    return last, len(last.read_bytes().rstrip(b"\0"))


def end_in_zeros(directory: Path) -> None:
    """The second half of what the last segment holds, as a volume gives it that lost its newest blocks."""
    last, used = used_of(directory)
    data = last.read_bytes()
    last.write_bytes(data[: used // 2] + bytes(len(data) - used // 2))


def last_record(directory: Path) -> RecordLocation:
    for segment in sorted((directory / "segments").glob("*.seg"), reverse=True):
        with segment.open("rb") as file:
            header = SegmentHeader.decode(file.read(FIRST_GROUP), segment)
            assert header is not None
            found = [record.location for record in SegmentScan(file.fileno(), header).records()]
        if found:  # the journal may have begun the next segment
            return found[-1]
    raise AssertionError(f"{directory} holds no record")


async def noted(cluster: Cluster, node: str) -> bool:
    """Whether the last record of the node's journal is noted. A directory that loses what was synced since the latest
    note is not recognized."""
    last = last_record(cluster.data / node)
    session = await ZooKeeperSession.connect(cluster.serving("zookeeper"))
    try:
        stored = await Registry(session).read_end(Incarnation(cluster.serving(node, "incarnation")))
    finally:
        await session.close()
    assert stored is not None
    end = stored.value.end
    return (end.segment_id, end.offset) > (last.segment_id, last.offset)


@pytest.mark.parametrize("lost", ["an older copy", "the end of the last segment"])
async def test_nothing_acknowledged_is_lost_with_one_directory_of_the_past(
    cluster: FaultyCluster, tmp_path: Path, lost: str
) -> None:
    """Messages are stored on two of three nodes, because the third one is away. One of the two gets such a directory,
    and a takeover can ask this one and the one that was away: it waits for the other one, instead of ending the log
    where the copy ends. Then every message is read."""
    topic = f"flights-{lost.split()[1]}"
    past, away, sound = cluster.storage_names
    directory = cluster.data / past
    async with await oncelog.connect(cluster.url, operation_timeout=4 * DEADLINE_S) as client:
        producer = await client.create_producer(topic, producer_name="importer")
        await producer.send_many(VALUES[:300])
        with cluster.held():
            await cluster.kill(past, once=idle)
            copied(directory, to=tmp_path / "copy")
        await cluster.healed()
        owner, epoch = await cluster.owner_of(topic), (await cluster.stats(topic))["owner_epoch"]
        with cluster.held():
            await cluster.kill(away, once=idle)
            await producer.send_many(VALUES[300:])
            # Up to where a journal is synced is noted each second.
            await cluster.kill(past, once=partial(noted, cluster, past))
            if lost == "an older copy":
                copied(tmp_path / "copy", to=directory)
            else:
                end_in_zeros(directory)
            # The next owner has none of the entries in its memory.
            await cluster.kill(owner, once=idle)
        with cluster.stopped(sound):

            async def taken_over() -> bool:
                stats = await cluster.stats(topic)
                if stats.get("owner_epoch", 0) <= epoch:
                    return False
                waiting = stats["waiting"]
                texts = waiting["members"].values() if waiting else ()
                return stats["phase"] == "serving" or any("fence" not in text for text in texts)

            await until(taken_over, 2 * DEADLINE_S, every_s=0.2, waiting_for="a takeover that is decided, or waits")
        await cluster.healed()
        assert [message.value for message in await read_all(client, topic)] == VALUES
        log = (cluster.data / "logs" / f"{past}.log").read_text()
        assert "the directory went back in time" in log


@pytest.mark.hazard("copied-directory")
async def test_copy_of_a_directory_is_refused_while_the_original_serves(
    zookeeper_server: ZooKeeperServer, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    """The copy ends before it can answer that it lacks what the original stores meanwhile."""
    async with StorageCluster.running(tmp_path, zookeeper_server, 1) as storage:
        [original] = storage.nodes
        port = free_port()
        copy = storage.node(port=port)
        copied(original.data, to=copy.data)
        copy.launch()
        assert await copy.ended() == 1
        said = copy.log.read_text()
        assert f"is served at {original.address}, and this process would serve it at 127.0.0.1:{port}" in said
        assert original.get("/readyz")[0] == 200


COPIED = "another process has started with a copy of this directory"


@pytest.mark.hazard("copied-directory")
async def test_process_ends_when_a_copy_of_its_directory_is_started(
    zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """The newer one serves, and only it. When the older one is started again, its directory is one of the past."""
    async with StorageCluster.running(tmp_path, zookeeper_server, 1) as storage:
        [older] = storage.nodes
        newer = storage.node()
        copied(older.data, to=newer.data)
        newer.launch()
        # If the older one notes the end of its journal meanwhile, the newer one ends: what it has compared has changed.
        while await newer.serves_or_ends() is not None:
            assert COPIED in newer.last_line()
            newer.launch()
        assert newer.incarnation == older.incarnation
        assert await older.ended() == 1
        assert COPIED in older.log.read_text()
        assert newer.get("/readyz")[0] == 200
        await newer.kill(once=idle)
        await older.start()
        assert "the directory went back in time: it is from start 1, and the cluster knows of 2 starts" in (
            older.log.read_text()
        )
