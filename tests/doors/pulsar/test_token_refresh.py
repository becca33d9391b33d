"""Tokens that end while their connection is open, over real sockets."""

from typing import Any

import pytest

from oncelog_doors.pulsar.replies import NO_REQUEST
from tests.doors.pulsar.bytes_of_clients import CONNECT, PING, body, command, frame
from tests.doors.pulsar.fake_cluster import FakeCluster
from tests.doors.pulsar.raw_client import DoorWorld, RawClient, door_world, raw_client

AUTH_RESPONSE, FEATURES = 37, 10
TOKENS = {"first": "importer", "second": "importer", "endless": "importer", "other": "billing"}
PING_FRAME = frame(command(PING))


def cluster() -> FakeCluster:
    found = FakeCluster(TOKENS)
    found.ends_in_ms = {"first": 100_000, "second": 200_000}
    return found


async def connected(client: RawClient, *, can_refresh: bool = True) -> None:
    features = ((FEATURES, body((1, 1))),) if can_refresh else ()
    data = command(CONNECT, (1, b"Pulsar-CPP-v4.2.0"), (4, 20), (5, b"token"), (3, b"first"), *features)
    assert (await client.answer(frame(data))).protocol_version == 20


def renewal(token: bytes) -> bytes:
    return frame(command(AUTH_RESPONSE, (1, b"Pulsar-CPP-v4.2.0"), (2, body((1, b"token"), (2, token))), (3, 20)))


async def kept_alive(client: RawClient) -> None:
    """The client says something, so that silence is no reason to close."""
    client.write(PING_FRAME)
    assert (await client.read()).name == "pong"


async def asked(world: DoorWorld, client: RawClient) -> Any:
    """The challenge, 30 s before the end of the token."""
    for step_ms in (29_000, 29_000, 11_999):
        world.timers.advance(step_ms)
        await kept_alive(client)
    world.timers.advance(1)
    found = await client.read()
    assert found.name == "auth_challenge"
    return found.command.auth_challenge


@pytest.mark.asyncio
async def test_client_is_asked_for_its_next_token() -> None:
    """With the bytes that clients compare; its connection outlives the first token."""
    async with door_world(cluster()) as world, raw_client(world.port) as client:
        await connected(client)
        found = await asked(world, client)
        assert (found.challenge.method, found.challenge.data) == ("token", b"PulsarAuthRefresh")
        assert found.protocol_version == 20
        client.write(renewal(b"second"))
        for step_ms in (20_000, 20_000, 20_000):
            await kept_alive(client)
            world.timers.advance(step_ms)
        await kept_alive(client)


@pytest.mark.asyncio
@pytest.mark.parametrize("can_refresh", [True, False])
async def test_connection_ends_with_its_token(can_refresh: bool) -> None:
    """Without an answer, and of a client that cannot be asked."""
    async with door_world(cluster()) as world, raw_client(world.port) as client:
        await connected(client, can_refresh=can_refresh)
        if can_refresh:
            await asked(world, client)
        else:
            for step_ms in (29_000, 29_000, 12_000):
                world.timers.advance(step_ms)
                await kept_alive(client)
        for step_ms in (20_000, 9_999):
            world.timers.advance(step_ms)
            await kept_alive(client)
        world.timers.advance(1)
        assert await client.names_until_closed() == []


@pytest.mark.asyncio
async def test_token_that_never_ends_ends_the_watch() -> None:
    """The former one does not matter any more."""
    async with door_world(cluster()) as world, raw_client(world.port) as client:
        await connected(client)
        await asked(world, client)
        client.write(renewal(b"endless"))
        for _ in range(20):
            await kept_alive(client)
            world.timers.advance(29_000)
        await kept_alive(client)


@pytest.mark.asyncio
@pytest.mark.parametrize(("token", "says"), [(b"other", "is of role billing"), (b"wrong", "is not valid")])
async def test_token_of_another_role_closes_the_connection(token: bytes, says: str) -> None:
    """Its producers belong to the first role. An invalid one closes it, too."""
    async with door_world(cluster()) as world, raw_client(world.port) as client:
        await connected(client)
        await asked(world, client)
        refused = await client.answer(renewal(token))
        assert (refused.request_id, refused.error) == (NO_REQUEST, 3)
        assert says in refused.message
        assert await client.names_until_closed() == []


@pytest.mark.asyncio
async def test_answer_without_a_challenge_breaks_the_protocol() -> None:
    """Each costs the check of a token."""
    async with door_world(cluster()) as world, raw_client(world.port) as client:
        await connected(client)
        client.write(renewal(b"second"))
        assert await client.names_until_closed() == []
