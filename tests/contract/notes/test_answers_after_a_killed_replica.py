"""A replica of the metadata service writes a change to ZooKeeper and is killed before storage nodes have noted it. What
another replica answers then about the same record holds although ZooKeeper is lost right after."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.errors import (
    NamespaceNotFound,
    NotFound,
    OncelogError,
    PreconditionFailed,
    ServiceUnavailable,
    StoreUnavailable,
)
from oncelog.core.names import NamespaceName, TopicName
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.replica import Coordination
from oncelog.metadata.restore.noted_records import NewestRecords
from oncelog.metadata.restore.rights import ClosedRights
from oncelog.metadata_store.keys.idempotency_keys import DatasetStore, KeyStore
from oncelog.metadata_store.notes.noting_session import NotingSession
from oncelog.metadata_store.records.cluster_store import ClusterStore, Rights
from oncelog.metadata_store.session import paths
from tests.contract.notes.noting_world import NotingWorld, noting, noting_world
from tests.contract.stores.memory_key_server import MemoryKeyServer

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("revoked-right-returns")]

TENANT = "shop"
NAMESPACE, NEW = NamespaceName(TENANT, "orders"), NamespaceName(TENANT, "new")
KEPT, SPLIT, TOPIC = (TopicName(TENANT, "kept", each) for each in ("kept", "split", "created"))
PART = replace(SPLIT, partition=1)
LOST = TopicName(TENANT, "orders", "topic")


async def found_by_a_restore(world: NotingWorld) -> NewestRecords:
    """By one that asks all nodes but the first, as many as may be missing."""
    newest = NewestRecords()
    for node in world.members[1:]:
        newest.add((await world.held(node)).values())
    return newest


async def killed(collect: object) -> None:
    """In place of the storage nodes: the process ends here."""
    raise ProcessKilled


class ProcessKilled(Exception):
    """Nobody gets an answer."""


class Replica:
    """The parts of a metadata service, and of an owner, over one session."""

    def __init__(self, session: NotingSession) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self.parts = Coordination.over(session, "test-cluster", self._start)
        self.parts.deletions.wait_ms = 500
        self.cluster = ClusterStore(session)
        self.rights = ClosedRights(self.cluster, self.parts.namespaces, self.parts.policies)

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.parts.close()

    def _start(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def write(replica: Replica) -> None:
    await replica.parts.policies.change(NAMESPACE, lambda present: replace(present, message_ttl_s=7))


async def open_rights(replica: Replica) -> None:
    """The last step of a confirmation."""
    found = await replica.cluster.find()
    assert found is not None
    await replica.cluster.write(replace(found.value, rights=Rights.OPEN), version=found.version)


def no_namespace(found: NewestRecords) -> bool:
    return found.value(paths.namespace_policies(NAMESPACE)) is None


def no_tenant(found: NewestRecords) -> bool:
    return found.value(paths.tenant_policies("empty")) is None


def no_kept(found: NewestRecords) -> bool:
    return str(KEPT) not in found.names() and len(found.tombstones) == 1


def split_ends(found: NewestRecords) -> bool:
    """It is gone, or a restore goes on with its deletion. The partition that was used is gone."""
    left = found.names()
    return (str(SPLIT) not in left or left[str(SPLIT)].deleted) and str(PART) not in left and len(found.tombstones) == 2


Change = Callable[[Replica], Awaitable[object]]
Check = Callable[[NewestRecords], bool]


def has_cluster(field: str, value: object) -> Check:
    def check(found: NewestRecords) -> bool:
        record = found.cluster()
        return record is not None and getattr(record, field) == value

    return check


#: {what was changed: (the change, the next one of another replica, its refusal, what the nodes have to say then)}
CASES: dict[str, tuple[Change, Change, type[OncelogError] | None, Check]] = {
    "namespace deleted": (
        lambda one: one.parts.namespaces.delete_namespace(NAMESPACE),
        lambda one: one.parts.namespaces.delete_namespace(NAMESPACE), NamespaceNotFound, no_namespace,
    ),
    "policy of a deleted namespace": (
        lambda one: one.parts.namespaces.delete_namespace(NAMESPACE),
        write, NamespaceNotFound, no_namespace,
    ),
    "topic in a deleted namespace": (
        lambda one: one.parts.namespaces.delete_namespace(NAMESPACE),
        lambda one: one.parts.create_topic(LOST), NamespaceNotFound, no_namespace,
    ),
    "policy that another tag was read of": (
        write, lambda one: one.parts.policies.change(NAMESPACE, lambda present: present, tags=["former"]),
        PreconditionFailed, lambda found: b'"message_ttl_s":7' in found.below(paths.NAMESPACES)[
            paths.namespace_policies(NAMESPACE)
        ],
    ),
    "tenant deleted": (
        lambda one: one.parts.namespaces.delete_tenant("empty"),
        lambda one: one.parts.namespaces.delete_tenant("empty"), NotFound, no_tenant,
    ),
    "namespace in a deleted tenant": (
        lambda one: one.parts.namespaces.delete_tenant("empty"),
        lambda one: one.parts.namespaces.create_namespace(NamespaceName("empty", "n")), NotFound, no_tenant,
    ),
    "topic deleted": (
        lambda one: one.parts.deletions.delete(KEPT), lambda one: one.parts.deletions.delete(KEPT), None, no_kept,
    ),
    "partitioned topic deleted": (
        lambda one: one.parts.deletions.delete_partitioned(SPLIT),
        lambda one: one.parts.deletions.delete_partitioned(SPLIT), None, split_ends,
    ),
    "namespace created": (
        lambda one: one.parts.namespaces.create_namespace(NEW),
        lambda one: one.parts.namespaces.create_namespace(NEW), None,
        lambda found: found.value(paths.namespace_policies(NEW)) is not None,
    ),
    "topic created": (
        lambda one: one.parts.create_topic(TOPIC), lambda one: one.parts.create_topic(TOPIC), None,
        lambda found: str(TOPIC) in found.names(),
    ),
    "partitioned topic created": (
        lambda one: one.parts.create_topic(TOPIC, partitions=3), lambda one: one.parts.growth.grow(TOPIC, 3), None,
        lambda found: str(TOPIC) in found.names(),
    ),
    "rights opened": (open_rights, lambda one: one.rights.confirm(), None, has_cluster("rights", Rights.OPEN)),
    "lowest ack quorum": (
        lambda one: one.cluster.lower_ack_quorum(2), lambda one: one.cluster.lower_ack_quorum(2), None,
        has_cluster("ack_quorum", 2),
    ),
}  # fmt: skip


async def prepare(one: Replica) -> None:
    for tenant in (TENANT, "empty"):
        await one.parts.namespaces.create_tenant(tenant)
    for namespace in (NAMESPACE, KEPT.namespace_name):
        await one.parts.namespaces.create_namespace(namespace)
    await one.parts.topics.create(KEPT)
    await one.parts.topics.create(SPLIT, partitions=3)
    await one.parts.topics.create(PART)
    found = await one.cluster.find()
    assert found is not None
    await one.cluster.write(replace(found.value, rights=Rights.CLOSED), version=found.version)


@asynccontextmanager
async def replica_of(session: NotingSession) -> AsyncIterator[Replica]:
    replica = Replica(session)
    try:
        yield replica
    finally:
        await replica.close()


@asynccontextmanager
async def two_nodes(tmp_path: Path) -> AsyncIterator[NotingWorld]:
    """All records are noted on both."""
    async with noting_world(tmp_path, 2, ack_quorum=0) as world, noting(world) as session:
        async with replica_of(session) as first:
            await prepare(first)
        yield world


@pytest.mark.parametrize("case", CASES)
async def test_answer_about_a_change_of_a_killed_replica_is_noted(tmp_path: Path, case: str) -> None:
    """While too few storage nodes can note it, the answer is an error that can be retried."""
    change, repeated, refusal, holds = CASES[case]
    async with two_nodes(tmp_path) as world, noting(world, once=True) as hasty, noting(world) as patient:
        async with replica_of(NotingSession(world.open(), killed)) as first:
            with pytest.raises(ProcessKilled):
                await change(first)
        assert not holds(await found_by_a_restore(world)), "a killed process notes nothing"
        await world.leave(world.members[1].incarnation)
        async with replica_of(hasty) as other:
            with pytest.raises((StoreUnavailable, ServiceUnavailable)) as refused:
                await repeated(other)
            assert refused.value.retriable
        await world.join(world.members[1], cookie=False)
        async with replica_of(patient) as other:
            other.parts.deletions.wait_ms = 20_000
            if refusal is None:
                await repeated(other)
            else:
                with pytest.raises(refusal):
                    await repeated(other)
        assert holds(await found_by_a_restore(world))


async def test_idempotency_keys_are_served_when_their_data_set_is_noted(tmp_path: Path) -> None:
    """A restore that did not find which data of Redis is valid would take an empty Redis for a new one."""
    server = MemoryKeyServer()

    def keys(session: NotingSession) -> KeyStore:
        return KeyStore(server, DatasetStore(session), window_ms=60_000, now_ms=lambda: 1)

    async with two_nodes(tmp_path) as world, noting(world, once=True) as hasty, noting(world) as patient:
        with pytest.raises(ProcessKilled):
            await keys(NotingSession(world.open(), killed)).read("key")
        await world.leave(world.members[1].incarnation)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await keys(hasty).read("key")
        await world.join(world.members[1], cookie=False)
        await keys(patient).read("key")
        assert (await found_by_a_restore(world)).value(paths.KEY_DATASET) is not None


async def test_lost_record_is_not_noted_as_deleted(tmp_path: Path) -> None:
    """The names of the namespace, and of the tenant, are there: so nobody has deleted it, and its note is kept for the
    rebuild."""
    lost = {paths.tenant_policies("empty"): "empty", paths.namespace_policies(NAMESPACE): NAMESPACE}
    async with two_nodes(tmp_path) as world, noting(world) as session, replica_of(session) as other:
        for path in lost:
            assert await world.session.delete(path, version=0) is WriteStatus.OK
        namespaces = other.parts.namespaces
        for call in (
            namespaces.delete_tenant("empty"), namespaces.create_tenant("empty"),
            namespaces.create_namespace(NamespaceName("empty", "n")),
            namespaces.delete_namespace(NAMESPACE), namespaces.create_namespace(NAMESPACE), write(other),
            other.parts.create_topic(LOST),
        ):  # fmt: skip
            with suppress(OncelogError):
                await call
        newest = await found_by_a_restore(world)
        assert [path for path in lost if newest.value(path) is None] == []
