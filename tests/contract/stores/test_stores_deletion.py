"""Deletions of topics in the store: the same tests for the fake in memory and for a real ZooKeeper."""

from dataclasses import replace

import pytest

from oncelog.core.errors import CorruptEntry, ServiceUnavailable, TopicNotFound
from oncelog.core.formats.topic_record import DEDUP_CURSOR, CursorLink, CursorRecord, LedgerLink
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, Position, TopicId
from oncelog.core.names import parse_namespace, parse_topic
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.deletion_store import Deletion, DeletionStore
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import CheckStep, CreateStep, StoreSession
from tests.contract.stores.store_backends import Backend, new_cluster

TOPIC = parse_topic("flights")
DEFAULT = parse_namespace("default")
OWNER = Incarnation("a" * 32)

pytestmark = pytest.mark.asyncio


async def used_topic(session: StoreSession) -> TopicId:
    """A topic with an owner, a ledger in its log and in its ack log, a cursor with one, and a policy of its own."""
    topics = TopicStore(session)
    topic_id = (await topics.create(TOPIC)).name.value.topic_id
    stored = await topics.read(topic_id)
    assert stored is not None
    record = stored.value.placed_on(OWNER).with_ledger(LedgerLink(LedgerId(3), 0)).with_ack_ledger(LedgerId(5))
    await topics.write(record, version=stored.version)
    base = CursorLink(LedgerId(4), Position(LedgerId(4), EntryId(0)))
    await CursorStore(session).write(
        topic_id, DEDUP_CURSOR, CursorRecord(OwnerEpoch(1), (base,)), version=ABSENT_VERSION
    )
    await PolicyStore(session).change(topic_id, lambda policies: replace(policies, deduplication=False))
    return topic_id


async def test_deletion_removes_everything_of_a_topic_at_once(backend: Backend) -> None:
    """One record holds the remaining work. No record of the topic can be read or written, and no replica can place
    it."""
    session = await new_cluster(backend)
    topics, deletions = TopicStore(session), DeletionStore(session)
    topic_id = await used_topic(session)
    begun = await deletions.begin(TOPIC)
    ledgers = (LedgerId(3), LedgerId(5), LedgerId(4))
    assert begun == Deletion(topic_id, "public/default/flights", 0, OWNER, ledgers, LedgerId(3), LedgerId(5))
    assert await deletions.pending() == [topic_id]
    assert await deletions.read(topic_id) == begun
    assert await topics.find(TOPIC) is None
    assert await topics.read(topic_id) is None
    assert (await PolicyStore(session).read(topic_id)).version == ABSENT_VERSION
    with pytest.raises(TopicNotFound):
        await CursorStore(session).write(topic_id, DEDUP_CURSOR, CursorRecord(OwnerEpoch(1)), version=ABSENT_VERSION)
    for _ in range(2):
        await deletions.end(begun, TOPIC)
        assert (await deletions.pending(), await deletions.read(topic_id)) == ([], None)
    with pytest.raises(TopicNotFound):
        await deletions.begin(TOPIC)


@pytest.mark.hazard("recreated-topic")
async def test_paused_owner_writes_nothing_to_a_new_topic_of_the_name(backend: Backend) -> None:
    """Versions begin at 0 again, but the id is never reused (hazard recreated-topic)."""
    session = await new_cluster(backend)
    topics = TopicStore(session)
    old_id = (await topics.create(TOPIC)).name.value.topic_id
    old = await topics.read(old_id)
    assert old is not None
    await DeletionStore(session).begin(TOPIC)
    new = await topics.create(TOPIC)
    assert new.created
    new_id = new.name.value.topic_id
    assert new_id != old_id
    assert (await topics.write(old.value.placed_on(OWNER), version=0)).status is WriteStatus.CONFLICT
    stored = await topics.read(new_id)
    assert stored is not None
    assert (stored.version, stored.value.owner, stored.value.ledgers) == (0, None, ())
    assert (await PolicyStore(session).read(new_id)).version == ABSENT_VERSION


