"""Balancing by the elected replica: topics go over to an owner that joined, by a clean hand-over."""

import asyncio
from collections import Counter

import pytest

from oncelog.core.ids import TopicId
from oncelog.metadata.balancer import Balancer
from oncelog.stores.registry import LiveMetadata, Registry
from tests.cluster.metadata_world import DEADLINE_S, FakeOwner, Replica, World
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio

#: Rounds are asked for by the tests; the owners have settled after so little time.
INTERVAL_MS = 1
NAMES = [f"t{number}" for number in range(12)]


async def balancer_of(replica: Replica, number: int) -> "tuple[Balancer, asyncio.Task[None]]":
    """The balancer of a registered replica, which follows the election."""
    registry = Registry(replica.session)
    registration = registry.register_metadata(LiveMetadata("127.0.0.1", {"grpc": number}))
    await registration.establish()
    admin = replica.parts.admin
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
    """Each owner's beats have told how many topics it has."""

    def told() -> bool:
        links = [replica.parts.admin.owners.link(owner.incarnation) for owner in owners]
        return all(link and link.topic_count == owner.topic_count for link, owner in zip(links, owners, strict=True))

    await until(told, DEADLINE_S)


async def test_topics_follow_an_owner_that_joined() -> None:
    """Closed by the former owner first; and the other replica leaves them alone."""
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

        async def moved() -> bool:
            await other.round()
            await one.round()
            return bool(new.assigned)

        await until(moved, DEADLINE_S)
        after = await counts(world, [old, new])
        assert 0 < after[1] <= 2, "a few at a time"
        assert {topic_id for topic_id, _ in new.assigned} <= set(old.unloaded)
        assert second.parts.admin.placements.counts["topics_moved"] == 0
        assert first.parts.admin.placements.counts["topics_moved"] == after[1]
        for task in (following_one, following_other):
            task.cancel()


async def test_next_replica_takes_over_when_the_elected_one_goes() -> None:
    """The one that has the lowest number of those that are left."""
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


async def test_a_move_of_a_topic_that_went_elsewhere_meanwhile_does_nothing() -> None:
    """What was read is old by then."""
    async with World.running() as world:
        replica = await world.replica()
        owners = [await world.owner(replica), await world.owner(replica)]
        await replica.sees(*owners)
        await replica.look_up()
        record = await world.record()
        elsewhere = next(owner for owner in owners if owner.incarnation != record.owner)
        await replica.parts.admin.placements.move(TopicId(record.topic_id), elsewhere.incarnation)
        assert await world.record() == record
