"""What the record of the cluster says after a restore, whatever became of it before."""

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.formats.ledger_page import decode_page
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position
from oncelog.core.placement.level import Level
from oncelog.core.process_version import FIRST_VERSION, PROCESS_VERSION
from oncelog.core.rebuild.restore_events import RestoreRequest
from oncelog.core.retention.paging import PageSettings
from oncelog.metadata.restore import performer
from oncelog.metadata.restore.progress import RestoreProgress, RestoreState
from oncelog.metadata.restore.restoring import Work
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterStore, Rights, encode_cluster
from oncelog.metadata_store.records.registry import encode_cookie
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import Fired, Znode
from tests.contract.node.directory.small_log import CLUSTER
from tests.contract.restore.restoring_world import RESTORE_ID, TOPIC, cookie_of, restoring_world
from tests.contract.restore.test_restore import Claiming, Uncommitted
from tests.contract.storage_client import ledger_world
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = pytest.mark.asyncio


@pytest.mark.hazard("revoked-right-returns")
async def test_what_was_noted_of_the_cluster_after_the_survey_counts(tmp_path: Path) -> None:
    """Rights were closed, and a restore before was beyond the bound."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        record = ClusterRecord(CLUSTER, rights=Rights.CLOSED, ack_quorum=2, gave_up_in=1)
        later = partial(world.note, paths.CLUSTER, encode_cluster(record), version=3)
        progress = await world.restore(world.restoring(Claiming(world, later)))
        assert progress.state is RestoreState.DONE
        cluster = world.record("/cluster")
        assert (cluster["rights"], cluster["gave_up_in"]) == ("closed", 1)


@pytest.mark.hazard("revoked-right-returns")
async def test_loss_beyond_the_bound_is_known_although_zookeeper_is_lost_before_it_was_noted(tmp_path: Path) -> None:
    """The cluster has served for less than a minute. What it gave up stays given up, and rights stay closed."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        lost = world.members[1:]
        async with world.stopped(world.nodes[1:]):
            first = await world.restore(given=world.nodes[:1], absent=lost, accepted=("all",))
            assert (first.state, first.rights_closed) == (RestoreState.DONE, True)
            given_up = world.record(f"/era-2/topics/{TOPIC}")["given_up_behind"]
            await world.nodes[0].runner.join_era(Era(2, RESTORE_ID))
            world.tree = MemoryTree()
            second = await world.restore(given=world.nodes[:1], absent=lost, restore_id="2" * 32)
        assert (second.state, second.gives_up, second.rights_closed) == (RestoreState.DONE, False, True), second.message
        cluster, policies = world.record("/cluster"), world.record("/era-3/policies/namespaces/public/default")
        assert (cluster["rights"], cluster["gave_up_in"]) == ("closed", 2)
        assert (policies.get("permissions"), policies["closed_permissions"]) == (None, {"ann": ["produce"]})
        assert world.record(f"/era-3/topics/{TOPIC}")["given_up_behind"] == given_up


@pytest.mark.hazard("copy-of-an-attempt")
async def test_copy_of_a_restore_that_was_not_committed_is_not_used_after_a_later_one(tmp_path: Path) -> None:
    """The attempt in era 2 gave up two nodes. They came back, and era 3 served with them. Now they are lost."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        lost = world.members[1:]
        async with world.stopped(world.nodes[1:]):
            attempt = world.restoring(Uncommitted(world.tree, root="/oncelog"))
            await world.restore(attempt, given=world.nodes[:1], absent=lost, accepted=("all",))
        world.tree = MemoryTree()
        second = await world.restore(restore_id="2" * 32)
        assert (second.state, second.era, second.gives_up) == (RestoreState.DONE, 3, False)
        for node in world.nodes:
            await node.runner.join_era(Era(3, "2" * 32))
        world.tree = MemoryTree()
        async with world.stopped(world.nodes[1:]):
            third = await world.restore(given=world.nodes[:1], absent=lost, accepted=("all",), restore_id="3" * 32)
        assert (third.state, third.era, len(third.copies)) == (RestoreState.DONE, 4, 1), third.message
        assert (third.gives_up, third.rights_closed) == (True, True)


@pytest.mark.hazard("copy-of-an-attempt")
async def test_nodes_that_an_attempt_has_retired_count_when_it_is_repeated(tmp_path: Path) -> None:
    """The attempt named two of three nodes and has written its records, but was not committed. They are still away, and
    are not named this time."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        async with world.stopped(world.nodes[1:]):
            attempt = world.restoring(Uncommitted(world.tree, root="/oncelog"))
            await world.restore(attempt, given=world.nodes[:1], absent=world.members[1:], accepted=("all",))
            assert world.record(f"/era-2/storage_cookies/{world.members[1]}")["retired"] is True
            second = await world.restore(given=world.nodes[:1], accepted=("all",))
        assert (second.state, "1 of 3 storage nodes" in second.message) == (RestoreState.REFUSED, True)


