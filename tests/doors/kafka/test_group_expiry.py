"""A door deletes groups that have not been used for long: which ones, how often, and what keeps them."""

import pytest

from oncelog.core.access import Caller
from oncelog.core.errors import ServiceUnavailable
from oncelog.core.groups.answers import GroupAnswer
from oncelog.core.groups.coordinator import Coordinator
from oncelog.core.groups.events import CommitChecked, DeleteRequested, ListRequested
from oncelog.core.groups.limits import INITIAL_DELAY_MS
from oncelog.core.ids import Generation
from oncelog.core.names import NamespaceName
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.kafka.group_expiry import INTERVAL_MS
from oncelog_doors.kafka.ports import GroupQuestion
from tests.cluster.until import until
from tests.doors.kafka.fake_cluster import FakeCluster
from tests.doors.kafka.fake_groups import FakeGroups
from tests.doors.kafka.raw_client import KafkaWorld, kafka_world, raw_client
from tests.doors.kafka.test_group_offsets import committed
from tests.doors.kafka.test_groups import gathered
from tests.doors.raw_connection import DEADLINE_S

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("console-groups-fill-the-disk")]

WEEK_MS = 7 * 24 * 3_600_000
DEFAULT = NamespaceName("public", "default")


class SeenGroups(FakeGroups):
    """commits_before: a client without a group commits just before this step of a deletion, counted from 1. forgets:
    another door is faster at each deletion."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_at: list[NamespaceName] = []
        self.callers: set[Caller] = set()
        self.commits_before = 0
        self.forgets = False

    async def ask(
        self, namespace: NamespaceName, caller: Caller, question: GroupQuestion, *, timeout_ms: int
    ) -> GroupAnswer:
        if isinstance(question, ListRequested):
            self.looked_at.append(namespace)
            self.callers.add(caller)
        if isinstance(question, DeleteRequested):
            if self.forgets:
                self.coordinator = Coordinator({}, self.timers.now_ms())
            self.commits_before -= 1
            if self.commits_before == 0:
                commit = CommitChecked(0, question.group, "", Generation(-1))
                await super().ask(namespace, caller, commit, timeout_ms=timeout_ms)
        return await super().ask(namespace, caller, question, timeout_ms=timeout_ms)


def cluster_of(groups: FakeGroups) -> FakeCluster:
    cluster = FakeCluster()
    cluster.groups = groups
    return cluster


async def console_groups(world: KafkaWorld, *names: str) -> None:
    """Groups that were used once."""
    for name in names:
        async with raw_client(world.port) as client:
            [joined] = await gathered(world, client, group_id=name)
            await client.ask("LeaveGroup", 2, {"group_id": name, "member_id": joined["member_id"]})
        world.cluster.groups.offsets.add(name)


async def look(world: KafkaWorld, groups: SeenGroups) -> None:
    """An hour is over, and the door has looked at all groups."""
    before = len(groups.looked_at)
    timers = world.timers
    timers.advance(INTERVAL_MS)
    await until(lambda: len(groups.looked_at) > before and world.home.expiry.is_armed, DEADLINE_S)


async def test_groups_that_are_due_are_deleted_with_their_offsets() -> None:
    groups = SeenGroups()
    async with kafka_world(cluster_of(groups), offsets_retention_ms=WEEK_MS) as world:
        await console_groups(world, "console-1", "console-2")
        groups.pass_time(WEEK_MS - INITIAL_DELAY_MS - 1)  # since the second group has become empty
        await look(world, groups)
        assert groups.offsets == {"console-1", "console-2"}
        groups.pass_time(1)
        await look(world, groups)
        assert groups.offsets == {"console-2"}
        await console_groups(world, "console-3")
        await look(world, groups)
        assert groups.offsets == {"console-3"}
        # The owners keep what was committed in the minute of the deletion, and what no group has committed.
        assert groups.deleted_with == [60_000] * 2
        assert groups.callers == {Caller("door", superuser=True)}


async def test_group_with_a_member_stays() -> None:
    groups = SeenGroups()
    async with kafka_world(cluster_of(groups), offsets_retention_ms=WEEK_MS) as world:
        await console_groups(world, "console-1")
        groups.pass_time(WEEK_MS)
        async with raw_client(world.port) as client:
            await gathered(world, client, group_id="console-1")
            await look(world, groups)
        assert groups.offsets == {"console-1"}
        assert not any(isinstance(each, DeleteRequested) for each in groups.asked)


@pytest.mark.parametrize("step", [1, 2])
async def test_group_that_is_used_during_its_deletion_stays(step: int) -> None:
    """In the second step its offsets are kept by their owners, which the test does not have."""
    groups = SeenGroups()
    async with kafka_world(cluster_of(groups), offsets_retention_ms=WEEK_MS) as world:
        await console_groups(world, "console-1")
        groups.pass_time(WEEK_MS)
        groups.commits_before = step
        await look(world, groups)
        assert groups.deleted_with == [60_000] * (step - 1)
        async with raw_client(world.port) as client:
            [listed] = (await client.ask("ListGroups", 2, {}))["groups"]
        assert listed == {"group_id": "console-1", "protocol_type": "consumer"}


async def test_two_doors_at_once_delete_a_group_once() -> None:
    groups = SeenGroups()
    cluster = cluster_of(groups)
    async with (
        kafka_world(cluster, offsets_retention_ms=WEEK_MS) as one,
        kafka_world(cluster, offsets_retention_ms=WEEK_MS) as two,
    ):
        await console_groups(one, "console-1")
        groups.pass_time(WEEK_MS)
        for world in (one, two):
            world.timers.advance(INTERVAL_MS)
        await until(
            lambda: len(groups.looked_at) == 2 and one.home.expiry.is_armed and two.home.expiry.is_armed, DEADLINE_S
        )
        assert not groups.offsets


async def test_offsets_of_a_group_that_was_forgotten_meanwhile_stay() -> None:
    """Another door has deleted the group, so what has its name now is of the SDK or of clients without a group."""
    groups = SeenGroups()
    groups.forgets = True
    async with kafka_world(cluster_of(groups), offsets_retention_ms=WEEK_MS) as world:
        await console_groups(world, "console-1")
        groups.pass_time(WEEK_MS)
        await look(world, groups)
        assert isinstance(groups.asked[-1], DeleteRequested)
        assert groups.offsets == {"console-1"}


async def test_namespaces_in_which_clients_have_joined_are_looked_at() -> None:
    groups = SeenGroups()
    other = NamespaceName("public", "other")
    async with kafka_world(cluster_of(groups), offsets_retention_ms=WEEK_MS) as world:
        await look(world, groups)  # no client has joined anywhere
        async with raw_client(world.port) as client:
            await client.ask("ListGroups", 2, {})
            groups.looked_at.clear()
            [connection] = world.home.connections.values()
            connection.namespace = other  # type: ignore[attr-defined]
            await gathered(world, client)
        await look(world, groups)
        assert groups.looked_at == [DEFAULT, other]


async def test_coordinator_that_is_away_is_asked_again_an_hour_later() -> None:
    groups = SeenGroups()
    async with kafka_world(cluster_of(groups), offsets_retention_ms=WEEK_MS) as world:
        await console_groups(world, "console-1")
        groups.pass_time(WEEK_MS)
        groups.error = ServiceUnavailable("the owner is away")
        await look(world, groups)
        assert groups.offsets == {"console-1"}
        groups.error = None
        await look(world, groups)
        assert not groups.offsets


async def test_groups_stay_for_ever_with_retention_0() -> None:
    groups = SeenGroups()
    async with kafka_world(cluster_of(groups), offsets_retention_ms=0) as world:
        await console_groups(world, "console-1")
        groups.pass_time(WEEK_MS)
        world.timers.advance(24 * INTERVAL_MS)
        assert not world.home.expiry.is_armed
        assert groups.looked_at == []


async def test_short_retention_is_kept_in_time() -> None:
    groups = SeenGroups()
    async with kafka_world(cluster_of(groups), offsets_retention_ms=5_000) as world:
        await console_groups(world, "console-1")
        groups.pass_time(5_000)
        world.timers.advance(5_000)
        await until(lambda: not groups.offsets, DEADLINE_S)
        assert groups.deleted_with == [2_500]


async def test_owners_are_asked_for_old_offsets_of_clients_without_a_group() -> None:
    """In the namespaces of their topics, also where no client has joined a group, so that there is no coordinator."""
    groups = SeenGroups()
    cluster = cluster_of(groups)
    cluster.partition_counts["public/other/orders"] = 1
    async with kafka_world(cluster, offsets_retention_ms=WEEK_MS) as world:
        await look(world, groups)
        assert groups.unused_asked == [(DEFAULT, WEEK_MS)]
        async with raw_client(world.port) as client:
            assert await committed(client, {0: 0}, topic="public/other/orders") == [ErrorCode.NONE]
        groups.unused_asked.clear()
        await look(world, groups)
        assert groups.unused_asked == [(DEFAULT, WEEK_MS), (NamespaceName("public", "other"), WEEK_MS)]
