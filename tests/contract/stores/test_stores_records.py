"""The typed stores: the same tests for the fake in memory and for a real ZooKeeper."""

import asyncio
from dataclasses import replace

import pytest

from oncelog.core.errors import (
    CorruptEntry,
    NamespaceNotFound,
    NotFound,
    TopicNotFound,
    WrongCluster,
)
from oncelog.core.formats.topic_record import DEDUP_CURSOR, CursorRecord, LedgerLink
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.names import NamespaceName, TopicName, parse_namespace, parse_topic
from oncelog.core.records.id_claim import FIRST_ID, Counter, CounterRecord
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.namespace_store import NamespaceStore
from oncelog.metadata_store.records.policies import Effective, Policies, PolicySource
from oncelog.metadata_store.records.policy_store import CLUSTER, PolicyStore
from oncelog.metadata_store.records.topic_store import NameRecord, TopicStore
from oncelog.metadata_store.session import paths
from tests.contract.stores.store_backends import Backend, new_cluster

OK, CONFLICT, UNKNOWN = WriteStatus.OK, WriteStatus.CONFLICT, WriteStatus.UNKNOWN
TOPIC = parse_topic("flights")
DEFAULT = parse_namespace("default")
OWNER = Incarnation("a" * 32)
OTHER_OWNER = Incarnation("b" * 32)

pytestmark = pytest.mark.asyncio


async def test_cluster_is_created_once_and_another_is_refused(backend: Backend) -> None:
    """Of several processes that start at once, one creates it. A directory of another cluster must not join."""
    sessions = [await backend.open() for _ in range(3)]
    with pytest.raises(NotFound, match="no record of a cluster"):
        await ClusterStore(sessions[0]).require("one")
    records = await asyncio.gather(*(ClusterStore(session).establish() for session in sessions))
    assert len({record.cluster_id for record in records}) == 1
    cluster_id = records[0].cluster_id
    assert (await ClusterStore(sessions[1]).require(cluster_id)).cluster_id == cluster_id
    with pytest.raises(WrongCluster, match="not other"):
        await ClusterStore(sessions[1]).require("other")
    with pytest.raises(WrongCluster):
        await ClusterStore(sessions[1]).establish("other")


async def test_cluster_of_another_format_is_refused(backend: Backend) -> None:
    """A version that does not know the layout must not write to it."""
    session = await backend.open()
    await session.create(paths.CLUSTER, b'{"cluster_id":"one","format":99}')
    with pytest.raises(WrongCluster, match="format 99"):
        await ClusterStore(session).establish("one")


async def test_creation_of_a_cluster_survives_a_lost_reply(backend: Backend) -> None:
    """The cluster exists completely, with the default namespace of short topic names."""
    session = await backend.open()
    backend.lose_next_reply(session)
    await ClusterStore(session).establish("one")
    assert await NamespaceStore(session).tenants() == ["public"]
    assert await NamespaceStore(session).namespaces("public") == [DEFAULT]
    assert await TopicStore(session).topics(DEFAULT) == {}


async def test_ledger_is_created_once_and_changed_by_version(backend: Backend) -> None:
    """A close is a compare-and-set: the second of two closes changes nothing."""
    session = await new_cluster(backend)
    ledgers = LedgerStore(session)
    ledger = LedgerMetadata(LedgerId(7), TopicId("t"), (OWNER, OTHER_OWNER), 1)
    assert await ledgers.read(LedgerId(7)) is None
    assert (await ledgers.write(ledger, version=ABSENT_VERSION)).status is OK
    assert (await ledgers.write(ledger, version=ABSENT_VERSION)).status is CONFLICT
    assert await ledgers.read(LedgerId(7)) == (ledger, 0)
    closed = ledger.closed(end=EntryId(4), length=99)
    assert await ledgers.write(closed, version=0) == (OK, 1)
    assert (await ledgers.write(ledger.in_recovery(), version=0)).status is CONFLICT
    assert await ledgers.read_unsynced(LedgerId(7)) == (closed, 1)
    assert await ledgers.delete(LedgerId(7), version=0) is CONFLICT
    assert await ledgers.delete(LedgerId(7), version=1) is OK
    assert await ledgers.read(LedgerId(7)) is None