@pytest.mark.hazard("copy-of-an-attempt")
async def test_restore_that_is_resumed_is_committed_only_with_a_copy_of_its_own(tmp_path: Path) -> None:
    """The attempt before had other answers, and its copy stays: a later restore would take it for what has served."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        await world.write(9, 2, former=Position(LedgerId(4), EntryId(3)), to=world.nodes[1:])
        async with world.stopped(world.nodes[1:]):
            attempt = world.restoring(Uncommitted(world.tree, root="/oncelog"))
            await world.restore(attempt, given=world.nodes[:1], absent=world.members[1:], accepted=("all",))
        for node in world.nodes:
            node.copies_room = 0
        full = await world.restore()
        assert full.state is RestoreState.FAILED
        assert "no copy of the restored records" in full.message
        assert world.record("/cluster")["state"] == "restoring"
        for node in world.nodes:
            node.copies_room = 1 << 20
        second = await world.restore()
        assert (second.state, second.era, second.warnings[1:]) == (RestoreState.DONE, 2, [])
        for node in world.nodes:
            await node.runner.join_era(Era(2, RESTORE_ID))
        world.tree = MemoryTree()
        third = await world.restore(restore_id="2" * 32)
        assert (third.state, third.era) == (RestoreState.DONE, 3)
        assert world.record(f"/era-3/topics/{TOPIC}")["ledgers"] == [[4, 0], [9, 0]]


@pytest.mark.hazard("copy-of-an-attempt")
async def test_of_two_restores_of_one_era_only_the_copy_of_the_committed_one_is_used(tmp_path: Path) -> None:
    """Each gave up the nodes of the other. Versions of two ZooKeepers say nothing of one another."""
    async with restoring_world(tmp_path) as world:
        first, *others = world.nodes
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        await world.write(9, 2, former=Position(LedgerId(4), EntryId(3)), to=others)
        async with world.stopped(others):
            for _ in range(2):
                attempt = world.restoring(Uncommitted(world.tree, root="/oncelog"))
                lost = await world.restore(attempt, given=[first], absent=world.members[1:], accepted=("all",))
                assert (lost.state, lost.era) == (RestoreState.FAILED, 2)
        world.tree = MemoryTree()
        async with world.stopped([first]):
            won = await world.restore(given=others, absent=world.members[:1], restore_id="2" * 32)
            assert (won.state, won.era) == (RestoreState.DONE, 2), won.message
        for node in world.nodes:
            await node.runner.join_era(Era(2, "2" * 32))
        world.tree = MemoryTree()
        third = await world.restore(restore_id="3" * 32)
        assert (third.state, third.era, len(third.copies)) == (RestoreState.DONE, 3, 1), third.message
        assert world.record(f"/era-3/topics/{TOPIC}")["ledgers"] == [[4, 0], [9, 0]]
        retired = [world.record(f"/era-3/storage_cookies/{node}").get("retired", False) for node in world.members]
        assert retired == [True, False, False]


async def test_clock_that_is_years_behind_makes_no_ledger_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the metadata service, after a power cut. Nothing but heads is left, which say no time."""
    long_ago_ms = 1_000_000_000_000
    monkeypatch.setattr(performer, "now_ms", lambda: long_ago_ms)
    monkeypatch.setattr(performer, "PageSettings", lambda: PageSettings(1, 1))
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        await world.write(9, 2, former=Position(LedgerId(4), EntryId(3)), to=world.nodes)
        assert (await world.restore()).state is RestoreState.DONE
        (page,) = world.tree.children(f"/oncelog/era-2/pages/{TOPIC}")
        restored = decode_page(world.tree.nodes[f"/oncelog/era-2/pages/{TOPIC}/{page}"].data)
        assert restored.ledgers[0].ended_ms > long_ago_ms + 365 * 86_400_000, "ZooKeeper's clock says so"


