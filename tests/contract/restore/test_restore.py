"""A metadata service restores an emptied ZooKeeper from storage nodes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from oncelog.core.access import Caller, Right
from oncelog.core.era import Era
from oncelog.core.errors import Conflict, PermissionDenied
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog.core.names import NamespaceName
from oncelog.core.rebuild.restore_events import RestoreRequest
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.restore.new_tree import NewTree
from oncelog.metadata.restore.progress import RestoreState
from oncelog.metadata.restore.restoring import Work
from oncelog.metadata.restore.rights import ClosedGrant, ClosedRights, RightsReport
from oncelog.metadata.restore.tree_writer import FencedError, TreeWriter
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterStore, Rights
from oncelog.metadata_store.records.namespace_store import NamespaceStore
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import Step, WriteResult, Znode
from tests.contract.node.directory.small_log import CLUSTER
from tests.contract.restore.restoring_world import (
    NAME,
    OWNER,
    RESTORE_ID,
    TOPIC,
    RestoringWorld,
    cookie_of,
    restoring_world,
)
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = pytest.mark.asyncio


async def test_emptied_zookeeper_is_restored_from_heads_and_notes(tmp_path: Path) -> None:
    """Two ledgers of one log, a deleted topic, a right. Nothing is left in ZooKeeper."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        await world.write(9, 2, former=Position(LedgerId(4), EntryId(3)), to=world.nodes[:2])
        await world.note(f"{paths.TOMBSTONES}/{'ab' * 16}", b"")
        progress = await world.restore()
        assert (progress.state, progress.message) == (RestoreState.DONE, "")
        assert (progress.era, progress.topics, progress.ledgers) == (2, 1, 2)
        assert progress.records_written == progress.records > 20
        cluster = world.record("/cluster")
        assert (cluster["era"], cluster["state"], cluster["rights"]) == (2, "serving", "open")
        topic = world.record(f"/era-2/topics/{TOPIC}")
        assert topic["name"] == NAME
        assert topic["owner"] is None
        assert topic["ledgers"] == [[4, 0], [9, 0]]
        assert world.record("/era-2/names/public/default/orders")["topic_id"] == TOPIC
        closed, last = world.record("/era-2/ledgers/4"), world.record("/era-2/ledgers/9")
        assert (closed["state"], closed["end"], closed["whole"]) == ("CLOSED", 3, False)
        assert last["state"] == "OPEN"
        assert world.record("/era-2/ids/ledger")["next"] == 2 << 40
        assert world.record("/era-2/policies/namespaces/public/default")["permissions"] == {"ann": ["produce"]}
        assert f"/oncelog/era-2/tombstones/{'ab' * 16}" in world.tree.nodes
        assert set(world.tree.children("/oncelog/era-2/storage_cookies")) == set(world.members)
        assert OWNER not in world.tree.children("/oncelog/era-2/owners")


@pytest.mark.hazard("left-out-ledger-returns")
async def test_restore_keeps_a_copy_by_which_the_next_one_leaves_out_the_same_ledgers(tmp_path: Path) -> None:
    """Ledger 9 is at one node only, which the first restore does not reach. It serves only once the copy has a
    place."""
    async with restoring_world(tmp_path) as world:
        *asked, late = world.nodes
        await world.note_cluster()
        await world.write(4, 3, to=asked)
        await world.write(9, 2, former=Position(LedgerId(4), EntryId(1)), to=[late])
        for node in world.nodes:
            node.copies_room = 0
        async with world.stopped([late]):
            full = await world.restore()
            assert (full.state, "no copy of the restored records" in full.message) == (RestoreState.FAILED, True)
            assert world.record("/cluster")["state"] == "restoring"
            for node in world.nodes:
                node.copies_room = 1 << 20
            first = await world.restore()
        assert (first.state, first.reviews) == (RestoreState.DONE, [])
        for node in asked:  # they have joined the cluster
            await node.runner.join_era(Era(2, RESTORE_ID))
        world.tree = MemoryTree()
        second = await world.restore(restore_id="2" * 32)
        assert (second.state, second.era, len(second.copies)) == (RestoreState.DONE, 3, 1)
        assert world.record(f"/era-3/topics/{TOPIC}")["ledgers"] == [[4, 0]]
        assert world.record("/era-3/ledgers/4")["state"] == "OPEN"