async def test_damaged_record_is_not_treated_as_absent(backend: Backend) -> None:
    """An unreadable record is an error; if it were treated as absent, it would be overwritten."""
    session = await new_cluster(backend)
    await session.create(paths.ledger(LedgerId(1)), b"{}")
    await session.create(paths.topic_name(TOPIC), b'{"format":2}')
    with pytest.raises(CorruptEntry):
        await LedgerStore(session).read(LedgerId(1))
    with pytest.raises(CorruptEntry):
        await TopicStore(session).find(TOPIC)
    scope = TOPIC.namespace_name
    await session.write(paths.namespace_policies(scope), b"{}", version=0)
    with pytest.raises(CorruptEntry, match=f"`oncelog admin backup rebuild {paths.namespace_policies(scope)}`"):
        await PolicyStore(session).read(scope)


async def test_lost_policies_of_a_namespace_name_the_rebuild(backend: Backend) -> None:
    """To create it again would lose the rights of all roles."""
    session = await new_cluster(backend)
    scope = TOPIC.namespace_name
    await session.delete(paths.namespace_policies(scope), version=0)
    command = f"oncelog admin backup rebuild {paths.namespace_policies(scope)}"
    with pytest.raises(NamespaceNotFound, match=command):
        await PolicyStore(session).read(scope)
    with pytest.raises(NamespaceNotFound, match=command):
        await NamespaceStore(session).delete_namespace(scope)
    with pytest.raises(NamespaceNotFound, match=command):
        await NamespaceStore(session).create_namespace(scope)
    assert await NamespaceStore(session).create_tenant("shop")
    await session.delete(paths.tenant_policies("shop"), version=0)
    assert await NamespaceStore(session).create_tenant("shop")
    with pytest.raises(NamespaceNotFound, match="there is no namespace public/other: create it"):
        await PolicyStore(session).read(NamespaceName("public", "other"))


async def test_two_counters_are_independent_and_created_with_the_cluster(backend: Backend) -> None:
    """Claims of ledger ids and of producer ids do not affect each other."""
    session = await new_cluster(backend)
    ledger, producer = (CounterStore(session, counter) for counter in (Counter.LEDGER, Counter.PRODUCER))
    for counter in (ledger, producer):
        unclaimed = await counter.read()
        assert (unclaimed.value.next, unclaimed.version) == (FIRST_ID, 0)
    first = CounterRecord(2, OWNER, "n1")
    assert await ledger.write(first, version=0) == (OK, 1)
    assert (await ledger.write(first, version=0)).status is CONFLICT
    assert (await producer.read()).version == 0
    second = CounterRecord(3, OWNER, "n2")
    backend.lose_next_reply(session)
    assert (await ledger.write(second, version=1)).status is UNKNOWN
    assert await ledger.read() == (second, 2)


@pytest.mark.hazard("lost-counter")
@pytest.mark.parametrize("counter", list(Counter))
async def test_lost_counter_gives_no_id(backend: Backend, counter: Counter) -> None:
    """Absent is not new: ids that were leased, or that are in the log, would be given a second time. Only in a cluster
    that an older version has created, the first metadata service that starts creates the counters that are missing."""
    session = await new_cluster(backend)
    cluster, store = ClusterStore(session), CounterStore(session, counter)
    path = f"{paths.IDS}/{counter.value}"
    await TopicStore(session).create(TOPIC)
    assert await session.delete(path, version=0) is OK
    await cluster.complete(await cluster.require())
    command = "rebuild /ids/ledger" if counter is Counter.LEDGER else "restore"
    with pytest.raises(CorruptEntry, match=rf"{path} is missing in ZooKeeper; .*oncelog admin backup {command}"):
        await store.read()
    found = await cluster.find()
    assert found is not None
    await cluster.write(replace(found.value, counters=False), version=found.version)
    await cluster.complete(await cluster.require())
    assert (await store.read()).value.next == FIRST_ID
    assert (await cluster.require()).counters


async def test_created_topic_has_a_name_and_an_empty_record(backend: Backend) -> None:
    """The name never points to a missing record."""
    topics = TopicStore(await new_cluster(backend))
    assert await topics.find(TOPIC) is None
    creation = await topics.create(TOPIC)
    assert creation.created
    assert await topics.find(TOPIC) == creation.name
    stored = await topics.read(creation.name.value.topic_id)
    assert stored is not None
    assert (stored.version, stored.value.name, stored.value.owner) == (0, "public/default/flights", None)
    assert creation.record == stored
    again = await topics.create(TOPIC)
    assert again == replace(creation, created=False, record=None)


