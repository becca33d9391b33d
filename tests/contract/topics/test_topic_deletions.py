"""Deletions of topics by metadata replicas: completed by any replica, however often they are interrupted."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.errors import CorruptEntry, ServiceUnavailable, StoreUnavailable, TopicNotFound
from oncelog.core.formats.ledger_page import ListPage, PagedLedger
from oncelog.core.formats.topic_record import DEDUP_CURSOR, CursorLink, CursorRecord, LedgerLink
from oncelog.core.ids import Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.member_status import FenceState
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.names import TopicName, parse_namespace, parse_topic
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.metadata.replica import Coordination
from oncelog.metadata.topics.topic_deletions import TopicDeletions
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.deletion_store import DeletionStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session import paths
from oncelog.wire import owner_pb2
from tests.cluster.metadata.metadata_world import DEADLINE_S, FakeOwner, Replica, World
from tests.cluster.until import until
from tests.contract.storage_client.ledger_world import Node
from tests.contract.storage_client.ledger_world import nodes as storage_nodes
from tests.contract.stores.memory_store import MemorySession

FLIGHTS, SPLIT = parse_topic("flights"), parse_topic("split")
PARTS = [parse_topic(f"split-partition-{number}") for number in range(3)]
DEFAULT = parse_namespace("default")

pytestmark = pytest.mark.asyncio


class DyingSession(MemorySession):
    """The process dies after this many changes of the store: from then on no call returns."""

    changes_left = 0

    async def delete(self, path: str, **options: Any) -> Any:
        self._live()
        return await super().delete(path, **options)

    async def transact(self, steps: Any, **options: Any) -> Any:
        self._live()
        return await super().transact(steps, **options)

    def _live(self) -> None:
        if self.changes_left == 0:
            raise StoreUnavailable("the process is dead")
        self.changes_left -= 1


async def used(
    session: MemorySession, name: TopicName, first_ledger: int, *, owner: FakeOwner | None = None
) -> TopicId:
    """A topic with three ledgers in its log, one of them in a page, and one in its cursor, owned by `owner`."""
    topics, ledgers = TopicStore(session), LedgerStore(session)
    topic_id = (await topics.create(name)).name.value.topic_id
    stored = await topics.read(topic_id)
    assert stored is not None
    record = stored.value
    if owner is not None:
        record = record.placed_on(owner.incarnation)
        owner.states.append(owner_pb2.TopicState(topic=str(name), topic_id=topic_id, phase="serving"))
    for ledger_id in range(first_ledger, first_ledger + 3):
        record = record.with_ledger(LedgerLink(LedgerId(ledger_id), 0))
    page = ListPage((PagedLedger(LedgerId(first_ledger), 0, 0, 0),))
    await topics.write(record.with_page(page.link), version=stored.version, page=page)
    cursor = CursorRecord(OwnerEpoch(1), (CursorLink(LedgerId(first_ledger + 3), None),))
    await CursorStore(session).write(topic_id, DEDUP_CURSOR, cursor, version=ABSENT_VERSION)
    for ledger_id in range(first_ledger, first_ledger + 4):
        await ledgers.write(LedgerMetadata(LedgerId(ledger_id), topic_id, (), 1), version=ABSENT_VERSION)
    return topic_id


def deletions_of(replica: Replica) -> TopicDeletions:
    return replica.coordination.deletions


async def nothing_is_left(session: MemorySession) -> bool:
    folders = (
        paths.TOPICS,
        paths.PAGES,
        paths.LEDGERS,
        paths.DELETIONS,
        paths.TOPIC_POLICIES,
        paths.namespace_names(DEFAULT),
    )
    return not any([await session.children(folder) for folder in folders])


async def test_deletion_removes_all_records() -> None:
    """The owner has closed the topic when the call returns, and ledger records are deleted only after that."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner(replica)
        await replica.sees(owner)
        topic_id = await used(replica.session, FLIGHTS, 1, owner=owner)
        other = await used(replica.session, parse_topic("kept"), 11)
        owner.lets_go = True
        await deletions_of(replica).delete(FLIGHTS)
        assert owner.states == []
        assert {called for called, _ in owner.called} == {topic_id}
        assert await LedgerStore(replica.session).ids() == [LedgerId(number) for number in (11, 12, 13, 14)]
        assert await replica.session.children(paths.TOPICS) == [other]
        assert await DeletionStore(replica.session).pending() == []


