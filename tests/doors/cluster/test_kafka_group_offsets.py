"""Offsets of groups in a whole cluster: over ends of owners, deletions of topics, and two commits at once."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

import oncelog
from oncelog.client.group_offsets import GroupOffset, GroupOffsets, NewOffset
from oncelog.core.errors import ConsumerFenced, OncelogError, TopicNotFound
from oncelog.core.names import parse_topic
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.kafka.codec import Body
from tests.cluster.cluster_fixture import Cluster, rest_path
from tests.cluster.kills import idle
from tests.doors.cluster.door_program import DoorProgram
from tests.doors.kafka.raw_client import RawClient, raw_client
from tests.doors.kafka.test_group_offsets import committed, fetched

pytestmark = pytest.mark.asyncio

CALL_S = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Sessions end later than any deadline of a test, so nothing waits for one to end."""
    with Cluster.running(
        tmp_path_factory.mktemp("offsets"), storage_nodes=1, owners=1, session_timeout_ms=60_000
    ) as own:
        yield own


@pytest.fixture(scope="module")
def door(cluster: Cluster) -> Iterator[DoorProgram]:
    with DoorProgram.running("--url", cluster.url, "--kafka", "127.0.0.1:0") as own:
        yield own


@asynccontextmanager
async def clients(cluster: Cluster, door: DoorProgram) -> AsyncIterator[tuple[oncelog.AsyncClient, RawClient]]:
    async with oncelog.connect(cluster.url) as client, raw_client(door.port("kafka")) as raw:
        yield client, raw


async def publish(client: oncelog.AsyncClient, topic: str, count: int = 10) -> None:
    producer = await client.create_producer(topic)
    await producer.send_many([b"value"] * count)
    await producer.close()


async def partitioned(cluster: Cluster, client: oncelog.AsyncClient, topic: str) -> None:
    """Two partitions, of which the first one has messages, and the second one was never used."""
    await cluster.change("PUT", f"{rest_path(topic)}/partitions", json=2)
    await publish(client, f"{topic}-partition-0")


def in_group(client: oncelog.AsyncClient, group: str) -> GroupOffsets:
    return GroupOffsets(client, group, on_behalf_of=None, timeout_ms=CALL_S * 1000)


async def test_offsets_outlive_owner_and_door(cluster: Cluster, door: DoorProgram) -> None:
    """Forward, back, with metadata; what the door has answered is what the next owner tells another door."""
    async with clients(cluster, door) as (client, raw):
        await partitioned(cluster, client, "public/default/orders")
        assert await committed(raw, {0: 7, 1: 0}) == [ErrorCode.NONE] * 2
        assert await committed(raw, {0: 3}, metadata="pläce") == [ErrorCode.NONE]
        assert await committed(raw, {0: 11, 1: 1, 2: 0}) == [
            ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]  # fmt: skip
        assert await committed(raw, {0: 0}, topic="missing") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await fetched(raw, 0, 1) == [(3, "pläce"), (0, "")]
        assert await fetched(raw, 0, topic="missing") == [(-1, "")]
        answer = cluster.run("admin", "subscriptions", "stats", "orders-partition-0", "billing", "-o", "json")
        [shown] = json.loads(answer.stdout).values()
        assert (shown["mark_delete"], shown["msg_backlog"], shown["committed"]["metadata"]) == (3, 7, "pläce")
        await cluster.kill("owner-1", once=idle)
        await cluster.healed()
        with DoorProgram.running("--url", cluster.url, "--kafka", "127.0.0.1:0") as other:
            async with raw_client(other.port("kafka")) as second:
                assert await fetched(second, 0, 1) == [(3, "pläce"), (0, "")]
                assert await committed(second, {0: 10, 1: 0}) == [ErrorCode.NONE] * 2
        assert await fetched(raw, 0, 1) == [(10, ""), (0, "")]


@pytest.mark.hazard("offset-without-its-owner")
async def test_an_owner_that_does_not_respond_is_no_missing_offset(cluster: Cluster, door: DoorProgram) -> None:
    """The client gets an error after which it asks again, after 10 s; then it gets the offset."""
    async with clients(cluster, door) as (client, raw):
        await publish(client, "frozen")
        await committed(raw, {0: 4}, topic="frozen")
        with cluster.stopped("owner-1"):
            assert await fetched(raw, 0, topic="frozen") == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        assert await fetched(raw, 0, topic="frozen") == [(4, "")]