class Failing(MemorySession):
    """Calls `fail` before one of its transactions."""

    def __init__(self, world: RestoringWorld, *, before: int, fail: Callable[[MemorySession], None]) -> None:
        super().__init__(world.tree, root="/oncelog")
        self._before = before
        self._fail = fail
        self._transactions = 0

    async def transact(self, steps: Sequence[Step], *, timeout_ms: int | None = None) -> WriteStatus:
        if self._transactions == self._before:
            self._fail(self)
        self._transactions += 1
        return await super().transact(steps, timeout_ms=timeout_ms)


async def test_restore_whose_performer_dies_while_it_writes_is_resumed_under_its_id(tmp_path: Path) -> None:
    """The second performer was answered by other nodes, so what the first one has written goes."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        await world.write(9, 2, former=Position(LedgerId(4), EntryId(3)), to=world.nodes[1:])
        dying = Failing(world, before=3, fail=lambda session: session.faults.close())
        first = await world.restore(world.restoring(dying), restore_id="2" * 32)
        assert first.state is RestoreState.FAILED
        assert "oncelog admin backup restore" in first.message
        assert world.record("/cluster")["state"] == "restoring"
        assert world.tree.children("/oncelog/era-2"), "some records are there"
        world.tree.nodes["/oncelog/era-2/ledgers"] = Znode(b"", 0)
        world.tree.nodes["/oncelog/era-2/ledgers/77"] = Znode(b"of an earlier answer", 0)
        shown = await world.restoring().progress(Work.RESTORE)
        assert shown.state is RestoreState.INTERRUPTED
        second = await world.restore()
        assert (second.state, second.restore_id, second.era) == (RestoreState.DONE, "2" * 32, 2)
        assert world.tree.children("/oncelog/era-2/ledgers") == ["4", "9"]
        done = await world.restoring().progress(Work.RESTORE)
        assert done.state is RestoreState.DONE, "any metadata service shows it"


class Uncommitted(MemorySession):
    """Is lost before the COMMIT."""

    async def write(self, path: str, data: bytes, *, version: int, timeout_ms: int | None = None) -> WriteResult:
        if path == paths.CLUSTER and b'"serving"' in data:
            self.faults.close()
        return await super().write(path, data, version=version, timeout_ms=timeout_ms)


@pytest.mark.hazard("copy-of-an-attempt")
@pytest.mark.parametrize("lost", [False, True])
async def test_copy_of_a_restore_that_was_not_committed_is_not_used(tmp_path: Path, *, lost: bool) -> None:
    """One node of three was there, so the attempt gave up the others, which have acknowledged messages. They come back
    before it is repeated. lost: ZooKeeper is lost again between the two."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        await world.write(9, 2, former=Position(LedgerId(4), EntryId(3)), to=world.nodes[1:])
        async with world.stopped(world.nodes[1:]):
            session = Uncommitted(world.tree, root="/oncelog")
            first = await world.restore(
                world.restoring(session), given=world.nodes[:1], absent=world.members[1:], accepted=("all",)
            )
            assert (first.state, first.gives_up) == (RestoreState.FAILED, True)
        if lost:
            world.tree = MemoryTree()
        second = await world.restore(restore_id="2" * 32)
        era = 3 if lost else 2
        assert (second.state, second.era, second.gives_up, second.copies) == (RestoreState.DONE, era, False, [])
        assert any("was not committed" in warning for warning in second.warnings)
        assert world.record(f"/era-{era}/topics/{TOPIC}")["ledgers"] == [[4, 0], [9, 0]]
        assert world.record(f"/era-{era}/policies/namespaces/public/default")["permissions"] == {"ann": ["produce"]}
        cookies = [world.record(f"/era-{era}/storage_cookies/{node}") for node in world.members]
        assert not any(cookie.get("retired") for cookie in cookies)


