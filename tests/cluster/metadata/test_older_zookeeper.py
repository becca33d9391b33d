"""A ZooKeeper that is older than the data: no ledger id is given twice, and no topic gets the data of another one."""

import json
from pathlib import Path

import pytest

from oncelog.core.ids import Incarnation
from oncelog.core.records.id_claim import CounterRecord
from oncelog.rpc.channel import Channel
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from oncelog.storage_client.inventory_calls import read_inventory
from tests.cluster.kills import idle
from tests.cluster.storage.storage_nodes import DEADLINE_S, StorageCluster, append_until_lost
from tests.cluster.until import until
from tests.contract.storage_client.ledger_world import adds_of, writer_of

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("ledger-id-given-twice")]


async def test_storage_node_does_not_register_in_an_older_zookeeper(
    zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """The counter is below a ledger that the node holds. It waits, tells what it holds, and says why it is not ready.
    Nothing advises to delete the directory, and the node serves again once the counter is what it was."""
    async with StorageCluster.running(tmp_path, zookeeper_server, 3) as storage:
        node = storage.nodes[0]
        metadata = await storage.create_ledger(7, storage.nodes)
        await append_until_lost(node, node.incarnation, adds_of(writer_of(metadata), 3))
        await node.kill(once=idle)
        newer = await storage.counter.read()
        assert newer is not None
        older = CounterRecord(5, Incarnation("t" * 32), "older")
        written = await storage.counter.write(older, version=newer.version)
        node.launch()
        await until(lambda: "ZooKeeper is older than the data" in node.last_line(), DEADLINE_S)
        assert "keep all directories as they are" in node.last_line()
        assert "wipe" not in node.last_line()
        lines = map(json.loads, node.log.read_text().splitlines())
        (address,) = [line["address"] for line in lines if "what a restore asks for" in line["msg"]]
        async with Channel(address) as channel:
            assert (await read_inventory(channel, node.incarnation)).ledgers.keys() == {7}
        killed = (await storage.registry.storage_nodes.live()).get(node.incarnation)
        assert killed is None or f"{killed.host}:{killed.port}" != address, "the killed process may be registered still"
        await storage.counter.write(newer.value, version=written.version)
        await node.serves()
