"""A storage node becomes a member with all notes, and takes part in no cluster whose ZooKeeper is older than its
notes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from oncelog.core.errors import StorageDirectoryRefused, StoreUnavailable
from oncelog.core.formats.note import Note, digest_of
from oncelog.core.names import NamespaceName, TopicName
from oncelog.log_storage.serve.node_registration import NodeRegistration
from oncelog.log_storage.serve.note_copying import JoinByNotes, refuse_older_than_notes
from oncelog.log_storage.serve.notes import NodeNotes
from oncelog.metadata_store.notes.noted_records import GROUP_MAX, KnownNote, NotedRecords
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.deletion_store import DeletionStore
from oncelog.metadata_store.records.namespace_store import NamespaceStore
from oncelog.metadata_store.records.policies import Policies
from oncelog.metadata_store.records.policy_store import CLUSTER, PolicyStore
from oncelog.metadata_store.records.registry import LiveStorageNode
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session import paths
from oncelog.runtime.credentials import PLAIN
from tests.cluster.until import until
from tests.contract.notes.noting_world import NotingWorld, noting, noting_world
from tests.contract.storage_client.ledger_world import DEADLINE_S, Node, nodes
from tests.contract.stores.store_backends import Backend, new_cluster

pytestmark = pytest.mark.asyncio

TOPIC = TopicName("public", "default", "orders")
#: How long a node waits for others that are away. One that is there answers meanwhile, on a slow machine too.
ONE_ANSWERS_S = 5.0


def notes_of(node: Node) -> NodeNotes:
    return NodeNotes(node.incarnation, node.runner.journal)


@asynccontextmanager
async def joining(
    world: NotingWorld, node: Node, *, timeout_s: float = DEADLINE_S
) -> AsyncIterator[tuple[JoinByNotes, NodeRegistration]]:
    host, _, port = node.address.rpartition(":")
    join = JoinByNotes(world.session, notes_of(node), node.incarnation, PLAIN, timeout_s=timeout_s)
    live = LiveStorageNode(node.incarnation, host, int(port), 0)
    get_noted = join.get_noted if join.is_needed() else None
    yield join, NodeRegistration(world.registry, live, address_is_chosen=False, get_noted=get_noted)
    await join.close()


@pytest.mark.hazard("damaged-record-is-noted")
async def test_node_that_joins_copies_no_damaged_record(tmp_path: Path) -> None:
    """It becomes a member; the note of what the record was stays at the others."""
    path = paths.namespace_policies(TOPIC.namespace_name)
    async with noting_world(tmp_path, 2) as world, nodes(tmp_path / "new", 1) as (new,), noting(world) as session:
        await session.note([path])
        node = await world.session.read(path)
        assert node is not None
        await world.session.write(path, b"garbage", version=node.version)
        async with joining(world, new) as (_, registration):
            await registration.join()
            assert registration.reason() is None
        assert path not in await world.held(new)
        assert [(await world.held(each))[path].value for each in world.members] == [node.data] * 2


@pytest.mark.hazard("holders-fade")
async def test_node_that_joins_copies_the_notes_of_deletions(tmp_path: Path) -> None:
    """ZooKeeper has nothing of them. Once all nodes of that time are replaced, an old disk that is started for a
    restore would bring the namespace back. One of two nodes does not answer."""
    name = NamespaceName("public", "other")
    async with noting_world(tmp_path, 2) as world, nodes(tmp_path / "new", 1) as (new,), noting(world) as session:
        await NamespaceStore(session).create_namespace(name)
        await NamespaceStore(session).delete_namespace(name)
        await world.change_cluster(ack_quorum=1)
        await world.members[0].stop()
        async with joining(world, new) as (_, registration):
            await registration.join()
            assert registration.reason() is None
        await world.members[0].start()
        path = paths.namespace_policies(name)
        assert (await world.held(new))[path] == (await world.held(world.members[1]))[path]


class Deserted(NodeNotes):
    """Of a node that is alone from its first notes on."""

    others: Sequence[Node] = ()

    async def store(self, notes: Sequence[Note]) -> None:
        for other in self.others:
            await other.stop()
        self.others = ()
        await super().store(notes)


@pytest.mark.hazard("holders-fade")
async def test_node_is_no_member_before_others_gave_it_their_notes_of_deletions(tmp_path: Path) -> None:
    """They fail when they have noted its cookie. It asks them again."""
    name = NamespaceName("public", "other")
    async with noting_world(tmp_path, 1) as world, nodes(tmp_path / "new", 1) as (new,), noting(world) as session:
        await NamespaceStore(session).create_namespace(name)
        await NamespaceStore(session).delete_namespace(name)
        await world.join(new, joining=True)
        deserted = Deserted(new.incarnation, new.runner.journal)
        deserted.others = world.members
        join = JoinByNotes(world.session, deserted, new.incarnation, PLAIN)
        with pytest.raises(StoreUnavailable, match="only 0 of 1 storage nodes give the notes of deletions"):
            await join.get_noted()
        assert join.is_needed()
        await world.members[0].start()
        await world.leave(world.members[0].incarnation)
        await world.join(world.members[0], cookie=False)
        await join.get_noted()
        assert not join.is_needed()
        assert (await world.held(new))[paths.namespace_policies(name)].order.deleted
        await join.close()


@pytest.mark.hazard("unnoted-member")
@pytest.mark.hazard("holders-fade")
async def test_node_becomes_a_member_when_others_know_it_and_it_has_all_notes(tmp_path: Path) -> None:
    """Of three other nodes one is left, and two must know the new one. It stays joining, so it gets no data, until a
    second one is back. What it holds then is what ZooKeeper has."""
    async with noting_world(tmp_path, 3) as world, nodes(tmp_path / "new", 1) as (new,):
        await NamespaceStore(world.session).create_namespace(NamespaceName("public", "other"))
        await TopicStore(world.session).create(TOPIC)
        away = world.members[:2]
        for node in away:
            await world.leave(node.incarnation)
        async with joining(world, new, timeout_s=ONE_ANSWERS_S) as (join, registration):
            await registration.join()
            reason = registration.reason()
            assert reason is not None
            assert "only 1 of 2 storage nodes" in reason
            assert (await world.registry.storage_nodes.live())[new.incarnation].joining
            assert join.is_needed(), "a restart now must wait again"
            await world.join(away[0], cookie=False)
            await registration.replace_former(lambda: 0)
            assert registration.reason() is None
            assert not (await world.registry.storage_nodes.live())[new.incarnation].joining
            cookie = paths.storage_cookie(new.incarnation)
            for node in (away[0], world.members[2]):
                assert cookie in await world.held(node)
            held = await world.held(new)
            assert {cookie, paths.topic_name(TOPIC), paths.namespace_policies(NamespaceName("public", "other"))} <= set(
                held
            )
            assert digest_of(held.values()) == await digest_of_zookeeper(world)
            assert not join.is_needed()
        async with joining(world, new) as (_, again):
            await again.join()
            assert not again.joining, "a member does not wait when it restarts"


class Interrupted(NodeNotes):
    """Stores one group of notes, and then none."""

    groups = 0

    async def store(self, notes: Sequence[Note]) -> None:
        self.groups += 1
        if self.groups > 1:
            raise StoreUnavailable("interrupted")
        await super().store(notes)


@pytest.mark.hazard("holders-fade")
async def test_node_that_was_interrupted_is_no_member(tmp_path: Path) -> None:
    """It has a cookie and the first notes. Its next start copies all of them before it is a member."""
    async with noting_world(tmp_path, 0) as world, nodes(tmp_path, 1) as (node,):
        for number in range(GROUP_MAX + 10):
            await TopicStore(world.session).create(replace(TOPIC, local=f"topic-{number}"))
        await world.join(node)
        interrupted = Interrupted(node.incarnation, node.runner.journal)
        join = JoinByNotes(world.session, interrupted, node.incarnation, PLAIN)
        with pytest.raises(StoreUnavailable, match="interrupted"):
            await join.get_noted()
        assert len(await world.held(node)) > 1
        assert join.is_needed()
        await join.close()
        async with joining(world, node) as (again, registration):
            await registration.join()
            assert not again.is_needed()
            assert digest_of((await world.held(node)).values()) == await digest_of_zookeeper(world)


async def digest_of_zookeeper(world: NotingWorld) -> object:
    records = NotedRecords(world.session)
    async for _ in records.refresh(await ClusterStore(world.session).require()):
        pass
    return records.digest


@pytest.mark.hazard("holders-fade")
async def test_new_nodes_of_a_new_cluster_join_at_the_same_time(tmp_path: Path) -> None:
    """None is a member yet, and no owner has started. Each gets the notes of all cookies that were there before."""
    async with noting_world(tmp_path, 0, ack_quorum=0) as world, nodes(tmp_path, 3) as members:
        for node in members:
            async with joining(world, node) as (_, registration):
                await registration.join()
                await registration.replace_former(lambda: 0)
        known = [set(await world.held(node)) for node in members]
        cookies = {paths.storage_cookie(node.incarnation) for node in members}
        assert all(cookies <= some for some in known), "the later ones were noted at the earlier ones"


@pytest.mark.hazard("revoked-right-returns")
async def test_zookeeper_that_is_older_than_the_notes_is_refused(tmp_path: Path) -> None:
    """Of the day before: the right is back, and so is the deleted topic. A record that is missing proves nothing."""
    async with noting_world(tmp_path, 1) as world, noting(world) as session:
        node = world.members[0]
        topics, policies = TopicStore(session), PolicyStore(session)
        await topics.create(TOPIC)
        await policies.change(CLUSTER, lambda one: replace(one, deduplication=False))
        before = dict(world.tree.nodes)
        await policies.change(CLUSTER, lambda _: Policies())
        await refuse_older_than_notes(tmp_path, world.session, notes_of(node))
        world.tree.nodes = before
        with pytest.raises(StorageDirectoryRefused, match="older than the notes") as refused:
            await refuse_older_than_notes(tmp_path, world.session, notes_of(node))
        assert refused.value.details["record"] == paths.CLUSTER_POLICIES
        deleted = await world.session.read(paths.CLUSTER_POLICIES)
        assert deleted is not None
        await world.session.delete(paths.CLUSTER_POLICIES, version=deleted.version)
        await refuse_older_than_notes(tmp_path, world.session, notes_of(node))
        before = dict(world.tree.nodes)
        await DeletionStore(session).begin(TOPIC)
        await refuse_older_than_notes(tmp_path, world.session, notes_of(node))
        world.tree.nodes = before
        with pytest.raises(StorageDirectoryRefused, match="/tombstones/"):
            await refuse_older_than_notes(tmp_path, world.session, notes_of(node))


async def test_known_records_follow_zookeeper(backend: Backend) -> None:
    """Each refresh reads what has changed, and the digest is that of the tree. Only a name that was deleted and made
    again in between must be looked at again."""
    session, other = await new_cluster(backend), await backend.open()
    records, cluster = NotedRecords(session), await ClusterStore(session).require()
    topics, namespaces = TopicStore(other), NamespaceStore(other)

    async def refreshed() -> set[str]:
        changed: set[str] = set()

        async def is_current() -> bool:
            """A watch's event may come after the answer to another session."""
            changed.update([note.path async for group in records.refresh(cluster) for note in group])
            fresh = NotedRecords(other)
            async for _ in fresh.refresh(cluster):
                pass
            return (records.digest, records.known) == (fresh.digest, fresh.known)

        await until(is_current, DEADLINE_S, waiting_for="the records of the tree")
        return changed

    async def seen(path: str) -> bool:
        return path in await refreshed()

    async def is_known(name: str) -> bool:
        await refreshed()
        return paths.topic_name(replace(TOPIC, local=name)) in records.known

    async def is_gone() -> bool:
        return not await is_known(TOPIC.local)

    default = paths.namespace_policies(NamespaceName("public", "default"))
    assert await refreshed() == {"/cluster", "/policies/namespaces/public", default}
    assert await refreshed() == set()
    await topics.create(TOPIC)
    await topics.create(replace(TOPIC, local="parts"), partitions=2)
    for name in ("parts", "orders"):
        await until(partial(is_known, name), DEADLINE_S, waiting_for="the new topics")
    await topics.grow(replace(TOPIC, local="parts"), 3)
    await until(lambda: seen(paths.topic_name(replace(TOPIC, local="parts"))), DEADLINE_S, waiting_for="the growth")
    await namespaces.create_tenant("t")
    await namespaces.create_namespace(NamespaceName("t", "n"))
    await until(lambda: seen("/policies/namespaces/t/n"), DEADLINE_S, waiting_for="the namespace")
    await PolicyStore(other).change(NamespaceName("t", "n"), lambda one: replace(one, deduplication=False))
    await until(lambda: seen("/policies/namespaces/t/n"), DEADLINE_S, waiting_for="the policies")
    deletions = DeletionStore(other)
    await deletions.end(await deletions.begin(TOPIC), TOPIC)
    await until(is_gone, DEADLINE_S, waiting_for="the deletion")


async def test_name_that_was_made_again_is_read_again(backend: Backend) -> None:
    """Between two refreshes: its folder has the same names."""
    session = await new_cluster(backend)
    records, cluster = NotedRecords(session), await ClusterStore(session).require()
    topics, deletions, path = TopicStore(session), DeletionStore(session), paths.topic_name(TOPIC)

    async def again() -> KnownNote:
        async for _ in records.refresh(cluster):
            pass
        return records.known[path]

    await topics.create(TOPIC)
    former = await again()
    await deletions.end(await deletions.begin(TOPIC), TOPIC)
    await topics.create(TOPIC)

    async def is_new() -> bool:
        return (await again()).order > former.order

    await until(is_new, DEADLINE_S, waiting_for="the new name")
