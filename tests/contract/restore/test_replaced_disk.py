"""A restore of an emptied ZooKeeper after a disk was replaced: over storage nodes on real sockets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.era import FIRST_ERA
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position
from oncelog.core.rebuild.restore_plan import REPLACED
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.metadata.restore.progress import RestoreState
from oncelog.metadata.restore.tree_nodes import nodes_in_trees
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.registry import Registry, StorageCookie, encode_cookie
from oncelog.metadata_store.session import paths
from tests.contract.restore.restoring_world import NAME, TOPIC, RestoringWorld, cookie_of, restoring_world
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("replaced-disk-is-missing")]


@asynccontextmanager
async def replaced_disk(tmp_path: Path, *, emptied: bool = False) -> AsyncIterator[RestoringWorld]:
    """Nodes a, b, c, and d at the place of c. The newest ledger is acknowledged, and only at b and c."""
    async with restoring_world(tmp_path, 4) as world:
        every, (a, b, c, d) = world.members, world.nodes
        await world.note_cluster()
        world.members = every[:2] + every[3:]
        await world.write(4, 3, to=[a, b, d])
        world.members = every[:3]
        await world.write(5, 3, former=Position(LedgerId(4), EntryId(3)), to=[b, c])
        world.members = every
        cookie = replace(cookie_of(c), retired=True, replaced_by=d.incarnation, emptied=emptied)
        await world.note(paths.storage_cookie(c.incarnation), encode_cookie(cookie), version=1)
        async with world.stopped([c]):
            yield world


def listed(world: RestoringWorld) -> list[object]:
    """The ledgers of the log in the records of era 2."""
    ledgers = world.record(f"/era-2/topics/{TOPIC}")["ledgers"]
    assert isinstance(ledgers, list)
    return [each[0] for each in ledgers]


async def test_ledger_of_a_replaced_disk_and_a_silent_node_is_not_left_out(tmp_path: Path) -> None:
    async with replaced_disk(tmp_path) as world:
        a, b, _, d = world.nodes
        silent, c = world.members[1:3]
        async with world.stopped([b]):
            for dry_run in (True, False):
                progress = await world.restore(given=[a, d], dry_run=dry_run)
                assert progress.state is RestoreState.REFUSED
                assert f"{c} ({REPLACED})" in progress.message
                shown = {each.node: (each.state, each.reason) for each in progress.nodes if each.node}
                assert shown[c] == ("retired", REPLACED)
                assert shown[silent][0] == "silent"
        progress = await world.restore(given=[a, b, d])
        assert (progress.state, progress.message) == (RestoreState.DONE, "")
        assert not progress.gives_up
        assert listed(world) == [4, 5]
        cookie = world.record(f"/era-2{paths.storage_cookie(c)}")
        assert (cookie["retired"], cookie["emptied"]) == (True, False), "repair has not copied yet"


async def test_emptied_disk_is_not_missing(tmp_path: Path) -> None:
    """Repair had copied all that it had. This one is said to be emptied, so its ledgers are looked for nowhere."""
    async with replaced_disk(tmp_path, emptied=True) as world:
        a, b, _, d = world.nodes
        c = world.members[2]
        async with world.stopped([b]):
            progress = await world.restore(given=[a, d])
        assert progress.state is RestoreState.DONE
        assert listed(world) == [4]
        assert c not in {each.node for each in progress.nodes}
        assert world.record(f"/era-2{paths.storage_cookie(c)}")["emptied"]


@pytest.mark.hazard("refilled-member")
async def test_emptied_disk_is_not_waited_for(tmp_path: Path) -> None:
    """The head of a last ledger names it: of the other two members one is silent, which is within the bound."""
    async with replaced_disk(tmp_path, emptied=True) as world:
        a, b, _, d = world.nodes
        every = world.members
        world.members = every[:3]
        await world.write(6, 3, former=Position(LedgerId(4), EntryId(3)), to=[a])
        world.members = every
        async with world.stopped([b]):
            progress = await world.restore(given=[a, d])
        assert (progress.state, progress.message) == (RestoreState.DONE, "")
        assert listed(world) == [4, 6]
        assert world.record("/era-2/ledgers/6")["state"] == "CLOSED"


async def test_replaced_disk_that_is_given_up_is_told(tmp_path: Path) -> None:
    """Beyond the bound every topic gives up. Within it nothing is, and the disk is missing until repair has ended."""
    async with replaced_disk(tmp_path) as world:
        a, b, _, d = world.nodes
        c = world.members[2]
        async with world.stopped([b]):
            progress = await world.restore(given=[a, d], absent=(c,), accepted=(NAME,))
        assert (progress.state, progress.gives_up, progress.rights_closed) == (RestoreState.DONE, True, True)
        assert {each.node: each.state for each in progress.nodes if each.node}[c] == "absent"
        assert world.record(f"/era-2{paths.storage_cookie(c)}")["emptied"]
    async with replaced_disk(tmp_path / "within") as world:
        a, b, _, d = world.nodes
        c = world.members[2]
        progress = await world.restore(given=[a, b, d], absent=(c,))
        assert (progress.state, progress.gives_up) == (RestoreState.DONE, False)
        assert listed(world) == [4, 5]
        assert not world.record(f"/era-2{paths.storage_cookie(c)}")["emptied"]


async def test_records_of_the_tree_say_which_nodes_are_replaced() -> None:
    """Where ZooKeeper is only older. Those of a restore that was not committed may have retired a node that serves:
    that one counts as if it were not."""
    a, b, c = (Incarnation(letter * 32) for letter in "abc")
    session = MemorySession(MemoryTree(), root="/oncelog")
    await ClusterStore(session).establish("test")
    other = session.below("/era-3")
    for folder in (paths.STORAGE, paths.STORAGE_COOKIES):
        await other.ensure_path(folder)
    retired = StorageCookie(a, "n1", 6652, retired=True)
    await Registry(session).write_cookie(retired, version=ABSENT_VERSION)
    await Registry(session).write_cookie(replace(retired, incarnation=b, emptied=True), version=ABSENT_VERSION)
    await Registry(other).write_cookie(replace(retired, incarnation=c), version=ABSENT_VERSION)
    _, knowledge = await nodes_in_trees(session, FIRST_ERA)
    assert knowledge.nodes == {a: True, b: False, c: True}
    assert knowledge.replaced == {a}