async def test_deletion_with_a_lost_reply_or_a_race_happens_once(backend: Backend) -> None:
    """Applied or not, with or without a concurrent roll of the owner: the topic is deleted in the end."""
    session = await new_cluster(backend)
    topics, deletions = TopicStore(session), DeletionStore(session)
    for lose in (backend.lose_next_reply, backend.lose_next_request):
        topic_id = await used_topic(session)
        lose(session)
        begun = await deletions.begin(TOPIC)
        assert (begun.topic_id, await deletions.read(topic_id)) == (topic_id, begun)
        assert await topics.find(TOPIC) is None
        await deletions.end(begun, TOPIC)


@pytest.mark.hazard("recreated-topic")
async def test_late_deletion_does_not_affect_a_new_topic_of_the_name(backend: Backend) -> None:
    """The late request names the record of the old id, which does not exist any more."""
    session = await new_cluster(backend)
    deletions = DeletionStore(session)
    await used_topic(session)
    found = await TopicStore(session).find(TOPIC)
    assert found is not None
    planned = await deletions._plan(TOPIC, found)
    assert planned is not None
    await deletions.end(await deletions.begin(TOPIC), TOPIC)
    new = await TopicStore(session).create(TOPIC)
    assert await session.transact(planned[1]) is WriteStatus.CONFLICT
    assert await TopicStore(session).find(TOPIC) == new.name


async def test_name_of_a_partitioned_topic_is_taken_until_its_partitions_are_deleted(backend: Backend) -> None:
    """Neither a partition nor a topic can be created under it meanwhile. Then the name is free, without leftovers."""
    session = await new_cluster(backend)
    topics, deletions = TopicStore(session), DeletionStore(session)
    whole = await topics.create(TOPIC, partitions=2)
    part, other = replace(TOPIC, partition=0), replace(TOPIC, partition=1)
    await topics.create(part)
    begun = await deletions.begin(TOPIC)
    assert (begun.topic_id, begun.partitions, begun.owner) == (whole.name.value.topic_id, 2, None)
    assert list(await topics.topics(DEFAULT)) == [str(part).rpartition("/")[2]]
    assert TOPIC.local in await topics.topics(DEFAULT, deleted=True)
    with pytest.raises(ServiceUnavailable, match="being deleted"):
        await topics.create(TOPIC)
    with pytest.raises(TopicNotFound):
        await topics.create(other)
    with pytest.raises(TopicNotFound):
        await deletions.begin(TOPIC)
    await deletions.end(await deletions.begin(part), part)
    await deletions.end(begun, TOPIC)
    assert await topics.topics(DEFAULT, deleted=True) == {}
    assert (await topics.create(TOPIC)).name.value.partitions == 0


async def test_partition_is_not_created_when_its_topic_is_deleted_meanwhile(backend: Backend) -> None:
    """It would outlive its topic. The transaction therefore checks that the name is unchanged."""
    session = await new_cluster(backend)
    name = paths.topic_name(TOPIC)
    await TopicStore(session).create(TOPIC, partitions=2)
    steps = await TopicStore(session)._require_part(replace(TOPIC, partition=0))
    assert steps == [CheckStep(name, 0)]
    await DeletionStore(session).begin(TOPIC)
    made = CreateStep(f"{name}-partition-0")
    assert await session.transact([*steps, made]) is WriteStatus.CONFLICT
    assert await session.transact([CheckStep(name, 1), made]) is WriteStatus.OK


async def test_name_without_a_record_is_damage(backend: Backend) -> None:
    """It is not mistaken for a topic that another process has deleted."""
    session = await new_cluster(backend)
    topic_id = (await TopicStore(session).create(TOPIC)).name.value.topic_id
    await session.delete(paths.cursors(topic_id), version=0)
    await session.delete(paths.topic(topic_id), version=0)
    with pytest.raises(CorruptEntry, match="no record"):
        await DeletionStore(session).begin(TOPIC)


async def test_cluster_of_an_earlier_version_gets_the_folder(backend: Backend) -> None:
    """The first metadata service that starts creates it."""
    session = await new_cluster(backend)
    assert await session.delete(paths.DELETIONS, version=0) is WriteStatus.OK
    store = ClusterStore(session)
    await store.complete(await store.require())
    assert await DeletionStore(session).pending() == []
