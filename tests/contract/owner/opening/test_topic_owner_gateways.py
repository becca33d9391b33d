"""Clients of gateways at a real owner: which stream hears that a session ended, and which that a name is wanted."""

from pathlib import Path

import pytest

from oncelog.core.errors import InvalidArgument, NotOwner, ProducerBusy, ProducerFenced, SessionSuperseded
from oncelog.core.formats.client_token import decode_token, token_of
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import ClientToken, GatewayClient, OnConflict, ProducerInstance
from oncelog.core.ids import InstanceId
from oncelog.core.topic_events.events import TopicTimerFired
from oncelog.rpc.codecs.owner_codec import EndedSession, OpenDenied, OpenGranted, OpenRequest, PublishFrame
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from tests.cluster.until import until
from tests.contract.owner.owner_world import ANOTHER, DEADLINE_S, PublishClient, batch_of, owner_world, until_streams
from tests.contract.owner.ownership.fencing import fence

TOPIC = "public/default/flights"
X, Y, Z = InstanceId(b"x" * 16), InstanceId(b"y" * 16), InstanceId(b"z" * 16)

pytestmark = pytest.mark.asyncio


def opening(runner: TopicRunner, open_id: int, gateway: InstanceId, client: GatewayClient) -> OpenRequest:
    return OpenRequest(
        open_id, runner.name, runner.topic_id, "importer", on_conflict=OnConflict.REFUSE, instance_id=gateway,
        client=client,
    )  # fmt: skip


def token(granted: OpenGranted) -> ClientToken:
    return decode_token(token_of(granted.topic_id, ProducerInstance(granted.producer_id, granted.generation)))


async def first(runner: TopicRunner, client: PublishClient) -> OpenGranted:
    await client.stream.write(PublishFrame(opens=[opening(runner, 1, X, GatewayClient(0))]))
    return await next_granted(client)


async def next_granted(client: PublishClient) -> OpenGranted:
    while True:
        for granted in (await client.receive()).granted:
            return granted


async def next_ended(client: PublishClient) -> EndedSession:
    while True:
        for ended in (await client.receive()).ended:
            return ended


async def next_denied(client: PublishClient) -> OpenDenied:
    while True:
        for denied in (await client.receive()).denied:
            return denied


async def next_wanted(client: PublishClient) -> list[int]:
    while True:
        if wanted := (await client.receive()).wanted:
            return list(wanted)


async def until_waiting(runner: TopicRunner, count: int) -> None:
    serving = runner.core.serving
    assert serving is not None
    await until(lambda: len(serving.openings.waiting) == count, DEADLINE_S, waiting_for="openings that wait")


@pytest.mark.hazard("deposed-owner-refuses")
async def test_deposed_owner_grants_nothing_to_a_client_that_comes_back(tmp_path: Path) -> None:
    """It does not know that another one serves, and would write nothing that shows it. What it knows is of the past."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        former, later = PublishClient(channel), PublishClient(channel)
        granted = await first(runner, former)
        await former.stored(granted, batch_of(granted, [0]))
        await world.place(runner.topic_id, ANOTHER)
        await fence(world, runner)
        await later.stream.write(PublishFrame(opens=[opening(runner, 1, Y, GatewayClient(1, token(granted)))]))
        assert isinstance((await next_denied(later)).error, NotOwner)


@pytest.mark.hazard("deposed-owner-refuses", "two-gateways-hold-one-client")
async def test_deposed_owner_grants_nothing_to_a_client_of_kafka(tmp_path: Path) -> None:
    """Each gateway opens it as the same instance, so no entry shows that the owner was deposed. Control: before that,
    the second gateway is granted it."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        former, later = PublishClient(channel), PublishClient(channel)

        def of_kafka(open_id: int, epoch: int) -> OpenRequest:
            request = opening(runner, open_id, X, GatewayClient(epoch))
            return request._replace(producer_name="kafka/7", mode=SequenceMode.EPOCHED)

        await former.stream.write(PublishFrame(opens=[of_kafka(1, 5)]))
        granted = await next_granted(former)
        await former.stored(granted, batch_of(granted, [0]))
        await later.stream.write(PublishFrame(opens=[of_kafka(1, 6)]))
        resumed = await next_granted(later)
        assert (resumed.producer_id, resumed.generation) == (granted.producer_id, granted.generation)
        assert (resumed.last_sequence_id, resumed.final) == (0, True)
        assert isinstance((await next_ended(former)).error, SessionSuperseded)
        await world.place(runner.topic_id, ANOTHER)
        await fence(world, runner)
        await former.stream.write(PublishFrame(opens=[of_kafka(2, 7)]))
        assert isinstance((await next_denied(former)).error, NotOwner)


