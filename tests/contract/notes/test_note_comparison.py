"""The elected metadata service makes all storage nodes hold the notes of what ZooKeeper has."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.era import Era
from oncelog.core.errors import StoreUnavailable
from oncelog.core.formats.note import VALUE_BYTES_MAX, Note, digest_of
from oncelog.core.names import NamespaceName, TopicName
from oncelog.metadata.repair.note_digests import NoteDigests
from oncelog.metadata.repair.storage_nodes_reader import StorageNodesReader
from oncelog.metadata_store.notes.note_comparison import NoteComparison
from oncelog.metadata_store.notes.noted_records import NotedRecords
from oncelog.metadata_store.records.cluster_store import ClusterState, ClusterStore
from oncelog.metadata_store.records.deletion_store import DeletionStore
from oncelog.metadata_store.records.json_records import FORMAT, encode_record
from oncelog.metadata_store.records.namespace_store import NamespaceStore
from oncelog.metadata_store.records.policies import Policies
from oncelog.metadata_store.records.policy_store import CLUSTER, PolicyStore
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.runtime.credentials import PLAIN
from oncelog.storage_client.node_calls import NodeCalls
from tests.cluster.until import until
from tests.contract.notes.noting_world import NotingWorld, noting, noting_world

pytestmark = pytest.mark.asyncio

TOPIC = TopicName("public", "default", "orders")
OTHER = NamespaceName("public", "other")
ERA = Era(2, "2" * 32)


@asynccontextmanager
async def compared(tmp_path: Path, count: int = 2) -> AsyncIterator[tuple[NotingWorld, NoteComparison]]:
    async with noting_world(tmp_path, count) as world:
        comparison = NoteComparison(world.open())
        try:
            yield world, comparison
        finally:
            await comparison.close()


async def require_whole(world: NotingWorld, comparison: NoteComparison) -> dict[str, Note]:
    """Every node holds what ZooKeeper has, and the comparison knows that. Returns the notes of the first node."""
    await comparison.round()
    assert comparison.whole == {node.incarnation: True for node in world.members}
    records = NotedRecords(world.session)
    async for _ in records.refresh(await ClusterStore(world.session).require()):
        pass
    held = [await world.held(node) for node in world.members]
    assert all(digest_of(some.values()) == records.digest for some in held)
    return held[0]


@pytest.mark.hazard("holders-fade")
async def test_nodes_get_what_they_lack(tmp_path: Path) -> None:
    """Of the time before level 8, of topics that were created by use, and of a node whose note was lost."""
    async with compared(tmp_path) as (world, comparison), noting(world) as session:
        topics = TopicStore(world.session)
        await topics.create(TOPIC)
        assert paths.topic_name(TOPIC) in await require_whole(world, comparison)
        for number in range(70):
            await topics.create(replace(TOPIC, local=f"by-use-{number}"))
        assert len(await require_whole(world, comparison)) >= 71
        await PolicyStore(session).change(CLUSTER, lambda one: replace(one, deduplication=False))
        await require_whole(world, comparison)
        lost = world.members[1].runner.journal.index
        for path in list(await world.held(world.members[1])):
            held = lost.notes.get(path)
            assert held is not None
            lost.drop_note(path, held.place)
        await require_whole(world, comparison)


@pytest.mark.hazard("revoked-right-returns")
async def test_deletions_that_nobody_noted_become_notes(tmp_path: Path) -> None:
    """The service that deleted them ended before it noted that. A name that was made again has its new note."""
    async with compared(tmp_path) as (world, comparison):
        topics, namespaces, deletions = (
            TopicStore(world.session),
            NamespaceStore(world.session),
            DeletionStore(world.session),
        )
        await namespaces.create_namespace(OTHER)
        await topics.create(TOPIC)
        await topics.create(replace(TOPIC, local="again"))
        before = await require_whole(world, comparison)
        await namespaces.delete_namespace(OTHER)
        for name in (TOPIC, replace(TOPIC, local="again")):
            await deletions.end(await deletions.begin(name), name)
        await topics.create(replace(TOPIC, local="again"))
        after = await require_whole(world, comparison)
        for path in (paths.namespace_policies(OTHER), paths.topic_name(TOPIC)):
            assert after[path].order == before[path].order._replace(deleted=True)
        again = paths.topic_name(replace(TOPIC, local="again"))
        assert after[again].order > before[again].order


@pytest.mark.hazard("holders-fade")
@pytest.mark.parametrize("whole", [True, False])
async def test_damaged_notes_of_deletions_come_back_from_other_nodes(tmp_path: Path, *, whole: bool) -> None:
    """A node that has the right is away. The deletion is noted on the two others, and one of these loses its note: a
    restore that asks it and the one that returns would bring the right back. whole: False: a record that cannot be
    noted keeps the nodes from being equal to ZooKeeper."""
    async with compared(tmp_path, 3) as (world, comparison), noting(world) as session:
        store = NamespaceStore(session)
        names = [replace(OTHER, namespace=f"other-{number}") for number in range(3)]
        for each in names:
            await store.create_namespace(each)
        await require_whole(world, comparison)
        away, damaged, sound = world.members
        await world.leave(away.incarnation)
        for each in names:
            await store.delete_namespace(each)
        index = damaged.runner.journal.index
        for each in names[1:]:
            held = index.notes.get(paths.namespace_policies(each))
            assert held is not None
            assert held.order.deleted
            index.drop_note(paths.namespace_policies(each), held.place)
        calls = NodeCalls()
        digests, reader = NoteDigests(ClusterStore(world.session), calls), StorageNodesReader(world.registry, calls)
        if not whole:
            large = b"x" * (VALUE_BYTES_MAX + 1)
            await world.session.write(paths.namespace_policies(TOPIC.namespace_name), large, version=0)
        assert "differ" in (await digests.refusal(sound.incarnation, await reader.look()) or "")
        await comparison.round()
        assert comparison.whole == {damaged.incarnation: whole, sound.incarnation: whole}
        found = await world.held(damaged)
        assert all(found[paths.namespace_policies(each)].order.deleted for each in names)
        assert (
            await digests.refusal(sound.incarnation, await reader.look()) == "only 1 of 2 other storage nodes hold "
            "the notes of all records"
        )
        await calls.close()


@pytest.mark.hazard("holders-fade")
async def test_nodes_that_noted_different_states_before_a_deletion_hold_the_same_note_of_it(tmp_path: Path) -> None:
    """Nobody noted the deletion, so each node gets one of the state that it has."""
    async with compared(tmp_path) as (world, comparison):
        await NamespaceStore(world.session).create_namespace(OTHER)
        await require_whole(world, comparison)
        await world.leave(world.members[1].incarnation)
        await PolicyStore(world.session).change(OTHER, lambda one: replace(one, deduplication=False))
        await comparison.round()
        await NamespaceStore(world.session).delete_namespace(OTHER)
        await world.join(world.members[1], cookie=False)
        await require_whole(world, comparison)
        first, second = [(await world.held(node))[paths.namespace_policies(OTHER)].order for node in world.members]
        assert first == second
        assert first.deleted


@pytest.mark.hazard("holders-fade")
@pytest.mark.parametrize("lost", ["cookie", "policies"])
async def test_record_that_nobody_can_have_deleted_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lost: str
) -> None:
    """So it can be rebuilt. The nodes do not count as whole until it is, and get the notes of all else."""
    async with compared(tmp_path) as (world, comparison):
        await TopicStore(world.session).create(TOPIC)
        await TopicStore(world.session).create(replace(TOPIC, local="ended"))
        cookie = paths.storage_cookie(world.members[1].incarnation)
        path = cookie if lost == "cookie" else paths.namespace_policies(TOPIC.namespace_name)
        before = await require_whole(world, comparison)
        await world.session.delete(path, version=before[path].order.version)
        deletions, ended = DeletionStore(world.session), replace(TOPIC, local="ended")
        await deletions.end(await deletions.begin(ended), ended)
        with caplog.at_level(logging.ERROR):
            await comparison.round()
        assert f"oncelog admin backup rebuild {path}" in caplog.text
        assert comparison.whole == {node.incarnation: False for node in world.members}
        for node in world.members:
            held = await world.held(node)
            assert held[path] == before[path]
            assert held[paths.topic_name(ended)].order.deleted
        await world.session.create(path, before[path].value)
        await require_whole(world, comparison)


async def test_name_that_was_made_again_by_use_is_noted(tmp_path: Path) -> None:
    """The deletion is a note at the nodes; the new name is none yet."""
    async with compared(tmp_path) as (world, comparison), noting(world) as session:
        topics, deletions = TopicStore(world.session), DeletionStore(session)
        await topics.create(TOPIC)
        before = await require_whole(world, comparison)
        await deletions.end(await deletions.begin(TOPIC), TOPIC)
        await topics.create(TOPIC)
        after = await require_whole(world, comparison)
        assert after[paths.topic_name(TOPIC)].order > before[paths.topic_name(TOPIC)].order


@pytest.mark.hazard("revoked-right-returns")
@pytest.mark.parametrize("newer", ["policy", "topic", "deleted topic"])
async def test_nothing_is_taken_for_deleted_by_a_zookeeper_of_the_past(tmp_path: Path, newer: str) -> None:
    """It was restored from a backup. The notes are the newer ones, and stay."""
    async with compared(tmp_path, 1) as (world, comparison), noting(world) as session:
        topics = TopicStore(session)
        await topics.create(replace(TOPIC, local="old"))
        await require_whole(world, comparison)
        before = dict(world.tree.nodes)
        await NamespaceStore(session).create_namespace(OTHER)
        if newer == "policy":
            await PolicyStore(session).change(NamespaceName("public", "default"), lambda _: Policies())
        elif newer == "topic":
            await topics.create(TOPIC)
        else:
            await DeletionStore(session).begin(replace(TOPIC, local="old"))
        held = await world.held(world.members[0])
        world.tree.nodes = before
        other = NoteComparison(world.open())
        await other.round()
        assert other.whole == {world.members[0].incarnation: False}
        assert await world.held(world.members[0]) == held
        await other.close()


async def restored(world: NotingWorld, *, commits: bool = True) -> None:
    """A restore has written the records of era 2: those that are there now."""
    found = await ClusterStore(world.session).find()
    assert found is not None
    below = {path.removeprefix("/oncelog"): node for path, node in world.tree.nodes.items()}
    world.tree.nodes |= {f"/oncelog/era-2{path}": node for path, node in below.items() if path != "/cluster"}
    state = ClusterState.SERVING if commits else ClusterState.RESTORING
    await ClusterStore(world.session).write(replace(found.value, era=ERA, state=state), version=found.version)


@pytest.mark.hazard("late-note")
async def test_note_of_a_record_that_a_restore_has_not_found_becomes_a_deletion(tmp_path: Path) -> None:
    """One node alone had it, and was away. What era 2 says is newer than all notes of era 1."""
    async with compared(tmp_path) as (world, comparison):
        topics = TopicStore(world.session)
        before = dict(world.tree.nodes)
        await topics.create(TOPIC)
        held = await require_whole(world, comparison)
        world.tree.nodes = before
        await restored(world)
        peers = replace(PLAIN, era=ERA)
        for node in world.members:
            await node.runner.raise_era(node.incarnation, ERA, committed=True)
        later = NoteComparison(world.open().below("/era-2"), peers)
        await later.round()
        assert later.whole == {node.incarnation: True for node in world.members}
        for node in world.members:
            order = (await world.held(node))[paths.topic_name(TOPIC)].order
            assert order == held[paths.topic_name(TOPIC)].order._replace(deleted=True)
        await later.close()


@pytest.mark.hazard("revoked-right-returns")
@pytest.mark.parametrize("era", [1, 2])
async def test_record_that_is_too_large_for_a_note_keeps_the_former_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, era: int
) -> None:
    """Its log names it, and all other notes are sent. It is not taken for deleted, also if its note is of era 1."""
    async with compared(tmp_path) as (world, comparison):
        await NamespaceStore(world.session).create_namespace(OTHER)
        held = await require_whole(world, comparison)
        session: StoreSession = world.session
        peers = PLAIN
        if era == ERA.number:
            await restored(world)
            session, peers = world.session.below("/era-2"), replace(PLAIN, era=ERA)
            for node in world.members:
                await node.runner.raise_era(node.incarnation, ERA, committed=True)
        path = paths.namespace_policies(OTHER)
        await session.write(path, b"x" * (VALUE_BYTES_MAX + 1), version=0)
        await TopicStore(session).create(TOPIC)
        later = NoteComparison(session, peers)
        await later.round()
        assert later.whole == {node.incarnation: False for node in world.members}
        assert "a record is too large for a note" in caplog.text
        assert "older" not in caplog.text
        for node in world.members:
            notes = await world.held(node)
            assert notes[path].order == held[path].order
            assert paths.topic_name(TOPIC) in notes
        await later.close()


@pytest.mark.hazard("late-note")
@pytest.mark.parametrize("commits", [True, False])
async def test_process_of_a_former_era_notes_nothing(tmp_path: Path, *, commits: bool) -> None:
    """Its records are those of era 1, and the cluster's record names era 2 already. A note of them in era 2 would be
    newer than what the restore has found, at a node that the restore has not raised."""
    async with compared(tmp_path) as (world, comparison), noting(world, once=True) as session:
        before = await require_whole(world, comparison)
        await restored(world, commits=commits)
        await PolicyStore(world.session).change(CLUSTER, lambda one: replace(one, deduplication=False))
        other = NoteComparison(world.open())
        for each in (comparison, other):
            await each.round()
            assert not any(each.whole.values())
        with pytest.raises(StoreUnavailable, match="era 2"):
            await PolicyStore(session).change(CLUSTER, lambda one: replace(one, deduplication=True))
        for node in world.members:
            assert await world.held(node) == before
        await other.close()


async def test_comparison_goes_on_when_the_record_of_the_cluster_was_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The metadata service must stay: it performs the restore."""
    caplog.set_level(logging.INFO)
    async with compared(tmp_path, 1) as (world, comparison):
        await overwrite(world, paths.CLUSTER, b"garbage")
        running = asyncio.create_task(comparison.run(lambda: "me"))
        await until(lambda: running.done() or "could not compare" in caplog.text, 30)
        assert not running.done()
        running.cancel()
        await asyncio.wait((running,))


