"""Balancing by the elected replica: topics move to an owner that joined, by a clean hand-over."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from oncelog.core.ids import TopicId
from oncelog.metadata.placement.balancer import Balancer
from oncelog.metadata_store.records.registry import LiveMetadata, Registry
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session import paths
from oncelog.runtime.observing.events import EventKind
from tests.cluster.metadata.metadata_world import DEADLINE_S, FakeOwner, Replica, World
from tests.cluster.until import until
from tests.contract.noted import noted
from tests.contract.stores.memory_store import MemorySession

pytestmark = pytest.mark.asyncio

#: The tests start each round. The owners count as settled after this short time.
INTERVAL_MS = 1
NAMES = [f"t{number}" for number in range(12)]


async def balancer_of(replica: Replica, number: int) -> "tuple[Balancer, asyncio.Task[None]]":
    """The balancer of a registered replica, which follows the election."""
    registry = Registry(replica.session)
    registration = registry.register_metadata(LiveMetadata("127.0.0.1", {"grpc": number}))
    await registration.establish()
    admin = replica.coordination
    balancer = Balancer(
        registry, admin.topics, admin.owners, admin.placements, own_name=lambda: registration.name,
        interval_ms=INTERVAL_MS,
    )  # fmt: skip
    return balancer, asyncio.create_task(balancer.follow())


async def counts(world: World, owners: list[FakeOwner]) -> list[int]:
    records = [await world.record(name) for name in NAMES]
    held = Counter(record.owner for record in records)
    for owner in owners:
        owner.topic_count = held[owner.incarnation]
    return [held[owner.incarnation] for owner in owners]


async def until_told(replica: Replica, owners: list[FakeOwner]) -> None:
    """Each owner has reported its number of topics."""

    def told() -> bool:
        links = [replica.coordination.owners.link(owner.incarnation) for owner in owners]
        return all(link and link.topic_count == owner.topic_count for link, owner in zip(links, owners, strict=True))

    await until(told, DEADLINE_S)


async def test_topics_follow_an_owner_that_joined() -> None:
    """The previous owner closes them first, and the other replica moves none."""
    async with World.running() as world:
        first, second = await world.replica(), await world.replica()
        one, following_one = await balancer_of(first, 1)
        other, following_other = await balancer_of(second, 2)
        await until(lambda: (one.elected, other.elected) == (True, False), DEADLINE_S)
        old = await world.owner(first, second)
        await first.sees(old)
        await asyncio.gather(*(first.look_up(name) for name in NAMES))
        new = await world.owner(first, second)
        await asyncio.gather(first.sees(old, new), second.sees(old, new))
        assert await counts(world, [old, new]) == [12, 0]
        await asyncio.gather(until_told(first, [old, new]), until_told(second, [old, new]))

        moves: list[int] = []

        async def moved() -> bool:
            """A round of each; the new owner may hear of a move only after the next rounds."""
            await other.round()
            before = await counts(world, [old, new])
            await one.round()
            moves.append((await counts(world, [old, new]))[1] - before[1])
            return bool(new.assigned)

        await until(moved, DEADLINE_S)
        assert 0 < max(moves) <= 2, "a few in a round"
        after = await counts(world, [old, new])
        assert {topic_id for topic_id, _ in new.assigned} <= set(old.unloaded)
        assert {one.node for one in noted(first.coordination.events, EventKind.BALANCE)} == {old.incarnation}
        assert second.coordination.placements.counts["topics_moved"] == 0
        assert first.coordination.placements.counts["topics_moved"] == after[1]
        for task in (following_one, following_other):
            task.cancel()


@dataclass(slots=True)
class Uneven:
    """A balancing replica, an owner with all topics, and one that has just joined."""

    world: World
    replica: Replica
    balancer: Balancer
    old: FakeOwner
    new: FakeOwner
    #: the store that only the balancer uses
    store: MemorySession
    #: the name that the replica uses for itself; at first that of the elected one
    name: str

    @classmethod
    @asynccontextmanager
    async def running(cls, *, interval_ms: int = INTERVAL_MS) -> AsyncIterator["Uneven"]:
        async with World.running() as world:
            replica, store = await world.replica(), await world.session()
            old = await world.owner(replica)
            await replica.sees(old)
            await asyncio.gather(*(replica.look_up(name) for name in NAMES))
            new = await world.owner(replica)
            await replica.sees(old, new)
            registry, admin = Registry(replica.session), replica.coordination
            registration = registry.register_metadata(LiveMetadata("127.0.0.1", {"grpc": 1}))
            await registration.establish()
            balancer = Balancer(
                registry, TopicStore(store), admin.owners, admin.placements, own_name=lambda: own.name,
                interval_ms=interval_ms,
            )  # fmt: skip
            own = cls(world, replica, balancer, old, new, store, registration.name or "")
            following = asyncio.create_task(balancer.follow())
            await until(lambda: balancer.elected, DEADLINE_S)
            await counts(world, [old, new])
            await until_told(replica, [old, new])
            yield own
            following.cancel()

    async def looks(self) -> None:
        """Some rounds, the last of them long after the owners have settled."""
        ends_at = asyncio.get_running_loop().time() + 100 * INTERVAL_MS / 1000

        async def over() -> bool:
            await self.balancer.round()
            return asyncio.get_running_loop().time() > ends_at

        await until(over, DEADLINE_S)


async def test_topics_move_once_the_owners_have_settled() -> None:
    """Control of the tests below: here the topics move."""
    async with Uneven.running() as own:
        await own.looks()
        assert own.old.unloaded


async def test_nothing_moves_before_the_owners_have_settled() -> None:
    """For two intervals, so that a restarting owner causes no moves."""
    async with Uneven.running(interval_ms=60_000) as own:
        await own.looks()
        assert own.old.unloading == []


async def test_reelected_replica_starts_with_a_new_view() -> None:
    """Its previous view is outdated: owners may have joined, and topics may have moved."""
    async with Uneven.running() as own:
        elected = own.name
        await own.balancer.round()
        own.name = "another"
        await own.looks()
        own.name = elected
        await own.balancer.round()
        assert own.old.unloading == [], "not at the first look since"
        await own.looks()
        assert own.old.unloaded


async def test_unavailable_store_does_not_end_balancing() -> None:
    """An error in this task would end the process."""
    async with Uneven.running() as own:
        own.store.faults.close()
        await own.looks()
        assert own.old.unloading == []


async def test_topic_with_a_corrupt_record_is_not_moved() -> None:
    """Its owner is unknown; the other topics move."""
    async with Uneven.running() as own:
        record = await own.world.record(NAMES[0])
        path = paths.topic(TopicId(record.topic_id))
        node = await own.store.read(path)
        assert node is not None
        await own.store.write(path, b"no record", version=node.version)
        await own.looks()
        assert own.old.unloaded
        assert record.topic_id not in own.old.unloading


async def test_owner_that_refuses_to_unload_is_asked_again() -> None:
    """A failed move ends neither the round nor the balancing."""
    async with Uneven.running() as own:
        own.old.refuses_unloads = True
        await own.looks()
        assert len(set(own.old.unloading)) >= 2
        own.old.refuses_unloads = False
        await own.looks()
        assert own.old.unloaded


async def test_no_topic_moves_to_a_draining_owner() -> None:
    """The draining owner has no topics left and is about to stop."""
    async with Uneven.running() as own:
        await own.new.streams[own.replica].write(own.new.hello(draining=True))
        await until(lambda: len(own.replica.coordination.owners.usable) == 1, DEADLINE_S)
        await own.looks()
        assert own.old.unloading == []


async def test_next_replica_takes_over_after_the_elected_one_stops() -> None:
    """The remaining replica with the lowest number is elected."""
    async with World.running() as world:
        first, second = await world.replica(), await world.replica()
        one, following_one = await balancer_of(first, 1)
        other, following_other = await balancer_of(second, 2)
        await until(lambda: one.elected and not other.elected, DEADLINE_S)
        first.session.faults.expire()
        await until(lambda: other.elected, DEADLINE_S)
        first.session.faults.resume()
        await until(lambda: not one.elected, DEADLINE_S)
        for task in (following_one, following_other):
            task.cancel()


async def test_outdated_move_of_a_topic_does_nothing() -> None:
    """The topic has moved to another owner since its record was read."""
    async with World.running() as world:
        replica = await world.replica()
        owners = [await world.owner(replica), await world.owner(replica)]
        await replica.sees(*owners)
        await replica.look_up()
        record = await world.record()
        elsewhere = next(owner for owner in owners if owner.incarnation != record.owner)
        await replica.coordination.placements.move(TopicId(record.topic_id), elsewhere.incarnation)
        assert await world.record() == record
