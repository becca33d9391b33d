"""Groups of Kafka's clients through kills and stops of what is behind them: no confirmed commit is lost or undone."""

import asyncio
import signal

import pytest

from oncelog.core.names import KAFKA_GROUPS
from tests.cluster.cluster_fixture import Cluster
from tests.doors.clients.door_clusters import lasting_kafka_cluster, servers
from tests.doors.clients.groups.group_member import LIBRARIES
from tests.doors.clients.groups.grouped_topics import PARTITIONS, members, new_topic
from tests.doors.clients.groups.members import Members, check_starts
from tests.doors.clients.groups.published import publish
from tests.doors.clients.groups.rounds import commit_through_kills, two_members

__all__ = ["lasting_kafka_cluster", "members", "servers"]

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("library", LIBRARIES)
async def test_commits_survive_kills_of_owners_and_of_the_door(
    cluster: Cluster, servers: str, members: Members, library: str
) -> None:
    await commit_through_kills(cluster, servers, members, library, f"killed-{library}")


async def test_sticky_members_keep_their_partitions_when_the_coordinator_is_lost(
    cluster: Cluster, servers: str, members: Members
) -> None:
    topic = new_topic(cluster, "sticky")
    sticky = "partition.assignment.strategy=cooperative-sticky"
    rounds = await two_members(members, servers, topic, "confluent-kafka", sticky)
    before = [each.assigned for each in rounds.members]
    generations = [len([said for said in each.said if said.kind == "assigned"]) for each in rounds.members]
    await rounds.publish()
    await cluster.kill(await cluster.owner_of(f"public/default/{KAFKA_GROUPS}"), once=rounds.under_way)
    await rounds.done()
    for member, seen in zip(rounds.members, generations, strict=True):
        again = lambda member=member, seen=seen: sum(each.kind == "assigned" for each in member.said) > seen  # noqa: E731
        await member.run.reaches(again, "its next assignment")
    assert [each.assigned for each in rounds.members] == before
    assert not any(said.kind == "revoked" for each in rounds.members[1:] for said in each.said)
    await asyncio.to_thread(rounds.check)


@pytest.mark.hazard("two-sets-of-members")
async def test_coordinator_that_was_stopped_and_goes_on_disturbs_nobody(
    cluster: Cluster, servers: str, members: Members
) -> None:
    topic = new_topic(cluster, "stopped")
    rounds = await two_members(members, servers, topic, "confluent-kafka")
    owner = await cluster.owner_of(f"public/default/{KAFKA_GROUPS}")
    await rounds.publish()
    with cluster.stopped(owner):
        await cluster.expire(owner)
        await rounds.publish()
        await rounds.done()
    await rounds.publish()
    await rounds.done()
    shared = [part for each in rounds.members for part in each.assigned or ()]
    assert sorted(shared) == list(range(PARTITIONS))
    await asyncio.to_thread(rounds.check)


@pytest.mark.hazard("former-member-commits")
async def test_member_that_was_stopped_undoes_no_commit(cluster: Cluster, servers: str, members: Members) -> None:
    """It holds messages that it has not committed, and wakes when another member has its partitions."""
    topic = new_topic(cluster, "zombie")
    zombie = members.start("confluent-kafka", topic, topic, "hold=1")
    await publish(servers, topic, range(PARTITIONS), 0, 20)
    await zombie.run.says('"holds"')
    zombie.run.signal(signal.SIGSTOP)
    other = members.start("confluent-kafka", topic, topic)
    await other.has(0, 1, 2, 3)
    await publish(servers, topic, range(PARTITIONS), 20, 40)
    await other.has_committed(dict.fromkeys(range(PARTITIONS), 40))
    zombie.run.signal(signal.SIGCONT)
    await zombie.run.says('"failed"')
    await asyncio.gather(zombie.has_some(2), other.has_some(2))
    published = await publish(servers, topic, range(PARTITIONS), 40, 60)
    for member in (zombie, other):
        await member.has_committed(dict.fromkeys(member.assigned or (), 60))
    check_starts([zombie, other])
    assert sum(each.offset >= 40 for member in (zombie, other) for each in member.got) == len(published)
