"""A topic, its ledgers, storage nodes in memory over real sockets, and replicas that repair, for tests of repair."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

from oncelog.core.formats.topic_record import LedgerLink
from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.names import parse_topic
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.repair.repair import Repair, RepairPace
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.registry import Registry, StorageCookie
from oncelog.metadata_store.records.repair_store import RepairProgress, RepairStore
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.runtime.observing.events import EventRing
from oncelog.runtime.tasks import start
from tests.cluster.until import until
from tests.contract.repair.fake_storage_node import FakeStorageNode
from tests.contract.storage_client.ledger_world import adds_of, writer_of
from tests.contract.storage_client.ledger_world import whole as bytes_of
from tests.contract.stores.memory_store import MemorySession, MemoryTree

DEADLINE_S = 30.0
ENTRIES = 20
NAMES = "abcd"


class Placements:
    """Records what it is asked for."""

    def __init__(self) -> None:
        self.placed: list[TopicId] = []
        self.unloaded: list[TopicId] = []

    async def place(self, topic_id: TopicId) -> None:
        self.placed.append(topic_id)

    async def unload(self, topic_id: TopicId) -> None:
        self.unloaded.append(topic_id)


@dataclass
class World:
    """Four registered storage nodes unless others are named, a topic, and one metadata replica."""

    session: MemorySession
    stack: AsyncExitStack
    topic_id: TopicId
    pace: RepairPace
    nodes: list[FakeStorageNode] = field(default_factory=list)
    placements: Placements = field(default_factory=Placements)
    events: EventRing = field(default_factory=lambda: EventRing("metadata"))

    @classmethod
    @asynccontextmanager
    async def running(cls, *, absent_delay_ms: int = 600_000, names: str = NAMES) -> AsyncIterator["World"]:
        async with AsyncExitStack() as stack:
            session = MemorySession(MemoryTree(), root="/oncelog")
            stack.push_async_callback(session.close)
            await ClusterStore(session).establish("test")
            created = await TopicStore(session).create(parse_topic("flights"))
            pace = RepairPace(absent_delay_ms=absent_delay_ms, interval_ms=20)
            world = cls(session, stack, created.name.value.topic_id, pace)
            for name in names:
                node = FakeStorageNode(Incarnation(name * 32), session)
                await stack.enter_async_context(node.serving())
                await node.register()
                assert node.record is not None
                cookie = StorageCookie(node.incarnation, "127.0.0.1", node.record.port)
                await world.registry.write_cookie(cookie, version=ABSENT_VERSION)
                world.nodes.append(node)
            yield world

    @property
    def registry(self) -> Registry:
        return Registry(self.session)

    def replica(self, *, elected: bool = True) -> Repair:
        """Its repairer runs until the end of the test."""
        repair = Repair.over(self.session, self.placements, owners=list, events=self.events, pace=self.pace)
        running = start(repair.repairer.run(lambda: "m-1" if elected else None), what="a repairer")
        self.stack.push_async_callback(repair.close)
        self.stack.callback(running.cancel)
        return repair

    async def ledger(
        self, ledger_id: int, holders: Sequence[int] = (0, 1, 2), *, listed: bool = True
    ) -> LedgerMetadata:
        """A closed ledger of nodes a, b and c; `holders` have all its entries."""
        members = tuple(node.incarnation for node in self.nodes[:3])
        metadata = LedgerMetadata(LedgerId(ledger_id), self.topic_id, members, 2)
        adds = bytes_of(adds_of(writer_of(metadata), ENTRIES))
        closed = metadata.closed(end=EntryId(ENTRIES - 1), length=1)
        assert (await LedgerStore(self.session).write(closed, version=ABSENT_VERSION)).status is WriteStatus.OK
        for number in holders:
            self.nodes[number].copies[LedgerId(ledger_id)] = dict(adds)
        if listed:
            topics = TopicStore(self.session)
            stored = await topics.read(self.topic_id)
            assert stored is not None
            links = (*stored.value.ledgers, LedgerLink(LedgerId(ledger_id), 0))
            await topics.write(replace(stored.value, ledgers=links), version=stored.version)
        return closed

    async def record(self, ledger_id: int) -> LedgerMetadata:
        stored = await LedgerStore(self.session).read(LedgerId(ledger_id))
        assert stored is not None
        return stored.value

    async def whole(self, ledger_id: int, *members: int) -> LedgerMetadata:
        """The record once it is whole with these members."""
        expected = {self.nodes[number].incarnation for number in members}

        async def done() -> LedgerMetadata | None:
            record = await self.record(ledger_id)
            return record if record.verified and set(record.members) == expected else None

        found = await until(done, DEADLINE_S, waiting_for=f"ledger {ledger_id} to be whole on {members}")
        assert found is not None
        assert found.joining is None
        return found

    async def cookie(self, number: int) -> StorageCookie:
        return (await self.registry.cookies())[self.nodes[number].incarnation]

    async def change_cookie(self, number: int, **changes: bool) -> None:
        stored = await self.registry.read_cookie(self.nodes[number].incarnation)
        assert stored is not None
        await self.registry.write_cookie(replace(stored.value, **changes), version=stored.version)  # type: ignore[arg-type]

    async def wipe(self, number: int) -> None:
        """The node's disk is replaced: its directory is retired and gone."""
        await self.nodes[number].leave()
        await self.change_cookie(number, retired=True)

    async def progress(self) -> RepairProgress:
        return await RepairStore(self.session).read() or RepairProgress()