@pytest.mark.hazard("recreated-topic")
@pytest.mark.parametrize("name", [FLIGHTS, SPLIT])
async def test_deletion_interrupted_after_any_step_is_completed_by_another_replica(name: TopicName) -> None:
    """Whatever the dead replica had done, in the end nothing is left and the name is free."""
    interrupted = 0
    for changes in range(30):
        async with World.running() as world:
            session = await world.session()
            if name == SPLIT:
                await TopicStore(session).create(SPLIT, partitions=len(PARTS))
                for number, part in enumerate(PARTS[1:]):
                    await used(session, part, 1 + number * 10)
            else:
                await used(session, FLIGHTS, 1)
            dying = DyingSession(world.tree, root="/oncelog")
            dying.changes_left = changes
            tasks: list[asyncio.Task[None]] = []
            try:
                await delete_by(dying, name, tasks)
            except StoreUnavailable:
                assert changes == 0
                assert await TopicStore(session).find(name) is not None
                await delete_by_another(world, name)
            await asyncio.gather(*tasks)
            interrupted += bool(await session.children(paths.DELETIONS))
            await deletions_of(await world.replica()).resume()
            assert await nothing_is_left(session)
            assert (await TopicStore(session).create(name)).created
            await dying.close()
            if dying.changes_left:
                break
    assert interrupted >= 3
    assert changes < 29, "it never came to its end"


