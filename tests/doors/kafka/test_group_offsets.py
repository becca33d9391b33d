"""Offsets of groups at a door: who may commit, what an owner's answer means, and what is never answered."""

from typing import Any

import pytest

from oncelog.client.group_offsets import GroupOffset
from oncelog.core.errors import (
    Conflict,
    ConsumerBusy,
    DeadlineExceeded,
    InvalidArgument,
    LimitReached,
    OncelogError,
    PermissionDenied,
    ServiceUnavailable,
    SubscriptionTypeMismatch,
    TopicNotFound,
)
from oncelog.core.groups.events import CommitChecked
from oncelog.core.ids import Generation
from oncelog.core.names import parse_topic
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.kafka.codec import Body
from tests.cluster.until import until
from tests.doors.kafka.assignments import assignment, subscription
from tests.doors.kafka.fake_cluster import FakeCluster
from tests.doors.kafka.raw_client import KafkaWorld, RawClient, kafka_world, raw_client
from tests.doors.kafka.test_groups import gathered, heartbeat, join, sync
from tests.doors.raw_connection import DEADLINE_S

pytestmark = pytest.mark.asyncio

ORDERS = "public/default/orders"
COMMIT, FETCH = 7, 5
RANGE = [{"name": "range", "metadata": subscription("orders")}]


def shop() -> FakeCluster:
    """Three partitions with ten messages each."""
    cluster = FakeCluster()
    cluster.partition_counts[ORDERS] = 3
    for index in range(3):
        cluster.log(f"{ORDERS}-partition-{index}").append(b"records", 10)
    return cluster


def commit(offsets: dict[int, int], *, topic: str = "orders", metadata: str | None = "", **member: Any) -> Body:
    """member: of no member, unless it says otherwise."""
    partitions = [
        {"partition_index": index, "committed_offset": offset, "committed_leader_epoch": -1,
         "committed_metadata": metadata}
        for index, offset in offsets.items()
    ]  # fmt: skip
    topics = [{"name": topic, "partitions": partitions}]
    return {"group_id": "billing", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics, **member}


def codes(answer: Body) -> list[ErrorCode]:
    return [ErrorCode(each["error_code"]) for topic in answer["topics"] for each in topic["partitions"]]


async def committed(
    client: RawClient, offsets: dict[int, int], *, version: int = COMMIT, **more: Any
) -> list[ErrorCode]:
    return codes(await client.ask("OffsetCommit", version, commit(offsets, **more)))


async def fetched(client: RawClient, *indexes: int, topic: str = "orders", group: str = "billing") -> list[Any]:
    """(offset, metadata) of each partition, or its code; the code of the answer."""
    asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": list(indexes)}]}
    answer = await client.ask("OffsetFetch", FETCH, asked)
    if answer["error_code"]:
        assert answer["topics"] == []
        return [ErrorCode(answer["error_code"])]
    return [
        ErrorCode(each["error_code"]) if each["error_code"] else (each["committed_offset"], each["metadata"])
        for topic in answer["topics"]
        for each in topic["partitions"]
    ]


async def stable(world: KafkaWorld, client: RawClient) -> Body:
    """A member with all partitions, in generation 1."""
    [joined] = await gathered(world, client, protocols=[{"name": "range", "metadata": subscription("orders")}])
    answer = await client.ask("SyncGroup", 3, sync(joined, mine=assignment({"orders": [0, 1, 2]})))
    assert answer["error_code"] == ErrorCode.NONE
    return joined


def member(joined: Body, **more: Any) -> Body:
    return {"member_id": joined["member_id"], "generation_id_or_member_epoch": joined["generation_id"], **more}


@pytest.mark.parametrize("version", range(2, 8))
async def test_offsets_come_back_with_their_metadata(version: int) -> None:
    """In each version, forward and back; partitions have answers of their own."""
    async with kafka_world(shop()) as world, raw_client(world.port) as client:
        assert await fetched(client, 0, 1) == [(-1, ""), (-1, "")]
        assert await committed(client, {0: 7, 1: 10}, version=version, metadata="note") == [ErrorCode.NONE] * 2
        assert await committed(client, {0: 3}, version=version, metadata=None) == [ErrorCode.NONE]
        assert await fetched(client, 0, 1, 2) == [(3, ""), (10, "note"), (-1, "")]


