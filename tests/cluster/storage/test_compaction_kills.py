"""Compaction with real processes: a kill at every durable step loses nothing, and space is given back (hazard
removed-segment)."""

from collections.abc import Iterator

import pytest

import oncelog
from tests.cluster.loads import Loads, read_all
from tests.cluster.sessions import SESSION_TIMEOUT_MS
from tests.cluster.until import until
from tests.fault_proof.disk_space import CYCLE_BYTES, SETTINGS, SPARE_CYCLES, disk_bytes, write_and_delete_once
from tests.fault_proof.faulty_cluster import FaultyCluster
from tests.fault_proof.interposed_disk import COMPACTION_STEPS, DiskRule
from tests.fault_proof.stored_copies import CopiesReader, until_whole

pytestmark = [pytest.mark.asyncio, pytest.mark.limit_s(1800)]

#: Erasing and compaction have intervals, and a killed node begins again.
STEP_DEADLINE_S = 300.0

#: The steps as compaction names them, after each is made; and calls in the middle of a step.
KILLS = (
    *(DiskRule(f"after-{step.replace(' ', '-')}", step) for step in COMPACTION_STEPS),
    DiskRule("before-unlink", "unlink", "*.seg", kill="before"),
    DiskRule("before-rename-of-identity", "rename", "identity*", kill="before"),
    DiskRule("after-rename-of-identity", "rename", "identity*", kill="after"),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    settings = {"session_timeout_ms": SESSION_TIMEOUT_MS, "add_timeout_ms": 1_500, **SETTINGS}
    with FaultyCluster.running(tmp_path_factory.mktemp("compaction"), **settings) as own:
        yield own


@pytest.mark.hazard("removed-segment")
async def test_kill_at_every_step_of_compaction_loses_no_message(cluster: FaultyCluster) -> None:
    """Three nodes at a time, each at another step, while a topic that stays shares the segments of one that goes."""
    async with await oncelog.connect(cluster.url, operation_timeout=STEP_DEADLINE_S) as client:
        kept = await Loads.of_two(client, "kept", slow=True)
        cycles = 0
        async with kept.running():
            names = cluster.storage_names
            for first in range(0, len(KILLS), len(names)):
                rules = KILLS[first : first + len(names)]
                pairs = list(zip(names, rules, strict=False))
                for node, rule in pairs:
                    cluster.order(node, rule)

                async def all_used() -> bool:
                    nonlocal cycles
                    cycles += 1
                    await write_and_delete_once(cluster, cycles)
                    return all(cluster.has_used(node, rule.name) for node, rule in pairs)  # noqa: B023

                await until(all_used, STEP_DEADLINE_S, waiting_for=f"a kill at each of {[r.name for r in rules]}")
                await cluster.healed()
                await kept.answered_more()
        kept.check(await read_all(client, "kept"))
        for name in cluster.storage_names:
            with cluster.stopped(name):
                kept.check(await read_all(client, "kept"))
    async with CopiesReader.connected(cluster) as reader:
        assert (await until_whole(reader.read, STEP_DEADLINE_S)).ledgers > 0
    limit = (1 + SPARE_CYCLES) * CYCLE_BYTES
    while cycles * CYCLE_BYTES <= 2 * limit:
        cycles += 1
        await write_and_delete_once(cluster, cycles)
    await until(
        lambda: all(disk_bytes(cluster, node) < limit for node in cluster.storage_names),
        STEP_DEADLINE_S,
        waiting_for="the space of the deleted topics to be given back",
    )