async def delete_by(session: MemorySession, name: TopicName, tasks: list["asyncio.Task[None]"]) -> None:
    """By a replica without a process. `tasks` gets its background tasks."""

    def start(work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        tasks.append(asyncio.ensure_future(work))
        return tasks[-1]

    deletions = Coordination.over(session, "c", start).deletions
    deletions.wait_ms = 100
    try:
        await (deletions.delete_partitioned if name == SPLIT else deletions.delete)(name)
    except ServiceUnavailable:
        return  # it died in between; nobody was told that the topic is gone


async def delete_by_another(world: World, name: TopicName) -> None:
    deletions = deletions_of(await world.replica())
    await (deletions.delete_partitioned if name == SPLIT else deletions.delete)(name)


async def test_ledgers_stay_while_the_owner_serves_the_topic() -> None:
    """The owner would find a hole. The name is free meanwhile, and the end of the session lets the deletion
    continue."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner(replica)
        await replica.sees(owner)
        topic_id = await used(replica.session, FLIGHTS, 1, owner=owner)
        deleting = asyncio.ensure_future(deletions_of(replica).delete(FLIGHTS))

        async def told() -> bool:
            return (topic_id, 0) in owner.called

        await until(told, DEADLINE_S, waiting_for="the owner to be told")
        assert await DeletionStore(replica.session).pending() == [topic_id]
        assert len(await LedgerStore(replica.session).ids()) == 4
        assert (await TopicStore(replica.session).create(FLIGHTS)).name.value.topic_id != topic_id
        owner.lets_go = True
        await deleting
        assert await LedgerStore(replica.session).ids() == []


@pytest.mark.parametrize("name", [FLIGHTS, SPLIT])
async def test_deletion_is_answered_after_the_owner_has_confirmed_it(name: TopicName) -> None:
    """A call that the owner does not answer in time fails. A retry joins the deletion and waits for it."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner(replica)
        await replica.sees(owner)
        if name == SPLIT:
            await TopicStore(replica.session).create(SPLIT, partitions=1)
        await used(replica.session, PARTS[0] if name == SPLIT else FLIGHTS, 1, owner=owner)
        delete = deletions_of(replica).delete_partitioned if name == SPLIT else deletions_of(replica).delete
        deletions_of(replica).wait_ms = 300
        owner.answers_assignments = False
        for _ in range(2):
            with pytest.raises(ServiceUnavailable, match="has not finished yet"):
                await delete(name)
        if name == SPLIT:
            with pytest.raises(ServiceUnavailable, match="has not finished yet"):
                await deletions_of(replica).until_free(SPLIT)
        owner.answers_assignments = owner.lets_go = True
        deletions_of(replica).wait_ms = 20_000
        await (deletions_of(replica).until_free(name) if name == SPLIT else delete(name))
        assert await nothing_is_left(replica.session)
        with pytest.raises(TopicNotFound):
            await delete(name)


async def test_partitioned_deletion_waits_for_a_partition_that_another_replica_deletes() -> None:
    """That one was killed right after it had begun, and the owner still serves the partition."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner(replica)
        await replica.sees(owner)
        await TopicStore(replica.session).create(SPLIT, partitions=2)
        await used(replica.session, PARTS[1], 1, owner=owner)
        for name in (SPLIT, PARTS[1]):
            await DeletionStore(replica.session).begin(name)
        deletions_of(replica).wait_ms = 300
        with pytest.raises(ServiceUnavailable, match="has not finished yet"):
            await deletions_of(replica).delete_partitioned(SPLIT)
        owner.lets_go = True
        deletions_of(replica).wait_ms = 20_000
        await deletions_of(replica).delete_partitioned(SPLIT)
        assert await nothing_is_left(replica.session)


async def test_topic_of_an_owner_without_session_is_deleted_at_once() -> None:
    """The owner reads its records before it continues under another session."""
    async with World.running() as world:
        replica = await world.replica()
        owner = await world.owner()
        await replica.sees(owner)
        await used(replica.session, FLIGHTS, 1, owner=owner)
        owner.session.faults.expire()
        await deletions_of(replica).delete(FLIGHTS)
        assert owner.called == []
        assert await nothing_is_left(replica.session)


async def test_last_ledgers_are_fenced_before_a_deletion_is_answered(tmp_path: Path) -> None:
    """An owner without a session, or a deposed one, may still write to the log and to the ack log: none of that is
    acknowledged."""
    async with World.running() as world, storage_nodes(tmp_path, 3) as nodes:
        replica = await world.replica()
        registry = Registry(replica.session)
        members = tuple(node.incarnation for node in nodes)
        topic_id = (await TopicStore(replica.session).create(FLIGHTS)).name.value.topic_id
        stored = await TopicStore(replica.session).read(topic_id)
        assert stored is not None
        record = stored.value.placed_on(Incarnation("e" * 32)).with_ledger(LedgerLink(LedgerId(7), 0))
        await TopicStore(replica.session).write(record.with_ack_ledger(LedgerId(8)), version=stored.version)
        for ledger_id in (LedgerId(7), LedgerId(8)):
            await LedgerStore(replica.session).write(
                LedgerMetadata(ledger_id, topic_id, members, 2), version=ABSENT_VERSION
            )

        def fenced(count: int) -> bool:
            """Whether so many members of each ledger are fenced."""
            states = [[node.runner.core.ledgers.fence_state(LedgerId(n)) for node in nodes] for n in (7, 8)]
            return [each.count(FenceState.FENCED) for each in states] == [count, count]

        async def registers(node: Node) -> None:
            host, _, port = node.address.rpartition(":")
            me = LiveStorageNode(node.incarnation, host, int(port), 1 << 30)
            await registry.register_storage_node(me).establish()

        await registers(nodes[0])
        deletions_of(replica).wait_ms = 300

        async def reached() -> bool:
            with pytest.raises(ServiceUnavailable, match=r"[01] of 3 storage nodes of ledger [78]") as refused:
                await deletions_of(replica).delete(FLIGHTS)
            return "1 of 3" in refused.value.message

        await until(reached, DEADLINE_S, waiting_for="the only node that is there to be fenced in time")
        await until(lambda: fenced(1), DEADLINE_S, waiting_for="both ledgers to be fenced there")
        await registers(nodes[1])
        deletions_of(replica).wait_ms = 20_000
        await deletions_of(replica).delete(FLIGHTS)
        assert fenced(2)
        assert await nothing_is_left(replica.session)


async def test_concurrent_deletions_are_joined() -> None:
    """Of one name by two replicas, and of a deletion that both find unfinished."""
    async with World.running() as world:
        replicas = [await world.replica(), await world.replica()]
        await used(replicas[0].session, FLIGHTS, 1)
        await asyncio.gather(*(deletions_of(replica).delete(FLIGHTS) for replica in replicas), return_exceptions=True)
        assert await nothing_is_left(replicas[0].session)
        await used(replicas[0].session, FLIGHTS, 1)
        await DeletionStore(replicas[0].session).begin(FLIGHTS)
        await asyncio.gather(*(deletions_of(replica).resume() for replica in replicas for _ in range(2)))
        assert await nothing_is_left(replicas[0].session)


async def test_corrupt_deletion_record_does_not_delay_others() -> None:
    """It is logged as an error and not changed."""
    async with World.running() as world:
        replica = await world.replica()
        await replica.session.create(f"{paths.DELETIONS}/{'0' * 32}", b"{")
        await used(replica.session, FLIGHTS, 1)
        begun = await DeletionStore(replica.session).begin(FLIGHTS)
        await deletions_of(replica).resume()
        assert await DeletionStore(replica.session).pending() == ["0" * 32]
        assert await DeletionStore(replica.session).read(begun.topic_id) is None
        with pytest.raises(CorruptEntry):
            await deletions_of(replica).finish(TopicId("0" * 32))
