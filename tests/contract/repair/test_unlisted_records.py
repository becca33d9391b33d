"""The records of ledgers that their owner has left go: of trimmed ones, and of those that it created and never linked;
and no others."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
import pytest_asyncio

from oncelog.core.formats.topic_record import DEDUP_CURSOR, CursorLink, CursorRecord, LedgerLink, TopicRecord
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.names import parse_topic
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.repair.queue_events import ChainRecorded
from oncelog.metadata.repair.chain_listing import ChainListing
from oncelog.metadata.repair.unlisted_records import READS_MAX, ROUNDS, UnlistedRecords
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.deletion_store import DeletionStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.topic_store import TopicStore
from tests.cluster.until import until
from tests.contract.repair.repairing import DEADLINE_S
from tests.contract.repair.repairing import World as RepairWorld
from tests.contract.storage_client.ledger_world import A, B, C
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("missing-record-is-no-deletion")]


@dataclass
class World:
    """A topic, its cursor, and the ledgers' records."""

    topics: TopicStore
    cursors: CursorStore
    ledgers: LedgerStore
    chains: ChainListing
    deletions: DeletionStore
    topic_id: TopicId
    owners: list[Incarnation] = field(default_factory=list)
    placed: list[TopicId] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.unlisted = UnlistedRecords(self.ledgers, self.chains, self.deletions, owners=lambda: self.owners)

    async def ledger(
        self, *ledger_ids: int, closed: bool = True, topic_id: TopicId | None = None, epoch: int | None = None
    ) -> None:
        """epoch: of the owner that created them."""
        for ledger_id in ledger_ids:
            record = LedgerMetadata(LedgerId(ledger_id), topic_id or self.topic_id, (A, B, C), 2)
            record = replace(record, owner_epoch=None if epoch is None else OwnerEpoch(epoch))
            await self.ledgers.write(
                record.closed(end=EntryId(1), length=1) if closed else record, version=ABSENT_VERSION
            )

    async def lists(self, log: list[int], floor: int, dedup: list[int], dedup_floor: int) -> None:
        stored = await self.topics.read(self.topic_id)
        assert stored is not None
        links = tuple(LedgerLink(LedgerId(n), 0) for n in log)
        changed: TopicRecord = replace(stored.value, ledgers=links, deleted_below=LedgerId(floor))
        await self.topics.write(changed, version=stored.version)
        cursor = await self.cursors.read(self.topic_id, DEDUP_CURSOR)
        record = CursorRecord(OwnerEpoch(1), tuple(CursorLink(LedgerId(n), None) for n in dedup), LedgerId(dedup_floor))
        version = ABSENT_VERSION if cursor is None else cursor.version
        await self.cursors.write(self.topic_id, DEDUP_CURSOR, record, version=version)

    async def take_over(self, owner: Incarnation, *, claims_cursor: bool = True) -> None:
        stored = await self.topics.read(self.topic_id)
        assert stored is not None
        placed = stored.value.placed_on(owner)
        await self.topics.write(placed, version=stored.version)
        if claims_cursor:
            cursor = await self.cursors.read(self.topic_id, DEDUP_CURSOR)
            record = CursorRecord(placed.owner_epoch, () if cursor is None else cursor.value.ledgers)
            version = ABSENT_VERSION if cursor is None else cursor.version
            await self.cursors.write(self.topic_id, DEDUP_CURSOR, record, version=version)

    async def look(self) -> set[int]:
        """One look at all records; returns the ledgers that have a record then."""
        records = [await self.ledgers.record(ledger_id) for ledger_id in sorted(await self.ledgers.ids())]
        for _ in range(ROUNDS):
            self.placed += await self.unlisted.look(lambda: [record for record in records if record is not None])
        return {int(ledger_id) for ledger_id in await self.ledgers.ids()}


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    session = MemorySession(MemoryTree(), root="/oncelog")
    await ClusterStore(session).establish("test")
    topics, cursors, ledgers = TopicStore(session), CursorStore(session), LedgerStore(session)
    created = await topics.create(parse_topic("public/default/flights"))
    chains, deletions = ChainListing(topics, cursors), DeletionStore(session)
    yield World(topics, cursors, ledgers, chains, deletions, created.name.value.topic_id)
    await session.close()


