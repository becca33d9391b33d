"""The topics of an owner: taken, lost, taken again, closed one by one and all at once."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import get_args, get_origin

import pytest

from oncelog.core.errors import NotOwner, TooManyRequests, TopicNotFound
from oncelog.core.ids import LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerState
from oncelog.core.topic.serving import TopicSettings
from oncelog.core.topic.takeover_admission import TakeoverAdmission
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.effects import TopicEffect
from oncelog.core.topic_events.events import HigherEpochReported
from oncelog.runtime.observing.events import EventKind
from tests.cluster.until import until
from tests.contract.noted import noted
from tests.contract.owner.owner_world import (
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
async def test_owner_refuses_topics_above_its_limit(tmp_path: Path) -> None:
    """The error names the limit. A topic that leaves makes room for another one."""
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
async def test_topics_are_taken_over_in_turn_and_those_that_clients_ask_for_first(tmp_path: Path) -> None:
    """After an owner's death thousands come at once. A turn passes on when a topic serves, and when it is lost."""
    async with owner_world(tmp_path) as (world, _):
        world.topics._admission = TakeoverAdmission(at_once=1, slot_ms=60_000)
        names = [f"{TOPIC}-{number}" for number in range(5)]
        ids = [await world.new_topic(name) for name in names]
        lost = await world.new_topic(f"{TOPIC}-lost", owner=ANOTHER)
        for topic_id in (ids[0], lost, *ids[1:]):
            world.topics.assign(topic_id)
        order: list[TopicId] = []

        async def served(topic_id: TopicId) -> None:
            runner = world.topics.find(topic_id)
            assert runner is not None
            await runner.progress.until_serving()
            order.append(topic_id)

        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as serving:
            for topic_id in ids:
                serving.create_task(served(topic_id))
            world.topics.look_again()  # does not let those in that wait
            world.topics.assign(ids[4])
            world.topics.runner(ids[3])
        assert order == [ids[0], ids[3], ids[1], ids[2], ids[4]]
        assert world.topics.find(lost) is None


@pytest.mark.asyncio
async def test_failed_takeovers_wait_for_their_turn_again(tmp_path: Path) -> None:
    """When what they all need is away, thousands would be retried in the same second, each second."""
    async with owner_world(tmp_path) as (world, _):
        world.topics._admission = TakeoverAdmission(at_once=1, slot_ms=60_000)
        missing = LedgerId(9_000)
        failing = [await world.new_topic(f"{TOPIC}-{number}") for number in range(2)]
        for topic_id in failing:
            await world.list_ledger(topic_id, missing)
            world.topics.assign(topic_id)
        events = world.metrics.counts.events
        await until(lambda: events.get("takeover_failed") == 2, DEADLINE_S, waiting_for="both to fail")
        world.topics._admission = TakeoverAdmission(at_once=0, slot_ms=60_000)
        await until(lambda: len(world.topics._admission) == 2, DEADLINE_S, waiting_for="both to be due again")
        assert events.get("takeover_failed") == 2, "none was retried without a turn"
        failed = noted(world.metrics.events, EventKind.TAKEOVER_FAILED)
        assert [(one.level, one.topic[:-1]) for one in failed] == [("error", "public/default/flights-")] * 2
        for topic_id in failing:
            stored = await world.parts.topics.read(topic_id)
            assert stored is not None
            await world.parts.topics.write(replace(stored.value, ledgers=()), version=stored.version)
        world.topics._admission._at_once = 1
        world.topics._take(world.topics._admission.due(0))
        for topic_id in failing:
            runner = world.topics.find(topic_id)
            assert runner is not None
            await runner.progress.until_serving()


@pytest.mark.asyncio
async def test_topic_record_decides_whether_an_assignment_holds(tmp_path: Path) -> None:
    """A topic that the record gives to another owner, or to none, leaves once its record was read."""
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
async def test_request_names_a_topic_by_name_and_id(tmp_path: Path) -> None:
    """A client that knows an older topic of the name, or another name of the id, must look it up again."""
    async with owner_world(tmp_path) as (world, _):
        runner = await world.serve(TOPIC)
        assert world.topics.runner(runner.topic_id, TOPIC) is runner
        with pytest.raises(TopicNotFound):
            world.topics.runner(runner.topic_id, "public/default/other")
        with pytest.raises(NotOwner):
            world.topics.runner(TopicId("ab" * 16), TOPIC)