async def test_performer_that_was_replaced_writes_nothing_more(tmp_path: Path) -> None:
    """It was suspended; each of its transactions checks the version of the cluster's record."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        session = world.session()
        await session.ensure_path("/era-2")
        cluster = ClusterStore(session)
        await cluster.write(ClusterRecord("c" * 32), version=-1)
        writer = TreeWriter(session, 0, on_progress=lambda _: None)
        tree = NewTree()
        tree.put("/topics", b"")
        await writer.write("/era-2", tree)
        await cluster.write(ClusterRecord("c" * 32), version=0)
        tree.put("/topics/a", b"late")
        with pytest.raises(FencedError):
            await writer.write("/era-2", tree)
        with pytest.raises(FencedError):
            await writer.remove("/era-2", root="/era-2")
        assert world.tree.children("/oncelog/era-2/topics") == []


async def test_records_of_the_former_era_are_kept_and_older_ones_go(tmp_path: Path) -> None:
    """An operator may look at the former ones. The era that was claimed and never committed goes, too."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        await ClusterStore(world.session()).establish(CLUSTER)
        for number in (2, 3, 4):
            # Another one began the same era elsewhere, so this one takes the next.
            if number == 3:
                await world.session().ensure_path("/era-2/left")
            progress = await world.restore(restore_id=str(number) * 32, take_over=True, ends_era=number - 1)
            assert (progress.state, progress.era) == (RestoreState.DONE, number)
            eras = {name for name in world.tree.children("/oncelog") if name.startswith("era-")}
            assert eras == {f"era-{each}" for each in (number - 1, number) if each > 1}
            assert ("topics" in world.tree.children("/oncelog")) is (number == 2)
        assert world.record("/cluster")["state"] == "serving"


async def test_two_metadata_services_do_not_perform_one_restore(tmp_path: Path) -> None:
    """The second one shows what the first one does."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        first, second = world.restoring(), world.restoring()
        request = RestoreRequest("1" * 32)
        given = [node.address for node in world.nodes]
        await first.begin(Work.RESTORE, request, given=given, by="ann")
        with pytest.raises(Conflict, match=r"since 20\d\d-.* UTC, for ann"):
            await second.begin(Work.RESTORE, request, given=given, by="bob")
        with pytest.raises(Conflict, match="this metadata service restores since"):
            await first.begin(Work.RESTORE, replace(request, dry_run=True), given=given, by="ann")
        with pytest.raises(Conflict, match=r"with other options since .* UTC, for ann"):
            await first.begin(Work.RESTORE, replace(request, accepted=("all",)), given=given, by="bob")
        same = await first.begin(Work.RESTORE, replace(request, restore_id="2" * 32), given=given, by="bob")
        assert (same.by, same.joined) == ("ann", 1)
        assert (await second.progress(Work.RESTORE)).by == "ann"
        progress = await world.restore(first)
        assert progress.state is RestoreState.DONE


async def test_answer_of_a_transaction_that_was_lost_changes_nothing(tmp_path: Path) -> None:
    """It was applied: the records tell so, and the next ones follow."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        session = Failing(world, before=3, fail=lambda session: session.faults.lose_next_reply())
        progress = await world.restore(world.restoring(session))
        assert progress.state is RestoreState.DONE


