"""Groups of consumers at a real owner: what it answers, when, to whom, and when the topic leaves it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.errors import InvalidArgument, NotOwner
from oncelog.core.groups.answers import GroupError, GroupState, JoinAnswer, ListAnswer, ListedGroup
from oncelog.core.groups.events import (
    Assignment,
    DeleteRequested,
    HeartbeatRequested,
    JoinRequested,
    LeaveRequested,
    LeavingMember,
    ListRequested,
    Protocol,
    SyncRequested,
)
from oncelog.core.ids import Generation
from oncelog.core.names import KAFKA_GROUPS
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.group_codec import ASK_GROUP, GroupQuestion, answer_from_wire, question_to_wire
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.group_service import PROOF_AGE_S
from oncelog.wire import groups_pb2 as pb
from tests.cluster.until import until
from tests.contract.owner.owner_world import ANOTHER, DEADLINE_S, ME, OwnerWorld, owner_world

pytestmark = pytest.mark.asyncio

CALL_MS = 60_000
SESSION_MS = 10_000


class Door:
    """Asks the owner of one topic."""

    def __init__(self, channel: Channel, runner: TopicRunner) -> None:
        self._channel, self._runner = channel, runner

    async def ask(self, question: GroupQuestion) -> Any:
        request = pb.GroupRequest(
            topic=self._runner.name, topic_id=self._runner.topic_id, **question_to_wire(question)
        )  # fmt: skip
        return answer_from_wire(await self._channel.call(ASK_GROUP, request, timeout_ms=CALL_MS))

    def begin(self, question: GroupQuestion) -> "asyncio.Future[Any]":
        return asyncio.ensure_future(self.ask(question))


def join(group: str = "billing", member_id: str = "", new: str = "m-1", **more: Any) -> JoinRequested:
    protocols = (Protocol("range", b"topics"),)
    return JoinRequested(
        0, group, member_id, new, "consumer", protocols, SESSION_MS, SESSION_MS, member_id_required=False, **more
    )


def heartbeat() -> HeartbeatRequested:
    return HeartbeatRequested(0, "billing", "m-1", Generation(1))


async def serve(world: OwnerWorld, local: str = KAFKA_GROUPS) -> TopicRunner:
    return await world.serve(f"public/default/{local}")


def generation_of(runner: TopicRunner, group: str) -> int:
    """The durable one."""
    assert runner.core.serving is not None
    states = [each.state for each in runner.core.serving.subscriptions]
    return next((state.generation for state in states if state.name == group), 0)


async def test_a_member_joins_when_its_generation_is_durable(tmp_path: Path) -> None:
    async with owner_world(tmp_path) as (world, channel):
        runner = await serve(world)
        door = Door(channel, runner)
        with world.node.hold():
            before = world.node.held.sync_count
            joining = door.begin(join())
            await until(lambda: world.node.held.sync_count > before, DEADLINE_S)
            assert not joining.done()
            assert generation_of(runner, "billing") == 0
        joined: JoinAnswer = await joining
        assert (joined.error, joined.generation, joined.leader) == (GroupError.NONE, 1, "m-1")
        assert generation_of(runner, "billing") == 1
        synced = await door.ask(SyncRequested(0, "billing", "m-1", Generation(1), (Assignment("m-1", b"all"),)))
        assert (synced.error, synced.assignment) == (GroupError.NONE, b"all")
        assert (await door.ask(heartbeat())).error is GroupError.NONE


async def test_next_takeover_goes_on_behind_the_durable_generation(tmp_path: Path) -> None:
    """The member shows itself, is sent to JoinGroup, and keeps its id."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await serve(world)
        door = Door(channel, runner)
        assert (await door.ask(join())).generation == 1
        await world.topics.unload(runner.topic_id)
        with pytest.raises(NotOwner):
            await door.ask(heartbeat())
        await world.place(runner.topic_id, ME)
        world.topics.assign(runner.topic_id)
        assert (await door.ask(heartbeat())).error is GroupError.REBALANCE_IN_PROGRESS
        joined: JoinAnswer = await door.ask(join(member_id="m-1"))
        assert (joined.error, joined.member_id, joined.generation) == (GroupError.NONE, "m-1", 2)


async def test_waiting_call_ends_with_the_topic(tmp_path: Path) -> None:
    """Its door asks the next owner then."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await serve(world)
        door = Door(channel, runner)
        with world.node.hold():
            before = world.node.held.sync_count
            joining = door.begin(join())
            await until(lambda: world.node.held.sync_count > before, DEADLINE_S)
            await world.place(runner.topic_id, ANOTHER)
            world.topics.look_again()
            with pytest.raises(NotOwner):
                await joining


@pytest.mark.hazard("two-sets-of-members")
async def test_former_owner_that_does_not_know_it_answers_no_heartbeat(tmp_path: Path) -> None:
    """It was stopped while another owner took the topic over, and goes on."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await serve(world)
        door = Door(channel, runner)
        await door.ask(join())
        await world.place(runner.topic_id, ANOTHER)
        runner.ownership_proofs.proved_at -= PROOF_AGE_S
        with pytest.raises(NotOwner):
            await door.ask(heartbeat())


async def test_withdrawn_call_of_a_client_without_an_id_leaves_no_member(tmp_path: Path) -> None:
    """The client does not know its member id, so it never comes back as that member."""
    async with owner_world(tmp_path) as (world, channel):
        door = Door(channel, await serve(world))
        joining = door.begin(join())
        listing = ListAnswer((ListedGroup("billing", "consumer", GroupState.PREPARING),))
        while await door.ask(ListRequested(0)) != listing:
            pass
        joining.cancel()
        while await door.ask(ListRequested(0)) != ListAnswer(()):
            pass


async def test_deleted_group_is_forgotten_durably(tmp_path: Path) -> None:
    async with owner_world(tmp_path) as (world, channel):
        runner = await serve(world)
        door = Door(channel, runner)
        await door.ask(join())
        assert (await door.ask(DeleteRequested(0, "billing"))).error is GroupError.NON_EMPTY_GROUP
        assert (await door.ask(LeaveRequested(0, "billing", (LeavingMember("m-1"),)))).error is GroupError.NONE
        assert (await door.ask(DeleteRequested(0, "billing"))).generation == 1
        assert (await door.ask(DeleteRequested(0, "billing", Generation(1)))).error is GroupError.NONE
        assert runner.core.serving is not None
        assert not list(runner.core.serving.subscriptions)
        assert await door.ask(ListRequested(0)) == ListAnswer(())


async def test_other_topics_coordinate_no_groups(tmp_path: Path) -> None:
    async with owner_world(tmp_path) as (world, channel):
        with pytest.raises(InvalidArgument, match=f"coordinates no groups: only {KAFKA_GROUPS} does"):
            await Door(channel, await serve(world, "orders")).ask(join())
