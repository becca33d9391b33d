"""Losses of ZooKeeper below a cluster of real processes, and its restore by the command of an operator."""

import asyncio
import json
import shutil
from collections.abc import Container
from pathlib import Path
from typing import Any

import httpx

from tests.cluster.cluster_fixture import Cluster
from tests.cluster.commands import run_command
from tests.cluster.kills import any_time
from tests.cluster.until import until

#: Also below 100,000 ledgers on a busy machine.
DEADLINE_S = 600.0
RESTORE = "/admin/v2/cluster/restore"


class NoReport(AssertionError):
    """The command has only said why: the metadata service is away, or was, before anything was claimed."""


def state_of(cluster: Cluster) -> Path:
    """ZooKeeper's data."""
    return cluster.data / "zookeeper" / "state"


async def lose_zookeeper(cluster: Cluster, *, older: Path | None = None, away: Container[str] = ()) -> None:
    """Kill ZooKeeper and delete its data. Return when every process has noticed, ended and started again.

    older: former data, which takes the place of the newest. away: processes that do not run, or that may go on, because
    they may have seen nothing newer.
    """
    restarts = {name: process["restarts"] for name, process in cluster.processes.items()}
    with cluster.held():
        await cluster.kill("zookeeper", once=any_time)
        shutil.rmtree(state_of(cluster))
        if older is not None:
            shutil.copytree(older, state_of(cluster))

    def noticed() -> bool:
        now = {name: process["restarts"] for name, process in cluster.processes.items() if name not in away}
        return all(count > restarts[name] for name, count in now.items())

    await until(noticed, DEADLINE_S, waiting_for="each process to end and start again")
    await until(lambda: serves_a_restore(cluster.admin_url), DEADLINE_S, waiting_for="the routes of a restore")


async def serves_a_restore(admin_url: str) -> bool:
    """Whether the metadata service, which may wait for the cluster's record, answers."""
    try:
        async with httpx.AsyncClient(trust_env=False) as rest:
            answer = await rest.get(f"{admin_url}{RESTORE}")
    except httpx.TransportError:
        return False
    return answer.status_code == 200


async def backup(cluster: Cluster, *words: str, admin_url: str = "") -> tuple[int, dict[str, Any]]:
    """The exit code of `oncelog admin backup`, and its answer. admin_url: of another service. Raises NoReport."""
    done = await asyncio.to_thread(
        run_command, cluster.url, admin_url or cluster.admin_url, "admin", "backup", *words, "-o", "json"
    )
    shown = done.stdout.decode()
    if not shown:
        raise NoReport(done.stderr.decode())
    return done.returncode, json.loads(shown)
