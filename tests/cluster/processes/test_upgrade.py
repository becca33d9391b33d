"""Upgrades and their ways back under load: each message is stored once, in any mix. The level ends the way back."""

import json
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import oncelog
from oncelog.core.process_version import PROCESS_VERSION
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from tests.cluster.cluster_fixture import DEADLINE_S
from tests.cluster.loads import Loads
from tests.cluster.until import until
from tests.upgrade_proof.mixed_cluster import FORMER_VERSION, FormerCluster, MixedCluster, Version
from tests.upgrade_proof.next_version import NEXT_FIELD, NEXT_LEVEL

pytestmark = [pytest.mark.asyncio, pytest.mark.limit_s(1800)]
ORDER = ("storage-1", "storage-2", "metadata-1", "owner-1", "storage-3", "owner-2")
LEVEL, FINALIZE = "/admin/v2/cluster/level", "/admin/v2/cluster/finalize"


async def level(cluster: MixedCluster) -> dict[str, Any]:
    found: dict[str, Any] = await cluster.get(LEVEL)
    return found


async def ends(cluster: MixedCluster) -> list[Mapping[str, Any]]:
    """What is noted of each storage directory, as it stands in ZooKeeper."""
    session = await ZooKeeperSession.connect(cluster.serving("zookeeper"))
    try:
        nodes = [
            await session.read(f"{paths.STORAGE_ENDS}/{each}") for each in await session.children(paths.STORAGE_ENDS)
        ]
    finally:
        await session.close()
    return [json.loads(each.data) for each in nodes if each is not None]


async def is_refused(cluster: MixedCluster, name: str, said: str) -> None:
    """End the process and start it in the version of this tree: it says this, and does not serve."""
    cluster.choose(name, Version.CURRENT)
    log = cluster.data / "logs" / f"{name}.log"
    before = log.stat().st_size
    cluster.signal(name, signal.SIGTERM)
    await until(lambda: said in log.read_text()[before:], DEADLINE_S, waiting_for=f"{name} to be refused")


@asynccontextmanager
async def loaded(cluster: MixedCluster) -> AsyncIterator[Loads]:
    """Two producers that send all the time; at the end everything that they sent is read back."""
    async with await oncelog.connect(cluster.url) as client, Loads.checked(client, "upgraded", slow=True) as loads:
        yield loads


async def test_upgrade_from_the_archive_and_back(tmp_path: Path) -> None:
    """Created by the former version. The level stays its own, so every process can go back."""
    with FormerCluster.running(tmp_path) as cluster:
        async with loaded(cluster) as loads:
            for name in ORDER:
                await cluster.change_version(name, Version.CURRENT)
                await loads.answered_more(2)
            for name in reversed(ORDER):
                await cluster.change_version(name, Version.FORMER)
                await loads.answered_more(2)
            assert (await level(cluster))["level"] == FORMER_VERSION


@pytest.mark.hazard("late-rollback")
@pytest.mark.hazard("dropped-field")
async def test_upgrade_to_the_next_level_back_and_its_end(tmp_path: Path) -> None:
    """The end is refused while one process does not know the next level. After it, what knows less does not start."""
    with MixedCluster.running(tmp_path) as cluster:
        async with loaded(cluster) as loads:
            for name in ORDER:
                await cluster.change_version(name, Version.NEXT)
                await loads.answered_more(2)
            assert (await level(cluster))["level"] == PROCESS_VERSION
            for name in ("owner-1", "storage-2"):
                await cluster.change_version(name, Version.CURRENT)
                await loads.answered_more(2)
            noted = await ends(cluster)
            assert [each[NEXT_FIELD] for each in noted] == [NEXT_LEVEL] * 3, "kept by the version that does not know it"
            assert sorted(each["version"] for each in noted) == [PROCESS_VERSION, NEXT_LEVEL, NEXT_LEVEL]
            refused = await cluster.request("POST", FINALIZE)
            assert refused.status_code == 409, refused.text
            assert f"(version {PROCESS_VERSION})" in refused.json()["detail"]
            for name in ("storage-2", "owner-1"):
                await cluster.change_version(name, Version.NEXT)
            done = await cluster.request("POST", FINALIZE)
            assert (done.status_code, done.json()["level"]) == (200, NEXT_LEVEL), done.text
            for name in ("owner-2", "storage-1"):
                said = f"this cluster has level {NEXT_LEVEL}, and this program knows level {PROCESS_VERSION}"
                await is_refused(cluster, name, said)
                cluster.choose(name, Version.NEXT)
            await cluster.healed()
            await loads.answered_more(2)
