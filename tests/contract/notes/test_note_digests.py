"""What storage nodes say for the answer whether one of them may be replaced."""

from pathlib import Path

import pytest

from oncelog.core.ids import LedgerId
from oncelog.metadata.repair.note_digests import NoteDigests
from oncelog.metadata.repair.storage_nodes_reader import StorageNodesReader
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.storage_client.node_calls import NodeCalls
from tests.contract.notes.noting_world import noting_world


@pytest.mark.asyncio
@pytest.mark.hazard("holders-fade")
async def test_node_in_limbo_holds_up_the_replacement_of_another_one(tmp_path: Path) -> None:
    """Also one with no ledger left in limbo, before it has written that its directory lacks nothing."""
    async with noting_world(tmp_path, 3) as world:
        calls = NodeCalls()
        digests, reader = NoteDigests(ClusterStore(world.session), calls), StorageNodesReader(world.registry, calls)
        seen = await reader.look()
        first, second, _ = world.members
        assert await digests.refusal(first.incarnation, seen) is None
        second.runner.core.restore_limbo(LedgerId(9))
        assert f"{second.incarnation} are in limbo" in (await digests.refusal(first.incarnation, seen) or "")
        assert await digests.refusal(second.incarnation, seen) is None
        await calls.close()
