"""The removal of a storage node over real sockets: its copies move, it waits, and says for what."""

import pytest

from oncelog.core.errors import Conflict
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.registry import Decommission
from oncelog.runtime.observing.events import EventKind
from tests.cluster.until import until
from tests.contract.noted import noted
from tests.contract.repair.repairing import DEADLINE_S, World


@pytest.mark.hazard("holders-fade")
@pytest.mark.asyncio
async def test_drained_node_stays_until_the_others_hold_all_notes() -> None:
    """Two nodes have a note that was answered. One of them goes, and no restore would ask it any more."""
    async with World.running() as world:
        repair = world.replica()
        for node in (world.nodes[0], world.nodes[2]):
            node.notes = 1
        await repair.watch.refresh()
        await repair.decommissions.begin(world.nodes[2].incarnation, repair.watch.queue.nodes, write_quorum=3)
        for _ in range(2):
            rounds = (await world.progress()).updated_ms

            async def later(rounds: int = rounds) -> bool:
                return (await world.progress()).updated_ms > rounds

            await until(later, DEADLINE_S)
        assert (await world.cookie(2)).decommission is Decommission.DRAINING
        for node in world.nodes:
            node.notes = 1

        async def removed() -> bool:
            return (await world.cookie(2)).decommission is Decommission.DONE

        await until(removed, DEADLINE_S)


@pytest.mark.hazard("too-few-nodes")
@pytest.mark.hazard("removed-cookie")
@pytest.mark.asyncio
async def test_decommissioned_node_is_drained_and_removed() -> None:
    """While it drains it is a source. Its cookie stays, and below the write quorum nothing is removed."""
    async with World.running() as world:
        await world.ledger(1, holders=(2,))
        repair = world.replica()
        c, d = world.nodes[2].incarnation, world.nodes[3].incarnation
        await repair.watch.refresh()
        world.nodes[3].open.clear()
        await repair.decommissions.begin(c, repair.watch.queue.nodes, write_quorum=3)

        async def copying() -> bool:
            progress = await world.progress()
            return bool(progress.running) and (await world.cookie(2)).debt == 0

        await until(copying, DEADLINE_S)
        rounds = (await world.progress()).updated_ms

        async def later() -> bool:
            return (await world.progress()).updated_ms > rounds

        await until(later, DEADLINE_S)
        assert (await world.cookie(2)).decommission is Decommission.DRAINING, "a ledger names it"
        world.nodes[3].open.set()
        await world.whole(1, 0, 1, 3)

        async def removed() -> bool:
            return (await world.cookie(2)).decommission is Decommission.DONE

        await until(removed, DEADLINE_S)
        assert (await world.cookie(2)).retired
        await until(lambda: bool(noted(world.events, EventKind.NODE)), DEADLINE_S)
        assert noted(world.events, EventKind.NODE)[0].node == c
        await repair.watch.refresh()
        with pytest.raises(Conflict, match="2 other storage nodes are left, and a ledger needs 3"):
            await repair.decommissions.begin(d, repair.watch.queue.nodes, write_quorum=3)
        with pytest.raises(Conflict, match="was removed"):
            await repair.decommissions.cancel(c)


@pytest.mark.asyncio
async def test_cancelled_decommission_leaves_the_node_writable() -> None:
    """Nothing was removed yet."""
    async with World.running() as world:
        repair = world.replica(elected=False)
        await repair.watch.refresh()
        c = world.nodes[2].incarnation
        await repair.decommissions.begin(c, repair.watch.queue.nodes, write_quorum=3)
        assert (await world.cookie(2)).read_only
        await repair.decommissions.cancel(c)
        await repair.decommissions.cancel(c)
        assert (await world.cookie(2)).decommission is Decommission.NO
        assert not (await world.cookie(2)).read_only


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