async def test_creators_of_one_name_get_one_topic(backend: Backend) -> None:
    """All that race for a name get the winner's topic, and the losers leave no record behind."""
    session = await new_cluster(backend)
    sessions = [session, await backend.open(), await backend.open()]
    creations = await asyncio.gather(*(TopicStore(one).create(TOPIC) for one in sessions for _ in range(2)))
    assert len({creation.name.value.topic_id for creation in creations}) == 1
    assert sum(creation.created for creation in creations) == 1
    assert await session.children(paths.TOPICS) == [creations[0].name.value.topic_id]


async def test_lost_reply_to_a_creation_creates_one_topic(backend: Backend) -> None:
    """Applied or not, the caller gets a topic that it knows to be its own."""
    session = await new_cluster(backend)
    topics = TopicStore(session)
    backend.lose_next_reply(session)
    applied = await create_with_found_name(topics, parse_topic("applied"))
    assert applied
    backend.lose_next_request(session)
    assert await create_with_found_name(topics, parse_topic("not-applied"))
    assert len(await session.children(paths.TOPICS)) == 2


async def create_with_found_name(topics: TopicStore, name: TopicName) -> bool:
    return (await topics.create(name)).created


async def test_topic_without_a_namespace_is_refused(backend: Backend) -> None:
    """Namespaces are created explicitly."""
    session = await new_cluster(backend)
    topics, namespaces = TopicStore(session), NamespaceStore(session)
    elsewhere = parse_topic("acme/orders/new")
    with pytest.raises(NamespaceNotFound, match="acme/orders"):
        await topics.create(elsewhere)
    with pytest.raises(NamespaceNotFound):
        await topics.topics(elsewhere.namespace_name)
    with pytest.raises(NotFound, match="tenant acme"):
        await namespaces.create_namespace(elsewhere.namespace_name)
    assert await namespaces.create_tenant("acme")
    assert not await namespaces.create_tenant("acme")
    assert await namespaces.create_namespace(elsewhere.namespace_name)
    assert not await namespaces.create_namespace(elsewhere.namespace_name)
    assert (await topics.create(elsewhere)).created
    assert await namespaces.tenants() == ["acme", "public"]
    assert await namespaces.namespaces("acme") == [NamespaceName("acme", "orders")]


@pytest.mark.hazard("stale-record-after-conflict")
async def test_topic_record_of_a_paused_owner_cannot_be_written(backend: Backend) -> None:
    """Gaining ownership is a compare-and-set, and so is every later write of the owner (hazard
    stale-record-after-conflict)."""
    topics = TopicStore(await new_cluster(backend))
    topic_id = (await topics.create(TOPIC)).name.value.topic_id
    stored = await topics.read(topic_id)
    assert stored is not None
    mine = stored.value.placed_on(OWNER)
    assert await topics.write(mine, version=0) == (OK, 1)
    theirs = mine.placed_on(OTHER_OWNER)
    assert await topics.write(theirs, version=1) == (OK, 2)
    assert (await topics.write(mine.with_ledger(LedgerLink(LedgerId(1), 0)), version=1)).status is CONFLICT
    assert await topics.read(topic_id) == (theirs, 2)


async def test_partitioned_topic_is_a_name_and_its_partitions_are_topics(backend: Backend) -> None:
    """The partitions have owners and logs, the whole has none. A partition outside the range is not created."""
    topics = TopicStore(await new_cluster(backend))
    with pytest.raises(TopicNotFound, match="no partition 1"):
        await topics.create(replace(TOPIC, partition=1))
    whole = await topics.create(TOPIC, partitions=2)
    assert whole.name.value.partitions == 2
    part = await topics.create(replace(TOPIC, partition=1))
    assert await topics.read(part.name.value.topic_id) is not None
    with pytest.raises(TopicNotFound, match="no partition 2"):
        await topics.create(replace(TOPIC, partition=2))
    assert list((await topics.topics(DEFAULT)).values()) == [NameRecord(whole.name.value.topic_id, 2), part.name.value]


