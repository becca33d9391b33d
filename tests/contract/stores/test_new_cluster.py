"""A metadata service that creates the cluster only with the proof of all storage nodes: over real health ports."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from oncelog.core.errors import InvalidArgument, NotFound
from oncelog.metadata.cluster.new_cluster import creator, find_or_create, finder
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.session import paths
from oncelog.runtime.health import Health
from oncelog.runtime.settings import MetadataSettings
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("emptied-zookeeper")]

CLUSTER = "c" * 32


@asynccontextmanager
async def storage_nodes(file: Path, *values: object) -> AsyncIterator[None]:
    """Health ports that serve these values, in a file of nodes. None: a port at which nothing listens."""
    async with AsyncExitStack() as stack:
        ports = []
        for value in values:
            health = Health(lambda: b"", None)
            ports.append(await health.start(host="127.0.0.1", port=0))
            if value is None:
                await health.stop()
                continue
            stack.push_async_callback(health.stop)
            if value != "older version":
                health.serve_value("/directory", lambda value=value: value)  # type: ignore[misc]
        _write_nodes(file, ports)
        yield


def _write_nodes(file: Path, ports: list[int]) -> None:
    file.write_text("".join(f"127.0.0.1:{port}\n" for port in ports))


def store() -> ClusterStore:
    return ClusterStore(MemorySession(MemoryTree(), root="/oncelog"))


async def test_cluster_is_created_once_all_storage_nodes_are_empty(tmp_path: Path) -> None:
    """Two services at once create one cluster. Afterwards nothing is asked."""
    tree, file = MemoryTree(), tmp_path / "nodes"
    stores = [ClusterStore(MemorySession(tree, root="/oncelog")) for _ in range(2)]
    async with storage_nodes(file, {"cluster_id": None}, {"cluster_id": None}):
        records = await asyncio.gather(*(find_or_create(file, each) for each in stores))
    assert records[0] == records[1] == await stores[0].read()
    file.unlink()
    assert await find_or_create(file, stores[1]) == records[0]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"cluster_id": CLUSTER}, f"has data of cluster {CLUSTER}: ZooKeeper has lost its data"),
        (None, "Connect call failed|Connection refused"),
        ("older version", "HTTP status 404"),
        ({}, "not understood"),
        ([], "not understood"),
        ({"cluster_id": 7}, "no cluster id"),
    ],
    ids=["data", "silent", "older version", "no field", "no object", "no text"],
)
async def test_nothing_is_created_without_the_proof_of_each_node(tmp_path: Path, value: object, reason: str) -> None:
    """Unknown is not empty. The other node is."""
    own, file = store(), tmp_path / "nodes"
    async with storage_nodes(file, {"cluster_id": None}, value):
        with pytest.raises(NotFound, match=reason):
            await find_or_create(file, own)
    assert await own.read() is None


async def test_cluster_of_an_older_version_gets_the_folders_that_it_lacks() -> None:
    """As soon as a metadata service joins it."""
    session = MemorySession(MemoryTree(), root="/oncelog")
    record = await ClusterStore(session).establish()
    await session.delete(paths.DELETIONS, version=0)
    assert await finder(MetadataSettings())(ClusterStore(session)) == record
    assert await session.children(paths.DELETIONS) == []


@pytest.mark.parametrize("text", ["oncelog-storage-0", "http://a:1", "a:0", "a:99999"])
async def test_line_that_is_no_address_is_refused(tmp_path: Path, text: str) -> None:
    """The message names the setting, the file and the line."""
    file = tmp_path / "nodes"
    file.write_text(f"127.0.0.1:1\n{text}\n")
    with pytest.raises(InvalidArgument, match=r"ONCELOG_NEW_CLUSTER_NODES_FILE: .*nodes: .*is not host:port") as raised:
        await find_or_create(file, store())
    assert text in raised.value.message
    with pytest.raises(InvalidArgument, match="cannot be read"):
        await find_or_create(tmp_path / "missing", store())


async def test_empty_file_creates_nothing(tmp_path: Path) -> None:
    """No node, no proof."""
    (tmp_path / "nodes").write_text("\n")
    with pytest.raises(NotFound, match="no storage node is named"):
        await find_or_create(tmp_path / "nodes", store())


async def test_request_needs_the_same_proof_if_the_setting_is_there(tmp_path: Path) -> None:
    """`--create-cluster` in a pod of the chart after ZooKeeper has lost its data. Without the setting, the request is
    the proof, and a service without the setting creates nothing."""
    file = tmp_path / "nodes"
    own = store()
    async with storage_nodes(file, {"cluster_id": CLUSTER}):
        with pytest.raises(NotFound, match="has lost its data"):
            await creator(MetadataSettings(new_cluster_nodes_file=str(file)))(own)
    with pytest.raises(NotFound, match="--create-cluster"):
        await finder(MetadataSettings())(own)
    assert await own.read() is None
    assert await creator(MetadataSettings())(own) == await own.read()
