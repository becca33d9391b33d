"""What a drill says of records that notes have as they are."""

import asyncio
from pathlib import Path

import pytest

from oncelog.core.era import Era
from oncelog.core.ids import Incarnation, LedgerId, TopicId
from oncelog.core.rebuild.restore_events import RestoreRequest, RestoreStep
from oncelog.core.rebuild.result import Rebuilt
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.restore.drill import Differing, differences, live_records
from oncelog.metadata.restore.new_tree import NewTree
from oncelog.metadata.restore.progress import RestoreState
from oncelog.metadata.restore.restoring import Work
from oncelog.metadata_store.records.policies import Policies, encode_policies
from oncelog.metadata_store.records.registry import Decommission, StorageCookie, encode_cookie
from oncelog.metadata_store.records.topic_store import NameRecord, encode_name
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import Fired, Znode, create_or_write
from tests.contract.restore.restoring_world import RESTORE_ID, RestoringWorld, restoring_world
from tests.contract.stores.memory_store import MemorySession, MemoryTree

COOKIE = paths.storage_cookie(Incarnation("a" * 32))
NOTHING = Rebuilt({}, {}, (), 0)


def _found(written: dict[str, bytes], live: dict[str, bytes]) -> list[Differing]:
    tree = NewTree()
    for folder in paths.FOLDERS:
        tree.put(folder)
    for path, value in written.items():
        tree.put(path, value)
    return differences(NOTHING, tree, live)


def differs(written: dict[str, bytes], live: dict[str, bytes]) -> list[str]:
    return [each.message for each in _found(written, live)]


@pytest.mark.parametrize("path", [COOKIE, paths.KEY_DATASET, paths.CLUSTER_POLICIES, f"{paths.TOMBSTONES}/{'b' * 32}"])
def test_noted_record_that_differs_is_told(path: str) -> None:
    """A storage node that would count again, or keys of a data set that is not valid any more, among them."""
    assert differs({path: b"1"}, {path: b"1"}) == []
    assert differs({path: b"1"}, {path: b"2"}) == [f"{path}: it would be another one"]
    assert differs({}, {path: b"2"}) == [f"{path}: no storage node has noted it, so it would be missing"]
    assert differs({path: b"1"}, {}) == [f"{path}: it would return; it is not there"]


def test_fields_that_differ_are_told_with_their_values() -> None:
    """The person at night sees what a restore would undo, and how much of it."""
    ours, theirs = (
        encode_cookie(StorageCookie(Incarnation("a" * 32), "h", 1, decommission=state, retired=retired))
        for state, retired in ((Decommission.DRAINING, False), (Decommission.DONE, True))
    )
    (told,) = differs({COOKIE: ours}, {COOKIE: theirs})
    assert told == (
        f'{COOKIE}: it would be another one: decommission would be "draining"; it is "done", retired would be false; '
        "it is true"
    )
    long = b'{"further":"' + b"x" * 500 + b'"}'
    assert len(differs({paths.CLUSTER_POLICIES: long}, {paths.CLUSTER_POLICIES: b"{}"})[0]) < 200


LONG = [b'{"further":"%s%d"}' % (b"x" * 500, number) for number in range(3)]


@pytest.mark.parametrize(
    ("written", "live"),
    [
        ([LONG[0], LONG[0]], [LONG[1], LONG[2]]),  # the sentence has the beginnings of values only
        ([LONG[1], LONG[2]], [LONG[0], LONG[0]]),
        ([b"\xff1", b"\xff1"], [b"\xff2", b"\xff3"]),  # and nothing of bytes that are no JSON
        ([None, None], [LONG[0], LONG[1]]),
        ([LONG[0], LONG[1]], [None, None]),
    ],
)
def test_same_sentence_about_other_values_is_another_difference(
    written: list[bytes | None], live: list[bytes | None]
) -> None:
    """A drill tells what differs twice in the same way: a record that changes all the time is none, although what is
    said of it stays the same."""
    path = paths.CLUSTER_POLICIES
    (first,), (second,) = (
        _found({} if ours is None else {path: ours}, {} if theirs is None else {path: theirs})
        for ours, theirs in zip(written, live, strict=True)
    )
    assert first.message == second.message
    assert first != second


def test_unreadable_record_that_changes_is_another_difference() -> None:
    """As one that an operator repairs meanwhile, in two steps."""
    path = paths.ledger(LedgerId(7))
    (first, *_), (second, *_) = (_found({}, {path: value}) for value in (b"{", b"{ "))
    assert first.message.startswith(f"{path}: it cannot be read")
    assert first.values != second.values


