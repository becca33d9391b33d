"""The record of the progress of repair, as the elected replica writes it."""

import pytest

from oncelog.metadata.repair.repair import Repair
from oncelog.metadata.repair.repairer import IDLE_ROUNDS
from oncelog.metadata_store.session import paths
from tests.contract.repair.repairing import World


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
