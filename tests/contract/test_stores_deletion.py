"""Deleting a topic in the store: the same for the tree in memory and a real ZooKeeper."""

from dataclasses import replace

import pytest

from oncelog.core.coordination.id_claim import ABSENT_VERSION
from oncelog.core.errors import CorruptEntry, ServiceUnavailable, TopicNotFound
from oncelog.core.formats.topic_record import DEDUP_CURSOR, CursorLink, CursorRecord, LedgerLink
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, Position, TopicId
from oncelog.core.names import parse_namespace, parse_topic
from oncelog.core.store_status import WriteStatus
from oncelog.stores import paths
from oncelog.stores.cluster_store import ClusterStore
from oncelog.stores.cursor_store import CursorStore
from oncelog.stores.deletion_store import Deletion, DeletionStore
from oncelog.stores.policy_store import PolicyStore
from oncelog.stores.store_session import CheckStep, CreateStep, StoreSession
from oncelog.stores.topic_store import TopicStore
from tests.contract.store_backends import Backend, new_cluster

TOPIC = parse_topic("flights")
DEFAULT = parse_namespace("default")
OWNER = Incarnation("a" * 32)

pytestmark = pytest.mark.asyncio


async def used_topic(session: StoreSession) -> TopicId:
    """A topic with an owner, a ledger, a cursor with one, and a policy of its own."""
    topics = TopicStore(session)
    topic_id = (await topics.create(TOPIC)).name.value.topic_id
    stored = await topics.read(topic_id)
    assert stored is not None
    record = stored.value.placed_on(OWNER).with_ledger(LedgerLink(LedgerId(3), 0))
    await topics.write(record, version=stored.version)
    base = CursorLink(LedgerId(4), Position(LedgerId(4), EntryId(0)))
    await CursorStore(session).write(
        topic_id, DEDUP_CURSOR, CursorRecord(OwnerEpoch(1), (base,)), version=ABSENT_VERSION
    )
    await PolicyStore(session).change(topic_id, lambda policies: replace(policies, deduplication=False))
    return topic_id


async def test_deletion_takes_everything_of_a_topic_at_once(backend: Backend) -> None:
    """What is left to do is in one record: nothing of the topic can be read, written or placed any more."""
    session = await new_cluster(backend)
    topics, deletions = TopicStore(session), DeletionStore(session)
    topic_id = await used_topic(session)
    begun = await deletions.begin(TOPIC)
    assert begun == Deletion(topic_id, "public/default/flights", 0, OWNER, (LedgerId(3), LedgerId(4)), LedgerId(3))
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


@pytest.mark.hazard(3)
async def test_paused_owner_writes_nothing_into_a_topic_created_anew(backend: Backend) -> None:
    """Versions begin at 0 again, and the id does not come back (hazard 3)."""
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


async def test_deletion_that_lost_its_reply_or_its_race_is_made_once(backend: Backend) -> None:
    """Applied or not, raced by a roll of the owner or not: the caller ends with a topic that is gone."""
    session = await new_cluster(backend)
    topics, deletions = TopicStore(session), DeletionStore(session)
    for lose in (backend.lose_next_reply, backend.lose_next_request):
        topic_id = await used_topic(session)
        lose(session)
        begun = await deletions.begin(TOPIC)
        assert (begun.topic_id, await deletions.read(topic_id)) == (topic_id, begun)
        assert await topics.find(TOPIC) is None
        await deletions.end(begun, TOPIC)


@pytest.mark.hazard(3)
async def test_deletion_that_arrives_late_spares_the_topic_created_anew(backend: Backend) -> None:
    """It names the record of the old id, which is gone for ever."""
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


async def test_name_of_a_partitioned_topic_is_held_until_its_parts_are_gone(backend: Backend) -> None:
    """Neither a part nor a topic is made under it meanwhile; then it is free, without a trace."""
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


async def test_part_is_not_made_when_its_topic_goes_meanwhile(backend: Backend) -> None:
    """Made after the look at the parts, it would outlive them: the transaction checks the name as it was read."""
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
    """It is not taken for a topic that somebody else has deleted."""
    session = await new_cluster(backend)
    topic_id = (await TopicStore(session).create(TOPIC)).name.value.topic_id
    await session.delete(paths.cursors(topic_id), version=0)
    await session.delete(paths.topic(topic_id), version=0)
    with pytest.raises(CorruptEntry, match="no record"):
        await DeletionStore(session).begin(TOPIC)


async def test_cluster_of_an_earlier_version_gets_the_folder(backend: Backend) -> None:
    """Made by whichever metadata service starts."""
    session = await new_cluster(backend)
    assert await session.delete(paths.DELETIONS, version=0) is WriteStatus.OK
    await ClusterStore(session).establish()
    assert await DeletionStore(session).pending() == []
