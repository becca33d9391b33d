"""Requests about topics over real sockets, in front of a cluster in memory."""

from typing import Any

import pytest
from crc32c import crc32c

from oncelog.core.errors import PermissionDenied
from oncelog.core.names import KAFKA_GROUPS
from oncelog_doors.core.shared.named_topics import NamedTopic
from oncelog_doors.pulsar.topic_requests import LOOKUPS_MAX
from tests.cluster.until import until
from tests.doors.pulsar.bytes_of_clients import CONNECT, PING, SUBSCRIBE, command, frame
from tests.doors.pulsar.fake_cluster import FakeCluster
from tests.doors.pulsar.raw_client import RawClient, door_world, producer, raw_client
from tests.doors.raw_connection import DEADLINE_S

GET_PARTITIONS, GET_TOPICS, GET_SCHEMA = 21, 32, 34
PERSISTENT, NON_PERSISTENT, ALL = 0, 1, 2
UNAUTHORIZED, INVALID_NAME, NOT_ALLOWED = 4, 17, 22
ORDERS = "persistent://public/default/orders"


def get_topics(namespace: bytes = b"public/default", *more: tuple[int, int | bytes]) -> bytes:
    return frame(command(GET_TOPICS, (1, 9), (2, namespace), *more))


def cluster() -> FakeCluster:
    own = FakeCluster()
    own.listed = [NamedTopic("public/default/orders")]
    return own


async def topics(client: RawClient, *more: tuple[int, int | bytes]) -> Any:
    return await client.answer(get_topics(b"public/default", *more))


@pytest.mark.asyncio
async def test_client_gets_the_topics_of_a_namespace() -> None:
    """Those with storage, also if it asks for all; those without are none. The pattern is left to the client."""
    async with door_world(cluster()) as world, raw_client(world.port) as client:
        await client.connect()
        for kind in (PERSISTENT, ALL):
            found = await topics(client, (3, kind), (4, b"public/default/none-.*"))
            assert (found.request_id, list(found.topics), found.filtered, found.changed) == (9, [ORDERS], False, True)
        assert list((await topics(client, (3, NON_PERSISTENT))).topics) == []


@pytest.mark.asyncio
async def test_namespace_that_is_not_there_has_no_topics() -> None:
    """A client waits for an answer as long as there is an error, and a subscription to a pattern may come first."""
    async with door_world(cluster()) as world, raw_client(world.port) as client:
        await client.connect()
        answer = await client.answer(get_topics(b"public/missing"))
        assert list(answer.topics) == []


@pytest.mark.asyncio
async def test_client_that_has_the_list_gets_no_names() -> None:
    """Until a topic comes."""
    async with door_world(cluster()) as world, raw_client(world.port) as client:
        await client.connect()
        first = await topics(client)
        assert first.hash == crc32c(ORDERS.encode()).to_bytes(4, "little").hex()
        again = await topics(client, (5, first.hash.encode()))
        assert (list(again.topics), again.changed, again.hash) == ([], False, first.hash)
        world.cluster.listed.append(NamedTopic("public/default/more"))
        assert len((await topics(client, (5, first.hash.encode()))).topics) == 2


@pytest.mark.asyncio
async def test_list_is_refused_with_the_reason() -> None:
    """For a name that is none, and for a role that may not read the namespace."""
    async with door_world(FakeCluster({"token": "stranger"})) as world, raw_client(world.port) as client:
        await client.answer(frame(command(CONNECT, (1, b"Pulsar-CPP-v4.2.0"), (4, 20), (5, b"token"), (3, b"token"))))
        refused = await client.answer(get_topics(b"no/such/name"))
        assert (refused.request_id, refused.error) == (9, INVALID_NAME)
        assert (await topics(client)).error == UNAUTHORIZED
        assert PermissionDenied.__name__ not in refused.message


@pytest.mark.asyncio
async def test_requests_without_an_answer_are_limited() -> None:
    """The connection is read again when one is answered."""
    async with door_world(cluster()) as world, raw_client(world.port) as client:
        await client.connect()
        world.cluster.owner_answers.clear()
        client.write(get_topics() * LOOKUPS_MAX + frame(command(PING)))
        [connection] = world.home.connections.values()
        await until(lambda: "look-ups" in connection.holds, DEADLINE_S)
        assert len(world.cluster.asked) <= LOOKUPS_MAX
        world.cluster.owner_answers.set()
        names = [(await client.read()).name for _ in range(LOOKUPS_MAX + 1)]
        assert sorted(names) == ["pong"] + ["topics"] * LOOKUPS_MAX


@pytest.mark.asyncio
async def test_topic_of_the_doors_is_neither_seen_nor_used() -> None:
    """The generations of all groups of Kafka's clients are in this one."""
    own = cluster()
    own.listed.append(NamedTopic(f"public/default/{KAFKA_GROUPS}"))
    name = f"persistent://public/default/{KAFKA_GROUPS}".encode()
    async with door_world(own) as world, raw_client(world.port) as client:
        await client.connect()
        assert list((await topics(client)).topics) == [ORDERS]
        for asked in (
            producer(topic=name),
            frame(command(SUBSCRIBE, (1, name), (2, b"sub"), (3, 0), (4, 1), (5, 9))),
            frame(command(SUBSCRIBE, (1, name), (2, b"reader"), (3, 0), (4, 2), (5, 9), (8, 0))),
            frame(command(GET_PARTITIONS, (1, name), (2, 9))),
            frame(command(GET_SCHEMA, (1, 9), (2, name))),
        ):
            answer = await client.answer(asked)
            assert answer.error == NOT_ALLOWED
        assert own.asked == ["public/default"]