@pytest.mark.parametrize("version", range(1, 6))
async def test_each_version_tells_offsets(version: int) -> None:
    async with kafka_world(shop()) as world, raw_client(world.port) as client:
        await committed(client, {1: 4}, metadata="note")
        asked = {"group_id": "billing", "topics": [{"name": "orders", "partition_indexes": [0, 1]}]}
        [topic] = (await client.ask("OffsetFetch", version, asked))["topics"]
        found = [(each["committed_offset"], each["metadata"], each["error_code"]) for each in topic["partitions"]]
        assert (topic["name"], found) == ("orders", [(-1, "", 0), (4, "note", 0)])


@pytest.mark.hazard("former-member-commits")
async def test_former_instance_of_a_static_member_is_fenced_by_its_member_id() -> None:
    """A restart keeps the generation, so only the member id tells them apart."""
    static = {"group_instance_id": "shelf-1"}
    async with kafka_world(shop()) as world, raw_client(world.port) as client:
        [former] = await gathered(world, client, version=5, protocols=RANGE, **static)
        await client.ask("SyncGroup", 3, sync(former, mine=assignment({"orders": [0, 1, 2]})) | static)
        assert await committed(client, {0: 5}, **member(former, **static)) == [ErrorCode.NONE]
        now = await client.ask("JoinGroup", 5, join(protocols=RANGE, **static))
        assert (now["error_code"], now["generation_id"]) == (ErrorCode.NONE, former["generation_id"])
        assert now["member_id"] != former["member_id"]
        assert await committed(client, {0: 7}, **member(now, **static)) == [ErrorCode.NONE]
        fenced, unknown = ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID
        assert await committed(client, {0: 6}, **member(former, **static)) == [fenced]
        assert await committed(client, {0: 6}, version=6, **member(former)) == [unknown]
        assert (await client.ask("Heartbeat", 3, heartbeat(former) | static))["error_code"] == fenced
        assert (await client.ask("SyncGroup", 3, sync(former) | static))["error_code"] == fenced
        leaving = {"group_id": "billing", "members": [{"member_id": former["member_id"], **static}]}
        [left] = (await client.ask("LeaveGroup", 3, leaving))["members"]
        assert left["error_code"] == fenced
        assert (await client.ask("Heartbeat", 3, heartbeat(now) | static))["error_code"] == ErrorCode.NONE
        assert await fetched(client, 0) == [(7, "")]


@pytest.mark.hazard("former-member-commits")
async def test_the_coordinator_says_who_may_commit() -> None:
    """A member of this generation; of no member only while the group has none. The owners get the generation."""
    async with kafka_world(shop()) as world, raw_client(world.port) as client:
        joined = await stable(world, client)
        assert await committed(client, {0: 5}, **member(joined)) == [ErrorCode.NONE]
        assert await committed(client, {0: 6}) == [ErrorCode.UNKNOWN_MEMBER_ID]
        stranger = member(joined, member_id="stranger")
        assert await committed(client, {0: 6, 1: 6}, **stranger) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
        former = member(joined, generation_id_or_member_epoch=0)
        assert await committed(client, {0: 6}, **former) == [ErrorCode.ILLEGAL_GENERATION]
        assert await fetched(client, 0) == [(5, "")]
        assert world.cluster.offsets.commits == [1]


@pytest.mark.hazard("former-member-commits")
async def test_an_owner_refuses_what_the_coordinator_has_allowed() -> None:
    """Another member has got the partition between the two."""
    async with kafka_world(shop()) as world, raw_client(world.port) as client:
        joined = await stable(world, client)
        log = parse_topic(f"{ORDERS}-partition-0")
        world.cluster.offsets.stored["billing", log] = GroupOffset(8, 2)
        assert await committed(client, {0: 5, 1: 5}, **member(joined)) == [ErrorCode.ILLEGAL_GENERATION, ErrorCode.NONE]
        assert await fetched(client, 0, 1) == [(8, ""), (5, "")]


