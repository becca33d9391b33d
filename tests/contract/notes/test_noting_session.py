"""A change is answered only when storage nodes have noted what ZooKeeper has."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.access import Right
from oncelog.core.errors import InvalidArgument, StoreUnavailable
from oncelog.core.formats.note import VALUE_BYTES_MAX, NoteOrder
from oncelog.core.names import NamespaceName, TopicName
from oncelog.core.process_version import PROCESS_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.cluster.cluster_level import ClusterLevel
from oncelog.metadata_store.notes.noting_session import NotingSession
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.json_records import DAMAGED
from oncelog.metadata_store.records.namespace_store import NamespaceStore
from oncelog.metadata_store.records.policies import Policies, decode_policies, encode_policies
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import CreateStep, WriteStep
from tests.cluster.until import until
from tests.contract.notes.noting_world import NotingWorld, Stored, noting, noting_world
from tests.contract.storage_client.ledger_world import DEADLINE_S
from tests.contract.stores.memory_store import MemorySession, MemoryTree
from tests.contract.stores.store_backends import Backend, new_cluster

pytestmark = pytest.mark.asyncio

DEFAULT = NamespaceName("public", "default")
NAMESPACE = paths.namespace_policies(DEFAULT)
TOPIC = TopicName("public", "default", "orders")
OURS, THEIRS = (encode_policies(Policies(message_ttl_s=each)) for each in (7, 8))


def granted(policies: Policies) -> Policies:
    return replace(policies, permissions={"reader": (Right.CONSUME.value,)})


def revoked(policies: Policies) -> Policies:
    return replace(policies, permissions={})


async def holders_of(world: NotingWorld, path: str, order: NoteOrder) -> int:
    """How many nodes have this note."""
    held = [(await world.held(node)).get(path) for node in world.members if node.running]
    return sum(1 for note in held if note is not None and note.order == order)


async def order_of(world: NotingWorld, path: str) -> NoteOrder:
    node = await world.session.read(path)
    assert node is not None
    return NoteOrder(1, node.created, False, node.version)


@pytest.mark.hazard("revoked-right-returns")
async def test_answered_change_is_noted_on_an_ack_quorum_and_soon_on_all(tmp_path: Path) -> None:
    """One of three nodes is down. A restore that asks all but one node finds the present rights."""
    async with noting_world(tmp_path, 3) as world, noting(world) as session:
        policies = PolicyStore(session)
        await policies.change(DEFAULT, granted)
        await world.members[0].stop()
        await policies.change(DEFAULT, revoked)
        order = await order_of(world, NAMESPACE)
        assert await holders_of(world, NAMESPACE, order) == 2
        await world.members[0].start()
        noted = (await world.held(world.members[1]))[NAMESPACE]
        assert decode_policies(noted.value) == (await policies.read(DEFAULT)).value


@pytest.mark.hazard("revoked-right-returns")
async def test_change_that_is_not_noted_says_so_and_can_be_repeated(tmp_path: Path) -> None:
    """Only one of two nodes is there. The policy is written, and the same call notes it once a second node is back,
    although it changes nothing. An attempt to create what exists notes it, too."""
    async with noting_world(tmp_path, 2) as world, noting(world, once=True) as session:
        await world.members[0].stop()
        policies, namespaces = PolicyStore(session), NamespaceStore(session)
        with pytest.raises(StoreUnavailable, match="is written, but only 1 of 2 storage nodes hold a note"):
            await policies.change(DEFAULT, granted)
        created = NamespaceName("public", "other")
        with pytest.raises(StoreUnavailable, match=r"Repeat the call.*ZooKeeper is older.*docs/lost-zookeeper\.md"):
            await namespaces.create_namespace(created)
        assert (await PolicyStore(world.session).read(DEFAULT)).value == granted(Policies())
        await world.members[0].start()
        await world.leave(world.members[0].incarnation)
        await world.join(world.members[0], cookie=False)
        assert (await policies.change(DEFAULT, granted)).value == granted(Policies())
        assert not await namespaces.create_namespace(created)
        for path in (NAMESPACE, paths.namespace_policies(created)):
            assert await holders_of(world, path, await order_of(world, path)) == 2


@pytest.mark.hazard("unnoted-member")
async def test_fewer_nodes_than_the_quorum_must_all_hold_a_note(tmp_path: Path) -> None:
    """Nodes that ever joined count, registered or not. A node that waits in place of another one does not: nobody asks
    it. Before the first owner has told its quorum, all count."""
    async with noting_world(tmp_path, 3, ack_quorum=0) as world, noting(world, once=True) as session:
        waiting, away, _ = world.members
        store = PolicyStore(session)
        await store.change(DEFAULT, granted)
        assert await holders_of(world, NAMESPACE, await order_of(world, NAMESPACE)) == 3
        await world.leave(away.incarnation)
        with pytest.raises(StoreUnavailable, match="only 2 of 3"):
            await store.change(DEFAULT, granted)
        await world.change_cluster(ack_quorum=2)
        await store.change(DEFAULT, granted)
        cookie = await world.registry.read_cookie(waiting.incarnation)
        assert cookie is not None
        await world.session.delete(paths.storage_cookie(waiting.incarnation), version=cookie.version)
        await world.leave(waiting.incarnation)
        await world.join(waiting, cookie=False, joining=True)
        with pytest.raises(StoreUnavailable, match="only 1 of 2"):
            await store.change(DEFAULT, granted)


@pytest.mark.hazard("unnoted-member")
async def test_replaced_node_that_still_serves_does_not_count(tmp_path: Path) -> None:
    """It is registered and holds the note, but nobody asks it in a restore."""
    async with noting_world(tmp_path, 3) as world, noting(world, once=True) as session:
        replaced, other, _ = world.members
        cookie = await world.registry.read_cookie(replaced.incarnation)
        assert cookie is not None
        await world.registry.write_cookie(replace(cookie.value, retired=True), version=cookie.version)
        await world.leave(other.incarnation)
        with pytest.raises(StoreUnavailable, match="only 1 of 2"):
            await PolicyStore(session).change(DEFAULT, granted)
        assert NAMESPACE in await world.held(replaced)


async def test_without_storage_nodes_nothing_is_noted(tmp_path: Path) -> None:
    async with noting_world(tmp_path, 0) as world, noting(world) as session:
        await PolicyStore(session).change(DEFAULT, granted)


@pytest.mark.hazard("note-of-an-intent")
@pytest.mark.parametrize("lost", ["request", "reply"])
async def test_note_is_what_zookeeper_has_and_never_what_was_to_be_written(backend: Backend, lost: str) -> None:
    """The outcome is unknown. Then another process writes another value before the read back."""
    inner, other, stored = await new_cluster(backend), await backend.open(), Stored()

    class Raced(NotingSession):
        async def _noted(self, changed: object, deleted: object) -> None:
            node = await other.read(paths.CLUSTER_POLICIES)
            if node is not None:
                await other.write(paths.CLUSTER_POLICIES, THEIRS, version=node.version)
            await super()._noted(changed, deleted)  # type: ignore[arg-type]

    session = Raced(inner, stored.store)
    (backend.lose_next_request if lost == "request" else backend.lose_next_reply)(inner)
    assert await session.create(paths.CLUSTER_POLICIES, OURS, timeout_ms=5_000) is WriteStatus.UNKNOWN
    assert [note.value for note in stored.notes] == ([] if lost == "request" else [THEIRS])
    assert (await session.create(paths.CLUSTER_POLICIES, OURS)) is not WriteStatus.UNKNOWN
    assert [note.value for note in stored.notes][-1] == THEIRS


@pytest.mark.hazard("late-note")
async def test_deletion_and_new_record_of_the_same_path_are_noted_in_this_order(backend: Backend) -> None:
    """On a real ZooKeeper, too: the transaction that creates a record again has a higher number."""
    inner, stored = await new_cluster(backend), Stored()
    session = NotingSession(inner, stored.store)
    names = NamespaceName("public", "again")
    store = NamespaceStore(session)
    await store.create_namespace(names)
    await PolicyStore(session).change(names, granted)
    await store.delete_namespace(names)
    await store.create_namespace(names)
    orders = [note.order for note in stored.notes if note.path == paths.namespace_policies(names)]
    assert orders == sorted(set(orders))
    assert [(order.deleted, order.version) for order in orders] == [(False, 0), (False, 1), (True, 0), (False, 0)]


@pytest.mark.hazard("revoked-right-returns")
async def test_repeated_finalize_notes_the_level_that_was_not_noted(tmp_path: Path) -> None:
    """The level is raised in ZooKeeper. The repeated call would answer that it is, so it notes it first."""
    target = PROCESS_VERSION + 1
    world_of_next = noting_world(tmp_path, 2, version=target)
    async with world_of_next as world, noting(world, once=True) as hasty, noting(world) as session:
        await world.members[0].stop()
        with pytest.raises(StoreUnavailable, match="is written"):
            await ClusterLevel(ClusterStore(hasty), Registry(hasty), target=target).finalize()
        await world.members[0].start()
        await world.leave(world.members[0].incarnation)
        await world.join(world.members[0], cookie=False)
        level = ClusterLevel(ClusterStore(session), Registry(session), target=target)
        assert (await level.finalize()).level.stored == target
        assert await holders_of(world, paths.CLUSTER, await order_of(world, paths.CLUSTER)) == 2


@pytest.mark.hazard("damaged-record-is-noted")
async def test_damaged_record_is_not_noted_and_its_deletion_is(backend: Backend) -> None:
    """Somebody wrote garbage; an attempt to create the record finds it. The metric counts it."""
    inner, stored = await new_cluster(backend), Stored()
    session = NotingSession(inner, stored.store)
    assert await inner.create(paths.CLUSTER_POLICIES, b"garbage") is WriteStatus.OK
    before = DAMAGED.counts["policies record"]
    assert await session.create(paths.CLUSTER_POLICIES, OURS) is WriteStatus.CONFLICT
    await session.note([paths.CLUSTER_POLICIES])
    assert stored.notes == []
    assert DAMAGED.counts["policies record"] == before + 2
    assert await session.delete(paths.CLUSTER_POLICIES, version=0) is WriteStatus.OK
    assert [note.order.deleted for note in stored.notes] == [True]


async def test_record_that_exceeds_a_note_is_refused_before_it_is_written(backend: Backend) -> None:
    inner, stored = await new_cluster(backend), Stored()
    session = NotingSession(inner, stored.store)
    large = b"x" * (VALUE_BYTES_MAX + 1)
    node = await session.read(NAMESPACE)
    assert node is not None
    with pytest.raises(InvalidArgument, match="limit is 65536"):
        await session.create(paths.CLUSTER_POLICIES, large)
    with pytest.raises(InvalidArgument, match="limit is 65536"):
        await session.write(NAMESPACE, large, version=node.version)
    with pytest.raises(InvalidArgument, match="limit is 65536"):
        await session.transact([CreateStep("/topics/a", large), WriteStep(NAMESPACE, large, node.version)])
    assert await session.create("/topics/a", large) is WriteStatus.OK
    assert stored.notes == []
    assert await session.read(NAMESPACE) == node


async def test_records_that_are_noted() -> None:
    """Folders are not, nor what the logs restore."""
    for path in (
        "/cluster", "/idempotency", "/policies/cluster", "/policies/namespaces/t", "/policies/namespaces/t/n",
        "/policies/topics/0f", "/names/t/n/topic", "/tombstones/0f", "/storage_cookies/0f",
    ):  # fmt: skip
        assert paths.is_noted(path), path
    for path in (
        "", "/ids/ledger", "/policies", "/policies/namespaces", "/names", "/names/t", "/names/t/n", "/topics/0f",
        "/ledgers/1", "/storage/0f", "/storage_ends/0f", "/owners/0f", "/deletions/0f", "/tombstones", "/repair",
    ):  # fmt: skip
        assert not paths.is_noted(path), path


async def test_slow_node_delays_no_change(tmp_path: Path) -> None:
    """The answer comes after Qa nodes; the third gets the note when it answers again."""
    async with noting_world(tmp_path, 3) as world, noting(world) as session:
        store = PolicyStore(session)
        await asyncio.gather(*(store.change(DEFAULT, granted) for _ in range(8)))
        order = await order_of(world, NAMESPACE)

        async def all_hold() -> bool:
            return await holders_of(world, NAMESPACE, order) == 3

        await until(all_hold, DEADLINE_S, waiting_for="the note at all nodes")


@pytest.mark.hazard("unnoted-member")
async def test_lowest_ack_quorum_of_all_owners_is_kept(backend: Backend) -> None:
    """Of owners that start at the same time, and in every order. It never rises: ledgers of the lower one exist."""
    session, other, stored = await new_cluster(backend), await backend.open(), Stored()
    first, second = ClusterStore(NotingSession(session, stored.store)), ClusterStore(other)
    await asyncio.gather(first.lower_ack_quorum(3), second.lower_ack_quorum(2), first.lower_ack_quorum(4))
    await second.lower_ack_quorum(3)
    assert (await second.require()).ack_quorum == 2
    await first.lower_ack_quorum(1)
    assert (await second.require()).ack_quorum == 1
    assert b'"ack_quorum":1' in stored.notes[-1].value


async def test_deletion_in_a_tree_that_is_gone_is_an_error() -> None:
    """Somebody has deleted the folders of the era, and the record of the cluster is there."""
    tree, stored = MemoryTree(), Stored()
    await ClusterStore(MemorySession(tree, root="/oncelog")).establish("c")
    session = NotingSession(MemorySession(tree, root="/oncelog").below("/era-2"), stored.store)
    with pytest.raises(StoreUnavailable, match="no records of era 1 any more"):
        await asyncio.wait_for(session.note([NAMESPACE], deleted=True), DEADLINE_S)
    assert stored.notes == []