@pytest.mark.asyncio
async def test_topic_that_returns_gets_a_new_runner(tmp_path: Path) -> None:
    """The runner has other session numbers and everything that was stored."""
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
async def test_all_topics_read_their_records_again(tmp_path: Path) -> None:
    """After a ZooKeeper session has ended, any of them may belong to another owner."""
    async with owner_world(tmp_path) as (world, _):
        lost, kept = await world.serve(TOPIC), await world.serve("public/default/kept")
        await world.place(lost.topic_id, ANOTHER)
        world.topics.look_again()
        await lost.progress.until_ended()
        assert [runner.name for runner in world.topics] == [kept.name]
        assert (world.topics.serving_count, kept.core.phase) == (1, Phase.SERVING)


@pytest.mark.asyncio
async def test_unload_closes_a_topic_cleanly(tmp_path: Path) -> None:
    """Its ledgers are CLOSED, so the next owner recovers nothing. A topic that is not here cannot be unloaded."""
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
        (taken,), (left,) = (noted(world.metrics.events, kind) for kind in (EventKind.TAKEOVER, EventKind.TOPIC_LEFT))
        assert (taken.topic, taken.fields["owner_epoch"]) == (runner.name, 1)
        assert (left.topic, left.message) == (runner.name, "topic is closed")


@pytest.mark.asyncio
async def test_drain_closes_every_topic_and_ignores_assignments(tmp_path: Path) -> None:
    """Assignments during a drain are meant for another owner."""
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
async def test_drain_hands_topics_over_one_by_one(tmp_path: Path) -> None:
    """If all were closed at once, each would pause until the last one is served elsewhere."""
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
async def test_drain_closes_topics_that_no_service_unloads(tmp_path: Path) -> None:
    """The metadata services disappeared after the notification. The drain does not wait until its deadline."""
    async with asyncio.timeout(DEADLINE_S), owner_world(tmp_path) as (world, _):
        runner = await world.serve(TOPIC)
        assert await world.topics.hand_over(patience_ms=600_000) == 0
        assert await world.topics.drain(deadline_ms=600_000) == 0
        assert await ledger_states(world, runner.topic_id) == [LedgerState.CLOSED]


@pytest.mark.asyncio
async def test_drain_ends_at_its_deadline_and_reports_late_topics(tmp_path: Path) -> None:
    """A storage node that does not respond must not keep the process alive. The next owner recovers the topic."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        late = await world.serve(TOPIC)
        await world.serve("public/default/quick")
        granted = await client.open(late, "importer")
        with world.node.hold():
            await client.send(granted.session, batch_of(granted, range(3)))
            await until(lambda: world.metrics.counts.frames_received, DEADLINE_S)
            assert await world.topics.drain(deadline_ms=3_000) == 1
            assert [runner.name for runner in world.topics] == [TOPIC]
            await until(lambda: late.progress.waiting_count == 0, DEADLINE_S)
        await late.progress.until_ended()


@pytest.mark.asyncio
async def test_closed_ledger_has_no_route(tmp_path: Path) -> None:
    """Each roll used to leave a route behind while the topic stayed, so memory grew."""
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
async def test_repeated_assignment_of_a_served_topic_is_not_a_takeover(tmp_path: Path) -> None:
    """A later recovery was timed from it: hours instead of milliseconds."""
    async with owner_world(tmp_path) as (world, _):
        runner = await world.serve(TOPIC)
        world.topics.assign(runner.topic_id)
        assert runner.trace._ended == []


@pytest.mark.asyncio
async def test_recovery_after_a_suspicion_is_timed_as_a_takeover(tmp_path: Path) -> None:
    """A client with a higher epoch makes the owner suspect itself. It takes its own topic over, timed from there."""
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


@pytest.mark.asyncio
async def test_every_effect_of_the_core_is_performed(tmp_path: Path) -> None:
    """The runner looks the performer up by the type of the effect."""
    async with owner_world(tmp_path) as (world, _):
        runner = await world.serve(TOPIC)
        assert set(runner._performers) == {get_origin(effect) or effect for effect in get_args(TopicEffect)}