async def test_node_of_another_cluster_at_a_noted_address_does_not_stop_a_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage node was replaced years ago, and its machine is another cluster's now. A node of another cluster that
    the operator names is a mistake."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        monkeypatch.setattr(ledger_world, "CLUSTER", "d" * 32)
        async with ledger_world.nodes(tmp_path / "other", 1) as (other,):
            former = replace(cookie_of(other), incarnation=Incarnation("f" * 32), retired=True, emptied=True)
            await world.note(f"{paths.STORAGE_COOKIES}/{former.incarnation}", encode_cookie(former))
            refused = await world.restore(given=[*world.nodes, other])
            assert (refused.state, "are of one cluster" in refused.message) == (RestoreState.REFUSED, True)
            progress = await world.restore(given=world.nodes[:1])
            assert (progress.state, progress.message) == (RestoreState.DONE, "")
            (away,) = (each for each in progress.nodes if each.state != "used")
            assert (away.address, away.state) == (other.address, "silent")
            assert f"cluster {'d' * 32}" in away.reason
            assert other.runner.era == FIRST_ERA


async def test_level_of_a_cluster_that_nothing_names_is_not_that_of_the_program_which_restores_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of an upgrade by a later version: the processes of this one must still be able to start."""
    _, *others = ClusterRecord.__init__.__defaults__ or ()
    monkeypatch.setattr(ClusterRecord.__init__, "__defaults__", (Level(PROCESS_VERSION + 1), *others))
    async with restoring_world(tmp_path) as world:
        await world.write(4, 3, to=world.nodes)
        progress = await world.restore()
        assert (progress.state, progress.message) == (RestoreState.DONE, "")
        assert world.record("/cluster")["level"] == FIRST_VERSION


async def test_damaged_record_of_the_cluster_is_replaced_by_a_restore(tmp_path: Path) -> None:
    """Nothing can be served without it, and no record around it says what it was. Its note does."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        session = world.session()
        await ClusterStore(session).establish(CLUSTER)
        await session.write(paths.CLUSTER, b"garbage", version=0)
        shown = await world.restoring().progress(Work.RESTORE)
        assert shown.state is RestoreState.IDLE
        progress = await world.restore()
        assert (progress.state, progress.message) == (RestoreState.DONE, "")
        cluster = world.record("/cluster")
        assert (cluster["cluster_id"], cluster["era"], cluster["ack_quorum"]) == (CLUSTER, 2, 2)


@pytest.mark.parametrize("gone", ["/era-2", "/era-2/owners", "/era-2/storage", "/era-2/storage_cookies"])
async def test_cluster_whose_records_were_deleted_in_part_is_restored(tmp_path: Path, gone: str) -> None:
    """As by `deleteall`. The record of the cluster is there, and says that it serves."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        assert (await world.restore()).state is RestoreState.DONE
        root = f"/oncelog{gone}"
        for path in [each for each in world.tree.nodes if each == root or each.startswith(f"{root}/")]:
            del world.tree.nodes[path]
        again = await world.restore(restore_id="2" * 32)
        assert (again.state, again.era, again.message) == (RestoreState.DONE, 3, "")
        assert world.record(f"/era-3/topics/{TOPIC}")["ledgers"] == [[4, 0]]


async def test_drill_is_not_done_before_it_has_compared(tmp_path: Path) -> None:
    """Who looks meanwhile must not take it for one that has found nothing."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        assert (await world.restore()).state is RestoreState.DONE
        looked: list[RestoreState] = []

        class Looking(MemorySession):
            async def read(
                self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None
            ) -> Znode | None:
                if path == paths.CLUSTER and begun:
                    looked.append(begun[0].state)
                return await super().read(path, fired=fired, timeout_ms=timeout_ms)

        begun: list[RestoreProgress] = []
        restoring = world.restoring(Looking(world.tree, root="/oncelog"))
        given = [node.address for node in world.nodes]
        request = RestoreRequest("3" * 32, dry_run=True)
        begun.append(await restoring.begin(Work.DRILL, request, given=given, by="ann"))
        await asyncio.gather(*world.tasks)
        assert begun[0].state is RestoreState.DONE
        assert set(looked) == {RestoreState.RUNNING}
