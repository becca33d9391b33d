"""Connections over real sockets: who gets in, what is answered, and what ends one."""

import asyncio
import ssl
from pathlib import Path

import pytest

from oncelog.runtime.tls.certificates import new_ca, new_certificate
from oncelog_doors.pulsar.replies import NO_REQUEST
from tests.cluster.until import until
from tests.doors.pulsar.bytes_of_clients import CONNECT, FLOW, LOOKUP, PING, SUBSCRIBE, body, command, frame
from tests.doors.pulsar.fake_cluster import FakeCluster
from tests.doors.pulsar.raw_client import TOPIC, door_world, raw_client, send
from tests.doors.raw_connection import DEADLINE_S

PARTITIONS = 21
NEW_TRANSACTION = 50
VERSION = b"Pulsar-CPP-v4.2.0"
TOKENS = {"good": "importer"}
PING_FRAME = frame(command(PING))


@pytest.mark.asyncio
async def test_client_is_told_what_the_door_can() -> None:
    """The lower version, the limit, and that a look-up may be asked not to create the topic."""
    async with door_world() as world, raw_client(world.port) as client:
        connected = await client.connect()
        assert (connected.server_version, connected.protocol_version) == ("Oncelog 1", 20)
        assert connected.max_message_size == 5 * 1024 * 1024 - 4096
        flags = connected.feature_flags
        assert flags.partitions_without_creation
        assert not any((flags.topic_watchers, flags.partial_producer, flags.auth_refresh))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("more", "code"),
    [
        ((), 3),
        (((5, b"token"), (3, b"bad")), 3),
        (((5, b"token"), (3, b"good"), (6, b"169.254.169.254:80")), 22),
        (((5, b"token"), (3, b"good"), (7, b"admin")), 3),
        (((5, b"token"), (3, b"good"), (8, b"admin's token")), 3),
        (((2, 1), (3, b"good")), 3),
    ],
    ids=["no-token", "wrong-token", "proxy", "principal", "data-of-a-principal", "old-method"],
)
async def test_who_may_not_connect_gets_an_error_and_the_end(
    more: tuple[tuple[int, int | bytes], ...], code: int
) -> None:
    """What it sent behind CONNECT is not read."""
    async with door_world(FakeCluster(TOKENS)) as world, raw_client(world.port) as client:
        data = frame(command(CONNECT, (1, VERSION), (4, 20), *more))
        error = await client.answer(data + PING_FRAME)
        assert (error.error, error.request_id) == (code, NO_REQUEST)
        assert await client.names_until_closed() == []


@pytest.mark.asyncio
async def test_what_follows_connect_waits_for_the_check_of_the_token() -> None:
    """It is in the same piece, and larger than what a stranger may send."""
    async with door_world(FakeCluster(TOKENS)) as world, raw_client(world.port) as client:
        connect = frame(command(CONNECT, (1, VERSION), (4, 20), (5, b"token"), (3, b"good")))
        client.write(connect + send(1, b"x" * 100_000) + PING_FRAME)
        assert [(await client.read()).name for _ in range(2)] == ["connected", "pong"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "data",
    [
        PING_FRAME,
        send(1),
        b"GET / HTTP/1.1\r\n\r\n",
        frame(command(CONNECT, (1, VERSION), (4, 20))) * 2,
        frame(command(CONNECT, (1, VERSION), (4, 20))) + frame(command(13, (1, 1))),
        frame(command(CONNECT, (1, VERSION), (4, 20))) + frame(body((1, 99))),
    ],
    ids=["ping-first", "send-first", "http", "twice", "answer-of-a-broker", "unknown"],
)
async def test_connection_that_breaks_the_protocol_is_closed(data: bytes) -> None:
    """Its neighbour is not."""
    async with door_world() as world, raw_client(world.port) as client, raw_client(world.port) as neighbour:
        await neighbour.connect()
        client.write(data)
        assert "pong" not in await client.names_until_closed()
        await neighbour.answer(PING_FRAME)


@pytest.mark.asyncio
@pytest.mark.hazard("lookup-that-fails")
async def test_every_topic_is_at_the_door() -> None:
    """The cluster is not asked, so nothing can fail; a name that is none finds out later."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        for topic in (TOPIC, b"persistent://a/b/c-partition-7", b"non-persistent://a/b/c", b"no name", b""):
            located = await client.answer(frame(command(LOOKUP, (1, topic), (2, 5))))
            assert (located.url, located.url_tls) == ("pulsar://oncelog:6650", "pulsar+ssl://oncelog:6651")
            assert (located.outcome, located.authoritative, located.through_service_url) == (1, True, True)
            assert located.request_id == 5
        assert world.cluster.asked == []


@pytest.mark.asyncio
@pytest.mark.hazard("transactions-retried-for-ever")
async def test_partitions_are_those_of_the_cluster() -> None:
    """Whether the look-up may create the topic is the client's decision; coordinators have none."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        world.cluster.partition_counts["public/default/orders"] = 4
        cases = [
            (TOPIC, True, (4, 0)),
            (b"persistent://public/default/new", True, (0, 0)),
            (b"persistent://public/default/new", False, (0, 11)),
            (b"persistent://pulsar/system/transaction_coordinator_assign", True, (0, 0)),
            (b"non-persistent://public/default/x", True, (0, 22)),
            (b"persistent://a/b", True, (0, 17)),
        ]
        for topic, may_create, expected in cases:
            data = frame(command(PARTITIONS, (1, topic), (2, 5), (6, int(may_create))))
            found = await client.answer(data)
            assert (found.partitions, found.error) == expected, topic
            assert found.outcome == (1 if expected[1] else 0)
        assert "pulsar/system/transaction_coordinator_assign" not in world.cluster.asked
        assert not world.cluster.created


