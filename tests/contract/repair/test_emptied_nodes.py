"""The repairer writes that a retired storage node is emptied: with records in memory, over real sockets."""

from dataclasses import dataclass, field, replace

import pytest

from oncelog.core.era import Era
from oncelog.core.formats.note import Note
from oncelog.core.ids import LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.process_version import FIRST_VERSION
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.repair.emptied import may_need
from oncelog.metadata.repair.repair import Repair
from oncelog.metadata_store.notes.noting_session import CollectNotes, NotingSession
from oncelog.metadata_store.records import ledger_listing
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.registry import Decommission, decode_cookie
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.runtime.credentials import PLAIN
from oncelog.runtime.observing.events import EventKind
from oncelog.runtime.tasks import start
from tests.cluster.until import until
from tests.contract.noted import noted
from tests.contract.repair.repairing import DEADLINE_S, World

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("replaced-disk-is-missing")]


@dataclass
class Stored:
    """What storage nodes are sent."""

    notes: list[Note] = field(default_factory=list)

    async def store(self, collect: CollectNotes) -> None:
        self.notes += (await collect())[0]


def replica(world: World, session: StoreSession, era: Era | None = None) -> Repair:
    """Elected, until the end of the test."""
    repair = Repair.over(
        session, world.placements, owners=list, events=world.events, pace=world.pace, peers=replace(PLAIN, era=era),
        unnoted=world.session,
    )  # fmt: skip
    running = start(repair.repairer.run(lambda: "m-1"), what="a repairer")
    world.stack.push_async_callback(repair.close)
    world.stack.callback(running.cancel)
    return repair


async def rounds(world: World, count: int = 3) -> None:
    """Wait for so many further looks of the repairer that it has acted on all that is there."""
    for _ in range(count):
        before = (await world.progress()).updated_ms

        async def later(before: int = before) -> bool:
            return (await world.progress()).updated_ms > before

        await until(later, DEADLINE_S)


async def emptied(world: World, number: int) -> None:
    async def written() -> bool:
        return (await world.cookie(number)).emptied

    await until(written, DEADLINE_S)


async def test_replaced_node_is_emptied_once_every_ledger_has_its_copies_elsewhere() -> None:
    """And this is noted, so that a restore of a lost ZooKeeper knows it."""
    async with World.running() as world:
        await world.ledger(1)
        cluster = await ClusterStore(world.session).read()
        assert cluster is not None
        assert cluster.level.stored >= FIRST_VERSION, "changes are noted"
        stored = Stored()
        world.nodes[3].open.clear()
        await world.wipe(2)
        replica(world, NotingSession(world.session, stored.store))
        await rounds(world)
        cookie = await world.cookie(2)
        assert (cookie.emptied, cookie.is_replaced) == (False, True)
        world.nodes[3].open.set()
        await world.whole(1, 0, 1, 3)
        await emptied(world, 2)
        assert not (await world.cookie(2)).is_replaced
        path = paths.storage_cookie(world.nodes[2].incarnation)
        await until(lambda: bool(stored.notes), DEADLINE_S)
        assert {note.path for note in stored.notes} == {path}
        assert decode_cookie(stored.notes[-1].value).emptied
        await until(lambda: bool(noted(world.events, EventKind.NODE)), DEADLINE_S)
        assert [each.node for each in noted(world.events, EventKind.NODE)] == [world.nodes[2].incarnation]
        assert not any([(await world.cookie(number)).emptied for number in (0, 1, 3)])


async def test_ledger_that_no_list_names_does_not_keep_a_replaced_node() -> None:
    """Its owner had prepared it, and ended. Nothing was written to it."""
    async with World.running() as world:
        members = tuple(node.incarnation for node in world.nodes[:3])
        prepared = LedgerMetadata(LedgerId(5), world.topic_id, members, 2)
        await LedgerStore(world.session).write(prepared, version=ABSENT_VERSION)
        await world.wipe(2)
        replica(world, world.session)
        await emptied(world, 2)


