"""ZooKeeper is lost in the middle of an upgrade to version 8: what is restored and told, and who must not go on."""

from pathlib import Path

import pytest

import oncelog
from oncelog.core.process_version import LEVELS_VERSION
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.loads import read_all
from tests.cluster.sessions import AWAY_MS
from tests.records_proof.losses import backup, lose_zookeeper
from tests.upgrade_proof.mixed_cluster import FormerCluster, Version

pytestmark = [pytest.mark.asyncio, pytest.mark.limit_s(1800)]

PERMISSIONS = "/admin/v2/namespaces/public/default/permissions"
UPGRADED, FORMER = ("metadata-1", "storage-1", "storage-2", "owner-1"), ("storage-3", "owner-2")


async def published(cluster: Cluster, topic: str) -> None:
    async with await oncelog.connect(cluster.url) as client, await client.create_producer(topic) as producer:
        await producer.send_many([b"%d" % number for number in range(20)])


@pytest.mark.hazard("revoked-right-returns")
@pytest.mark.hazard("late-rollback")
async def test_zookeeper_is_lost_while_half_of_the_processes_run_the_former_version(tmp_path: Path) -> None:
    """The copy of the records is older than a revocation and than a topic: rights are closed, and the topic is told.
    What runs in the former version does not start any more."""
    with FormerCluster.running(tmp_path, session_timeout_ms=AWAY_MS) as cluster:
        await published(cluster, "before")
        await cluster.change("POST", f"{PERMISSIONS}/billing", json=["consume"])
        for name in UPGRADED:
            await cluster.change_version(name, Version.CURRENT)
        await cluster.healed()
        partly = await cluster.request("POST", "/admin/v2/backups")
        assert (partly.status_code, "on 2 of 3 storage nodes" in partly.text) == (503, True), partly.text
        await cluster.change("DELETE", f"{PERMISSIONS}/billing")
        await published(cluster, "after")
        await lose_zookeeper(cluster)
        code, refused = await backup(cluster, "restore", "--yes")
        assert (code, len(refused["reviews"]), len(refused["copies"])) == (1, 1, 1), refused
        assert "have no head, and no copy lists them" in refused["reviews"][0]["message"]
        code, report = await backup(cluster, "restore", "--yes", "--accept", "all")
        assert (code, report["state"], report["rights_closed"]) == (0, "done", True), report
        for name in FORMER:
            cluster.choose(name, Version.CURRENT)
        await cluster.healed()
        assert await cluster.get(PERMISSIONS) == {}
        assert (await cluster.get("/admin/v2/cluster/level"))["level"] == LEVELS_VERSION
        async with await oncelog.connect(cluster.url) as client:
            assert [one.value for one in await read_all(client, "before")] == [b"%d" % number for number in range(20)]
            assert await read_all(client, "after") == []
        for name in FORMER:
            assert "this version reads format 1" in (cluster.data / "logs" / f"{name}.log").read_text()