async def test_records_below_the_floors_are_removed(world: World) -> None:
    """Of the log and of the cursor. Listed ledgers stay, and so do those above both floors."""
    await world.ledger(*range(1, 10))
    await world.lists(log=[4, 8], floor=4, dedup=[6], dedup_floor=6)
    assert await world.look() == {4, 6, 7, 8, 9}
    assert world.unlisted.removed == 4


async def test_ledgers_of_the_ack_log_stay_while_they_are_listed(world: World) -> None:
    """They have a list and a floor of their own; the floors of the other lists may be higher."""
    await world.ledger(*range(1, 6))
    await world.lists(log=[9], floor=9, dedup=[8], dedup_floor=8)
    stored = await world.topics.read(world.topic_id)
    assert stored is not None
    acked = stored.value.with_ack_ledger(LedgerId(2)).with_ack_ledger(LedgerId(4))
    await world.topics.write(acked, version=stored.version)
    assert await world.look() == {2, 4}


async def test_open_ledgers_and_those_without_a_floor_are_left_alone(world: World) -> None:
    """An open one may be the next ledger of the log or of the cursor; a topic without a record proves nothing."""
    await world.ledger(1, 2)
    await world.ledger(3, closed=False)
    await world.ledger(4, topic_id=TopicId("f" * 32))
    await world.lists(log=[], floor=0, dedup=[], dedup_floor=0)
    assert await world.look() == {1, 2, 3, 4}
    await world.lists(log=[2], floor=2, dedup=[9], dedup_floor=9)
    assert await world.look() == {2, 3, 4}


async def test_look_reads_a_bounded_number_of_records_and_goes_on_the_next_time(world: World) -> None:
    """Not more often than once in an interval."""
    count = READS_MAX + 5
    await world.ledger(*range(1, count + 1))
    await world.lists(log=[1000], floor=1000, dedup=[1001], dedup_floor=0)
    assert await world.look() == set(range(READS_MAX + 1, count + 1))
    assert await world.look() == set()
    await world.ledger(1)
    first = [record for ledger_id in await world.ledgers.ids() if (record := await world.ledgers.record(ledger_id))]
    await world.unlisted.look(list)
    for _ in range(ROUNDS - 1):
        await world.unlisted.look(lambda: first)
    assert await world.ledgers.ids() == [1], "the next look is not due yet"


@pytest.mark.hazard("prepared-ledger-is-left")
async def test_ledger_that_was_never_linked_goes_once_another_owner_has_both_records(world: World) -> None:
    """Its owner was killed before the link, or is only paused. The next ledger of the present owner stays."""
    await world.take_over(A)
    await world.ledger(3, closed=False, epoch=1)
    world.owners = [A]
    assert await world.look() == {3}
    await world.take_over(B, claims_cursor=False)
    await world.ledger(4, closed=False, epoch=2)
    world.owners = [B]
    assert await world.look() == {3, 4}, "the former owner could still link it in the cursor"
    await world.lists(log=[], floor=0, dedup=[], dedup_floor=0)
    cursor = await world.cursors.read(world.topic_id, DEDUP_CURSOR)
    assert cursor is not None
    claimed = replace(cursor.value, owner_epoch=OwnerEpoch(2))
    await world.cursors.write(world.topic_id, DEDUP_CURSOR, claimed, version=cursor.version)
    assert await world.look() == {4}
    assert world.placed == []


@pytest.mark.hazard("prepared-ledger-is-left")
async def test_closed_ledgers_that_wait_for_a_floor_delay_no_other_one(world: World) -> None:
    """Each takeover of an idle topic leaves an empty one."""
    await world.take_over(A)
    count = READS_MAX + 1
    await world.ledger(*range(1, count))
    await world.ledger(count, closed=False, epoch=1)
    await world.take_over(B)
    assert await world.look() == set(range(1, count))


