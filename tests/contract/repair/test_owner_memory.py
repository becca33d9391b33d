"""Entries that no storage node has, and the owner of their topic has in memory, over real sockets."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.core.errors import InvalidArgument, NotOwner
from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import EntryRange
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import CACHED_ENTRIES
from oncelog.rpc.server import Server
from oncelog.runtime.observing.events import EventKind
from oncelog.topic_owner.observe.rates import OwnerRates
from oncelog.topic_owner.shell.entry_cache import CacheBudget, EntryCache
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.streams.admin_service import CACHED_ENTRIES_BYTES, CACHED_ENTRIES_MAX, AdminService
from oncelog.wire import owner_pb2 as pb
from tests.cluster.until import until
from tests.contract.noted import noted
from tests.contract.repair.repairing import DEADLINE_S, World

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("lost-too-early")]
OWNER = Incarnation("0a" * 16)
LOST = EntryId(4)
HEADER = 96


class OwnedTopic:
    """The topics of an owner that has one, of which only the memory matters."""

    def __init__(self, topic_id: TopicId) -> None:
        self.topic_id = topic_id
        self.cache = EntryCache(CacheBudget(1 << 30))

    def runner(self, topic_id: TopicId) -> Any:
        if topic_id != self.topic_id:
            raise NotOwner("the topic is elsewhere")
        return SimpleNamespace(cache=self.cache)

    def put(self, ledger_id: int, entry_id: int, data: bytes) -> None:
        self.cache.put(LedgerId(ledger_id), EntryId(entry_id), (data[:HEADER], data[HEADER:]))


async def serving(world: World, topic: OwnedTopic) -> int:
    """Serve as the owner until the end of the test. Returns the port."""
    server = Server()
    server.unary(
        CACHED_ENTRIES, AdminService(cast("TopicRegistry", topic), OWNER, cast("OwnerRates", None)).cached_entries
    )
    port = await server.start(host="127.0.0.1", port=0)
    world.stack.push_async_callback(lambda: server.stop(grace_ms=0))
    return port


async def owned(world: World) -> None:
    topics = TopicStore(world.session)
    stored = await topics.read(world.topic_id)
    assert stored is not None
    await topics.write(replace(stored.value, owner=OWNER), version=stored.version)


async def lossy(world: World) -> bytes:
    """A ledger with an entry that no storage node has; returns the entry."""
    await world.ledger(1)
    copies = [bytes(node.copies[LedgerId(1)].pop(LOST)) for node in world.nodes[:3]]
    return copies.pop()


async def test_repair_stores_again_what_the_owner_has_in_memory() -> None:
    async with World.running() as world:
        data, topic = await lossy(world), OwnedTopic(world.topic_id)
        topic.put(1, LOST, data)
        port = await serving(world, topic)
        await owned(world)
        await world.registry.register_owner(LiveOwner(OWNER, "127.0.0.1", {"grpc": port}, 0)).establish()
        world.replica()
        record = await world.whole(1, 0, 1, 2)
        assert record.lost == ()
        assert all(node.copies[LedgerId(1)][LOST] == data for node in world.nodes[:3])
        assert noted(world.events, EventKind.COPY_FOUND)[0].node == OWNER


async def test_nothing_is_lost_until_the_owner_has_answered() -> None:
    """The owner has no session for a while. Then it answers that it has other entries."""
    async with World.running() as world:
        await lossy(world)
        topic = OwnedTopic(world.topic_id)
        port = await serving(world, topic)
        await owned(world)
        replica = world.replica()

        async def stuck() -> bool:
            return any(each.ledger_id == 1 for each in (await world.progress()).stuck)

        await until(stuck, DEADLINE_S, waiting_for="a repair that waits for the owner")
        assert (await world.record(1)).lost == ()
        await world.registry.register_owner(LiveOwner(OWNER, "127.0.0.1", {"grpc": port}, 0)).establish()
        await replica.repair_now(LedgerId(1))

        async def lost() -> bool:
            return (await world.record(1)).lost == (EntryRange(LOST, LOST),)

        await until(lost, DEADLINE_S, waiting_for="an entry that is lost")


async def test_owner_gives_whole_entries_in_parts() -> None:
    """An answer ends after about 1 MiB, and says where to go on."""
    async with World.running() as world:
        topic = OwnedTopic(world.topic_id)
        for entry_id in (1, 2, 5):
            topic.put(1, entry_id, bytes([entry_id]) * (CACHED_ENTRIES_BYTES // 2))
        channel = Channel(f"127.0.0.1:{await serving(world, topic)}")
        world.stack.push_async_callback(channel.close)

        async def ask(**fields: Any) -> pb.CachedEntriesAnswer:
            request = pb.CachedEntriesRequest(target=OWNER, topic_id=world.topic_id, ledger_id=1, **fields)
            return await channel.call(CACHED_ENTRIES, request, timeout_ms=10_000)

        part = await ask(first_entry=0, entries_max=10)
        assert ([data[0] for data in part.entries], part.next_entry) == ([1, 2], 3)
        rest = await ask(first_entry=part.next_entry, entries_max=7)
        assert ([data[0] for data in rest.entries], rest.next_entry) == ([5], 10)
        with pytest.raises(InvalidArgument, match=f"entries_max is 0: give 1 to {CACHED_ENTRIES_MAX}"):
            await ask(first_entry=0, entries_max=0)
