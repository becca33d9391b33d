"""Groups at a door: what clients are answered, what their coordinator is asked, and what happens before."""

import asyncio
from typing import Any

import pytest

from oncelog.core.errors import ConsumerBusy, InvalidName, OncelogError, PermissionDenied, ServiceUnavailable
from oncelog.core.groups.events import DescribeRequested, SyncRequested
from oncelog.core.groups.limits import INITIAL_DELAY_MS, METADATA_BYTES_MAX, NAME_BYTES_MAX, SESSION_TIMEOUT_MS_MAX
from oncelog.core.ids import Generation
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.kafka.codec import Body
from tests.cluster.until import until
from tests.doors.kafka.assignments import assignment
from tests.doors.kafka.fake_cluster import FakeCluster
from tests.doors.kafka.raw_client import KafkaWorld, RawClient, kafka_world, raw_client, request
from tests.doors.raw_connection import DEADLINE_S

pytestmark = pytest.mark.asyncio

ORDERS = "public/default/orders"
SESSION_MS = 10_000


def join(member_id: str = "", **more: Any) -> Body:
    return {
        "group_id": "billing", "session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": 60_000,
        "member_id": member_id, "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"mine"}],
        **more,
    }  # fmt: skip


def sync(joined: Body, generation: int | None = None, **assigned: bytes) -> Body:
    return {
        "group_id": "billing",
        "generation_id": joined["generation_id"] if generation is None else generation,
        "member_id": joined["member_id"],
        "assignments": [{"member_id": joined["member_id"], "assignment": each} for each in assigned.values()],
    }


def heartbeat(joined: Body, generation: int = 1) -> Body:
    return {"group_id": "billing", "generation_id": generation, "member_id": joined["member_id"]}


def partitioned() -> FakeCluster:
    cluster = FakeCluster()
    cluster.partition_counts[ORDERS] = 3
    return cluster


async def gathered(world: KafkaWorld, *clients: RawClient, version: int = 3, **more: Any) -> list[Body]:
    """Members of a new group, the leader first."""
    for number, client in enumerate(clients, 1):
        client.send("JoinGroup", version, join(**more))
        await until(lambda number=number: world.cluster.groups.waiting == number, DEADLINE_S)  # type: ignore[misc]
    world.cluster.groups.pass_time(INITIAL_DELAY_MS)
    return [(await client.read("JoinGroup", version))[1] for client in clients]


async def test_members_join_and_share_what_the_leader_assigns() -> None:
    async with kafka_world(partitioned()) as world, raw_client(world.port) as one, raw_client(world.port) as two:
        first, second = await gathered(world, one, two)
        assert first["leader"] == second["leader"] == first["member_id"]
        ids = [first["member_id"], second["member_id"]]
        assert [(each["member_id"], bytes(each["metadata"])) for each in first["members"]] == [
            (member_id, b"mine") for member_id in ids
        ]
        assert not second["members"]
        two.send("SyncGroup", 3, sync(second))
        parts = [assignment({"orders": [0, 1]}), assignment({"orders": [2]})]
        whole = sync(first) | {
            "assignments": [{"member_id": each, "assignment": part} for each, part in zip(ids, parts, strict=True)]
        }
        assert bytes((await one.ask("SyncGroup", 3, whole))["assignment"]) == parts[0]
        assert bytes((await two.read("SyncGroup", 3))[1]["assignment"]) == parts[1]
        assert (await one.ask("Heartbeat", 3, heartbeat(first)))["error_code"] == 0