@pytest.mark.hazard("commit-for-a-deleted-topic")
async def test_a_topic_that_is_made_again_is_another_one(cluster: Cluster, door: DoorProgram) -> None:
    """A commit for the former one is refused, and the group has no offset in it."""
    async with clients(cluster, door) as (client, raw):
        await publish(client, "again", 50)
        assert await committed(raw, {0: 50}, topic="again") == [ErrorCode.NONE]
        await cluster.change("DELETE", rest_path("public/default/again"), params={"force": True})
        await publish(client, "again", 5)
        assert await fetched(raw, 0, topic="again") == [(-1, "")]
        assert await committed(raw, {0: 50}, topic="again") == [ErrorCode.OFFSET_OUT_OF_RANGE]
        assert await fetched(raw, 0, topic="again") == [(-1, "")]
        assert await committed(raw, {0: 5}, topic="again") == [ErrorCode.NONE]


@pytest.mark.hazard("former-member-commits")
async def test_two_generations_commit_at_once(cluster: Cluster, door: DoorProgram) -> None:
    """Whatever the order in which they arrive, the former one moves nothing once the next one has the partition."""
    async with clients(cluster, door) as (client, _):
        await partitioned(cluster, client, "public/default/fenced")
        group = in_group(client, "billing")
        logs = [parse_topic(f"fenced-partition-{index}") for index in range(2)]
        first = await group.commit({logs[0]: NewOffset(2, "first")}, generation=1)
        raised, late = await asyncio.gather(
            group.raise_generations(logs, 2), group.commit({logs[0]: NewOffset(9)}, generation=1)
        )
        assert [generation_of(found) for found in (first[logs[0]], raised[logs[0]])] == [1, 2]
        assert isinstance(raised[logs[1]], TopicNotFound)
        before = (await group.fetch(logs))[logs[0]]
        assert isinstance(before, GroupOffset)
        assert before.offset == (2 if isinstance(late[logs[0]], OncelogError) else 9)
        refused = await group.commit({logs[0]: NewOffset(7)}, generation=1)
        assert isinstance(refused[logs[0]], ConsumerFenced)
        assert (await group.fetch(logs))[logs[0]] == before
        many = await asyncio.gather(*(group.commit({logs[0]: NewOffset(offset)}, generation=2) for offset in range(11)))
        assert [generation_of(found[logs[0]]) for found in many] == [2] * 11
        last = (await group.fetch(logs))[logs[0]]
        assert isinstance(last, GroupOffset)
        assert last.offset in range(11)


def generation_of(found: GroupOffset | OncelogError) -> int:
    assert isinstance(found, GroupOffset), found
    return found.generation


async def test_a_client_library_commits_and_an_operator_resets(cluster: Cluster, door: DoorProgram) -> None:
    """A consumer that assigns its partitions itself, and an administrator, who moves and lists offsets of a group that
    has no members."""
    async with clients(cluster, door) as (client, raw):
        await publish(client, "assigned")
        found = await asyncio.to_thread(_committed_by_library, f"127.0.0.1:{door.port('kafka')}")
        assert found == {"committed": 6, "reset": 2, "listed": {("assigned", 0): 2}}
        nothing: Body = {
            "group_id": "library",
            "topics": [{"name": "assigned", "partitions": [{"partition_index": 0}]}],
        }
        deleted = await raw.ask("OffsetDelete", 0, nothing)
        assert deleted["topics"][0]["partitions"][0]["error_code"] == ErrorCode.NONE
        assert await fetched(raw, 0, topic="assigned", group="library") == [(-1, "")]


def _committed_by_library(servers: str) -> dict[str, Any]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "library", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("assigned", 0, 0)])
        consumer.commit(offsets=[TopicPartition("assigned", 0, 6)], asynchronous=False)
        [first] = consumer.committed([TopicPartition("assigned", 0)], timeout=CALL_S)
    finally:
        consumer.close()
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = ConsumerGroupTopicPartitions("library", [TopicPartition("assigned", 0, 2)])
    [reset] = admin.alter_consumer_group_offsets([wanted]).values()
    [after] = reset.result(CALL_S).topic_partitions
    [listing] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("library")]).values()
    listed = {(each.topic, each.partition): each.offset for each in listing.result(CALL_S).topic_partitions}
    return {"committed": first.offset, "reset": after.offset, "listed": listed}