class Changing(MemorySession):
    """Policies that somebody changes between two looks of a drill."""

    async def read(self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None) -> Znode | None:
        if path == paths.CLUSTER:  # before each comparison
            place = f"/era-2{paths.CLUSTER_POLICIES}"
            node = await super().read(place)
            version = -1 if node is None else node.version
            policies = encode_policies(Policies(message_ttl_s=1_000 + version))
            await create_or_write(self, place, policies, version=version)
        return await super().read(path, fired=fired, timeout_ms=timeout_ms)


@pytest.mark.asyncio
async def test_record_that_changes_all_the_time_is_no_difference(tmp_path: Path) -> None:
    """It differs at each look, with other values."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        assert (await world.restore()).state is RestoreState.DONE
        await world.note(paths.CLUSTER_POLICIES, encode_policies(Policies(message_ttl_s=1)), era=Era(2, RESTORE_ID))
        session = Changing(world.tree, root="/oncelog")
        request = RestoreRequest(RESTORE_ID, dry_run=True)
        given = [node.address for node in world.nodes]
        drill = await world.restoring(session).begin(Work.DRILL, request, given=given, by="ann")
        await asyncio.gather(*world.tasks)
        assert (drill.state, drill.differences) == (RestoreState.DONE, [])


def test_debt_of_a_storage_node_is_no_difference() -> None:
    """The repairer notes it with the next comparison only."""
    written, live = (encode_cookie(StorageCookie(Incarnation("a" * 32), "h", 1, debt=debt)) for debt in (None, 3))
    assert differs({COOKIE: written}, {COOKIE: live}) == []


def test_number_of_partitions_that_would_differ_is_told() -> None:
    """Keys of producers would go to other partitions. Without its note, a partitioned topic would have none."""
    path = f"{paths.NAMES}/public/default/orders"
    four, eight = (encode_name(NameRecord(TopicId("c" * 32), count)) for count in (4, 8))
    assert differs({path: four}, {path: four}) == []
    assert differs({path: four}, {path: eight}) == ["public/default/orders: it would have 4 partitions; it has 8"]
    assert differs({}, {path: eight}) == ["public/default/orders: it would have 0 partitions; it has 8"]


@pytest.mark.asyncio
async def test_ledger_record_that_cannot_be_read_is_told() -> None:
    """The records of ledgers are read, too, and one that is damaged does not end the drill."""
    session = MemorySession(MemoryTree(), root="/oncelog")
    for folder in ("", *paths.FOLDERS):
        await session.ensure_path(folder)
    path = paths.ledger(LedgerId(7))
    assert await session.create(path, b"{") is WriteStatus.OK
    found = [each.message for each in differences(NOTHING, NewTree(), await live_records(session))]
    assert [each for each in found if each.startswith(f"{path}: it cannot be read in ZooKeeper")], found


class Watched(MemorySession):
    """Notes the state of the drill whenever the cluster's record is read."""

    def __init__(self, world: RestoringWorld) -> None:
        super().__init__(world.tree, root="/oncelog")
        self.restoring = world.restoring(self)
        self.states: list[RestoreState] = []

    async def read(self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None) -> Znode | None:
        if path == paths.CLUSTER:
            self.states.append((await self.restoring.progress(Work.DRILL)).state)
        return await super().read(path, fired=fired, timeout_ms=timeout_ms)


@pytest.mark.asyncio
async def test_drill_is_not_done_before_it_has_compared(tmp_path: Path) -> None:
    """It was told to be, without any difference, between JOIN and the comparison."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        assert (await world.restore()).state is RestoreState.DONE
        session = Watched(world)
        request = RestoreRequest(RESTORE_ID, dry_run=True)
        given = [node.address for node in world.nodes]
        drill = await session.restoring.begin(Work.DRILL, request, given=given, by="ann")
        await asyncio.gather(*world.tasks)
        assert (drill.state, drill.step, drill.differences) == (RestoreState.DONE, RestoreStep.DONE, [])
        assert len(session.states) > 1
        assert set(session.states) == {RestoreState.RUNNING}


@pytest.mark.asyncio
async def test_drill_over_an_empty_zookeeper_has_compared_nothing(tmp_path: Path) -> None:
    """Without a difference, a drill that runs each month would be taken for a proof that a restore is not needed."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        request = RestoreRequest(RESTORE_ID, dry_run=True)
        given = [node.address for node in world.nodes]
        drill = await world.restoring().begin(Work.DRILL, request, given=given, by="ann")
        await asyncio.gather(*world.tasks)
        assert drill.state is RestoreState.DONE
        (found,) = drill.differences
        assert "nothing was compared: restore the records by" in found
