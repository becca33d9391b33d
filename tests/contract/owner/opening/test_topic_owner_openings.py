"""Late answers to openings at a real owner: repeats by the same instance, withdrawals and broken streams."""

from pathlib import Path

import pytest

from oncelog.core.errors import InvalidArgument, SessionEnded
from oncelog.core.formats.opening import OnConflict
from oncelog.core.ids import InstanceId, OwnerEpoch
from oncelog.rpc.codecs.owner_codec import OpenDenied, OpenGranted, OpenRequest, PublishFrame
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from tests.cluster.until import until
from tests.contract.owner.owner_world import DEADLINE_S, OwnerWorld, PublishClient, batch_of, owner_world, until_streams

TOPIC = "public/default/flights"
X, Y = InstanceId(b"x" * 16), InstanceId(b"y" * 16)

pytestmark = pytest.mark.asyncio


def opening(
    runner: TopicRunner, open_id: int, instance_id: InstanceId = X, name: str | None = "importer"
) -> OpenRequest:
    return OpenRequest(
        open_id, runner.name, runner.topic_id, name, on_conflict=OnConflict.REFUSE, owner_epoch_seen=OwnerEpoch(0),
        instance_id=instance_id,
    )  # fmt: skip


async def next_granted(client: PublishClient) -> OpenGranted:
    while True:
        frame = await client.receive()
        for granted in frame.granted:
            return granted


async def until_denied(client: PublishClient, open_id: int) -> OpenDenied:
    while True:
        for denied in (await client.receive()).denied:
            if denied.open_id == open_id:
                return denied


def waiting_for_ids(runner: TopicRunner) -> int:
    assert runner.core.serving is not None
    return len(runner.core.serving.openings.waiting)


def generations(runner: TopicRunner) -> dict[str, int]:
    assert runner.core.serving is not None
    return {p.name: p.generation for p in runner.core.serving.log.table.state.producers.values()}


def connected(runner: TopicRunner) -> int:
    assert runner.core.serving is not None
    return len(runner.core.serving.sessions.open_sessions)


async def stalled(world: OwnerWorld, runner: TopicRunner, client: PublishClient, *requests: OpenRequest) -> None:
    """Ask while ZooKeeper does not answer, until the owner waits for a producer id."""
    world.session.faults.suspend()
    await client.stream.write(PublishFrame(opens=requests))
    await until(lambda: waiting_for_ids(runner) == len(requests), DEADLINE_S, waiting_for="the owner to want ids")


@pytest.mark.parametrize("name", ["importer", None])
async def test_opening_repeated_while_zookeeper_is_stalled_has_one_grant(tmp_path: Path, name: str | None) -> None:
    """The instance gets no answer, withdraws its request and repeats it, on the same stream and on another one.

    Before, each request that was executed granted a new generation, and the newest one fenced the instance itself.
    """
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        client, other = PublishClient(channel), PublishClient(channel)
        await stalled(world, runner, client, opening(runner, 1, name=name))
        await client.stream.write(PublishFrame(opens=[opening(runner, 2, name=name)], cancels=[1]))
        await client.stream.write(PublishFrame(opens=[opening(runner, 3, name=name)]))
        await until_denied(client, 2)  # So the owner has read request 3; another stream's frames may overtake these.
        await other.stream.write(PublishFrame(opens=[opening(runner, 4, name=name)]))
        assert isinstance((await until_denied(client, 3)).error, SessionEnded)
        world.session.faults.resume()
        granted = await next_granted(other)
        assert (granted.open_id, granted.generation) == (4, 1)
        assert list(generations(runner).values()) == [1]
        assert connected(runner) == 1
        await other.stored(granted, batch_of(granted, [0]))


@pytest.mark.parametrize("breaks", [True, False])
async def test_withdrawn_opening_gets_no_grant(tmp_path: Path, *, breaks: bool) -> None:
    """It was withdrawn, or its stream broke, before ZooKeeper allocated an id; the next opening gets this id."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        gone, client = PublishClient(channel), PublishClient(channel)
        await until_streams(world, 2)
        await stalled(world, runner, gone, opening(runner, 1))
        if breaks:
            gone.stream.cancel()
            await until_streams(world, 1)
        else:
            await gone.stream.write(PublishFrame(cancels=[1, 99]))
        await until(lambda: waiting_for_ids(runner) == 0, DEADLINE_S, waiting_for="the request to be withdrawn")
        await client.stream.write(PublishFrame(opens=[opening(runner, 1, Y, "another")]))
        world.session.faults.resume()
        granted = await next_granted(client)
        assert (granted.producer_id, generations(runner)) == (1, {"another": 1})


async def test_grant_for_a_disconnected_client_leaves_no_session(tmp_path: Path) -> None:
    """The client left while the grant was being stored. The name is free, and the same instance would get its grant."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        gone, client = PublishClient(channel), PublishClient(channel)
        await until_streams(world, 2)
        with world.node.hold():
            syncs = world.node.held.sync_count
            await gone.stream.write(PublishFrame(opens=[opening(runner, 1)]))
            await until(lambda: world.node.held.sync_count > syncs, DEADLINE_S, waiting_for="the grant at the node")
            gone.stream.cancel()
            await until_streams(world, 1)
        await until(lambda: generations(runner) == {"importer": 1}, DEADLINE_S)
        assert (connected(runner), runner.sinks, runner._calls) == (0, {}, {})
        await client.stream.write(PublishFrame(opens=[opening(runner, 1)]))
        assert (await next_granted(client)).generation == 1
        await client.stream.write(PublishFrame(opens=[opening(runner, 2, Y)], closes=[]))
        [denied] = (await client.receive()).denied
        assert denied.open_id == 2


async def test_instance_id_of_another_length_is_refused(tmp_path: Path) -> None:
    """It could not be stored in a grant."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        client = PublishClient(channel)
        await client.stream.write(PublishFrame(opens=[opening(runner, 1, InstanceId(b"short"))]))
        with pytest.raises(InvalidArgument, match="16 bytes"):
            await client.receive()
