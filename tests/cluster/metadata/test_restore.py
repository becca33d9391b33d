"""ZooKeeper's data is deleted below real processes under load, and restored from what storage nodes hold."""

from pathlib import Path

import pytest

import oncelog
from tests.cluster.clients.consuming import Consumption
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.loads import Loads
from tests.cluster.sessions import AWAY_MS
from tests.records_proof.losses import backup, lose_zookeeper

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("emptied-zookeeper"), pytest.mark.limit_s(1800)]

NAMESPACE = "/admin/v2/namespaces/public/default"
SPLIT, GONE = "/admin/v2/persistent/public/default/split", "/admin/v2/persistent/public/default/gone"


async def test_zookeeper_that_is_deleted_under_load_is_restored_from_storage_nodes_alone(tmp_path: Path) -> None:
    """Every acknowledged message, mark, acknowledgement, policy, right and deletion is there."""
    with Cluster.running(tmp_path, storage_nodes=3, owners=2, session_timeout_ms=AWAY_MS) as cluster:
        await cluster.change("PUT", f"{SPLIT}/partitions", json=3)
        await cluster.change("PUT", GONE)
        await cluster.change("DELETE", GONE)
        await cluster.change("POST", f"{NAMESPACE}/permissions/billing", json=["consume"])
        await cluster.change("POST", f"{NAMESPACE}/messageTTL", json=3600)
        async with (
            await oncelog.connect(cluster.url) as client,
            Consumption.running([client], "flights", "shared") as consumption,
        ):
            async with Loads.checked(client, "flights", slow=True) as loads:
                await consumption.has_acked(20)
                await lose_zookeeper(cluster)
                code, report = await backup(cluster, "restore", "--yes")
                assert (code, report["state"], report["reviews"]) == (0, "done", []), report
                assert (report["copies"], report["gives_up"], report["rights_closed"]) == ([], False, False)
                await cluster.healed()
                await loads.answered_more(20)
            await consumption.check_all(loads.stored)
        assert await cluster.get(f"{SPLIT}/partitions") == {"partitions": 3}
        assert await cluster.get(f"{NAMESPACE}/permissions") == {"billing": ["consume"]}
        assert await cluster.get(f"{NAMESPACE}/messageTTL") == 3600
        assert (await cluster.request("GET", GONE)).status_code == 404
        code, drill = await backup(cluster, "drill")
        assert (code, drill["differences"], drill["reviews"]) == (0, [], []), drill
        code, again = await backup(cluster, "restore", "--yes")
        assert code == 0, again
        assert again["message"].startswith("already restored, era 2: nothing to do. "), again
        code, refused = await backup(cluster, "restore", "--take-over", "--yes")
        assert (code, refused["state"]) == (1, "refused"), refused
        assert "--ends-era 2" in str(refused["message"])