@pytest.mark.hazard("revoked-right-returns")
async def test_rights_are_closed_when_too_few_nodes_were_asked_until_they_are_confirmed(tmp_path: Path) -> None:
    """A revocation that only the missing nodes have noted must not come undone. A grant that is made meanwhile counts,
    and stays."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        absent = world.members[1:]
        async with world.stopped(world.nodes[1:]):
            look = await world.restore(given=world.nodes[:1], absent=absent, accepted=("all",), dry_run=True)
            progress = await world.restore(given=world.nodes[:1], absent=absent, accepted=("all",))
        assert (progress.state, progress.message) == (RestoreState.DONE, "")
        for each in (look, progress):
            assert (each.gives_up, each.rights_closed) == (True, True)
        assert {each.node: each.state for each in progress.nodes if each.node} == {
            world.members[0]: "used", world.members[1]: "absent", world.members[2]: "absent",
        }  # fmt: skip
        assert world.record("/cluster")["rights"] == "closed"
        assert [world.record(f"/era-2/storage_cookies/{node}")["retired"] for node in absent] == [True, True]
        session = MemorySession(world.tree, root="/oncelog/era-2")
        policies, namespace = PolicyStore(session), NamespaceName("public", "default")
        rights = ClosedRights(ClusterStore(world.session()), NamespaceStore(session), policies)
        with pytest.raises(PermissionDenied):
            await policies.require(Caller("ann"), namespace, Right.PRODUCE)
        grant = {"bob": ("consume",)}
        await policies.change(namespace, lambda old: replace(old, permissions=grant))
        report = await rights.report()
        assert report == RightsReport(Rights.CLOSED, (ClosedGrant("public/default", "ann", ("produce",), ()),))
        assert await rights.confirm() == replace(report, state=Rights.OPEN)
        await PolicyStore(session).require(Caller("ann"), namespace, Right.PRODUCE)
        assert (await policies.read(namespace)).value.permissions == {"ann": ("produce",), "bob": ("consume",)}
        assert await rights.report() == RightsReport(Rights.OPEN, ())


async def test_topics_give_up_what_only_the_missing_nodes_had(tmp_path: Path) -> None:
    """The owner jumps both chains behind these ledgers."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        async with world.stopped(world.nodes[1:]):
            progress = await world.restore(given=world.nodes[:1], absent=world.members[1:], accepted=("all",))
        assert progress.state is RestoreState.DONE
        given_up = {"log": 4, "acks": 0, "by": "ann"}
        assert world.record(f"/era-2/topics/{TOPIC}")["given_up_behind"] == given_up
        # ZooKeeper is lost again before any owner has said it: the nodes that are missing do not count any more
        cluster, era = world.tree.nodes["/oncelog/cluster"].data, Era(2, RESTORE_ID)
        cookies = {node: world.tree.nodes[f"/oncelog/era-2/storage_cookies/{node}"].data for node in world.members[1:]}
        world.tree = MemoryTree()
        async with world.stopped(world.nodes[1:]):
            await world.note("/cluster", cluster, era=era, to=world.nodes[:1])
            for node, retired in cookies.items():
                await world.note(f"/storage_cookies/{node}", retired, era=era, to=world.nodes[:1])
            progress = await world.restore(given=world.nodes[:1], absent=world.members[1:], restore_id="2" * 32)
        assert (progress.state, progress.gives_up) == (RestoreState.DONE, False), progress.message
        assert world.record(f"/era-3/topics/{TOPIC}")["given_up_behind"] == given_up
        assert world.record("/cluster")["gave_up_in"] == 2


@pytest.mark.hazard("unnoted-member")
async def test_node_that_only_notes_name_is_found_by_its_noted_address(tmp_path: Path) -> None:
    """The operator gives one address."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        progress = await world.restore(given=world.nodes[:1])
        assert progress.state is RestoreState.DONE
        assert [each.state for each in progress.nodes] == ["used"] * 3


async def register(world: RestoringWorld, era: int) -> None:
    """The storage nodes have joined the era."""
    registry = Registry(MemorySession(world.tree, root=f"/oncelog/era-{era}"))
    for node in world.nodes:
        cookie = cookie_of(node)
        live = LiveStorageNode(node.incarnation, cookie.host, cookie.port, 1 << 30, read_only=False)
        await registry.register_storage_node(live).establish()


@pytest.mark.hazard("clone-meets-production")
async def test_finished_restore_that_is_repeated_leaves_the_cluster_alone(tmp_path: Path) -> None:
    """Its storage nodes have joined the era. Another one needs that era."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        assert (await world.restore()).state is RestoreState.DONE
        await register(world, 2)
        store = ClusterStore(world.session())
        found = await store.find()
        assert found is not None
        await store.write(replace(found.value, rights=Rights.CLOSED), version=found.version)
        again = await world.restore(restore_id="2" * 32)
        assert again.rights_closed, "who has lost the first answer must not think that all is done"
        assert (again.state, again.era, again.restore_id) == (RestoreState.DONE, 2, RESTORE_ID)
        assert again.message.startswith("already restored, era 2: nothing to do. If records are damaged")
        assert again.records == 0
        refused = await world.restore(restore_id="2" * 32, take_over=True)
        assert refused.state is RestoreState.REFUSED
        assert "--ends-era 2" in refused.message
        assert world.record("/cluster")["era"] == 2
        taken = await world.restore(restore_id="2" * 32, take_over=True, ends_era=2)
        assert (taken.state, taken.era) == (RestoreState.DONE, 3)