@pytest.mark.asyncio
async def test_look_ups_without_an_answer_are_bounded() -> None:
    """The connection is not read while there are a hundred; all are answered in the end."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        world.cluster.owner_answers.clear()
        client.write(frame(command(PARTITIONS, (1, TOPIC), (2, 5))) * 150)
        [connection] = world.home.connections.values()
        await until(lambda: "look-ups" in connection.holds, DEADLINE_S)
        assert len(world.cluster.asked) == 100
        world.cluster.owner_answers.set()
        assert {(await client.read()).name for _ in range(150)} == {"partitions"}


@pytest.mark.asyncio
async def test_requests_that_are_not_offered_are_answered() -> None:
    """A request without an answer would wait for its time-out, and be repeated."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        subscribe = frame(command(SUBSCRIBE, (1, TOPIC), (2, b"s"), (3, 3), (4, 1), (5, 9), (17, body((1, 1)))))
        refused = await client.answer(subscribe)
        assert (refused.request_id, refused.error) == (9, 22)
        declined = await client.answer(frame(command(NEW_TRANSACTION, (1, 41))))
        assert (declined.id, declined.error) == (41, 22)
        client.write(frame(command(FLOW, (1, 1), (2, 1000))))
        assert (await client.answer(frame(command(16, (1, 1), (2, 8))))).request_id == 8
        assert (await client.answer(frame(command(15, (1, 1), (2, 7))))).request_id == 7


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_silent_client_is_pinged_and_then_closed() -> None:
    """Any byte is an answer."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        world.timers.advance(30_000)
        assert (await client.read()).name == "ping"
        await client.answer(PING_FRAME)
        world.timers.advance(30_000)
        assert (await client.read()).name == "ping"
        world.timers.advance(30_000)
        assert await client.names_until_closed() == []


@pytest.mark.asyncio
async def test_client_that_does_not_connect_is_closed_after_10_s() -> None:
    """Nobody knows who it is, and it takes a place."""
    async with door_world() as world, raw_client(world.port) as client:
        client.write(b"\x00\x00")
        await until(lambda: world.home.connections, DEADLINE_S)
        world.timers.advance(10_000)
        assert await client.names_until_closed() == []


@pytest.mark.asyncio
async def test_client_that_reads_nothing_is_closed_after_a_minute() -> None:
    """Its answers are kept up to a limit, and what it sends is not read meanwhile."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        [connection] = world.home.connections.values()
        flood = frame(command(NEW_TRANSACTION, (1, 41))) * 1000
        client.write(flood * 100)
        await until(lambda: "unsent" in connection.holds, DEADLINE_S)
        world.timers.advance(60_000)
        await until(lambda: not world.home.connections, DEADLINE_S)
        client.abort()


@pytest.mark.asyncio
async def test_places_are_limited() -> None:
    """The connection beyond the limit is closed at once; one that ends makes room."""
    async with door_world(connections_max=2) as world, raw_client(world.port) as client:
        await client.connect()
        async with raw_client(world.port) as other:
            assert await other.names_until_closed() == []
        await client.close()
        await until(lambda: not world.home.connections, DEADLINE_S)
        async with raw_client(world.port) as other:
            await other.connect()


@pytest.mark.asyncio
async def test_address_that_fails_again_and_again_is_not_heard() -> None:
    """16 times within a minute, by wrong tokens or garbage."""
    async with door_world(FakeCluster(TOKENS)) as world:
        for number in range(16):
            async with raw_client(world.port) as client:
                client.write(frame(command(CONNECT, (1, VERSION), (4, 20))) if number % 2 else b"garbage")
                await client.names_until_closed()
        await until(lambda: not world.home.connections, DEADLINE_S)
        good = frame(command(CONNECT, (1, VERSION), (4, 20), (5, b"token"), (3, b"good")))
        async with raw_client(world.port) as client:
            client.write(good)
            assert await client.names_until_closed() == []
        world.timers.advance(60_000)
        async with raw_client(world.port) as client:
            await client.answer(good)


@pytest.mark.asyncio
async def test_door_that_ends_closes_its_connections() -> None:
    """Those without SENDs at once; no other one is accepted."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        await asyncio.wait_for(world.door.close(), DEADLINE_S)
        assert await client.names_until_closed() == []
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", world.port)


@pytest.mark.asyncio
async def test_tls(tmp_path: Path) -> None:
    """The same bytes, encrypted; a client without TLS gets nothing."""
    ca = new_ca()
    pair = new_certificate(ca, ["localhost"], days=1)
    for name, data in (("ca", ca.certificate), ("certificate", pair.certificate), ("key", pair.key)):
        (tmp_path / name).write_bytes(data)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca"))
    async with door_world(tls=server) as world:
        async with raw_client(world.port, trusting) as client:
            await client.connect()
            await client.answer(PING_FRAME)
        async with raw_client(world.port) as client:
            client.write(frame(command(CONNECT, (1, VERSION), (4, 20))))
            assert await client.names_until_closed() == []
