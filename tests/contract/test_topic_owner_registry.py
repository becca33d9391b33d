"""The topics of an owner: taken, lost, taken again, closed one by one and all at once."""

import asyncio
from pathlib import Path

import pytest

from oncelog.core.errors import NotOwner, TooManyRequests, TopicNotFound
from oncelog.core.ids import TopicId
from oncelog.core.ledger.metadata import LedgerState
from oncelog.core.topic.events import HigherEpochReported
from oncelog.core.topic.serving import TopicSettings
from oncelog.core.topic.topic import Phase
from tests.cluster.until import until
from tests.contract.owner_world import (
    ANOTHER,
    DEADLINE_S,
    ME,
    OwnerLimits,
    OwnerWorld,
    PublishClient,
    batch_of,
    owner_world,
)

TOPIC = "public/default/flights"


async def ledger_states(world: OwnerWorld, topic_id: TopicId) -> list[LedgerState]:
    """Of the topic's log, in order."""
    topic = await world.parts.topics.read(topic_id)
    assert topic is not None
    stored = [await world.parts.ledgers.read(link.ledger_id) for link in topic.value.ledgers]
    return [each.value.state for each in stored if each is not None]


@pytest.mark.asyncio
async def test_an_owner_takes_no_more_topics_than_its_limit(tmp_path: Path) -> None:
    """It says so, and has room again when one of them is gone."""
    async with owner_world(tmp_path, OwnerLimits(topics_max=2)) as (world, _):
        first = await world.serve(TOPIC)
        await world.serve("public/default/second")
        third = await world.new_topic("public/default/third")
        with pytest.raises(TooManyRequests):
            world.topics.assign(third)
        world.topics.assign(first.topic_id)
        await world.topics.unload(first.topic_id)
        world.topics.assign(third)
        assert world.topics.find(third) is not None


@pytest.mark.asyncio
async def test_an_assignment_is_a_hint_and_the_record_decides(tmp_path: Path) -> None:
    """A topic of another owner, or of nobody, is let go as soon as its record was read."""
    async with owner_world(tmp_path) as (world, _):
        for topic_id in (await world.new_topic(TOPIC, owner=ANOTHER), TopicId("ab" * 16)):
            world.topics.assign(topic_id)
            runner = world.topics.find(topic_id)
            assert runner is not None
            await runner.progress.until_ended()
            assert world.topics.find(topic_id) is None
            with pytest.raises(NotOwner):
                world.topics.runner(topic_id, TOPIC)


@pytest.mark.asyncio
async def test_a_topic_is_called_by_its_name_and_its_id(tmp_path: Path) -> None:
    """A client that knows an older topic of that name, or another name of it, looks it up again."""
    async with owner_world(tmp_path) as (world, _):
        runner = await world.serve(TOPIC)
        assert world.topics.runner(runner.topic_id, TOPIC) is runner
        with pytest.raises(TopicNotFound):
            world.topics.runner(runner.topic_id, "public/default/other")
        with pytest.raises(NotOwner):
            world.topics.runner(TopicId("ab" * 16), TOPIC)


@pytest.mark.asyncio
async def test_a_topic_that_was_lost_and_comes_back_begins_anew(tmp_path: Path) -> None:
    """Another runner with other session numbers, and all that was stored."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        first = await world.serve(TOPIC)
        granted = await client.open(first, "importer")
        await client.stored(granted, batch_of(granted, range(3)))
        await world.place(first.topic_id, ANOTHER)
        first.post(HigherEpochReported())
        await first.progress.until_ended()
        [ended] = (await client.receive()).ended
        assert isinstance(ended.error, NotOwner)
        assert (first.core.phase, len(world.topics)) == (Phase.DEPOSED, 0)
        await world.place(first.topic_id, ME)
        world.topics.assign(first.topic_id)
        second = world.topics.find(first.topic_id)
        assert second is not None
        assert second is not first
        await second.progress.until_serving()
        again = await client.open(second, "importer")
        assert (again.last_sequence_id, again.owner_epoch) == (2, 3)
        assert again.session >> 40 > granted.session >> 40
        first._finish(closed=False)
        assert world.topics.find(first.topic_id) is second, "the end of the first is none of the second's"


@pytest.mark.asyncio
async def test_all_topics_look_at_their_records_again(tmp_path: Path) -> None:
    """After the end of a session with ZooKeeper each of them may be another's, and the others go on."""
    async with owner_world(tmp_path) as (world, _):
        lost, kept = await world.serve(TOPIC), await world.serve("public/default/kept")
        await world.place(lost.topic_id, ANOTHER)
        world.topics.look_again()
        await lost.progress.until_ended()
        assert [runner.name for runner in world.topics] == [kept.name]
        assert (world.topics.serving_count, kept.core.phase) == (1, Phase.SERVING)


