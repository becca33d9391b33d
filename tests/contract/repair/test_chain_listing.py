"""The repairer's view of the topics' lists costs the same at each refresh, however long the lists are."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from oncelog.core.formats.topic_record import LedgerLink
from oncelog.core.ids import Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.names import parse_topic
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.repair.queue_events import RepairSettings
from oncelog.metadata.repair.chain_listing import LEDGERS_MAX, TOPICS_MIN, TURNS, ChainListing
from oncelog.metadata.repair.cluster_watch import CHAINS_AT_ONCE, ClusterWatch
from oncelog.metadata.repair.repair import Repair
from oncelog.metadata.repair.storage_nodes_reader import StorageNodesReader, StorageSeen
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.ledger_listing import LedgerListing
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.storage_client.node_calls import NodeCalls
from tests.cluster.until import until
from tests.contract.repair.repairing import DEADLINE_S, Placements
from tests.contract.storage_client.ledger_world import A, B, C
from tests.contract.stores.memory_store import MemorySession, MemoryTree


@pytest.mark.asyncio
async def test_long_lists_are_read_in_turn() -> None:
    """Four topics with many ledgers used to be read and decoded each time. Changed ones are still read at once, and
    short lists together."""
    session = MemorySession(MemoryTree(), root="/oncelog")
    await ClusterStore(session).establish("test")
    topics = TopicStore(session)
    long: list[TopicId] = []
    for number in range(4):
        created = await topics.create(parse_topic(f"public/default/t{number}"))
        topic_id = created.name.value.topic_id
        stored = await topics.read(topic_id)
        assert stored is not None
        links = tuple(LedgerLink(LedgerId(n + 1), n) for n in range(LEDGERS_MAX))
        await topics.write(replace(stored.value, ledgers=links), version=stored.version)
        long.append(topic_id)
    short = [(await topics.create(parse_topic(f"public/default/s{n}"))).name.value.topic_id for n in range(3)]
    listing = ChainListing(topics, CursorStore(session))
    assert {chain.topic_id for chain in await listing.refresh(long)} == set(long)
    turns = [{chain.topic_id for chain in await listing.refresh([])} for _ in range(8)]
    assert turns == [{topic_id} for topic_id in (*long, *long)]
    assert {chain.topic_id for chain in await listing.refresh(short)} == {*short, long[0]}
    turns = [{chain.topic_id for chain in await listing.refresh([])} for _ in range(5)]
    assert turns == [{long[1]}, {long[2]}, {long[3]}, {long[0]}, {*short, long[1]}]
    await session.close()


@pytest.mark.asyncio
async def test_many_topics_are_read_in_turns() -> None:
    """An idle cluster with hundreds of topics must not read all of them at each refresh."""
    session = MemorySession(MemoryTree(), root="/oncelog")
    await ClusterStore(session).establish("test")
    topics = TopicStore(session)
    names = [parse_topic(f"public/default/t{number}") for number in range(2 * TURNS * TOPICS_MIN)]
    all_of_them = [(await topics.create(name)).name.value.topic_id for name in names]
    listing = ChainListing(topics, CursorStore(session))
    await listing.refresh(all_of_them)
    turns = [{chain.topic_id for chain in await listing.refresh([])} for _ in range(TURNS)]
    assert [len(turn) for turn in turns] == [2 * TOPICS_MIN] * TURNS
    assert set().union(*turns) == set(all_of_them)
    await session.close()


async def with_ledgers(session: MemorySession, count: int) -> None:
    """So many topics, each with one open ledger."""
    topics, ledgers = TopicStore(session), LedgerStore(session)
    for number in range(count):
        topic_id = (await topics.create(parse_topic(f"public/default/t{number}"))).name.value.topic_id
        stored = await topics.read(topic_id)
        assert stored is not None
        ledger_id = LedgerId(number + 1)
        await topics.write(replace(stored.value, ledgers=(LedgerLink(ledger_id, 0),)), version=stored.version)
        await ledgers.write(LedgerMetadata(ledger_id, topic_id, (A, B, C), 2), version=ABSENT_VERSION)


class Looking(StorageNodesReader):
    """Storage nodes that a test changes."""

    def __init__(self, session: MemorySession) -> None:
        super().__init__(Registry(session), NodeCalls())
        self.live: tuple[Incarnation, ...] = (A, B, C)
        self.damaged: dict[Incarnation, frozenset[LedgerId]] = {}

    async def look(self) -> StorageSeen:
        live = {one: LiveStorageNode(one, "node", 1, free_bytes=1) for one in self.live}
        return StorageSeen(live, {}, {one: frozenset() for one in self.live} | self.damaged)


def watch_of(session: MemorySession, view: Looking) -> ClusterWatch:
    chains = ChainListing(TopicStore(session), CursorStore(session))
    settings = RepairSettings(assessed_at_once=2)
    return ClusterWatch(LedgerListing(session), chains, view, settings, owners=list, now_ms=lambda: 0)


@pytest.mark.asyncio
async def test_first_look_at_many_lists_holds_up_nobody() -> None:
    """With 100,000 ledgers a metadata service that has just started answered nothing for seconds."""
    session = MemorySession(MemoryTree(), root="/oncelog")
    await ClusterStore(session).establish("test")
    await with_ledgers(session, CHAINS_AT_ONCE)
    repair = Repair.over(session, Placements(), owners=list)
    looking = asyncio.create_task(repair.watch.refresh())
    unlisted: list[int] = []

    def looked() -> bool:
        unlisted.append(len(repair.watch.unlisted()))
        return looking.done()

    await until(looked, DEADLINE_S, every_s=0)
    await looking
    assert unlisted[-1] == 0
    assert [count for count in unlisted if 0 < count < CHAINS_AT_ONCE], "no turn between the first list and the last"
    await repair.close()
    await session.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("damage", [False, True])
async def test_node_that_concerns_many_ledgers_holds_up_nobody(damage: bool) -> None:
    """All ledgers of a node that goes, or that reports damage, were assessed in one step: with 100,000 of them, each
    metadata service answered nothing for more than a second."""
    session = MemorySession(MemoryTree(), root="/oncelog")
    await ClusterStore(session).establish("test")
    await with_ledgers(session, 20)
    view = Looking(session)
    watch = watch_of(session, view)
    await watch.refresh()
    assert watch.queue.counts.under_replicated == 0
    if damage:
        view.damaged = {C: frozenset(LedgerId(number + 1) for number in range(20))}
    else:
        view.live = (A, B)
    looking = asyncio.create_task(watch.refresh())
    found: list[int] = []

    def looked() -> bool:
        found.append(watch.queue.counts.under_replicated)
        return looking.done()

    await until(looked, DEADLINE_S, every_s=0)
    await looking
    assert found[-1] == 20
    assert max(after - before for before, after in pairwise(found)) == 2
    await session.close()


async def others_had(turns: int) -> None:
    left = iter(range(turns))
    await until(lambda: next(left, None) is None, DEADLINE_S, every_s=0)


@pytest.mark.asyncio
async def test_cancelled_look_loses_no_change() -> None:
    """A request for a report that is cancelled cancels the look."""
    session = MemorySession(MemoryTree(), root="/oncelog")
    await ClusterStore(session).establish("test")
    await with_ledgers(session, 3)
    view, done, turns = Looking(session), False, 0
    while not done:
        watch, turns = watch_of(session, view), turns + 1
        looking = asyncio.create_task(watch.refresh())
        await others_had(turns)
        done = looking.done()
        looking.cancel()
        await asyncio.wait([looking])
        await watch.refresh()
        assert [record.ledger_id for record in watch.records()] == [1, 2, 3]
        assert all(watch.queue.record(LedgerId(number)) is not None for number in (1, 2, 3)), turns
    assert turns > 3
    await session.close()