async def test_cursor_is_created_changed_and_listed_by_any_name(backend: Backend) -> None:
    """Subscription names are free text; a path element is not."""
    session = await new_cluster(backend)
    cursors = CursorStore(session)
    topic_id = (await TopicStore(session).create(TOPIC)).name.value.topic_id
    names = [DEDUP_CURSOR, "..", "a/b", "Prüfung 1 %2F"]
    record = CursorRecord(OwnerEpoch(1))
    for name in names:
        assert await cursors.read(topic_id, name) is None
        assert await cursors.write(topic_id, name, record, version=ABSENT_VERSION) == (OK, 0)
    assert await cursors.names(topic_id) == sorted(names)
    assert (await cursors.write(topic_id, "..", record, version=ABSENT_VERSION)).status is CONFLICT
    newer = CursorRecord(OwnerEpoch(2))
    assert await cursors.write(topic_id, "..", newer, version=0) == (OK, 1)
    assert await cursors.read(topic_id, "..") == (newer, 1)
    assert await cursors.delete(topic_id, "..", version=1) is OK
    assert await cursors.read(topic_id, "..") is None
    with pytest.raises(TopicNotFound):
        await cursors.names(TopicId("none"))


async def test_nearest_policy_is_effective_and_comes_with_its_source(backend: Backend) -> None:
    """A policy that is not set does not count as false."""
    session = await new_cluster(backend)
    policies = PolicyStore(session)
    topic_id = (await TopicStore(session).create(TOPIC)).name.value.topic_id

    async def deduplication() -> Effective[bool]:
        return (await policies.effective_of(TOPIC, topic_id)).deduplication

    assert await deduplication() == Effective(True, PolicySource.DEFAULT)
    await policies.change(CLUSTER, lambda p: replace(p, deduplication=False))
    assert await deduplication() == Effective(False, PolicySource.CLUSTER)
    await policies.change(DEFAULT, lambda p: replace(p, deduplication=True))
    assert await deduplication() == Effective(True, PolicySource.NAMESPACE)
    await policies.change(topic_id, lambda p: replace(p, deduplication=False))
    assert await deduplication() == Effective(False, PolicySource.TOPIC)
    assert (await policies.effective(DEFAULT)).deduplication == Effective(True, PolicySource.NAMESPACE)
    await policies.change(topic_id, lambda p: replace(p, deduplication=None))
    assert await deduplication() == Effective(True, PolicySource.NAMESPACE)
    with pytest.raises(NamespaceNotFound):
        await policies.effective(NamespaceName("public", "none"))


async def test_policy_of_a_partitioned_topic_holds_for_its_partitions(backend: Backend) -> None:
    """Also for a partition that is created later. A partition's own policy is nearer; other topics are not affected."""
    session = await new_cluster(backend)
    policies, topics = PolicyStore(session), TopicStore(session)
    whole = (await topics.create(TOPIC, partitions=2)).name.value.topic_id
    await policies.change(DEFAULT, lambda p: replace(p, deduplication=True))
    await policies.change(whole, lambda p: replace(p, deduplication=False))

    async def deduplication(name: TopicName) -> Effective[bool]:
        topic_id = (await topics.create(name)).name.value.topic_id
        return (await policies.effective_of(name, topic_id)).deduplication

    first, second = (replace(TOPIC, partition=number) for number in range(2))
    assert await deduplication(TOPIC) == Effective(False, PolicySource.TOPIC)
    assert await deduplication(first) == Effective(False, PolicySource.PARTITIONED_TOPIC)
    first_id = (await topics.create(first)).name.value.topic_id
    await policies.change(first_id, lambda p: replace(p, deduplication=True))
    assert await deduplication(first) == Effective(True, PolicySource.TOPIC)
    assert await deduplication(second) == Effective(False, PolicySource.PARTITIONED_TOPIC)
    await policies.change(whole, lambda p: replace(p, deduplication=None))
    assert await deduplication(second) == Effective(True, PolicySource.NAMESPACE)
    assert await deduplication(parse_topic("another")) == Effective(True, PolicySource.NAMESPACE)


async def test_change_of_policies_is_applied_once_and_keeps_unknown_fields(backend: Backend) -> None:
    """Two concurrent changes are both applied; a field of a later version does no harm. After a lost reply the same
    policies may be written again, so that they are noted."""
    session, other = await new_cluster(backend), await backend.open()
    await session.create(paths.CLUSTER_POLICIES, b'{"format":1,"retention_ms":5}')
    await asyncio.gather(
        PolicyStore(session).change(CLUSTER, lambda p: replace(p, deduplication=False)),
        PolicyStore(other).change(CLUSTER, lambda p: replace(p, auto_create_topics=False)),
    )
    backend.lose_next_reply(session)
    await PolicyStore(session).change(CLUSTER, lambda p: replace(p, auto_create_topics=True))
    stored = await PolicyStore(session).read(CLUSTER)
    assert stored.value == Policies(deduplication=False, auto_create_topics=True, further={"retention_ms": 5})
    assert stored.version in (3, 4)
