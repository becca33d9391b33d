"""A storage node is ready once it has the copies that are missing here and that live nodes can give now."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from oncelog.core.errors import StoreUnavailable
from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata
from oncelog.core.node.limbo import Limbo
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.log_storage.upkeep.readiness import RECORDS_AT_ONCE, REPAIR_WAIT_MS, Readiness, ReadinessSources
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.registry import LiveMetadata, LiveStorageNode, Registry, StorageCookie
from oncelog.metadata_store.records.repair_store import STUCK_MAX, RepairProgress, RepairStore, StuckRepair
from oncelog.metadata_store.session.store_session import Versioned
from tests.contract.storage_client.ledger_world import A, B, C
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("update-waits-for-copies")]

TOPIC = TopicId("t" * 32)
FORMER = Incarnation("f" * 32)


@dataclass
class World:
    """Node A has started. B and C are registered, and so is a metadata service."""

    session: MemorySession
    limbo: Limbo = field(default_factory=Limbo)
    full: bool = False
    now_ms: int = 0
    down: bool = False

    def __post_init__(self) -> None:
        self.registry = Registry(self.session)
        self.ledgers = LedgerStore(self.session)
        self.repairs = RepairStore(self.session)
        self.readiness = Readiness(
            A,
            ReadinessSources(self.registry, self.repairs, self.list_ledgers, self.ledgers.read_unsynced),
            limbo=lambda: self.limbo,
            takes_copies=lambda: not self.full,
            now_ms=lambda: self.now_ms,
        )

    async def list_ledgers(self) -> Collection[LedgerId]:
        if self.down:
            raise StoreUnavailable("not now")
        return await self.ledgers.ids()

    async def cookie(self, node: Incarnation, **fields: object) -> None:
        stored = await self.registry.read_cookie(node)
        cookie = StorageCookie(node, "127.0.0.1", 1) if stored is None else stored.value
        version = ABSENT_VERSION if stored is None else stored.version
        await self.registry.write_cookie(replace(cookie, **fields), version=version)  # type: ignore[arg-type]

    async def ledger(self, ledger_id: int, *, closed: bool = True) -> None:
        record = LedgerMetadata(LedgerId(ledger_id), TOPIC, (A, B, C), 2)
        await self.ledgers.write(record.closed(end=EntryId(9), length=1) if closed else record, version=ABSENT_VERSION)

    async def change(self, ledger_id: int, record: LedgerMetadata) -> None:
        stored = await self.ledgers.read(LedgerId(ledger_id))
        assert stored is not None
        assert (await self.ledgers.write(record, version=stored.version)).status is WriteStatus.OK

    async def record(self, ledger_id: int) -> LedgerMetadata:
        stored = await self.ledgers.read(LedgerId(ledger_id))
        assert stored is not None
        return stored.value

    async def reason(self) -> str | None:
        """After one more look."""
        await self.readiness.look()
        return self.readiness.reason()


@asynccontextmanager
async def running(*, metadata: bool = True) -> AsyncIterator[World]:
    session = MemorySession(MemoryTree(), root="/oncelog")
    await ClusterStore(session).establish("test")
    world = World(session)
    for node in (A, B, C):
        await world.cookie(node)
        await world.registry.register_storage_node(LiveStorageNode(node, "127.0.0.1", 1, 1)).establish()
    if metadata:
        await world.registry.register_metadata(LiveMetadata("127.0.0.1", {})).establish()
    yield world
    await session.close()


async def test_node_without_missing_copies_is_ready_at_its_first_look() -> None:
    async with running() as world:
        await world.cookie(FORMER, retired=True, replaced_by=B, debt=5)
        assert world.readiness.reason() == "has not read yet which copies are missing here"
        await world.readiness.look_first()
        assert world.readiness.reason() is None
        await world.readiness.watch()


async def test_node_waits_for_the_ledgers_of_the_directory_that_it_replaces() -> None:
    """Also until they are counted. Once they are paid, the node stays ready."""
    async with running() as world:
        await world.cookie(FORMER, retired=True, replaced_by=A)
        await world.readiness.look_first()
        counting = "waits until repair has counted the ledgers of the directory that this one replaces"
        assert world.readiness.reason() == counting
        world.now_ms += 100 * REPAIR_WAIT_MS
        assert await world.reason() == counting, "a metadata service is there"
        await world.cookie(FORMER, debt=3)
        told = "waits for repair: 3 ledgers of the directory that this one replaces can still be copied"
        assert await world.reason() == told
        await world.cookie(FORMER, debt=0)
        assert await world.reason() is None
        await world.cookie(FORMER, debt=1)
        assert await world.reason() is None


async def test_without_repair_a_node_waits_for_a_limited_time() -> None:
    """An update of the cluster must not wait for a repairer that it has not started yet."""
    async with running(metadata=False) as world:
        await world.cookie(FORMER, retired=True, replaced_by=A, debt=3)
        assert await world.reason() is not None
        world.now_ms += REPAIR_WAIT_MS - 1
        assert await world.reason() is not None
        world.now_ms += 1
        assert await world.reason() is None


async def test_wait_without_repair_begins_again_when_repair_was_there() -> None:
    async with running(metadata=False) as world:
        await world.cookie(FORMER, retired=True, replaced_by=A, debt=3)
        assert await world.reason() is not None
        registration = world.registry.register_metadata(LiveMetadata("127.0.0.1", {}))
        await registration.establish()
        world.now_ms += REPAIR_WAIT_MS
        assert await world.reason() is not None
        await registration.leave()
        assert await world.reason() is not None
        world.now_ms += REPAIR_WAIT_MS
        assert await world.reason() is None


async def test_node_waits_for_closed_ledgers_in_limbo() -> None:
    """Open ledgers are rolled by their owners, and newer ones are not in limbo."""
    async with running() as world:
        world.limbo.begin(LedgerId(5))
        for ledger_id in (1, 2, 5):
            await world.ledger(ledger_id)
        await world.ledger(3, closed=False)
        await world.readiness.look_first()
        assert world.readiness.reason() == "has not read yet which copies are missing here"
        told = "waits for repair: after damage that was found at the start, {} ledgers may lack entries here that other"
        assert str(await world.reason()).startswith(told.format(2))
        world.limbo.end(LedgerId(1))
        assert str(await world.reason()).startswith(told.format(1))
        world.limbo.end(LedgerId(2))
        assert await world.reason() is None


async def test_records_of_ledgers_in_limbo_are_read_concurrently_and_within_a_bound() -> None:
    """A node with damage may have tens of thousands of ledgers, and serves only after this look. An error of one read
    fails the look, which is repeated."""
    async with running() as world:
        world.limbo.begin(LedgerId(1_000))
        for ledger_id in range(1, 201):
            await world.ledger(ledger_id)
        reading, most, full = 0, 0, asyncio.Event()

        async def read(ledger_id: LedgerId) -> Versioned[LedgerMetadata] | None:
            nonlocal reading, most
            reading += 1
            most = max(most, reading)
            if reading == RECORDS_AT_ONCE:
                full.set()
            try:
                if world.down and ledger_id == 150:
                    raise StoreUnavailable("not now")
                await full.wait()
                return await world.ledgers.read_unsynced(ledger_id)
            finally:
                reading -= 1

        world.readiness._sources = replace(world.readiness._sources, read_unsynced=read)
        assert "200 ledgers may lack entries here" in str(await world.reason())
        assert (reading, most) == (0, RECORDS_AT_ONCE)
        world.down = True
        with pytest.raises(StoreUnavailable):
            await world.readiness.look()
        assert reading == 0


async def stuck(world: World) -> None:
    progress = RepairProgress(stuck=(StuckRepair(LedgerId(1), TOPIC, "no live copy", 1),))
    await world.repairs.write(progress)


async def many_stuck(world: World) -> None:
    """The progress names some of them only."""
    named = tuple(StuckRepair(LedgerId(10 + number), TOPIC, "no live copy", 1) for number in range(STUCK_MAX))
    await world.repairs.write(RepairProgress(stuck=named))


async def frozen(world: World) -> None:
    await world.change(1, (await world.record(1)).freeze())


async def lost(world: World) -> None:
    await world.change(1, (await world.record(1)).mark_lost((EntryRange(EntryId(4), EntryId(4)),)))


async def alone(world: World) -> None:
    for node in (B, C):
        await world.registry.register_storage_node(LiveStorageNode(node, "127.0.0.1", 1, 1)).leave()


async def retired(world: World) -> None:
    await world.cookie(A, retired=True)


async def full(world: World) -> None:
    world.full = True


@pytest.mark.parametrize("hindered", [stuck, many_stuck, frozen, lost, alone, retired, full])
async def test_node_does_not_wait_for_what_no_node_can_give_now(hindered) -> None:  # type: ignore[no-untyped-def]
    async with running() as world:
        world.limbo.begin(LedgerId(5))
        await world.ledger(1)
        assert await world.reason() is not None
        await hindered(world)
        assert await world.reason() is None


async def test_node_is_not_ready_while_it_cannot_read_which_copies_are_missing() -> None:
    async with running() as world:
        world.limbo.begin(LedgerId(5))
        world.down = True
        with pytest.raises(StoreUnavailable):
            await world.readiness.look()
        assert world.readiness.reason() == "has not read yet which copies are missing here"
        world.down = False
        assert await world.reason() is None


async def test_node_does_not_wait_for_empty_ledgers_in_limbo() -> None:
    """Nothing of them can be lost."""
    async with running() as world:
        record = LedgerMetadata(LedgerId(1), TOPIC, (A, B, C), 2)
        await world.ledgers.write(record.closed(end=NO_ENTRY, length=0), version=ABSENT_VERSION)
        world.limbo.begin(LedgerId(5))
        assert await world.reason() is None
