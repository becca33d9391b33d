"""Rights of administrators among Kafka's clients, at a door in front of a cluster with TLS and tokens."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import httpx
import pytest

from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.kafka.codec import Body
from tests.cluster.cluster_fixture import Cluster
from tests.contract.process.security_world import bearer
from tests.doors.cluster.conftest import NewDoor
from tests.doors.cluster.door_program import DoorProgram
from tests.doors.cluster.test_kafka_door import sign_in
from tests.doors.kafka.raw_client import RawClient, raw_client

pytestmark = pytest.mark.asyncio

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def kafka_door(new_door: NewDoor) -> Iterator[DoorProgram]:
    with new_door("--kafka", "127.0.0.1:0") as own:
        yield own


@pytest.fixture(scope="module")
def manager(cluster: Cluster) -> str:
    """A role that may administer, and nothing else."""
    with httpx.Client(base_url=cluster.admin_url, trust_env=False, **cluster.rest) as rest:
        path = "/admin/v2/namespaces/public/default/permissions/manager"
        rest.post(path, json=["admin"], headers=bearer("root")).raise_for_status()
    return "manager"


async def created(client: RawClient, name: str, *configs: Body, **more: bool) -> int:
    topic = {"name": name, "num_partitions": 2, "replication_factor": 3, "assignments": [], "configs": list(configs)}
    answer = await client.ask("CreateTopics", 4, {"topics": [topic], "timeout_ms": 30_000} | more)
    return int(answer["topics"][0]["error_code"])


async def altered(client: RawClient, name: str) -> int:
    configs = [{"name": "retention.ms", "value": "3600000"}]
    resource = {"resource_type": 2, "resource_name": name, "configs": configs}
    answer = await client.ask("AlterConfigs", 1, {"resources": [resource]})
    return int(answer["responses"][0]["error_code"])


async def described(client: RawClient, kind: int, name: str) -> int:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    answer = await client.ask("DescribeConfigs", 3, {"resources": [resource]})
    return int(answer["results"][0]["error_code"])


async def grown(client: RawClient, name: str) -> int:
    body = {"topics": [{"name": name, "count": 3, "assignments": None}], "timeout_ms": 30_000}
    return int((await client.ask("CreatePartitions", 1, body))["results"][0]["error_code"])


async def trimmed(client: RawClient, name: str) -> int:
    parts = [{"partition_index": 0, "offset": -1}]
    body = {"topics": [{"name": name, "partitions": parts}], "timeout_ms": 30_000}
    return int((await client.ask("DeleteRecords", 1, body))["topics"][0]["partitions"][0]["error_code"])


async def deleted(client: RawClient, name: str) -> int:
    answer = await client.ask("DeleteTopics", 3, {"topic_names": [name], "timeout_ms": 30_000})
    return int(answer["responses"][0]["error_code"])


async def producers(client: RawClient, name: str) -> int:
    body = {"topics": [{"name": name, "partition_indexes": [0]}]}
    return int((await client.ask("DescribeProducers", 0, body))["topics"][0]["partitions"][0]["error_code"])


async def test_a_role_that_only_administers_does_it_all_and_sees_its_topics(
    kafka_door: DoorProgram, manager: str
) -> None:
    async with raw_client(kafka_door.port("kafka")) as client:
        await sign_in(client, manager)
        assert await created(client, "managed", {"name": "retention.ms", "value": "60000"}) == 0
        for ask in (altered, grown, trimmed, producers):
            assert await ask(client, "managed") == 0, ask
        assert await described(client, 2, "managed") == await described(client, 4, "0") == 0
        listed = await client.ask("Metadata", 8, {"topics": None, "include_topic_authorized_operations": True})
        found = {each["name"]: each for each in listed["topics"]}
        assert len(found["managed"]["partitions"]) == 3
        admin_only = sum(1 << each for each in (5, 6, 7, 8, 10, 11))
        assert found["managed"]["topic_authorized_operations"] == admin_only
        sizes = await client.ask("DescribeLogDirs", 1, {"topics": None})
        assert sizes["results"][0]["error_code"] == 0
        assert await deleted(client, "managed") == 0


async def test_other_roles_change_nothing(kafka_door: DoorProgram, manager: str) -> None:
    """A role that publishes creates topics, as with its other requests; a role that reads does not."""
    async with raw_client(kafka_door.port("kafka")) as client:
        await sign_in(client, "importer")
        assert await created(client, "imported") == 0
        assert await created(client, "configured", {"name": "retention.ms", "value": "60000"}) == DENIED
        for ask in (altered, grown, trimmed, deleted, producers):
            assert await ask(client, "imported") == DENIED, ask
        assert await described(client, 2, "imported") == DENIED
        assert await described(client, 4, "0") == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    async with raw_client(kafka_door.port("kafka")) as client:
        await sign_in(client, "billing")
        assert await created(client, "billed") == DENIED
        assert await created(client, "billed", validate_only=True) == DENIED
        assert await deleted(client, "imported") == DENIED
    async with raw_client(kafka_door.port("kafka")) as client:
        await sign_in(client, manager)
        listed = await client.ask("Metadata", 8, {"topics": None})
        assert {"imported"} == {each["name"] for each in listed["topics"]} & {"imported", "configured", "billed"}
        assert await deleted(client, "imported") == 0


async def test_changes_are_in_the_audit_log_under_the_role_of_the_client(
    kafka_door: DoorProgram, cluster: Cluster, manager: str
) -> None:
    async with raw_client(kafka_door.port("kafka")) as client:
        await sign_in(client, manager)
        assert await created(client, "audited") == 0
        assert await deleted(client, "audited") == 0
    logs = "".join(path.read_text() for path in cluster.data.rglob("metadata*.log"))
    lines = [line for line in logs.splitlines() if "public/default/audited/partitions" in line]
    assert len(lines) == 2
    assert all('"role": "manager"' in line for line in lines)


async def used(client: RawClient, name: str, *, version: int = 8) -> tuple[int, int]:
    """The error code and the number of partitions of a topic, which the client may create."""
    wanted = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
    [topic] = (await client.ask("Metadata", version, wanted))["topics"]
    return int(topic["error_code"]), len(topic["partitions"])


async def test_a_topic_that_is_created_by_its_use_has_partitions_and_can_grow(
    kafka_door: DoorProgram, new_door: NewDoor, cluster: Cluster, manager: str
) -> None:
    """Clients of two doors use it at the same time, and all of them see the number of the one that was first."""
    with new_door("--kafka", "127.0.0.1:0", kafka_partitions="3") as other:
        async with AsyncExitStack() as stack:
            ports = [kafka_door.port("kafka"), other.port("kafka")] * 4
            clients = [await stack.enter_async_context(raw_client(port)) for port in ports]
            for client in clients:
                await sign_in(client, "importer")
            found = await asyncio.gather(*(used(client, "at-once") for client in clients))
            assert len(set(found)) == 1
            assert found[0] in {(0, 1), (0, 3)}
            assert await used(clients[1], "of-three", version=1) == (0, 3)
            assert await used(clients[0], "of-three") == (0, 3)
            assert await used(clients[0], "of-one") == (0, 1)
    async with raw_client(kafka_door.port("kafka")) as client:
        await sign_in(client, manager)
        assert await used(client, "not-mine") == (DENIED, 0)
        assert await grown(client, "of-one") == 0
        assert await used(client, "of-one") == (0, 3)
    async with raw_client(kafka_door.port("kafka")) as client:
        await sign_in(client, "billing")
        assert await used(client, "not-mine") == (DENIED, 0)
        assert await used(client, "of-one") == (0, 3)


async def test_topics_are_not_created_by_their_use_where_that_is_forbidden(
    kafka_door: DoorProgram, cluster: Cluster
) -> None:
    """Those without partitions stay as they are."""
    async with httpx.AsyncClient(base_url=cluster.admin_url, trust_env=False, **cluster.rest) as rest:
        (await rest.put("/admin/v2/persistent/public/default/single")).raise_for_status()
        (await rest.put("/admin/v2/namespaces/public/declared", json={"auto_create_topics": False})).raise_for_status()
        (
            await rest.post("/admin/v2/namespaces/public/declared/permissions/importer", json=["produce"])
        ).raise_for_status()
        async with raw_client(kafka_door.port("kafka")) as client:
            await sign_in(client, "importer")
            assert await used(client, "public/declared/orders") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
            assert await created(client, "public/declared/orders") == 0
            assert await used(client, "public/declared/orders") == (0, 2)
            assert await used(client, "single") == (0, 1)
            assert await used(client, "missing/space/orders") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
        path = "/admin/v2/persistent/public/default/single/partitions"
        assert (await rest.get(path)).json() == {"partitions": 0}
