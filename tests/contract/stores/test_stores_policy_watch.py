"""Watches of effective policies, deletions of namespaces, lists of all topics: in memory and in a real ZooKeeper."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from oncelog.core.errors import Conflict, CorruptEntry, NamespaceNotFound, NotFound, StoreUnavailable
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import TopicId
from oncelog.core.names import NamespaceName, parse_namespace, parse_topic
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.namespace_store import NamespaceStore
from oncelog.metadata_store.records.policies import Effective, Policies, PolicySource
from oncelog.metadata_store.records.policy_store import CLUSTER, PolicyStore, Scope
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import Fired, Step, Znode
from oncelog.metadata_store.session.watch import SharedNodes
from tests.cluster.until import yield_to_loop
from tests.contract.stores.memory_store import MemorySession, MemoryTree
from tests.contract.stores.store_backends import DEADLINE_S, Backend, new_cluster

TOPIC = parse_topic("flights")
DEFAULT = parse_namespace("default")

pytestmark = pytest.mark.asyncio


def switch(value: bool | None) -> Callable[[Policies], Policies]:
    return lambda policies: replace(policies, deduplication=value)


async def test_watch_shows_the_current_policies_and_each_change_at_every_level(backend: Backend) -> None:
    """Another process changes a policy, and the topic's owner must notice."""
    session, other = await new_cluster(backend), await backend.open()
    topic_id = (await TopicStore(session).create(TOPIC)).name.value.topic_id
    watch = PolicyStore(session).watch(TOPIC, topic_id)
    changes: list[tuple[Scope, bool | None, Effective[bool]]] = [
        (CLUSTER, False, Effective(False, PolicySource.CLUSTER)),
        (DEFAULT, True, Effective(True, PolicySource.NAMESPACE)),
        (topic_id, False, Effective(False, PolicySource.TOPIC)),
        (topic_id, None, Effective(True, PolicySource.NAMESPACE)),
        (CLUSTER, True, Effective(True, PolicySource.NAMESPACE)),
        (DEFAULT, None, Effective(True, PolicySource.CLUSTER)),
    ]
    async with asyncio.timeout(DEADLINE_S):
        assert (await anext(watch)).deduplication == Effective(True, PolicySource.DEFAULT)
        for scope, value, expected in changes:
            await PolicyStore(other).change(scope, switch(value))
            assert (await anext(watch)).deduplication == expected
    await watch.aclose()


async def test_watch_of_a_partition_follows_its_partitioned_topic(backend: Backend) -> None:
    """A policy of the partitioned topic could be set and read, but its partitions ignored it."""
    session, other = await new_cluster(backend), await backend.open()
    part = replace(TOPIC, partition=1)
    whole = (await TopicStore(session).create(TOPIC, partitions=2)).name.value.topic_id
    topic_id = (await TopicStore(session).create(part)).name.value.topic_id
    watch = PolicyStore(session).watch(part, topic_id)
    changes: list[tuple[Scope, bool | None, Effective[bool]]] = [
        (whole, False, Effective(False, PolicySource.PARTITIONED_TOPIC)),
        (topic_id, True, Effective(True, PolicySource.TOPIC)),
        (topic_id, None, Effective(False, PolicySource.PARTITIONED_TOPIC)),
        (whole, None, Effective(True, PolicySource.DEFAULT)),
    ]
    async with asyncio.timeout(DEADLINE_S):
        assert (await anext(watch)).deduplication == Effective(True, PolicySource.DEFAULT)
        for scope, value, expected in changes:
            await PolicyStore(other).change(scope, switch(value))
            assert (await anext(watch)).deduplication == expected
    await watch.aclose()


async def test_watch_misses_nothing_during_an_outage(backend: Backend) -> None:
    """Changes during an outage are reported after it, in a new session if necessary."""
    session, other = await new_cluster(backend), await backend.open()
    topic_id = (await TopicStore(session).create(TOPIC)).name.value.topic_id
    watch = PolicyStore(session).watch(TOPIC, topic_id)
    async with asyncio.timeout(DEADLINE_S):
        await anext(watch)
        await PolicyStore(other).change(topic_id, switch(False))
        await backend.break_connection(session)
        while (await anext(watch)).deduplication.value:
            pass
        await backend.expire(session)
        await PolicyStore(other).change(topic_id, switch(True))
        while not (await anext(watch)).deduplication.value:
            pass
    await watch.aclose()


async def test_watch_ends_with_its_session(backend: Backend) -> None:
    """An endless loop of items would keep all other tasks of the process from running, including signal handlers."""
    session = await new_cluster(backend)
    topic_id = (await TopicStore(session).create(TOPIC)).name.value.topic_id
    watch = PolicyStore(session).watch(TOPIC, topic_id)
    async with asyncio.timeout(DEADLINE_S):
        await anext(watch)
        waiting = asyncio.ensure_future(anext(watch))
        await session.close()
        with pytest.raises(StoreUnavailable):
            await waiting


