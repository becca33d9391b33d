"""The record of the progress of repair, as the elected replica writes it, and that it goes on."""

import pytest

from oncelog.metadata.repair.repair import Repair
from oncelog.metadata.repair.repairer import IDLE_ROUNDS
from oncelog.metadata_store.records.repair_store import (
    SAMPLE_MS,
    SAMPLES_MAX,
    RepairProgress,
    RepairSample,
    RepairStore,
)
from oncelog.metadata_store.session import paths
from tests.cluster.until import until
from tests.contract.repair.repairing import DEADLINE_S, World


@pytest.mark.asyncio
async def test_history_of_copies_goes_on_at_the_next_elected_replica() -> None:
    """A sample each minute; the copies of now are in the progress itself."""
    async with World.running() as world:
        await world.ledger(1, holders=(0, 1, 2))
        former = tuple(RepairSample(at_ms, 0, (0, 0, 0, at_ms)) for at_ms in range(1, SAMPLES_MAX + 1))
        await RepairStore(world.session).write(RepairProgress(history=former))
        repair = Repair.over(world.session, world.placements, owners=list, pace=world.pace)
        world.stack.push_async_callback(repair.close)
        for _ in range(2):
            await repair.repairer.round()
        progress = await world.progress()
        assert progress.history[:-1] == former[1:]
        newest = progress.history[-1]
        assert newest.at_ms >= progress.updated_ms - SAMPLE_MS
        assert newest.entries_by_copies == progress.entries_by_copies
        assert (sum(progress.entries_by_copies[:3]), progress.left_bytes) == (0, 0)
        assert progress.entries_by_copies[3] > 0
        await world.nodes[0].leave()
        await repair.repairer.round()
        after = await world.progress()
        assert (after.entries_by_copies, after.history) == ((0, 0, newest.entries_by_copies[3]), progress.history)
        assert after.left_bytes > 0


@pytest.mark.asyncio
async def test_unchanged_progress_is_written_seldom() -> None:
    """Each write costs an fsync on every ZooKeeper server. A change is written in the round that sees it."""
    async with World.running() as world:
        repair = Repair.over(world.session, world.placements, owners=list, pace=world.pace)
        world.stack.push_async_callback(repair.close)

        async def version_after(rounds: int) -> int:
            for _ in range(rounds):
                await repair.repairer.round()
            stored = await world.session.read(paths.REPAIR)
            assert stored is not None
            return stored.version

        first = await version_after(1)
        assert await version_after(IDLE_ROUNDS - 1) == first
        assert await version_after(1) == first + 1, "a sign of life"
        await world.nodes[0].leave()
        await world.ledger(1, holders=(1, 2))
        assert await version_after(1) == first + 2
        assert (await world.progress()).under_replicated == 1


@pytest.mark.asyncio
async def test_damaged_cookie_of_one_node_does_not_end_the_repairer() -> None:
    """It ended the metadata service, and then the next one that was elected. The node counts as retired."""
    async with World.running() as world:
        await world.ledger(1)
        path = paths.storage_cookie(world.nodes[2].incarnation)
        node = await world.session.read(path)
        assert node is not None
        await world.session.write(path, b"?", version=node.version)
        await world.wipe(3)
        world.replica()

        async def counted() -> bool:
            return (await world.cookie(3)).emptied

        await until(counted, DEADLINE_S, waiting_for="what the repairer writes behind the damaged cookie")
        damaged = await world.session.read(path)
        assert damaged is not None
        assert damaged.data == b"?"
