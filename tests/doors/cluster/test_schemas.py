"""Schemas of clients of Pulsar in front of a cluster of real processes: two doors, and Pulsar's own Python client."""

import asyncio
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pulsar.schema import Integer, JsonSchema, Record, String, StringSchema

from tests.cluster.cluster_fixture import Cluster
from tests.contract.process.security_world import token
from tests.doors.cluster.conftest import NewDoor
from tests.doors.cluster.door_program import DEADLINE_S, DoorProgram, connect
from tests.doors.pulsar.raw_client import RawClient, raw_client
from tests.doors.pulsar.test_schemas import UNAUTHORIZED, found, stored, version

TOPIC_NOT_FOUND = 11
_NAMESPACE = "/admin/v2/persistent/public/default"
_SCHEMAS = f"{_NAMESPACE}/__oncelog_schemas"


class Order(Record):  # type: ignore[misc]  # its module has no types
    customer = String()
    amount = Integer()


class Refund(Record):  # type: ignore[misc]  # its module has no types
    customer = String()


def topic(name: str) -> bytes:
    return f"persistent://public/default/{name}".encode()


async def created(client: RawClient, name: str) -> bytes:
    """The topic of this name. A schema alone creates none, as on Pulsar."""
    assert (await stored(client, b"early", topic=topic(name))).error == TOPIC_NOT_FOUND
    assert (await client.open_producer(topic=topic(name))).name == "importer"
    return topic(name)


async def versions(client: RawClient, of: bytes, names: list[bytes]) -> list[int]:
    answers = [await stored(client, name, topic=of) for name in names]
    assert [each.message for each in answers] == [""] * len(names)
    return [int.from_bytes(each.version, "big") for each in answers]


@pytest.mark.asyncio
async def test_doors_give_one_version_to_a_schema_that_comes_to_both(new_door: NewDoor) -> None:
    """Also if it is new at both at once; a door that is started later finds the same ones."""
    names = [b"schema %d" % number for number in range(8)]
    with new_door() as one, new_door() as two:
        async with raw_client(one.port()) as first, raw_client(two.port()) as second:
            for client in (first, second):
                await connect(client, token("importer"))
            of = await created(first, "versions")
            ours, theirs = await asyncio.gather(versions(first, of, names), versions(second, of, names[::-1]))
            assert ours == theirs[::-1]
            assert sorted(ours) == [*range(8)]
            assert await versions(second, of, [b"later"]) == [8]
            assert await versions(first, of, [names[0], b"later", b"last"]) == [ours[0], 8, 9]
    with new_door() as door:
        async with raw_client(door.port()) as client:
            await connect(client, token("billing"))
            assert (await found(client, (3, version(ours[3])), topic=of)).schema.data == names[3]
            newest = await found(client, topic=of)
            assert (newest.version, newest.schema.data) == (version(9), b"last")


@pytest.mark.asyncio
async def test_schemas_are_kept_for_ever_in_a_topic_that_clients_do_not_see(
    cluster: Cluster, door: DoorProgram
) -> None:
    """Whatever the namespace says."""
    async with raw_client(door.port()) as client:
        await connect(client, token("importer"))
        await versions(client, await created(client, "kept"), [b"a"])
        assert (await stored(client, b"a", topic=topic("__oncelog_schemas"))).error
    applied = (await cluster.request("GET", f"{_SCHEMAS}/policies")).json()
    assert applied["retention"] == {
        "value": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
        "source": "topic",
    }
    assert applied["messageTTL"] == {"value": 0, "source": "topic"}


@pytest.mark.asyncio
async def test_schemas_belong_to_a_topic_and_not_to_its_name(cluster: Cluster, door: DoorProgram) -> None:
    """A topic that is created again begins without. The partitions of a topic have them together."""
    (await cluster.request("PUT", f"{_NAMESPACE}/anew/partitions", json=2)).raise_for_status()
    async with raw_client(door.port()) as client:
        await connect(client, token("importer"))
        assert await versions(client, topic("anew-partition-0"), [b"a", b"b"]) == [0, 1]
        assert await versions(client, topic("anew-partition-1"), [b"b"]) == [1]
        assert await versions(client, topic("anew"), [b"c"]) == [2]
        (await cluster.request("DELETE", f"{_NAMESPACE}/anew/partitions")).raise_for_status()
        assert not (await stored(client, b"c", kind=4, topic=await created(client, "anew"))).error


@pytest.mark.asyncio
async def test_rights_to_schemas_are_those_to_messages(door: DoorProgram) -> None:
    """The right to produce stores them, each of both shows them."""
    async with (
        raw_client(door.port()) as importer,
        raw_client(door.port()) as billing,
        raw_client(door.port()) as other,
    ):
        for client, role in ((importer, "importer"), (billing, "billing"), (other, "stranger")):
            await connect(client, token(role))
        of = await created(importer, "schema-rights")
        assert (await stored(billing, b"a", topic=of)).error == UNAUTHORIZED
        await versions(importer, of, [b"a"])
        assert (await stored(billing, b"a", topic=of)).error == UNAUTHORIZED
        assert [(await found(client, topic=of)).error for client in (importer, billing, other)] == [0, 0, UNAUTHORIZED]


# --- Pulsar's own client ----------------------------------------------------------------------------------------------


def client_of(door: DoorProgram) -> Any:
    return pulsar.Client(
        f"pulsar://127.0.0.1:{door.port()}", authentication=pulsar.AuthenticationToken(token("root")),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), operation_timeout_seconds=int(DEADLINE_S),
    )  # fmt: skip


def test_python_client_publishes_and_reads_with_a_schema(door: DoorProgram, files: Path) -> None:
    """A second program with the same schema has the same version; one with another schema of the type has the next."""
    name = topic("orders-with-schema").decode()
    order = Order(customer="ada", amount=3)
    client = client_of(door)
    producer = client.create_producer(name, schema=JsonSchema(Order))
    producer.send(order)
    second = client_of(door)
    second.create_producer(name, schema=JsonSchema(Order)).send(order)
    second.create_producer(name, schema=JsonSchema(Refund)).send(Refund(customer="bob"))
    reader = second.create_reader(name, pulsar.MessageId.earliest, schema=JsonSchema(Order))
    got = [reader.read_next(int(DEADLINE_S * 1000)) for _ in range(3)]
    assert [each.value() for each in got[:2]] == [order, order]
    assert [each.schema_version().encode() for each in got] == [version(0), version(0), version(1)]
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(name, schema=StringSchema())
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_reader(name, pulsar.MessageId.earliest, schema=StringSchema())
    for each in (client, second):
        each.close()