async def test_node_that_does_not_answer_is_not_whole(tmp_path: Path) -> None:
    async with compared(tmp_path) as (world, comparison):
        silent, other = (node.incarnation for node in world.members)
        await world.members[0].stop()
        await comparison.round()
        await world.members[0].start()
        assert comparison.whole == {silent: False, other: True}


async def overwrite(world: NotingWorld, path: str, value: bytes) -> None:
    node = await world.session.read(path)
    assert node is not None
    await world.session.write(path, value, version=node.version)


@pytest.mark.hazard("damaged-record-is-noted")
@pytest.mark.parametrize("elected", ["before", "after"])
async def test_damaged_record_is_not_noted_and_no_difference(tmp_path: Path, elected: str) -> None:
    """Also of a service that was elected when the record was damaged already. A node that lacks its note is not whole,
    until the record is written anew."""
    async with compared(tmp_path) as (world, comparison), noting(world) as session:
        await TopicStore(session).create(TOPIC, partitions=3)
        damaged = [paths.namespace_policies(TOPIC.namespace_name), paths.topic_name(TOPIC)]
        await NamespaceStore(session).create_namespace(OTHER)
        before = await require_whole(world, comparison)
        sound = {path: before[path] for path in damaged}
        for path in damaged:
            await overwrite(world, path, b"garbage")
        other = comparison if elected == "before" else NoteComparison(world.open())
        for _ in range(2):
            await other.round()
            assert other.whole == {node.incarnation: True for node in world.members}
        for node in world.members:
            held = await world.held(node)
            assert {path: held[path] for path in damaged} == sound
        lost = world.members[1].runner.journal.index
        place = lost.notes.get(damaged[0])
        assert place is not None
        lost.drop_note(damaged[0], place.place)
        await other.round()
        assert other.whole == {node.incarnation: node is world.members[0] for node in world.members}
        for path in damaged:
            await overwrite(world, path, sound[path].value)
        await other.round()
        await require_whole(world, comparison)
        await other.close()


@pytest.mark.hazard("damaged-record-is-noted")
async def test_record_of_a_newer_format_is_noted(tmp_path: Path) -> None:
    """A newer process wrote it: it is what a restore by that version must find."""
    newer = encode_record({}).replace(b":%d" % FORMAT, b":%d" % (FORMAT + 1))
    async with compared(tmp_path, 1) as (world, comparison):
        await TopicStore(world.session).create(TOPIC)
        await comparison.round()
        await overwrite(world, paths.namespace_policies(TOPIC.namespace_name), newer)
        held = await require_whole(world, comparison)
        assert held[paths.namespace_policies(TOPIC.namespace_name)].value == newer