@pytest.mark.hazard("prepared-ledger-is-left")
async def test_topic_whose_owner_has_left_a_ledger_is_placed(world: World) -> None:
    """Nobody uses the topic, so no look-up places it. Once another owner has it, it is not placed again."""
    await world.take_over(A)
    await world.ledger(3, closed=False, epoch=1)
    assert await world.look() == {3}
    assert world.placed == [world.topic_id]
    await world.take_over(B)
    world.owners = [B]
    assert await world.look() == set()
    assert world.placed == [world.topic_id]


async def test_topic_with_a_listed_or_closed_ledger_is_not_placed(world: World) -> None:
    """These are left to repair."""
    await world.take_over(A)
    await world.ledger(3, closed=False, epoch=1)
    await world.ledger(5)
    await world.lists(log=[3], floor=0, dedup=[], dedup_floor=0)
    assert await world.look() == {3, 5}
    assert world.placed == []


@pytest.mark.hazard("prepared-ledger-is-left")
async def test_record_that_is_written_meanwhile_stays(world: World) -> None:
    """The removal names the version that was read before the lists."""
    await world.take_over(A)
    await world.ledger(3, closed=False, epoch=1)
    await world.take_over(B)

    class Slow(ChainListing):
        async def read(self, topic_id: TopicId) -> list[ChainRecorded]:
            stored = await world.ledgers.read(LedgerId(3))
            assert stored is not None
            await world.ledgers.write(stored.value.in_recovery(), version=stored.version)
            return await super().read(topic_id)

    slow = UnlistedRecords(
        world.ledgers, Slow(world.topics, world.cursors), world.deletions, owners=lambda: world.owners
    )
    known: Sequence[LedgerMetadata] = [record for record in [await world.ledgers.record(LedgerId(3))] if record]
    await slow.look(lambda: known)
    assert await world.ledgers.ids() == [3]
    assert await world.look() == set()


async def test_what_is_left_of_a_deleted_topic_goes_once_its_deletion_has_ended(world: World) -> None:
    """Before that the deletion itself removes records, in its order."""
    await world.take_over(A)
    await world.ledger(3, closed=False, epoch=1)
    await world.ledger(4)
    begun = await world.deletions.begin(parse_topic("public/default/flights"))
    assert await world.look() == {3, 4}
    assert world.placed == []
    await world.deletions.end(begun, parse_topic("public/default/flights"))
    assert await world.look() == set()


@pytest.mark.hazard("prepared-ledger-is-left")
async def test_elected_replica_removes_what_an_owner_has_left() -> None:
    """It asks for the placement of the topic, whose other ledgers give repair no reason to."""
    async with RepairWorld.running() as repairing:
        topics, ledgers = TopicStore(repairing.session), LedgerStore(repairing.session)
        left = LedgerMetadata(LedgerId(3), repairing.topic_id, (A, B, C), 2, owner_epoch=OwnerEpoch(1))
        await ledgers.write(left, version=ABSENT_VERSION)

        async def take_over() -> OwnerEpoch:
            stored = await topics.read(repairing.topic_id)
            assert stored is not None
            placed = stored.value.placed_on(A)
            await topics.write(placed, version=stored.version)
            return placed.owner_epoch

        await take_over()
        repairing.replica()
        placed = repairing.placements.placed
        await until(lambda: placed, DEADLINE_S, waiting_for="the topic to be placed")
        assert placed[0] == repairing.topic_id
        claimed = CursorRecord(await take_over())
        await CursorStore(repairing.session).write(repairing.topic_id, DEDUP_CURSOR, claimed, version=ABSENT_VERSION)

        async def gone() -> bool:
            return await ledgers.read(left.ledger_id) is None

        await until(gone, DEADLINE_S, waiting_for="the record to be removed")
