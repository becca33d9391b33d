"""An upgrade and its way back under load: each message is stored once, in any mix. The level ends the way back."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import oncelog
from oncelog.core.process_version import BEFORE_LEVELS, PROCESS_VERSION
from tests.cluster.cluster_fixture import DEADLINE_S
from tests.cluster.loads import Loads
from tests.cluster.until import until
from tests.upgrade_proof.mixed_cluster import FormerCluster, MixedCluster, Version

pytestmark = [pytest.mark.asyncio, pytest.mark.limit_s(1800)]
ORDER = ("storage-1", "storage-2", "metadata-1", "owner-1", "storage-3", "owner-2")
LEVEL = "/admin/v2/cluster/level"


async def level(cluster: MixedCluster) -> dict[str, Any]:
    found: dict[str, Any] = await cluster.get(LEVEL)
    return found


async def is_refused(cluster: MixedCluster, name: str) -> str:
    """End the process and start it in the former version: the last line of its log, once it does not start."""
    cluster.choose(name, Version.FORMER)
    cluster.signal(name, signal.SIGTERM)
    log = cluster.data / "logs" / f"{name}.log"
    before = log.stat().st_size

    def said() -> str:
        lines = [line for line in log.read_text()[before:].splitlines() if "format 2" in line]
        return lines[-1] if lines else ""

    await until(lambda: bool(said()), DEADLINE_S, waiting_for=f"{name} to be refused")
    return said()


@asynccontextmanager
async def loaded(cluster: MixedCluster) -> AsyncIterator[Loads]:
    """Two producers that send all the time; at the end everything that they sent is read back."""
    async with await oncelog.connect(cluster.url) as client, Loads.checked(client, "upgraded", slow=True) as loads:
        yield loads


@pytest.mark.hazard("late-rollback")
async def test_upgrade_roll_back_upgrade_and_end(tmp_path: Path) -> None:
    """Created by the former version. The end of the upgrade is refused while one process is of it."""
    with FormerCluster.running(tmp_path) as cluster:
        async with loaded(cluster) as loads:
            for name in ORDER:
                await cluster.change_version(name, Version.CURRENT)
                await loads.answered_more(2)
            assert (await level(cluster))["level"] == BEFORE_LEVELS
            for name in ("owner-1", "storage-2"):
                await cluster.change_version(name, Version.FORMER)
                await loads.answered_more(2)
            refused = await cluster.request("POST", "/admin/v2/cluster/finalize")
            assert refused.status_code == 409, refused.text
            assert f"(version {BEFORE_LEVELS})" in refused.json()["detail"]
            for name in ("storage-2", "owner-1"):
                await cluster.change_version(name, Version.CURRENT)
            done = await cluster.request("POST", "/admin/v2/cluster/finalize")
            assert (done.status_code, done.json()["level"]) == (200, PROCESS_VERSION), done.text
            for name in ("owner-2", "storage-1"):
                assert "this version reads format 1" in await is_refused(cluster, name)
                cluster.choose(name, Version.CURRENT)
            await cluster.healed()
            await loads.answered_more(2)
