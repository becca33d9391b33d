"""Requests that come faster than a role may send them, over real sockets."""

import pytest

from oncelog_doors.core.shared.pace import BURST
from tests.cluster.until import until
from tests.doors.pulsar.bytes_of_clients import CLOSE_PRODUCER, CONNECT, LOOKUP, PING, command, frame
from tests.doors.pulsar.fake_cluster import FakeCluster
from tests.doors.pulsar.raw_client import TOPIC, RawClient, door_world, producer, raw_client
from tests.doors.raw_connection import DEADLINE_S

LOOK_UP = frame(command(LOOKUP, (1, TOPIC), (2, 5)))
PING_FRAME = frame(command(PING))


async def spent(client: RawClient) -> None:
    """Look up as often as is not delayed."""
    client.write(LOOK_UP * BURST)
    for _ in range(BURST):
        assert (await client.read()).name == "located"


@pytest.mark.asyncio
@pytest.mark.hazard("lookup-that-fails")
async def test_look_ups_beyond_the_rate_wait_for_their_turn() -> None:
    """They are answered in the end, and what else comes is answered meanwhile."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        await spent(client)
        client.write(LOOK_UP * 3 + PING_FRAME)
        assert (await client.read()).name == "pong"
        for _ in range(3):
            world.timers.advance(5)
            assert (await client.read()).name == "located"
            client.write(PING_FRAME)
            assert (await client.read()).name == "pong"


@pytest.mark.asyncio
async def test_roles_have_a_pace_of_their_own() -> None:
    """All connections of one role share it, and those of another role do not."""
    cluster = FakeCluster({"one": "importer", "other": "billing"})
    async with door_world(cluster) as world:

        async def connected(client: RawClient, token: bytes) -> None:
            await client.answer(frame(command(CONNECT, (1, b"Pulsar-CPP-v4"), (4, 20), (5, b"token"), (3, token))))

        async with raw_client(world.port) as first, raw_client(world.port) as same, raw_client(world.port) as other:
            await connected(first, b"one")
            await connected(same, b"one")
            await connected(other, b"other")
            await spent(first)
            same.write(LOOK_UP + PING_FRAME)
            assert (await same.read()).name == "pong"
            other.write(LOOK_UP + PING_FRAME)
            assert [(await other.read()).name for _ in range(2)] == ["located", "pong"]
            world.timers.advance(5)
            assert (await same.read()).name == "located"


@pytest.mark.asyncio
async def test_producer_that_is_closed_before_its_turn_is_not_opened() -> None:
    """Its client has given it up; a producer without a client would keep its name."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        opened = [producer(producer_id=number, name=b"n%d" % number) for number in range(BURST + 2)]
        client.write(b"".join(opened))
        for _ in range(BURST):
            assert (await client.read()).name == "producer_success"
        closed = await client.answer(frame(command(CLOSE_PRODUCER, (1, BURST), (2, 9))))
        assert closed.request_id == 9
        world.timers.advance(1000)
        assert (await client.read()).command.producer_success.name == f"n{BURST + 1}"
        assert f"n{BURST}" not in {each.name for each in world.cluster.opened}


@pytest.mark.asyncio
async def test_connection_with_too_many_waiting_requests_is_not_read() -> None:
    """It is read again when some were handled."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        [connection] = world.home.connections.values()
        client.write(LOOK_UP * (BURST + 1000) + PING_FRAME)
        await until(lambda: "pace" in connection.holds, DEADLINE_S)
        for _ in range(BURST):
            await client.read()
        world.timers.advance(5)
        assert [(await client.read()).name for _ in range(2)] == ["located", "pong"]


@pytest.mark.asyncio
async def test_waiting_requests_end_with_their_connection() -> None:
    """The topic of a client that is gone is not opened."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        await spent(client)
        for number in range(BURST + 1):
            client.write(producer(producer_id=number, name=b"n%d" % number))
        for _ in range(BURST):
            await client.read()
        client.abort()
        await until(lambda: not world.home.connections, DEADLINE_S)
        world.timers.advance(1000)
        async with raw_client(world.port) as later:
            await later.connect()
            await later.open_producer(name=b"later")
        assert len(world.cluster.opened) == BURST + 1