async def test_an_empty_group_gets_over_the_generations_of_consumers() -> None:
    """Consumers of the SDK have raised the generation. The coordinator is asked once more: a member that has come since
    has a higher one."""
    async with kafka_world(shop()) as world, raw_client(world.port) as client:
        log = parse_topic(f"{ORDERS}-partition-0")
        world.cluster.offsets.stored["billing", log] = GroupOffset(8, 6)
        assert await committed(client, {0: 5, 1: 5}) == [ErrorCode.NONE] * 2
        assert (world.cluster.offsets.commits, await fetched(client, 0)) == ([0, 6], [(5, "")])
        asked = [each for each in world.cluster.groups.asked if isinstance(each, CommitChecked)]
        assert len(asked) == 2


@pytest.mark.hazard("commit-for-a-deleted-topic")
async def test_what_an_offset_cannot_be() -> None:
    """Above the end, negative, of no topic, of no partition, with too much metadata."""
    async with kafka_world(shop()) as world, raw_client(world.port) as client:
        wrong = await committed(client, {0: 11, 1: -5, 3: 1, 2: 10})
        assert wrong == [
            ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NONE,
        ]  # fmt: skip
        assert await committed(client, {0: 1}, topic="other") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await committed(client, {0: 1}, topic="orders-partition-0") == [ErrorCode.INVALID_TOPIC]
        assert await committed(client, {0: 1}, topic="__oncelog_kafka_groups") == [ErrorCode.INVALID_TOPIC]
        assert await committed(client, {0: 1}, metadata="x" * 4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert await committed(client, {0: 1}, group_id="a b") == [ErrorCode.INVALID_GROUP_ID]
        assert await fetched(client, 0, group="a b") == [ErrorCode.INVALID_GROUP_ID]
        assert await fetched(client, 0, 1, 2) == [(-1, ""), (-1, ""), (10, "")]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConsumerBusy("consumers"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (SubscriptionTypeMismatch("shared"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (Conflict("a store"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (LimitReached("many"), ErrorCode.POLICY_VIOLATION),
        (PermissionDenied("no"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (TopicNotFound("gone"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_what_an_owner_refuses_is_of_its_partition(error: OncelogError, code: ErrorCode) -> None:
    async with kafka_world(shop()) as world, raw_client(world.port) as client:
        world.cluster.offsets.errors[f"{ORDERS}-partition-1"] = error
        assert await committed(client, {0: 1, 1: 1, 2: 1}) == [ErrorCode.NONE, code, ErrorCode.NONE]


@pytest.mark.parametrize("error", [ServiceUnavailable("away"), DeadlineExceeded("late")])
async def test_a_commit_that_is_not_decided_is_of_the_whole_request(error: OncelogError) -> None:
    """Some clients look at the first partition alone to learn whether to send a commit again. What is stored stays."""
    async with kafka_world(shop()) as world, raw_client(world.port) as client:
        world.cluster.offsets.errors[f"{ORDERS}-partition-1"] = error
        assert await committed(client, {0: 4, 1: 5, 3: 1}) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
        world.cluster.offsets.errors.clear()
        assert await fetched(client, 0, 1) == [(4, ""), (-1, "")]
        assert await committed(client, {0: 4, 1: 5}) == [ErrorCode.NONE] * 2


@pytest.mark.hazard("offset-without-its-owner")
async def test_an_offset_is_not_missing_because_its_owner_is() -> None:
    """Of one partition of three: the client asks again for all of them, and begins nowhere."""
    async with kafka_world(shop()) as world, raw_client(world.port) as client:
        await committed(client, {0: 4, 1: 4})
        world.cluster.offsets.errors[f"{ORDERS}-partition-1"] = ServiceUnavailable("away")
        assert await fetched(client, 0, 1, 2) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        asked = {"group_id": "billing", "topics": [{"name": "orders", "partition_indexes": [0, 1]}]}
        first = await client.ask("OffsetFetch", 1, asked)
        assert codes(first) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
        everything = await client.ask("OffsetFetch", FETCH, {"group_id": "billing", "topics": None})
        assert everything["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        world.cluster.offsets.errors.clear()
        assert await fetched(client, 0, 1, 2) == [(4, ""), (4, ""), (-1, "")]


@pytest.mark.hazard("offset-without-its-owner")
async def test_an_offset_is_missing_where_the_topic_is() -> None:
    """The services that know all topics have said so, or the topic was deleted since."""
    async with kafka_world(shop()) as world, raw_client(world.port) as client:
        assert await fetched(client, 0, topic="other") == [(-1, "")]
        assert await fetched(client, 5) == [(-1, "")]
        world.cluster.offsets.errors[f"{ORDERS}-partition-1"] = TopicNotFound("gone")
        assert await fetched(client, 0, 1) == [(-1, ""), (-1, "")]


async def test_all_offsets_of_a_group() -> None:
    """Of its namespace, in each topic that has one; not in the doors' own topics."""
    cluster = shop()
    cluster.partition_counts |= {"public/default/single": 0, "public/default/__oncelog_own": 0, "other/one/orders": 0}
    cluster.log("single").append(b"records", 5)
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        nothing = await client.ask("OffsetFetch", 2, {"group_id": "billing", "topics": None})
        assert (nothing["topics"], nothing["error_code"]) == ([], 0)
        await committed(client, {0: 4, 2: 9})
        await committed(client, {0: 5}, topic="single")
        answer = await client.ask("OffsetFetch", 2, {"group_id": "billing", "topics": None})
        found = {
            each["name"]: {part["partition_index"]: part["committed_offset"] for part in each["partitions"]}
            for each in answer["topics"]
        }
        assert found == {"orders": {0: 4, 2: 9}, "single": {0: 5}}
        cluster.list_error = ServiceUnavailable("away")
        later = await client.ask("OffsetFetch", 2, {"group_id": "billing", "topics": None})
        assert later["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_the_coordinator_is_away() -> None:
    """Nothing is committed, and the client tries again."""
    async with kafka_world(shop()) as world, raw_client(world.port) as client:
        world.cluster.groups.error = DeadlineExceeded("away")
        assert await committed(client, {0: 4, 1: 4}) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
        world.cluster.groups.error = PermissionDenied("no")
        assert await committed(client, {0: 4}) == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
        assert world.cluster.offsets.commits == []


async def test_requests_of_a_connection_take_effect_in_their_order() -> None:
    """The owner answers the first commit late: the second one and the question wait."""
    async with kafka_world(shop()) as world, raw_client(world.port) as client:
        offsets = world.cluster.offsets
        offsets.owned.clear()
        client.send("OffsetCommit", COMMIT, commit({0: 3}))
        client.send("OffsetCommit", COMMIT, commit({0: 8}))
        asked = {"group_id": "billing", "topics": [{"name": "orders", "partition_indexes": [0]}]}
        client.send("OffsetFetch", FETCH, asked)
        client.send("Heartbeat", 3, heartbeat({"member_id": "stranger"}))
        await until(lambda: world.home.counts.requests["Heartbeat"] == 1, DEADLINE_S)
        assert (offsets.commits, offsets.stored) == ([0], {})
        offsets.owned.set()
        for _ in range(2):
            assert codes((await client.read("OffsetCommit", COMMIT))[1]) == [ErrorCode.NONE]
        [topic] = (await client.read("OffsetFetch", FETCH))[1]["topics"]
        assert topic["partitions"][0]["committed_offset"] == 8


# --- deletions --------------------------------------------------------------------------------------------------------


def deletion(*indexes: int, topic: str = "orders") -> Body:
    partitions = [{"partition_index": index} for index in indexes]
    return {"group_id": "billing", "topics": [{"name": topic, "partitions": partitions}]}


async def test_offsets_of_a_group_without_members_are_deleted() -> None:
    """Also where there are none; other partitions keep theirs."""
    async with kafka_world(shop()) as world, raw_client(world.port) as client:
        assert codes(await client.ask("OffsetDelete", 0, deletion(0))) == [ErrorCode.NONE]
        await committed(client, {0: 4, 1: 4})
        answer = await client.ask("OffsetDelete", 0, deletion(0, 2, 9))
        assert codes(answer) == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await fetched(client, 0, 1) == [(-1, ""), (4, "")]
        world.cluster.offsets.errors[f"{ORDERS}-partition-1"] = ServiceUnavailable("away")
        answer = await client.ask("OffsetDelete", 0, deletion(1))
        assert codes(answer) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


async def test_offsets_that_members_use_are_not_deleted() -> None:
    """Of topics that they are subscribed to. While the group is rebalanced, that is not known."""
    cluster = shop()
    cluster.partition_counts["public/default/single"] = 0
    cluster.log("single").append(b"records", 5)
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        await committed(client, {0: 5}, topic="single")
        [joined] = await gathered(world, client, protocols=[{"name": "range", "metadata": subscription("orders")}])
        answer = await client.ask("OffsetDelete", 0, deletion(0))
        assert answer["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS
        await client.ask("SyncGroup", 3, sync(joined, mine=assignment({"orders": [0, 1, 2]})))
        await committed(client, {0: 4}, **member(joined))
        assert codes(await client.ask("OffsetDelete", 0, deletion(0))) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
        assert codes(await client.ask("OffsetDelete", 0, deletion(0, topic="single"))) == [ErrorCode.NONE]
        assert await fetched(client, 0) == [(4, "")]
        assert await fetched(client, 0, topic="single") == [(-1, "")]


async def test_offsets_of_another_protocol_are_not_deleted_beside_members() -> None:
    """What its members use is not known."""
    async with kafka_world(shop()) as world, raw_client(world.port) as client:
        await gathered(world, client, protocol_type="connect")
        answer = await client.ask("OffsetDelete", 0, deletion(0))
        assert answer["error_code"] == ErrorCode.NON_EMPTY_GROUP


async def test_offsets_that_are_used_since_are_not_deleted() -> None:
    """A member has come and committed after the question to the coordinator."""
    async with kafka_world(shop()) as world, raw_client(world.port) as client:
        await committed(client, {0: 4})
        log = parse_topic(f"{ORDERS}-partition-0")
        world.cluster.offsets.stored["billing", log] = GroupOffset(8, Generation(3))
        answer = await client.ask("OffsetDelete", 0, deletion(0))
        assert codes(answer) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
        assert await fetched(client, 0) == [(8, "")]


async def test_topic_is_looked_up_for_the_first_of_its_commits() -> None:
    """And again for a partition that it did not have then. A question for offsets always looks it up: a topic that is
    gone has none."""
    cluster = shop()
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        for offset in range(5):
            assert await committed(client, {0: offset, 1: offset}) == [ErrorCode.NONE] * 2
        assert cluster.lookups == [ORDERS]
        assert await committed(client, {0: 6, 3: 0}) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        cluster.partition_counts[ORDERS] = 4
        assert await committed(client, {3: 0}) == [ErrorCode.NONE]
        assert await committed(client, {3: 0}) == [ErrorCode.NONE]
        assert cluster.lookups == [ORDERS] * 3
        assert await fetched(client, 3) == [(0, "")]
        assert await fetched(client, 3) == [(0, "")]
        assert cluster.lookups == [ORDERS] * 5


@pytest.mark.parametrize("error", [TopicNotFound("it is gone"), InvalidArgument("it is partitioned", field="topic")])
async def test_commit_to_a_topic_that_was_made_again_in_another_form_reaches_it(error: OncelogError) -> None:
    cluster = shop()
    cluster.log(ORDERS).append(b"records", 10)
    former, now = (3, 0) if isinstance(error, TopicNotFound) else (0, 3)
    logs = {3: f"{ORDERS}-partition-0", 0: ORDERS}
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        cluster.partition_counts[ORDERS] = former
        assert await committed(client, {0: 5}) == [ErrorCode.NONE]
        cluster.partition_counts[ORDERS] = now
        cluster.offsets.errors[logs[former]] = error
        assert await committed(client, {0: 4}) == [ErrorCode.NONE]
        assert cluster.offsets.stored["billing", parse_topic(logs[now])].offset == 4
        assert cluster.lookups == [ORDERS] * 2
        assert await committed(client, {0: 3}) == [ErrorCode.NONE]
        assert cluster.lookups == [ORDERS] * 2
