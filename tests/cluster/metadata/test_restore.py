"""ZooKeeper's data is deleted below real processes under load, and restored from what storage nodes hold."""

import asyncio
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

import oncelog
from tests.cluster.clients.consuming import Consumption
from tests.cluster.cluster_fixture import Cluster, alive
from tests.cluster.loads import Loads, read_all
from tests.cluster.until import until

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("emptied-zookeeper")]

DEADLINE_S = 120.0
NAMESPACE = "/admin/v2/namespaces/public/default"
SPLIT, GONE = "/admin/v2/persistent/public/default/split", "/admin/v2/persistent/public/default/gone"


async def lose_zookeeper(cluster: Cluster) -> None:
    """Kill ZooKeeper and delete its data. Return when every process has noticed, ended and started again."""
    restarts = {name: process["restarts"] for name, process in cluster.processes.items()}
    with cluster.held():
        pid = cluster.signal("zookeeper", signal.SIGKILL)
        await until(lambda: not alive(pid), DEADLINE_S)
        shutil.rmtree(cluster.data / "zookeeper" / "state")

    def noticed() -> bool:
        return all(process["restarts"] > restarts[name] for name, process in cluster.processes.items())

    await until(noticed, DEADLINE_S, waiting_for="each process to end and start again")


async def backup(cluster: Cluster, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code of `oncelog admin backup`, and its answer."""
    done = await asyncio.to_thread(cluster.run, "admin", "backup", *words, "-o", "json")
    shown = done.stdout.decode()
    assert shown, done.stderr.decode()
    return done.returncode, json.loads(shown)


async def waits_for_a_restore(cluster: Cluster) -> None:
    """Return once the metadata service, which waits for the cluster's record, serves the routes of a restore."""

    async def waits() -> bool:
        try:
            async with httpx.AsyncClient(trust_env=False) as rest:
                answer = await rest.get(f"{cluster.admin_url}/admin/v2/cluster/restore")
        except httpx.TransportError:
            return False
        return answer.status_code == 200

    await until(waits, DEADLINE_S)


async def test_zookeeper_that_is_deleted_under_load_is_restored_from_storage_nodes_alone(tmp_path: Path) -> None:
    """Every acknowledged message, mark, acknowledgement, policy, right and deletion is there."""
    with Cluster.running(tmp_path, storage_nodes=3, owners=2, session_timeout_ms=2000) as cluster:
        await cluster.change("PUT", f"{SPLIT}/partitions", json=3)
        await cluster.change("PUT", GONE)
        await cluster.change("DELETE", GONE)
        await cluster.change("POST", f"{NAMESPACE}/permissions/billing", json=["consume"])
        await cluster.change("POST", f"{NAMESPACE}/messageTTL", json=3600)
        async with await oncelog.connect(cluster.url) as client:
            loads = await Loads.of_two(client, "flights", slow=True)
            async with Consumption.running([client], "flights", "shared") as consumption:
                async with loads.running():
                    await consumption.has_acked(20)
                    await lose_zookeeper(cluster)
                    await waits_for_a_restore(cluster)
                    code, report = await backup(cluster, "restore", "--yes")
                    assert (code, report["state"], report["reviews"]) == (0, "done", []), report
                    assert (report["copies"], report["gives_up"], report["rights_closed"]) == ([], False, False)
                    await cluster.healed()
                    await loads.answered_more(20)
                stored = await read_all(client, "flights")
                loads.check(stored)
                await consumption.has_acked(len(stored))
                consumption.check({(message.partition, message.index) for message in stored})
        assert await cluster.get(f"{SPLIT}/partitions") == {"partitions": 3}
        assert await cluster.get(f"{NAMESPACE}/permissions") == {"billing": ["consume"]}
        assert await cluster.get(f"{NAMESPACE}/messageTTL") == 3600
        assert (await cluster.request("GET", GONE)).status_code == 404
        code, drill = await backup(cluster, "drill")
        assert (code, drill["differences"], drill["reviews"]) == (0, [], []), drill