@pytest.mark.hazard("gateways-hold-one-producer")
async def test_former_gateway_hears_once_that_its_session_was_superseded(tmp_path: Path) -> None:
    """On its own stream. What it has sent before is stored, what it sends then is not answered."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        former, later = PublishClient(channel), PublishClient(channel)
        granted = await first(runner, former)
        await former.stored(granted, batch_of(granted, [0]))
        await later.stream.write(PublishFrame(opens=[opening(runner, 1, Y, GatewayClient(1, token(granted)))]))
        resumed = await next_granted(later)
        assert (resumed.producer_id, resumed.generation) == (granted.producer_id, granted.generation)
        assert (resumed.last_sequence_id, resumed.final) == (0, True)
        ended = await next_ended(former)
        assert (ended.session, type(ended.error)) == (granted.session, SessionSuperseded)
        await former.stream.write(PublishFrame([granted.session], [5], [batch_of(granted, [1])]))
        await former.stream.write(PublishFrame(opens=[opening(runner, 2, X, GatewayClient(0, token(granted)))]))
        answer = await former.receive()
        assert (list(answer.answers), answer.ended) == ([], [])
        assert isinstance(answer.denied[0].error, ProducerFenced)
        await later.stored(resumed, batch_of(resumed, [1]))


@pytest.mark.hazard("half-open-session")
async def test_name_that_is_wanted_is_asked_for_on_the_stream_of_its_holder(tmp_path: Path) -> None:
    """Once. The opening is refused when the gateway has answered, and the session goes on."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        holder, other = PublishClient(channel), PublishClient(channel)
        granted = await first(runner, holder)
        await other.stream.write(PublishFrame(opens=[opening(runner, 7, Z, GatewayClient(0))]))
        assert await next_wanted(holder) == [granted.session]
        await holder.stream.write(PublishFrame(held=[granted.session, granted.session]))
        denied = await next_denied(other)
        assert (denied.open_id, type(denied.error)) == (7, ProducerBusy)
        await holder.stored(granted, batch_of(granted, [0]))


async def test_gateway_whose_client_is_gone_frees_the_name(tmp_path: Path) -> None:
    """By closing the session."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        holder, other = PublishClient(channel), PublishClient(channel)
        granted = await first(runner, holder)
        await other.stream.write(PublishFrame(opens=[opening(runner, 7, Z, GatewayClient(0))]))
        await next_wanted(holder)
        await holder.stream.write(PublishFrame(closes=[granted.session]))
        assert (await next_granted(other)).generation == granted.generation + 1
        assert (await next_ended(holder)).error is None


@pytest.mark.hazard("half-open-session")
async def test_gateway_that_says_nothing_loses_the_name(tmp_path: Path) -> None:
    """When the timer of the owner fires."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        holder, other = PublishClient(channel), PublishClient(channel)
        granted = await first(runner, holder)
        await other.stream.write(PublishFrame(opens=[opening(runner, 7, Z, GatewayClient(0))]))
        await next_wanted(holder)
        assert runner.core.serving is not None
        (timer,) = runner.core.serving.openings.names._timers
        runner.post(TopicTimerFired(timer))
        assert (await next_granted(other)).generation == granted.generation + 1
        ended = await next_ended(holder)
        assert (ended.session, type(ended.error)) == (granted.session, ProducerFenced)


@pytest.mark.hazard("name-lost-by-a-restart")
@pytest.mark.parametrize("how", ["stream broke", "closed, keeping the name"])
async def test_name_is_kept_for_the_token_of_its_client(tmp_path: Path, how: str) -> None:
    """A standby waits for it, and the client is back first."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        holder, standby, later = PublishClient(channel), PublishClient(channel), PublishClient(channel)
        await until_streams(world, 3)
        granted = await first(runner, holder)
        if how == "stream broke":
            holder.stream.cancel()
            await until_streams(world, 2)
        else:
            await holder.stream.write(PublishFrame(closes_keeping=[granted.session]))
            assert (await next_ended(holder)).error is None
        await standby.stream.write(PublishFrame(opens=[opening(runner, 7, Z, GatewayClient(0))]))
        await until_waiting(runner, 1)
        await later.stream.write(PublishFrame(opens=[opening(runner, 1, Y, GatewayClient(1, token(granted)))]))
        granteds: list[OpenGranted] = []
        wanted: list[int] = []
        while not wanted:  # perhaps in the frame of the grant
            frame = await later.receive()
            granteds += frame.granted
            wanted += frame.wanted
        (resumed,) = granteds
        assert (resumed.generation, wanted) == (granted.generation, [resumed.session])
        await later.stream.write(PublishFrame(held=[resumed.session]))
        assert isinstance((await next_denied(standby)).error, ProducerBusy)


@pytest.mark.hazard("gateway-at-an-older-owner")
async def test_clients_of_gateways_wait_for_the_level_of_the_cluster(tmp_path: Path) -> None:
    """An owner of the former version may take the topic over. Ordinary producers do not notice."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        world.level = 8
        client = PublishClient(channel)
        await client.stream.write(PublishFrame(opens=[opening(runner, 1, X, GatewayClient(0))]))
        error = (await next_denied(client)).error
        assert isinstance(error, InvalidArgument)
        assert error.details == {"field": "client", "limit": 9}
        for said in ("need level 9", "has level 8", "oncelog admin cluster finalize"):
            assert said in error.message
        assert not (await client.open(runner, "other")).for_client
        world.level = 9
        assert (await first(runner, client)).for_client


async def test_answers_for_sessions_of_other_streams_are_ignored(tmp_path: Path) -> None:
    """A gateway speaks for its own clients only."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        holder, other = PublishClient(channel), PublishClient(channel)
        granted = await first(runner, holder)
        await other.stream.write(PublishFrame(opens=[opening(runner, 7, Z, GatewayClient(0))]))
        await next_wanted(holder)
        frame = PublishFrame(held=[granted.session], closes_keeping=[granted.session], closes=[granted.session])
        await other.stream.write(frame)
        await other.stream.write(PublishFrame(opens=[opening(runner, 8, Y, GatewayClient(0))]))
        await until_waiting(runner, 2)
        await holder.stored(granted, batch_of(granted, [0]))