async def test_only_an_empty_namespace_is_deleted(backend: Backend) -> None:
    """A topic in it would be unreachable, because its name and policies would be gone."""
    session = await new_cluster(backend)
    namespaces, orders = NamespaceStore(session), NamespaceName("public", "orders")
    with pytest.raises(NamespaceNotFound):
        await namespaces.delete_namespace(orders)
    assert await namespaces.create_namespace(orders)
    await TopicStore(session).create(parse_topic("public/orders/new"))
    with pytest.raises(Conflict, match="not empty"):
        await namespaces.delete_namespace(orders)
    assert await namespaces.exists(orders)
    empty = NamespaceName("public", "empty")
    await namespaces.create_namespace(empty)
    backend.lose_next_reply(session)
    await namespaces.delete_namespace(empty)
    assert not await namespaces.exists(empty)
    with pytest.raises(NotFound):
        await TopicStore(session).topics(empty)
    assert await namespaces.create_namespace(empty)


async def test_each_topic_of_all_namespaces_is_listed(backend: Backend) -> None:
    """A search for the topics of a lost owner must not miss one. A damaged record hides only itself."""
    session = await new_cluster(backend)
    topics = TopicStore(session)
    await NamespaceStore(session).create_namespace(NamespaceName("public", "orders"))
    names = {f"public/{namespace}/t{number}" for namespace in ("default", "orders") for number in range(40)}
    await asyncio.gather(*(topics.create(parse_topic(name)) for name in sorted(names)))
    await session.create(paths.topic(TopicId("0damaged")), b"{}")
    listed = [record async for record in topics.each()]
    assert {record.name for record in listed if isinstance(record, TopicRecord)} == names
    assert len([record for record in listed if isinstance(record, CorruptEntry)]) == 1


class CountingSession(MemorySession):
    """{path: reads}, and the number of transactions."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree, root="/oncelog")
        self.reads: Counter[str] = Counter()
        self.transactions = 0
        #: answers to reads with a watch wait for this event, and set the other
        self.held: asyncio.Event | None = None
        self.answered = asyncio.Event()

    async def read(self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None) -> Znode | None:
        self.reads[path] += 1
        node = await super().read(path, fired=fired, timeout_ms=timeout_ms)
        if fired is not None and self.held is not None:
            self.answered.set()
            await self.held.wait()
        return node

    async def transact(self, steps: Sequence[Step], *, timeout_ms: int | None = None) -> WriteStatus:
        self.transactions += 1
        return await super().transact(steps, timeout_ms=timeout_ms)


async def counting_cluster() -> CountingSession:
    session = CountingSession(MemoryTree())
    await ClusterStore(session).establish()
    session.reads.clear()
    session.transactions = 0
    return session


async def test_policies_above_the_topics_are_read_once_for_all_of_them() -> None:
    """At an owner of thousands of topics each of them read the namespace's policies, at first and after each change."""
    session = await counting_cluster()
    store, topics = PolicyStore(session), 40
    watches = [store.watch(TOPIC, TopicId(f"t{number}")) for number in range(topics)]
    namespace = paths.namespace_policies(DEFAULT)

    async def next_of_all() -> list[Effective[bool]]:
        async with asyncio.timeout(DEADLINE_S):
            return [found.deduplication for found in await asyncio.gather(*map(anext, watches))]

    assert await next_of_all() == [Effective(True, PolicySource.DEFAULT)] * topics
    assert (session.reads[namespace], session.reads[paths.CLUSTER_POLICIES]) == (1, 1)
    session.reads.clear()
    await PolicyStore(session).change(DEFAULT, switch(False))
    changed = session.reads[namespace]  # by the change itself
    assert await next_of_all() == [Effective(False, PolicySource.NAMESPACE)] * topics
    assert session.reads == Counter({namespace: changed + 1})
    # One topic's own policies concern no other topic.
    await PolicyStore(session).change(TopicId("t7"), switch(True))
    async with asyncio.timeout(DEADLINE_S):
        assert (await anext(watches[7])).deduplication == Effective(True, PolicySource.TOPIC)
    for watch in watches:
        await watch.aclose()


async def test_a_change_during_the_read_that_many_wait_for_reaches_all_of_them() -> None:
    """Those that join the read after the change would follow a node whose watch has fired already."""
    session = await counting_cluster()
    session.held = asyncio.Event()
    nodes = SharedNodes(session)
    early, late = asyncio.Event(), asyncio.Event()
    reads = [asyncio.ensure_future(nodes.read(paths.CLUSTER_POLICIES, early))]
    async with asyncio.timeout(DEADLINE_S):
        await session.answered.wait()
        await PolicyStore(session).change(CLUSTER, switch(False))
        reads.append(asyncio.ensure_future(nodes.read(paths.CLUSTER_POLICIES, late)))
        await yield_to_loop()
        session.held.set()
        old, joined = await asyncio.gather(*reads)
    assert (old is joined, old.value) == (True, None)
    assert early.is_set()
    assert late.is_set()


async def test_a_new_topic_is_created_with_one_request() -> None:
    """Of ten requests to ZooKeeper for a creation, six were to look for the name again, before and after."""
    session = await counting_cluster()
    created = await TopicStore(session).create(TOPIC)
    assert (created.created, session.transactions, session.reads.total()) == (True, 1, 0)
    found = await TopicStore(session).find(TOPIC)
    assert found == created.name
    assert created.record == await TopicStore(session).read(created.name.value.topic_id)
    again = await TopicStore(session).create(TOPIC)
    assert (again.created, again.name, again.record) == (False, created.name, None)