async def test_each_node_is_listed_once_and_empty_ones_are_no_nodes_yet(tmp_path: Path) -> None:
    """A node that has moved left its former address in ZooKeeper. An empty directory has a health port only."""
    async with restoring_world(tmp_path) as world, directory_of(None) as empty:
        await world.note_cluster()
        await world.write(4, 3, to=world.nodes)
        await ClusterStore(world.session()).establish(CLUSTER)
        for node, port in ((world.nodes[0], 1), (world.nodes[2], 2)):
            former = replace(cookie_of(node), host="127.0.0.1", port=port)
            await Registry(world.session()).write_cookie(former, version=ABSENT_VERSION)
        async with world.stopped(world.nodes[2:]):
            progress = await world.restore(given=world.nodes[:2], also=[empty], dry_run=True)
        shown = {each.node: (each.state, bool(each.reason)) for each in progress.nodes}
        states = [("used", False), ("used", False), ("silent", True)]
        assert shown == dict(zip(world.members, states, strict=True))
        assert len(progress.nodes) == 3, progress.nodes


async def test_node_that_still_reads_its_directory_says_so() -> None:
    """With many ledgers that takes a while. Its health port answers from the start."""
    async with directory_of(CLUSTER) as starting:
        progress = await RestoringWorld([]).restore(also=[starting])
    assert "no storage node with data has answered" in progress.message
    [node] = progress.nodes
    assert (node.state, "reads its directory" in node.reason) == ("silent", True), node


@asynccontextmanager
async def directory_of(cluster_id: str | None) -> AsyncIterator[str]:
    """The health port of a storage node that serves no calls. None: its directory is empty."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps({"cluster_id": cluster_id, "address": None}).encode())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_no_node_at_all_says_what_to_give() -> None:
    """Also a wrong port."""
    progress = await RestoringWorld([]).restore()
    assert progress.state is RestoreState.REFUSED
    assert "--nodes HOST:PORT" in progress.message


class Claiming(MemorySession):
    """Does something before the cluster's record is written first: the survey is over."""

    def __init__(self, world: RestoringWorld, before: Callable[[], Awaitable[None]]) -> None:
        super().__init__(world.tree, root="/oncelog")
        self._before: Callable[[], Awaitable[None]] | None = before

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, timeout_ms: int | None = None
    ) -> WriteStatus:
        if path == paths.CLUSTER and self._before is not None:
            before, self._before = self._before, None
            await before()
        return await super().create(path, data, ephemeral=ephemeral, timeout_ms=timeout_ms)


@pytest.mark.hazard("unnoted-member")
async def test_node_that_joined_after_the_survey_is_raised_too(tmp_path: Path) -> None:
    """Two nodes were asked. Behind its record of the era one of them has a note of the third."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster(world.nodes[:2])
        await world.write(4, 3, to=world.nodes[:2])
        session = Claiming(world, partial(world.note_cookie, world.nodes[2], to=world.nodes[:1]))
        progress = await world.restore(world.restoring(session), given=world.nodes[:2])
        assert progress.state is RestoreState.DONE
        assert [node.runner.era.number for node in world.nodes] == [2, 2, 2]


async def test_node_that_only_an_old_tree_names_counts(tmp_path: Path) -> None:
    """ZooKeeper came back some hours old, and one node alone has notes."""
    async with restoring_world(tmp_path) as world:
        await world.note_cluster(world.nodes[:1])
        session = world.session()
        await ClusterStore(session).establish(CLUSTER)
        for node in world.nodes:
            await Registry(session).write_cookie(cookie_of(node), version=ABSENT_VERSION)
        async with world.stopped(world.nodes[1:]):
            progress = await world.restore(given=())
        assert progress.state is RestoreState.REFUSED
        assert "1 of 3 storage nodes can be used" in progress.message
