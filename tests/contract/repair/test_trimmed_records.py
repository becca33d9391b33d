"""The records of trimmed ledgers go, even if their owner lost the answer to the trim; and no others."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio

from oncelog.core.formats.topic_record import DEDUP_CURSOR, CursorLink, CursorRecord, LedgerLink, TopicRecord
from oncelog.core.ids import EntryId, LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.names import parse_topic
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.metadata.repair.chain_listing import ChainListing
from oncelog.metadata.repair.trimmed_records import INTERVAL_MS, READS_MAX, TrimmedRecords
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.topic_store import TopicStore
from tests.contract.storage_client.ledger_world import A, B, C
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("missing-record-is-no-deletion")]


@dataclass
class World:
    """A topic, its cursor, and the ledgers' records."""

    topics: TopicStore
    cursors: CursorStore
    ledgers: LedgerStore
    trimmed: TrimmedRecords
    topic_id: TopicId
    now_ms: int = 0

    async def ledger(self, *ledger_ids: int, closed: bool = True, topic_id: TopicId | None = None) -> None:
        for ledger_id in ledger_ids:
            record = LedgerMetadata(LedgerId(ledger_id), topic_id or self.topic_id, (A, B, C), 2)
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

    async def look(self, *, but: set[int] | None = None) -> set[int]:
        """One look at all records but these; returns the ledgers that have a record then."""
        self.now_ms += INTERVAL_MS
        records = [await self.ledgers.record(ledger_id) for ledger_id in sorted(await self.ledgers.ids())]
        await self.trimmed.look(lambda: [r for r in records if r is not None and r.ledger_id not in (but or ())])
        return {int(ledger_id) for ledger_id in await self.ledgers.ids()}


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    session = MemorySession(MemoryTree(), root="/oncelog")
    await ClusterStore(session).establish("test")
    topics, cursors, ledgers = TopicStore(session), CursorStore(session), LedgerStore(session)
    created = await topics.create(parse_topic("public/default/flights"))
    trimmed = TrimmedRecords(ledgers, ChainListing(topics, cursors), now_ms=lambda: found.now_ms)
    found = World(topics, cursors, ledgers, trimmed, created.name.value.topic_id)
    yield found
    await session.close()


async def test_records_below_the_floors_are_removed(world: World) -> None:
    """Of the log and of the cursor. Listed ledgers stay, and so do those above both floors."""
    await world.ledger(*range(1, 10))
    await world.lists(log=[4, 8], floor=4, dedup=[6], dedup_floor=6)
    assert await world.look() == {4, 6, 7, 8, 9}
    assert world.trimmed.removed == 4


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
    await world.lists(log=[1000], floor=0, dedup=[1001], dedup_floor=0)
    await world.look()
    await world.lists(log=[1000], floor=1000, dedup=[1001], dedup_floor=0)
    await world.trimmed.look(list)
    assert len(await world.ledgers.ids()) == count, "the interval has not passed"
    assert await world.look() == set(range(1, READS_MAX + 1))
    assert await world.look() == set()
