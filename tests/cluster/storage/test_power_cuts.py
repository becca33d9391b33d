"""Storage nodes over interposed disks: unsynced writes are lost, disks fail and fill up. No acknowledged message is."""

from collections.abc import Iterator

import pytest

import oncelog
from tests.cluster.cluster_fixture import DEADLINE_S
from tests.cluster.kills import any_time
from tests.cluster.loads import Loads, read_all
from tests.cluster.sessions import SESSION_TIMEOUT_MS
from tests.cluster.until import until
from tests.fault_proof.faulty_cluster import FaultyCluster
from tests.fault_proof.interposed_disk import DiskRule

pytestmark = pytest.mark.asyncio

#: Of a roll to the next segment, and of a group. `make fault-proof` kills at all steps.
STEPS_OF_THE_JOURNAL = (("rename", "after"), ("sync_directory", "before"), ("write", "after"), ("sync", "before"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    settings = {
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "add_timeout_ms": 1_500,
        "ledger_entries_max": 200,
        "segment_bytes": 1 << 20,
    }
    with FaultyCluster.running(tmp_path_factory.mktemp("power"), **settings) as own:
        yield own


async def check_with_each_node_stopped(
    cluster: FaultyCluster, client: oncelog.AsyncClient, topic: str, loads: Loads
) -> None:
    for name in cluster.storage_names:
        await cluster.has_id(name)
        with cluster.stopped(name):
            loads.check(await read_all(client, topic))


async def test_power_cuts_lose_no_message(cluster: FaultyCluster, client: oncelog.AsyncClient) -> None:
    """Of each node in turn, under load: all unsynced writes are lost at the first, some of them at the others."""
    topic = "power-cuts"
    loads = await Loads.of_two(client, topic)
    async with loads.running():
        for seed, name in enumerate(cluster.storage_names):
            await cluster.cut_power(name, seed=seed, once=loads.under_way)
            await loads.answered_more(100)
            await cluster.healed()
            await loads.answered_more()
    await check_with_each_node_stopped(cluster, client, topic, loads)


@pytest.mark.hazard("repeated-add-not-synced")
async def test_power_cut_of_all_nodes_loses_no_message(cluster: FaultyCluster, client: oncelog.AsyncClient) -> None:
    """What is acknowledged was synced on two nodes, and what a replay serves again was synced before."""
    topic = "power-cut-of-all"
    loads = await Loads.of_two(client, topic)
    async with loads.running():
        for seed in (0, 1):
            await cluster.cut_power(*cluster.storage_names, seed=seed, once=loads.under_way)
            await cluster.healed()
            await loads.answered_more()
    await check_with_each_node_stopped(cluster, client, topic, loads)


async def test_failing_disk_loses_no_message(cluster: FaultyCluster, client: oncelog.AsyncClient) -> None:
    """The node ends at each failure; nothing is retried on a file whose durability is unknown. Power cuts follow."""
    topic = "failing-disk"
    rules = [
        DiskRule("sync-fails", "sync", "*.seg", error="EIO"),
        DiskRule("disk-is-full", "allocate", error="ENOSPC"),
    ]
    loads = await Loads.of_two(client, topic)
    async with loads.running():
        for rule in rules:
            await used(cluster, loads, "storage-2", rule)
            await cluster.cut_power("storage-2", once=any_time)
            await cluster.healed()
            await loads.answered_more()
    await check_with_each_node_stopped(cluster, client, topic, loads)


async def test_kills_at_the_steps_of_the_journal_lose_no_message(
    cluster: FaultyCluster, client: oncelog.AsyncClient
) -> None:
    """Kills around the steps of a roll to the next segment, and between the write and the sync of a group."""
    topic = "killed-at-steps"
    loads = await Loads.of_two(client, topic)
    async with loads.running():
        for number, (step, when) in enumerate(STEPS_OF_THE_JOURNAL):
            await used(cluster, loads, f"storage-{number % 3 + 1}", DiskRule(f"{when}-{step}", step, kill=when))
            await cluster.healed()
            await loads.answered_more()
    await check_with_each_node_stopped(cluster, client, topic, loads)


async def used(cluster: FaultyCluster, loads: Loads, node: str, rule: DiskRule) -> None:
    """Return when the rule has taken effect."""
    cluster.order(node, rule)
    with loads.hurrying():
        await until(lambda: cluster.has_used(node, rule.name), DEADLINE_S, waiting_for=f"{rule.name} on {node}")
