"""Requests with any values in them: each is answered, or its connection is closed, and the door goes on. No request
reaches a topic that belongs to the doors.

What a handler raises that is no error of the log would end the door's process.
"""

import asyncio
from random import Random
from typing import Any

import pytest

from oncelog.core.names import KAFKA_GROUPS
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.kafka.apis import KNOWN
from oncelog_doors.kafka.codec import Body
from oncelog_doors.wire.kafka_tables import REQUESTS
from tests.cluster.until import until
from tests.doors.kafka.any_bodies import any_body
from tests.doors.kafka.client_batches import batch_of, numbered
from tests.doors.kafka.fake_cluster import FakeCluster
from tests.doors.kafka.raw_client import KafkaWorld, kafka_world, raw_client
from tests.doors.kafka.test_administration import TOPIC
from tests.doors.kafka.test_fetching import fetch
from tests.doors.kafka.test_group_offsets import commit
from tests.doors.kafka.test_producing import produce
from tests.doors.raw_connection import DEADLINE_S

pytestmark = pytest.mark.asyncio

REQUESTS_EACH = 40
#: Longer than any request may wait.
ALL_WAITS_MS = 400_000


@pytest.mark.parametrize("api", KNOWN)
async def test_requests_with_any_values_are_answered_or_end_their_connection(api: str) -> None:
    raised: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    random = Random(api)
    async with kafka_world() as world:
        for version in range(KNOWN[api].first, KNOWN[api].last + 1):
            for _ in range(REQUESTS_EACH):
                body = any_body(REQUESTS[api].fields, version, random)
                await _answered_or_closed(world, api, version, body)
                assert not raised, (version, body, raised)
        async with raw_client(world.port) as other:
            assert await other.ask("ApiVersions", 0, {})


async def _answered_or_closed(world: KafkaWorld, api: str, version: int, body: Body) -> None:
    async with raw_client(world.port) as client:
        client.send(api, version, body)
        answer = asyncio.ensure_future(client.read(api, version))

        def answered() -> bool:
            world.timers.advance(ALL_WAITS_MS)
            return answer.done()

        await until(answered, DEADLINE_S, every_s=0.002, closely=True)
        if answer.exception() is not None:
            assert isinstance(answer.exception(), EOFError | ConnectionError), answer.exception()


# --- topics that doors keep for themselves ----------------------------------------------------------------------------

_PART = {"partition_index": 0}
#: (request, version, body)
OF_DOORS: list[tuple[str, int, Body]] = [
    ("Metadata", 8, {"topics": [{"name": KAFKA_GROUPS}], "allow_auto_topic_creation": True}),
    ("Produce", 8, produce(batch_of(numbered(1)), topic=KAFKA_GROUPS)),
    ("Fetch", 11, fetch((KAFKA_GROUPS, 0, 0))),
    ("ListOffsets", 5, {"topics": [{"name": KAFKA_GROUPS, "partitions": [_PART | {"timestamp": -1}]}]}),
    ("OffsetCommit", 7, commit({0: 0}, topic=KAFKA_GROUPS)),
    ("OffsetFetch", 5, {"group_id": "g", "topics": [{"name": KAFKA_GROUPS, "partition_indexes": [0]}]}),
    ("OffsetDelete", 0, {"group_id": "g", "topics": [{"name": KAFKA_GROUPS, "partitions": [_PART]}]}),
    ("CreateTopics", 4, {"timeout_ms": 5_000, "topics": [
        {"name": KAFKA_GROUPS, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}]}),
    ("CreatePartitions", 1, {"timeout_ms": 5_000, "topics": [
        {"name": KAFKA_GROUPS, "count": 2, "assignments": None}]}),
    ("DeleteTopics", 3, {"timeout_ms": 5_000, "topic_names": [KAFKA_GROUPS]}),
    ("DeleteRecords", 1, {"timeout_ms": 5_000, "topics": [
        {"name": KAFKA_GROUPS, "partitions": [_PART | {"offset": -1}]}]}),
    ("DescribeConfigs", 3, {"resources": [{"resource_type": TOPIC, "resource_name": KAFKA_GROUPS}]}),
    ("IncrementalAlterConfigs", 0, {"resources": [
        {"resource_type": TOPIC, "resource_name": KAFKA_GROUPS, "configs": [
            {"name": "retention.ms", "config_operation": 0, "value": "3600000"}]}]}),
    ("AlterConfigs", 1, {"resources": [{"resource_type": TOPIC, "resource_name": KAFKA_GROUPS, "configs": []}]}),
    ("DescribeProducers", 0, {"topics": [{"name": KAFKA_GROUPS, "partition_indexes": [0]}]}),
]  # fmt: skip


def codes_in(body: Any) -> set[int]:
    """All error codes of an answer but 0."""
    found = {body["error_code"]} if body.get("error_code") else set()
    for value in body.values():
        for each in value if isinstance(value, list | tuple) else ():
            if isinstance(each, dict):
                found |= codes_in(each)
    return found


@pytest.mark.parametrize(("api", "version", "body"), OF_DOORS, ids=[api for api, *_ in OF_DOORS])
async def test_topic_of_the_doors_is_refused(api: str, version: int, body: Body) -> None:
    """Also where the namespace is named, and nothing is changed: the generations of all groups are in this one."""
    full = f"public/default/{KAFKA_GROUPS}"
    cluster = FakeCluster()
    cluster.partition_counts[full] = 0
    cluster.log(full).append(b"records", 10)
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        for name in (KAFKA_GROUPS, full):
            assert codes_in(await client.ask(api, version, _named(body, name))) == {ErrorCode.INVALID_TOPIC}
    assert cluster.partition_counts[full] == 0
    assert (cluster.log(full).first, cluster.log(full).end) == (0, 10)
    assert not cluster.offsets.stored


def _named(value: Any, name: str) -> Any:
    """The request with this name of the topic."""
    if isinstance(value, dict):
        return {key: _named(each, name) for key, each in value.items()}
    if isinstance(value, list):
        return [_named(each, name) for each in value]
    return name if value == KAFKA_GROUPS else value


async def test_topic_of_the_doors_is_in_no_list() -> None:
    cluster = FakeCluster()
    cluster.partition_counts[f"public/default/{KAFKA_GROUPS}"] = 0
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        listed = (await client.ask("Metadata", 8, {"topics": None}))["topics"]
        assert [each["name"] for each in listed] == ["orders"]
        [every] = (await client.ask("DescribeLogDirs", 1, {"topics": None}))["results"]
        assert [each["name"] for each in every["topics"]] == ["orders"]
