"""The listing of ledgers and the progress of repair: the same tests for the fake in memory and for a real ZooKeeper."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from oncelog.core.ids import EntryId, LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, encode_ledger
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.ledger_listing import READS_MIN, TURNS, LedgerListing
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.repair_store import (
    RepairProgress,
    RepairSample,
    RepairStore,
    RunningRepair,
    StuckRepair,
)
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession, Znode
from tests.contract.storage_client.ledger_world import TOPIC, A, B, C, ledger
from tests.contract.stores.memory_store import MemorySession, MemoryTree
from tests.contract.stores.store_backends import Backend, new_cluster

pytestmark = pytest.mark.asyncio


def closed(ledger_id: int, *, whole: bool) -> LedgerMetadata:
    metadata = ledger(ledger_id, (A, B, C)).closed(end=EntryId(9), length=100)
    return metadata.mark_verified() if whole else metadata


async def create(session: StoreSession, *ledgers: LedgerMetadata) -> None:
    for metadata in ledgers:
        assert (await LedgerStore(session).write(metadata, version=ABSENT_VERSION)).status is WriteStatus.OK


async def test_listing_shows_new_changed_and_deleted_ledgers(backend: Backend) -> None:
    """Each refresh brings the listing up to date when its reads suffice for all ledgers."""
    session, other = await new_cluster(backend), await backend.open()
    await create(session, ledger(1, (A, B, C)), closed(2, whole=True))
    listing = LedgerListing(other)
    await listing.refresh()
    assert listing.complete
    assert {one: found.value for one, found in listing.records.items()} == {
        1: ledger(1, (A, B, C)),
        2: closed(2, whole=True),
    }
    assert listing.take_changes() == [1, 2]
    store = LedgerStore(session)
    await store.write(closed(1, whole=False), version=0)
    await store.write(closed(2, whole=True).mark_damaged(), version=0)
    await create(session, closed(3, whole=False))
    await listing.refresh()
    assert {one: found.value.verified for one, found in listing.records.items()} == {1: False, 2: False, 3: False}
    assert {found.version for found in listing.records.values()} == {0, 1}
    assert listing.take_changes() == [1, 2, 3]
    await store.remove(LedgerId(1))
    await listing.refresh()
    assert sorted(listing.records) == [2, 3]
    assert listing.take_changes() == [1]
    await listing.refresh()
    assert listing.take_changes() == []


async def test_one_ledger_is_read_after_a_sync(backend: Backend) -> None:
    """Decisions rest on this read, not on the listing."""
    session = await new_cluster(backend)
    await create(session, closed(1, whole=False))
    listing = LedgerListing(session)
    stored = await listing.refresh_one(LedgerId(1))
    assert stored is not None
    assert stored == listing.records[LedgerId(1)]
    await LedgerStore(session).remove(LedgerId(1))
    assert await listing.refresh_one(LedgerId(1)) is None
    assert not listing.records


class CountingSession(MemorySession):
    """Counts the reads of each path."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.reads: Counter[str] = Counter()

    async def read_unsynced(self, path: str, *, timeout_ms: int | None = None) -> Znode | None:
        self.reads[path] += 1
        return await super().read_unsynced(path, timeout_ms=timeout_ms)


async def test_refresh_of_many_whole_ledgers_reads_few() -> None:
    """Whole ledgers are read again in turn, a few at each refresh; those that are expected to change come first."""
    session = CountingSession(MemoryTree())
    await session.ensure_path(paths.LEDGERS)
    await create(session, *(closed(number, whole=True) for number in range(1_000)))
    await create(session, *(ledger(number, (A, B, C)) for number in range(1_000, 1_010)))
    listing = LedgerListing(session)
    await listing.refresh(reads_max=40)
    assert len(listing.records) == session.reads.total() == 1_010
    seen: set[str] = set()
    for number in range(100):
        session.reads.clear()
        await listing.refresh(reads_max=40)
        assert session.reads.total() == 10 + 10, number
        assert all(session.reads[paths.ledger(LedgerId(one))] == 1 for one in range(1_000, 1_010))
        seen |= set(session.reads)
    assert len(seen) == 1_010, "every ledger is read again within a round"


async def test_open_ledgers_of_thousands_of_idle_topics_are_read_in_turn() -> None:
    """Every refresh, each 2 s, read the records of all open ledgers: a tenth of a core with 5,000 topics."""
    session, count = CountingSession(MemoryTree()), READS_MIN * 8
    await session.ensure_path(paths.LEDGERS)
    await create(session, *(ledger(number, (A, B, C)) for number in range(count)))
    listing = LedgerListing(session)
    await listing.refresh()
    session.reads.clear()
    for number in range(1, TURNS + 1):
        await listing.refresh()
        assert session.reads.total() == count // TURNS * number
    assert set(session.reads.values()) == {1}
    assert len(session.reads) == count


async def test_unreadable_record_hides_no_other(backend: Backend) -> None:
    """It is listed by its id, and read again: an administrator may repair it."""
    session = await new_cluster(backend)
    await create(session, closed(1, whole=True))
    await session.create(paths.ledger(LedgerId(2)), b"not a record")
    listing = LedgerListing(session)
    await listing.refresh()
    assert sorted(listing.records) == [1]
    assert listing.unreadable == {2}
    await session.write(paths.ledger(LedgerId(2)), encode_ledger(closed(2, whole=True)), version=0)
    await listing.refresh()
    assert sorted(listing.records) == [1, 2]
    assert not listing.unreadable


async def test_progress_is_replaced_and_read_by_every_replica(backend: Backend) -> None:
    """The elected replica writes it; the replica that is asked reports it."""
    session, other = await new_cluster(backend), await backend.open()
    assert await RepairStore(other).read() is None
    await RepairStore(session).write(RepairProgress(replica="m-1"))
    progress = RepairProgress(
        "m-2", 5, "old processes", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
        running=(RunningRepair(LedgerId(7), TOPIC, "COPY", 3, 9, 4),),
        stuck=(StuckRepair(LedgerId(8), TopicId("1" * 32), "entry 3 has no source", 6),),
        left_bytes=12, entries_by_copies=(0, 0, 2, 9), history=(RepairSample(1, 2, (0, 4)), RepairSample(3, 0)),
    )  # fmt: skip
    await RepairStore(session).write(progress)
    assert await RepairStore(other).read() == progress
    # A replica of a version before these fields was elected meanwhile.
    node = await session.read(paths.REPAIR)
    assert node is not None
    fields = json.loads(node.data)
    older = {
        name: value for name, value in fields.items() if name not in ("left_bytes", "entries_by_copies", "history")
    }
    await session.write(paths.REPAIR, json.dumps(older).encode(), version=node.version)
    known = replace(progress, left_bytes=0, entries_by_copies=(), history=())
    assert await RepairStore(other).read() == known


async def test_listing_says_when_it_has_read_every_record_since_a_refresh(backend: Backend) -> None:
    """By an older state of one record, a retired node looks as if no ledger named it."""
    session = await new_cluster(backend)
    await create(session, *(closed(number, whole=True) for number in range(1, READS_MIN + 2)))
    listing = LedgerListing(session)
    await listing.refresh()
    assert listing.has_read_all_since(1)
    await listing.refresh()
    assert not listing.has_read_all_since(2)
    await listing.refresh()
    assert listing.has_read_all_since(2)
    await session.create(paths.ledger(LedgerId(999)), b"?")
    await listing.refresh()
    assert not listing.has_read_all_since(2), "this record may name any node"
