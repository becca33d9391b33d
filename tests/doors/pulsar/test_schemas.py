"""Schemas of producers and consumers over real sockets, in front of a cluster in memory."""

from typing import Any

import pytest

from oncelog.core.errors import PermissionDenied
from tests.cluster.until import until
from tests.doors.pulsar.bytes_of_clients import SUBSCRIBE, body, command, frame
from tests.doors.pulsar.raw_client import TOPIC, DoorWorld, RawClient, door_world, producer, raw_client
from tests.doors.pulsar.reader_client import CLOSE_CONSUMER, EARLIEST, log_of, nothing_comes, subscribe
from tests.doors.raw_connection import DEADLINE_S

GET_SCHEMA, GET_OR_CREATE_SCHEMA = 34, 39
JSON, AVRO, AUTO_CONSUME = 2, 4, 21
UNAUTHORIZED, NOT_FOUND, INVALID_NAME, INCOMPATIBLE, NOT_ALLOWED = 4, 11, 17, 18, 22
ORDERS = "public/default/orders"


def schema(data: bytes, kind: int = JSON) -> bytes:
    """As clients write it: name, data, type, and a property that is kept."""
    return body((1, b"orders"), (3, data), (4, kind), (5, body((1, b"k"), (2, b"v"))))


def version(number: int) -> bytes:
    return number.to_bytes(8, "big")


async def opened(client: RawClient, data: bytes, kind: int = JSON, name: bytes = b"importer") -> Any:
    return await client.open_producer((7, schema(data, kind)), name=name)


async def stored(client: RawClient, data: bytes, kind: int = JSON, topic: bytes = TOPIC) -> Any:
    return await client.answer(frame(command(GET_OR_CREATE_SCHEMA, (1, 9), (2, topic), (3, schema(data, kind)))))


async def found(client: RawClient, *more: tuple[int, int | bytes], topic: bytes = TOPIC) -> Any:
    return await client.answer(frame(command(GET_SCHEMA, (1, 9), (2, topic), *more)))


@pytest.mark.asyncio
async def test_producer_gets_the_version_of_its_schema() -> None:
    """The same one for the same bytes. One without a schema gets an empty one, whatever the topic has."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        for number, data in enumerate((b"a", b"b", b"a")):
            answer = await opened(client, data, name=b"p%d" % number)
            assert answer.schema_version == version(number % 2)
        assert (await client.open_producer(name=b"plain")).schema_version == b""
        assert (await opened(client, b"", kind=0, name=b"none")).schema_version == b""


@pytest.mark.asyncio
async def test_producer_with_a_schema_of_another_type_is_refused() -> None:
    """It takes no name."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        await opened(client, b"a", name=b"first")
        refused = await opened(client, b"a", AVRO)
        assert (refused.request_id, refused.error) == (77, INCOMPATIBLE)
        assert "of type AVRO" in refused.message
        assert list(world.cluster.topic(ORDERS).names) == ["first"]


@pytest.mark.asyncio
async def test_schemas_are_stored_and_found_as_they_were_sent() -> None:
    """By version, and the newest one without."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        for number, data in enumerate((b"a", b"b", b"a")):
            answer = await stored(client, data)
            assert (answer.request_id, answer.version) == (9, version(number % 2))
        first = await found(client, (3, version(0)))
        assert (first.request_id, first.version) == (9, version(0))
        assert first.schema.SerializeToString() == schema(b"a")
        newest = await found(client)
        assert (newest.version, newest.schema.data) == (version(1), b"b")
        assert not newest.HasField("error")
        assert (await stored(client, b"", kind=0)).version == b""


@pytest.mark.asyncio
async def test_requests_for_schemas_fail_with_the_reason() -> None:
    """In their own answers: a client waits for no other one."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        assert (await found(client)).error == NOT_FOUND
        assert (await found(client, (3, version(7)))).error == NOT_FOUND
        assert (await found(client, (3, b"short"))).error == NOT_FOUND
        assert (await found(client, topic=b"non-persistent://a/b/c")).error == NOT_ALLOWED
        await stored(client, b"a")
        assert (await stored(client, b"a", AVRO)).error == INCOMPATIBLE
        assert (await stored(client, b"a", topic=b"http://a/b/c")).error == INVALID_NAME
        world.cluster.schemas.refusal = PermissionDenied("role stranger has no right")
        assert (await stored(client, b"b")).error == UNAUTHORIZED


# --- consumers --------------------------------------------------------------------------------------------------------


async def subscribed(client: RawClient, kind: int = JSON) -> Any:
    return await client.answer(subscribe(EARLIEST, (12, schema(b"a", kind))))


@pytest.mark.asyncio
async def test_reader_with_a_schema_of_the_same_type_is_opened() -> None:
    """Its own schema is not stored: readers hold nothing in the cluster."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        assert (await subscribed(client, AVRO)).DESCRIPTOR.name == "Success"
        await stored(client, b"b")
        for kind in (JSON, AUTO_CONSUME):
            assert (await subscribed(client, kind)).DESCRIPTOR.name == "Success"
        assert (await found(client)).schema.data == b"b"


@pytest.mark.asyncio
async def test_reader_with_a_schema_of_another_type_is_refused() -> None:
    """It is not opened."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        await stored(client, b"a")
        refused = await subscribed(client, AVRO)
        assert (refused.request_id, refused.error) == (50, INCOMPATIBLE)
        assert not log_of(world).readers


async def compared(world: DoorWorld, count: int) -> None:
    await until(lambda: world.cluster.schemas.comparisons == count, DEADLINE_S)


@pytest.mark.asyncio
async def test_consumer_that_is_closed_while_its_schema_is_compared_is_not_opened() -> None:
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        world.cluster.schemas.answers.clear()
        client.write(subscribe(EARLIEST, (12, schema(b"a"))))
        await compared(world, 1)
        await client.answer(frame(command(CLOSE_CONSUMER, (1, 1), (2, 61))))
        world.cluster.schemas.answers.set()
        await nothing_comes(client)
        assert not log_of(world).readers


@pytest.mark.asyncio
async def test_later_subscribe_of_a_consumer_counts() -> None:
    """The former one was still compared: that ends, and it has no answer."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        world.cluster.schemas.answers.clear()
        client.write(subscribe(EARLIEST, (12, schema(b"a"))))
        await compared(world, 1)
        later = (1, TOPIC), (2, b"reader-1"), (3, 0), (4, 1), (5, 51), (8, 0), (9, EARLIEST), (12, schema(b"a"))
        client.write(frame(command(SUBSCRIBE, *later)))
        await compared(world, 2)
        await until(lambda: world.cluster.schemas.cancelled == 1, DEADLINE_S)
        world.cluster.schemas.answers.set()
        assert (await client.read()).command.success.request_id == 51
        await nothing_comes(client)
        assert len(log_of(world).readers) == 1


@pytest.mark.asyncio
async def test_connection_that_ends_ends_its_checks() -> None:
    """Of producers and of consumers."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        world.cluster.schemas.answers.clear()
        client.write(subscribe(EARLIEST, (12, schema(b"a"))) + producer((7, schema(b"a"))))
        await compared(world, 1)
        await client.close()
        await until(lambda: world.cluster.schemas.cancelled == 2, DEADLINE_S)
