"""Processes that start before the services that they need: they report what is missing, and are not ready."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from oncelog.log_storage.directory.storage_directory import StorageDirectory
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from oncelog.runtime.port_claim import claim_port, port_of
from oncelog.runtime.process import ExitCode
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from tests.cluster.processes.service_process import DEADLINE_S, processes
from tests.cluster.sessions import AWAY_MS
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio


async def test_processes_wait_for_missing_services_at_start(tmp_path: Path) -> None:
    """Owner, storage node and metadata first, then ZooKeeper, then the cluster. A waiting process reports what it waits
    for, stays alive and is not ready. All register their advertised names. If ZooKeeper never returns, the storage node
    reports that, too."""
    with (
        claim_port("127.0.0.1") as claim,
        processes(tmp_path, f"127.0.0.1:{port_of(claim)}") as start,
        ExitStack() as stack,
    ):
        port = port_of(claim)
        words = ("--data", str(tmp_path / "node"), "--segment-bytes", str(8 << 20))
        node = start("log_storage", *words, ONCELOG_SESSION_TIMEOUT_MS=str(AWAY_MS))
        metadata = start("metadata", "--http-port", "0")
        early = [start("topic_owner"), node, metadata]
        for process in early:
            await until(lambda p=process: p.health("/livez")[0] == 200, DEADLINE_S)  # type: ignore[misc]
            assert process.health("/readyz")[0] == 503
        hasty = start("topic_owner", ONCELOG_START_TIMEOUT_MS="1")
        assert await hasty.ended() == ExitCode.FAILED
        assert f"no ZooKeeper answered at 127.0.0.1:{port} within" in hasty.log
        assert "correct ONCELOG_ZOOKEEPER_HOSTS" in hasty.log

        stack.enter_context(ZooKeeperServer.running(tmp_path / "zookeeper", port=port))
        for process in early:
            await process.says("waiting for the cluster's record")
            code, reasons = process.health("/readyz")
            assert (code, list(reasons)) == (503, ["state"])
            assert "ZooKeeper has no record of a cluster: if this cluster is new, create it with" in reasons["state"]
        creation = start("metadata", "--create-cluster")
        assert await creation.ended() == ExitCode.OK
        for serving in [await process.serving() for process in early]:
            assert serving["address"].startswith("localhost:")
        session = await ZooKeeperSession.connect(f"127.0.0.1:{port}")
        registry = Registry(session)
        hosts = [record.host for record in (await registry.owners.live()).values()]
        hosts += [record.host for record in (await registry.storage_nodes.live()).values()]
        hosts += [record.host for record in (await registry.metadata.live()).values()]
        assert hosts == ["localhost"] * 3
        await session.close()

        await early[0].says("lower ONCELOG_WRITE_QUORUM")
        code, reasons = early[0].health("/readyz")
        assert (code, list(reasons)) == (503, ["storage"]), "one storage node is too few for three copies"
        await until(lambda: node.health("/readyz")[0] == metadata.health("/readyz")[0] == 200, DEADLINE_S)

        cluster_id = json.loads((tmp_path / "node" / "identity.json").read_text())["cluster_id"]
        foreign = tmp_path / "foreign"
        StorageDirectory.open(foreign, "0" * 32, segment_bytes=8 << 20).close()
        stranger = start("log_storage", "--data", str(foreign))
        await stranger.says(f"belongs to cluster {'0' * 32}, but ZooKeeper has cluster {cluster_id}")
        await stranger.says("keep this directory")

        stack.close()
        reasons = await until(lambda: node.health("/readyz")[1], DEADLINE_S, waiting_for="a node without ZooKeeper")
        assert list(reasons) == ["zookeeper"]
        assert reasons["zookeeper"].startswith("no session for ")
        assert node.health("/livez") == (200, {}), "starting again would not bring ZooKeeper back"
