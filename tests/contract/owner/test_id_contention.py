"""Owners that claim blocks of producer ids side by side, over a real ZooKeeper, and are killed."""

from pathlib import Path

import pytest

from oncelog.runtime.zookeeper_server import ZooKeeperServer
from tests.contract.owner.id_contention import BLOCK, contend


@pytest.mark.asyncio
async def test_no_id_is_issued_twice_by_owners_that_are_killed(
    zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """A killed owner wastes the blocks that it had claimed, at most two, and nothing else."""
    address = f"{zookeeper_server.address}/id-contention"
    found = await contend(address, tmp_path, owners=3, kills=2, seed=1)
    assert (found.repeated, found.kills) == (0, 5)
    assert found.issued > found.kills
    assert 0 <= found.wasted <= 2 * BLOCK * found.kills