async def test_client_of_a_later_version_gets_its_id_first() -> None:
    """It begins with the id that the client has of itself."""
    async with kafka_world() as world, raw_client(world.port) as client:
        client.write(request("JoinGroup", 5, join(), client_id=b"\0\3app"))
        asked = (await client.read("JoinGroup", 5))[1]
        assert asked["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
        assert asked["member_id"].startswith("app-")
        [joined] = await gathered(world, client, version=5, member_id=asked["member_id"], group_instance_id=None)
        assert (joined["error_code"], joined["member_id"]) == (0, asked["member_id"])


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"protocol_type": "x" * (NAME_BYTES_MAX + 1)}, ErrorCode.INVALID_REQUEST),
        ({"protocols": [{"name": "range", "metadata": bytes(METADATA_BYTES_MAX)}]}, ErrorCode.GROUP_MAX_SIZE_REACHED),
        ({"session_timeout_ms": SESSION_TIMEOUT_MS_MAX + 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
async def test_join_beyond_a_limit_does_not_reach_the_coordinator(fields: Body, code: ErrorCode) -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        answer = await client.ask("JoinGroup", 3, join("mine", **fields))
        assert (answer["error_code"], answer["member_id"]) == (code, "mine")
        assert not world.cluster.groups.asked


@pytest.mark.hazard("former-member-commits")
async def test_generation_is_durable_at_all_partitions_before_the_leader_has_its_answer() -> None:
    """A topic that is gone has none. What a partition is assigned for the second time is raised once."""
    async with kafka_world(partitioned()) as world, raw_client(world.port) as client:
        [joined] = await gathered(world, client)
        data = assignment({"orders": [0, 2], "gone": [0]})
        await client.ask("SyncGroup", 3, sync(joined, mine=data, again=data))
        groups = world.cluster.groups
        assert groups.raised == [(f"{ORDERS}-partition-{index}", "billing", 1) for index in (0, 2)]
        assert [type(each) for each in groups.asked[-2:]] == [DescribeRequested, SyncRequested]


async def test_partition_whose_owner_is_away_has_the_group_rebalance() -> None:
    async with kafka_world(partitioned()) as world, raw_client(world.port) as client:
        [joined] = await gathered(world, client)
        world.cluster.groups.raise_error = ServiceUnavailable("its owner is away")
        answer = await client.ask("SyncGroup", 3, sync(joined, mine=assignment({"orders": [0]})))
        assert answer["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS
        assert not any(isinstance(each, SyncRequested) for each in world.cluster.groups.asked)


async def test_subscription_that_consumers_of_the_sdk_use_is_refused_to_groups() -> None:
    async with kafka_world(partitioned()) as world, raw_client(world.port) as client:
        [joined] = await gathered(world, client)
        world.cluster.groups.raise_error = ConsumerBusy("it has consumers")
        answer = await client.ask("SyncGroup", 3, sync(joined, mine=assignment({"orders": [0]})))
        assert answer["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_partition_with_a_higher_generation_has_the_group_begin_one_above_it() -> None:
    async with kafka_world(partitioned()) as world, raw_client(world.port) as client:
        [joined] = await gathered(world, client)
        world.cluster.groups.highest = Generation(7)
        answer = await client.ask("SyncGroup", 3, sync(joined, mine=assignment({"orders": [0]})))
        assert answer["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await client.ask("JoinGroup", 3, join(joined["member_id"])))["generation_id"] == 8


@pytest.mark.parametrize("generation", [0, 2, 2**31 - 1])
async def test_nothing_is_raised_for_another_generation_than_the_durable_one(generation: int) -> None:
    """A client that invents one would use up the generations of a group."""
    async with kafka_world(partitioned()) as world, raw_client(world.port) as client:
        [joined] = await gathered(world, client)
        answer = await client.ask("SyncGroup", 3, sync(joined, generation, mine=assignment({"orders": [0]})))
        assert answer["error_code"] == ErrorCode.ILLEGAL_GENERATION
        assert not world.cluster.groups.raised


async def test_assignments_of_other_protocols_are_not_read() -> None:
    async with kafka_world(partitioned()) as world, raw_client(world.port) as client:
        [joined] = await gathered(world, client, protocol_type="connect")
        answer = await client.ask("SyncGroup", 3, sync(joined, mine=b"anything"))
        assert bytes(answer["assignment"]) == b"anything"
        assert not world.cluster.groups.raised


async def test_assignment_that_cannot_be_read_is_refused() -> None:
    async with kafka_world(partitioned()) as world, raw_client(world.port) as client:
        [joined] = await gathered(world, client)
        answer = await client.ask("SyncGroup", 3, sync(joined, mine=b"anything"))
        assert answer["error_code"] == ErrorCode.INVALID_REQUEST


async def test_namespace_without_groups_answers_without_a_coordinator() -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        member = {"member_id": "m", "generation_id": 1}
        assert (await client.ask("Heartbeat", 3, heartbeat(member)))["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await client.ask("SyncGroup", 3, sync(member)))["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await client.ask("ListGroups", 2, {}))["groups"] == []
        [described] = (await client.ask("DescribeGroups", 4, {"groups": ["billing"]}))["groups"]
        assert (described["error_code"], described["group_state"]) == (0, "Dead")
        [deleted] = (await client.ask("DeleteGroups", 1, {"groups_names": ["billing"]}))["results"]
        assert deleted["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND
        assert world.cluster.groups.coordinator is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ServiceUnavailable("away"), ErrorCode.NOT_COORDINATOR),
        (PermissionDenied("no"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (InvalidName("no", field="namespace"), ErrorCode.INVALID_GROUP_ID),
    ],
)
async def test_errors_of_the_coordinator_have_codes_after_which_clients_go_on(
    error: OncelogError, code: ErrorCode
) -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        world.cluster.groups.error = error
        member = {"member_id": "m", "generation_id": 1}
        for api, version, body in (
            ("JoinGroup", 5, join("m")), ("SyncGroup", 3, sync(member)), ("Heartbeat", 3, heartbeat(member)),
            ("LeaveGroup", 1, {"group_id": "billing", "member_id": "m"}), ("ListGroups", 2, {}),
        ):  # fmt: skip
            assert (await client.ask(api, version, body))["error_code"] == code
        [described] = (await client.ask("DescribeGroups", 4, {"groups": ["billing"]}))["groups"]
        [deleted] = (await client.ask("DeleteGroups", 1, {"groups_names": ["billing"]}))["results"]
        assert described["error_code"] == deleted["error_code"] == code


async def test_door_that_ends_sends_waiting_members_to_another_one() -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        client.send("JoinGroup", 3, join())
        await until(lambda: world.cluster.groups.waiting == 1, DEADLINE_S)
        closing = asyncio.ensure_future(world.door.close())
        answer = (await client.read("JoinGroup", 3))[1]
        assert answer["error_code"] == ErrorCode.NOT_COORDINATOR
        await client.closed()
        await closing


async def test_connection_that_ends_withdraws_what_waits_and_removes_no_member() -> None:
    async with kafka_world() as world, raw_client(world.port) as other:
        async with raw_client(world.port) as client:
            [joined] = await gathered(world, client)
            client.send("SyncGroup", 3, sync(joined))
            client.send("JoinGroup", 3, join())
            await until(lambda: world.cluster.groups.waiting == 1, DEADLINE_S)
        await until(lambda: world.cluster.groups.waiting == 0, DEADLINE_S)
        assert (await other.ask("Heartbeat", 3, heartbeat(joined)))["error_code"] in (
            ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS,
        )  # fmt: skip


async def test_members_leave_alone_or_several_at_once() -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        [joined] = await gathered(world, client)
        unknown = {"member_id": "x", "group_instance_id": None}
        member = {"member_id": joined["member_id"], "group_instance_id": None}
        left = await client.ask("LeaveGroup", 3, {"group_id": "billing", "members": [unknown, member]})
        assert [left["error_code"], *(each["error_code"] for each in left["members"])] == [
            0, ErrorCode.UNKNOWN_MEMBER_ID, 0,
        ]  # fmt: skip
        again = await client.ask("LeaveGroup", 2, {"group_id": "billing", "member_id": joined["member_id"]})
        assert again["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID


async def test_groups_are_listed_described_and_deleted() -> None:
    async with kafka_world(partitioned()) as world, raw_client(world.port) as client:
        [joined] = await gathered(world, client)
        data = assignment({"orders": [1]})
        await client.ask("SyncGroup", 3, sync(joined, mine=data))
        assert (await client.ask("ListGroups", 2, {}))["groups"] == [
            {"group_id": "billing", "protocol_type": "consumer"}
        ]
        [described] = (await client.ask("DescribeGroups", 4, {"groups": ["billing"]}))["groups"]
        assert (described["group_state"], described["protocol_data"]) == ("Stable", "range")
        [member] = described["members"]
        assert (member["member_id"], member["client_host"]) == (joined["member_id"], "/127.0.0.1")
        assert (bytes(member["member_metadata"]), bytes(member["member_assignment"])) == (b"mine", data)
        deletion = {"groups_names": ["billing", "offsets", "none"]}
        world.cluster.groups.offsets = {"billing", "offsets"}

        async def codes() -> list[int]:
            return [each["error_code"] for each in (await client.ask("DeleteGroups", 1, deletion))["results"]]

        assert await codes() == [ErrorCode.NON_EMPTY_GROUP, 0, ErrorCode.GROUP_ID_NOT_FOUND]
        assert world.cluster.groups.offsets == {"billing"}
        await client.ask("LeaveGroup", 2, {"group_id": "billing", "member_id": joined["member_id"]})
        assert (await codes())[0] == 0
        assert not world.cluster.groups.offsets
        assert (await client.ask("ListGroups", 2, {}))["groups"] == []
