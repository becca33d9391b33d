"""What the removal of a drained storage node waits for, and what is reported of it."""

import pytest

from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.registry import Decommission
from tests.cluster.until import until
from tests.contract.repair.repairing import DEADLINE_S, World


async def drained_away(world: World, number: int) -> None:
    async def removed() -> bool:
        return (await world.cookie(number)).decommission is Decommission.DONE

    await until(removed, DEADLINE_S)


@pytest.mark.asyncio
async def test_empty_ledgers_that_no_list_names_do_not_keep_a_drained_node() -> None:
    """Each takeover of an idle topic leaves one. Nobody moves them, and the floor of the topic does not rise."""
    async with World.running() as world:
        members = tuple(node.incarnation for node in world.nodes[:3])
        left = LedgerMetadata(LedgerId(5), world.topic_id, members, 2).closed(end=EntryId(-1), length=0)
        await LedgerStore(world.session).write(left, version=ABSENT_VERSION)
        await world.ledger(7)
        repair = world.replica()
        await repair.watch.refresh()
        await repair.decommissions.begin(members[2], repair.watch.queue.nodes, write_quorum=3)
        await drained_away(world, 2)
        assert members[2] not in (await world.record(7)).members


@pytest.mark.asyncio
async def test_removal_reports_ledgers_with_their_topics() -> None:
    """Also those that no list names: nothing else says why the removal does not end."""
    async with World.running() as world:
        await world.ledger(1)
        await world.ledger(5, listed=False)
        repair, c = world.replica(), world.nodes[2].incarnation
        world.nodes[3].open.clear()
        await repair.watch.refresh()
        assert await repair.decommissions.waits_for(c, repair.watch)
        await repair.decommissions.begin(c, repair.watch.queue.nodes, write_quorum=3)
        await repair.watch.refresh()
        first, second = await repair.decommissions.waits_for(c, repair.watch)
        assert first == "ledger 1 of public/default/flights: its copy is moved to another storage node"
        assert second.startswith("ledger 5 of public/default/flights: no list that can be read names it")
        world.nodes[3].open.set()
        await world.whole(1, 0, 1, 3)
        await LedgerStore(world.session).delete(LedgerId(5), version=0)
        await drained_away(world, 2)


@pytest.mark.asyncio
async def test_removal_reports_the_notes_that_other_nodes_lack() -> None:
    """No ledger is left then, and the node stays."""
    async with World.running() as world:
        repair = world.replica(elected=False)
        for node in (world.nodes[0], world.nodes[2]):
            node.notes = 1
        c = world.nodes[2].incarnation
        await repair.watch.refresh()
        await repair.decommissions.begin(c, repair.watch.queue.nodes, write_quorum=3)
        await repair.watch.refresh()
        (reason,) = await repair.decommissions.waits_for(c, repair.watch)
        assert "the notes of storage nodes" in reason