@pytest.mark.parametrize("damaged", ["list", "ledger", "no ledger"])
async def test_record_that_cannot_be_read_keeps_a_replaced_node(damaged: str) -> None:
    """What is not known proves nothing."""
    async with World.running() as world:
        await world.ledger(1)
        if damaged == "no ledger":
            await world.ledger(2, (0, 1, 3))  # by this one the repairer finds their list
        path = paths.topic(world.topic_id) if damaged == "list" else paths.ledger(LedgerId(1))
        sound = await world.session.read(path)
        assert sound is not None
        if damaged == "no ledger":
            await world.session.delete(path, version=sound.version)
        else:
            await world.session.write(path, b"?", version=sound.version)
        await world.wipe(2)
        replica(world, world.session)
        await rounds(world)
        assert not (await world.cookie(2)).emptied
        if damaged == "no ledger":
            await world.session.create(path, sound.data)
        else:
            await world.session.write(path, sound.data, version=sound.version + 1)
        await emptied(world, 2)


async def test_record_of_before_the_retirement_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many ledgers a look reads some of them again. Another replica has exchanged a member for this node since."""
    monkeypatch.setattr(ledger_listing, "READS_MIN", 1)
    async with World.running() as world:
        a, b, c, d = (node.incarnation for node in world.nodes)
        store = LedgerStore(world.session)
        for number in (1, 2):
            await world.ledger(number)
            stored = await store.read(LedgerId(number))
            assert stored is not None
            await store.write(replace(stored.value, members=(a, b, d), verified=True), version=stored.version)
        watch = Repair.over(world.session, world.placements, owners=list).watch
        await watch.refresh()
        stored = await store.read(LedgerId(2))
        assert stored is not None
        await store.write(replace(stored.value, members=(a, b, c)), version=stored.version)
        await world.wipe(2)
        await watch.refresh()
        assert watch.seen_record(LedgerId(2)) == stored.value, "it was not read again"
        assert not await watch.is_emptied(c)
        await watch.refresh()
        assert watch.queue.naming(c)
        assert not await watch.is_emptied(c)


async def test_ledger_of_a_former_era_keeps_a_replaced_node_until_it_is_whole() -> None:
    """The restore has named the nodes that it asked. One of them is away, and may lack what the replaced one had."""
    async with World.running() as world:
        await world.ledger(1, (0, 1, 3))
        a, b, _, d = (node.incarnation for node in world.nodes)
        stored = await LedgerStore(world.session).read(LedgerId(1))
        assert stored is not None
        restored = replace(stored.value, members=(a, b, d))
        await LedgerStore(world.session).write(restored, version=stored.version)
        await world.nodes[1].leave()
        await world.wipe(2)
        era = Era(2, "1" * 32)
        assert may_need(restored, world.nodes[2].incarnation, restored_below=LedgerId(era.first_id))
        replica(world, world.session, era)
        await rounds(world)
        assert not (await world.cookie(2)).emptied
        await world.nodes[1].register()
        await world.whole(1, 0, 1, 3)
        await emptied(world, 2)


async def test_decommissioned_node_is_no_replaced_one() -> None:
    """It is removed only when no ledger names it, so nothing is written once more."""
    async with World.running() as world:
        stored = await world.registry.read_cookie(world.nodes[2].incarnation)
        assert stored is not None
        removed = replace(stored.value, retired=True, decommission=Decommission.DONE)
        assert not removed.is_replaced
        await world.registry.write_cookie(removed, version=stored.version)
        await world.nodes[2].leave()
        replica(world, world.session)
        await rounds(world)
        assert not (await world.cookie(2)).emptied


async def test_removal_of_a_drained_node_is_noted() -> None:
    """A restore would count the node as missing, and a drill would tell that its cookie would be another one."""
    async with World.running() as world:
        c, stored = world.nodes[2].incarnation, Stored()
        repair = replica(world, NotingSession(world.session, stored.store))
        await repair.watch.refresh()
        await repair.decommissions.begin(c, repair.watch.queue.nodes, write_quorum=3)

        def noted_as_removed() -> bool:
            notes = [note for note in stored.notes if note.path == paths.storage_cookie(c)]
            return bool(notes) and decode_cookie(notes[-1].value).decommission is Decommission.DONE

        await until(noted_as_removed, DEADLINE_S)