@pytest.mark.asyncio
async def test_a_topic_that_is_unloaded_is_closed_cleanly(tmp_path: Path) -> None:
    """Its ledgers are CLOSED, so that its next owner recovers nothing. One that is not here cannot be closed."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        runner = await world.serve(TOPIC)
        granted = await client.open(runner, "importer")
        await client.stored(granted, batch_of(granted, range(3)))
        await asyncio.gather(world.topics.unload(runner.topic_id), world.topics.unload(runner.topic_id))
        assert await ledger_states(world, runner.topic_id) == [LedgerState.CLOSED]
        assert runner.core.phase is Phase.CLOSED
        with pytest.raises(NotOwner):
            await world.topics.unload(runner.topic_id)


@pytest.mark.asyncio
async def test_a_drain_closes_every_topic_and_takes_no_other(tmp_path: Path) -> None:
    """Assignments that come meanwhile are meant for another owner."""
    async with owner_world(tmp_path) as (world, _):
        runners = [await world.serve(f"public/default/{number}") for number in range(3)]
        late = await world.new_topic(TOPIC)
        draining = asyncio.create_task(world.topics.drain(deadline_ms=10_000))
        await until(lambda: world.topics.draining, DEADLINE_S)
        world.topics.assign(late)
        assert await draining == 0
        assert len(world.topics) == 0
        for runner in runners:
            assert await ledger_states(world, runner.topic_id) == [LedgerState.CLOSED]


@pytest.mark.asyncio
async def test_a_drain_leaves_topics_to_be_handed_over_one_by_one(tmp_path: Path) -> None:
    """Closed all at once they would all pause until the last of them is served elsewhere; the others go on."""
    async with owner_world(tmp_path) as (world, _):
        runners = [await world.serve(f"public/default/{number}") for number in range(3)]
        draining = asyncio.create_task(world.topics.hand_over(patience_ms=60_000))
        await world.topics.unload(runners[0].topic_id)
        await world.topics.unload(runners[1].topic_id)
        assert runners[2].core.phase is Phase.SERVING
        assert not draining.done()
        await world.topics.unload(runners[2].topic_id)
        assert await draining == 3


@pytest.mark.asyncio
async def test_a_drain_closes_what_nobody_asks_for(tmp_path: Path) -> None:
    """The metadata services were told, and went: after a short while without a word of them, not at the deadline."""
    async with asyncio.timeout(DEADLINE_S), owner_world(tmp_path) as (world, _):
        runner = await world.serve(TOPIC)
        assert await world.topics.hand_over(patience_ms=600_000) == 0
        assert await world.topics.drain(deadline_ms=600_000) == 0
        assert await ledger_states(world, runner.topic_id) == [LedgerState.CLOSED]


@pytest.mark.asyncio
async def test_a_drain_ends_at_its_deadline_and_says_how_many_were_late(tmp_path: Path) -> None:
    """A storage node that does not answer holds no process back: the next owner recovers."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        late = await world.serve(TOPIC)
        await world.serve("public/default/quick")
        granted = await client.open(late, "importer")
        with world.node.hold():
            await client.send(granted.session, batch_of(granted, range(3)))
            await until(lambda: world.metrics.counts.frames_received, DEADLINE_S)
            assert await world.topics.drain(deadline_ms=200) == 1
            assert [runner.name for runner in world.topics] == [TOPIC]
            await until(lambda: late.progress.waiting_count == 0, DEADLINE_S)
        await late.progress.until_ended()


@pytest.mark.asyncio
async def test_a_ledger_that_was_closed_has_no_route_any_more(tmp_path: Path) -> None:
    """Each roll left one behind for as long as the topic stayed: an owner of busy topics grew for ever."""
    limits = OwnerLimits(TopicSettings(write_quorum=1, ack_quorum=1, ledger_entries_max=2))
    async with owner_world(tmp_path, limits) as (world, channel):
        client = PublishClient(channel)
        runner = await world.serve(TOPIC)
        granted = await client.open(runner, "importer")
        for number in range(12):
            await client.stored(granted, batch_of(granted, [number]))
        assert len(runner.core.ownership.record.ledgers) > 5
        assert len(world.parts.routes) <= 2


@pytest.mark.asyncio
async def test_an_assignment_told_again_to_a_topic_that_serves_is_no_takeover(tmp_path: Path) -> None:
    """A recovery much later was timed from it: hours, for a takeover of milliseconds."""
    async with owner_world(tmp_path) as (world, _):
        runner = await world.serve(TOPIC)
        world.topics.assign(runner.topic_id)
        assert runner.trace._ended == []


@pytest.mark.asyncio
async def test_a_recovery_of_its_own_accord_is_a_takeover_too(tmp_path: Path) -> None:
    """A client that knows a higher epoch leaves the owner in doubt: it takes its own topic over, timed from there."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        runner = await world.serve(TOPIC)
        granted = await client.open(runner, "importer")
        await client.stored(granted, batch_of(granted, [0]))
        runner.post(HigherEpochReported())
        await until(lambda: len(runner.trace.finished) == 2, DEADLINE_S)
        assert list(runner.trace.finished[1].phases_ms) == ["acquire", "recover", "load_snapshot", "replay", "open"]
        assert (runner.owner_epoch, runner.core.phase) == (1, Phase.SERVING)
        again = await PublishClient(channel).open(runner, "importer")
        assert again.last_sequence_id == 0
