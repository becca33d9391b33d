"""ZooKeeper loses its data under a cluster of real processes: nothing is created, and nothing is lost."""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import oncelog
from oncelog.core.ids import Incarnation
from oncelog.core.rebuild.sources import Inventory
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from oncelog.rpc.channel import Channel
from oncelog.runtime.process import ExitCode
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from oncelog.storage_client.inventory_calls import read_inventory
from tests.cluster.loads import read_all
from tests.cluster.processes.service_process import Process, processes
from tests.cluster.sessions import AWAY_MS
from tests.cluster.until import until

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("emptied-zookeeper")]

DEADLINE_S = 120.0
TOPIC = "flights"
SETTINGS = {"ONCELOG_SESSION_TIMEOUT_MS": str(AWAY_MS), "ONCELOG_FREE_BYTES_MIN": str(64 << 20)}


class Services:
    """Two storage nodes, a metadata service that may create the cluster with their proof, and an owner."""

    def __init__(self, folder: Path, start: Callable[..., Process]) -> None:
        self.directories = [folder / f"node-{number}" for number in range(2)]
        segments = ("--segment-bytes", str(8 << 20))
        self.nodes = [start("log_storage", "--data", str(path), *segments, **SETTINGS) for path in self.directories]
        (folder / "nodes").write_text("".join(f"127.0.0.1:{node.health_port}\n" for node in self.nodes))
        proof = {"ONCELOG_NEW_CLUSTER_NODES_FILE": str(folder / "nodes")}
        self.metadata = start("metadata", "--http-port", "0", **SETTINGS, **proof)
        self.owner = start("topic_owner", "--write-quorum", "2", "--ack-quorum", "2", **SETTINGS)
        self._start, self._proof = start, proof
        self.all = [*self.nodes, self.metadata, self.owner]

    def request_creation(self) -> Process:
        return self._start("metadata", "--create-cluster", **self._proof)

    async def ready(self) -> None:
        for process in self.all:
            await process.serving()
            await until(lambda p=process: p.health("/readyz")[0] == 200, DEADLINE_S)  # type: ignore[misc]

    @asynccontextmanager
    async def client(self) -> AsyncIterator[oncelog.AsyncClient]:
        address = (await self.metadata.serving())["address"]
        client = await oncelog.connect(f"oncelog://{address}")
        try:
            yield client
        finally:
            await client.close()

    async def publish(self, count: int) -> None:
        async with self.client() as client, await client.create_producer(TOPIC) as producer:
            for number in range(count):
                await producer.send(str(number).encode())

    async def messages(self) -> list[int]:
        async with self.client() as client:
            return [int(message.value) for message in await read_all(client, TOPIC)]


async def inventory_of(node: Process, cluster_id: str) -> Inventory:
    """Found by its health port alone, as a restore does."""
    value = node.value("/directory")
    assert (value["cluster_id"], value["era"]) == (cluster_id, 1)
    async with Channel(str(value["address"])) as channel:
        return await read_inventory(channel, Incarnation(str(value["incarnation"])))


async def test_emptied_zookeeper_is_recognized_and_everything_serves_again_once_its_data_is_back(
    tmp_path: Path,
) -> None:
    """Running processes end and say why. Restarted ones wait, are not ready and say why. The cluster is created only
    once, although a metadata service may create one and is asked to. The storage nodes keep what they have."""
    state = tmp_path / "zookeeper" / "state"
    server = await ZooKeeperServer.start(state.parent)
    try:
        with processes(tmp_path, server.address) as start:
            services = Services(tmp_path, start)
            await services.ready()
            cluster_id = (await services.metadata.serving())["cluster_id"]
            await services.publish(50)

            await server.stop()
            state.rename(tmp_path / "aside")
            server = await ZooKeeperServer.start(state.parent, server.port)
            for process in services.all:
                assert await process.ended() == ExitCode.FAILED, process.log[-2000:]
                assert "ZooKeeper is older than this process has seen it" in process.log
                assert "keep the data of all storage nodes" in process.log.splitlines()[-1]

            for process in services.all:
                process.start_again()
            for process, path in zip(services.nodes, services.directories, strict=True):
                await process.says(f"ZooKeeper has no record of a cluster, but {path} has data of cluster {cluster_id}")
            await services.metadata.says(f"has data of cluster {cluster_id}: ZooKeeper has lost its data")
            await services.owner.says("ZooKeeper has no record of a cluster")
            request = services.request_creation()
            await request.says(f"has data of cluster {cluster_id}: ZooKeeper has lost its data")
            for process in services.all:
                code, reasons = process.health("/readyz")
                assert (code, list(reasons)) == (503, ["state"])
                assert "ZooKeeper has no record of a cluster" in reasons["state"]
            for process in services.nodes:
                assert "cluster record missing: restore or rebuild it" in process.health("/readyz")[1]["state"]
            session = await ZooKeeperSession.connect(server.address)
            assert await ClusterStore(session).read() is None
            await session.close()
            assert all(path.joinpath("identity.json").exists() for path in services.directories)
            inventories = [await inventory_of(node, cluster_id) for node in services.nodes]
            assert all(inventory.ledgers for inventory in inventories)
            assert inventories[0].ledgers.keys() == inventories[1].ledgers.keys()

            await server.stop()
            shutil.rmtree(state)
            (tmp_path / "aside").rename(state)
            server = await ZooKeeperServer.start(state.parent, server.port)
            await services.ready()
            assert (await services.metadata.serving())["cluster_id"] == cluster_id
            assert await services.messages() == list(range(50))
            assert await request.ended() == ExitCode.OK
    finally:
        await server.stop()
