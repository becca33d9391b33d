"""Watches of effective policies, deletions of namespaces, lists of all topics: in memory and in a real ZooKeeper."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from oncelog.core.errors import Conflict, CorruptEntry, NamespaceNotFound, NotFound, StoreUnavailable
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import TopicId
from oncelog.core.names import NamespaceName, parse_namespace, parse_topic
from oncelog.stores import paths
from oncelog.stores.namespace_store import NamespaceStore
from oncelog.stores.policies import Effective, Policies, PolicySource
from oncelog.stores.policy_store import CLUSTER, PolicyStore, Scope
from oncelog.stores.topic_store import TopicStore
from tests.contract.store_backends import DEADLINE_S, Backend, new_cluster

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
