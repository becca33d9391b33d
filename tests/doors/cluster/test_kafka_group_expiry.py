"""A door deletes a group that is not used any more, in a cluster with tokens."""

import asyncio
from typing import Any

import pytest

from tests.cluster.cluster_fixture import Cluster, rest_path
from tests.cluster.until import until
from tests.doors.cluster.door_program import DoorProgram
from tests.doors.cluster.test_kafka_door import sign_in
from tests.doors.kafka.raw_client import RawClient, raw_client
from tests.doors.kafka.test_group_offsets import committed, fetched
from tests.doors.kafka.test_groups import join
from tests.doors.raw_connection import DEADLINE_S

#: Longer than what the test does before the deletion.
RETENTION_MS = 6_000
GROUP = "console-1"
ASSIGNED = "assigned-1"


@pytest.mark.hazard("console-groups-fill-the-disk")
def test_group_that_is_not_used_loses_its_offsets(cluster: Cluster, variables: dict[str, str]) -> None:
    """And holds no messages any more. A subscription of the SDK with its name stays, in another topic."""
    settings = variables | {"ONCELOG_KAFKA_OFFSETS_RETENTION_MS": str(RETENTION_MS)}
    with DoorProgram.running("--url", cluster.url, "--kafka", "127.0.0.1:0", settings=settings) as door:
        asyncio.run(steps(cluster, door))


@pytest.mark.hazard("console-groups-fill-the-disk")
def test_offset_of_a_client_without_a_group_expires(cluster: Cluster, variables: dict[str, str]) -> None:
    """Each at its own age, by the clock of its owner, while the client goes on with another partition."""
    settings = variables | {"ONCELOG_KAFKA_OFFSETS_RETENTION_MS": str(RETENTION_MS)}
    with DoorProgram.running("--url", cluster.url, "--kafka", "127.0.0.1:0", settings=settings) as door:
        asyncio.run(unjoined(cluster, door))


async def unjoined(cluster: Cluster, door: DoorProgram) -> None:
    for topic in ("assigned", "assigned-still", "assigned-by-the-sdk"):
        await cluster.change("PUT", rest_path(f"public/default/{topic}"))
    await cluster.change("PUT", f"{rest_path('public/default/assigned-by-the-sdk')}/subscription/{ASSIGNED}")
    async with raw_client(door.port("kafka")) as client:
        await sign_in(client, "billing")
        assert await committed(client, {0: 0}, topic="assigned", group_id=ASSIGNED) == [0]

        async def is_expired() -> bool:
            assert await committed(client, {0: 0}, topic="assigned-still", group_id=ASSIGNED) == [0]
            return await fetched(client, 0, topic="assigned", group=ASSIGNED) == [(-1, "")]

        await until(is_expired, DEADLINE_S)
        for kept in ("assigned-still", "assigned-by-the-sdk"):
            assert await fetched(client, 0, topic=kept, group=ASSIGNED) == [(0, "")]


async def steps(cluster: Cluster, door: DoorProgram) -> None:
    for topic in ("consoled", "of-the-sdk"):
        await cluster.change("PUT", rest_path(f"public/default/{topic}"))
    await cluster.change("PUT", f"{rest_path('public/default/of-the-sdk')}/subscription/{GROUP}")
    async with raw_client(door.port("kafka")) as client:
        await sign_in(client, "billing")
        joined = await client.ask("JoinGroup", 3, join(group_id=GROUP))
        assert joined["error_code"] == 0
        await client.ask("LeaveGroup", 2, {"group_id": GROUP, "member_id": joined["member_id"]})
        assert await committed(client, {0: 0}, topic="consoled", group_id=GROUP) == [0]
        assert await fetched(client, 0, topic="consoled", group=GROUP) == [(0, "")]
        assert await groups(client) == [{"group_id": GROUP, "protocol_type": "consumer"}]

        async def is_deleted() -> bool:
            return not await groups(client)

        await until(is_deleted, DEADLINE_S)
        assert await fetched(client, 0, topic="consoled", group=GROUP) == [(-1, "")]
        assert await fetched(client, 0, topic="of-the-sdk", group=GROUP) == [(0, "")]


async def groups(client: RawClient) -> Any:
    return (await client.ask("ListGroups", 2, {}))["groups"]
