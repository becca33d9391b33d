"""Groups of Kafka's clients through kills and stops of what is behind them: no confirmed commit is lost or undone."""

import asyncio
import signal

import pytest
from confluent_kafka import Consumer, TopicPartition

from oncelog.core.names import KAFKA_GROUPS
from tests.cluster.cluster_fixture import Cluster
from tests.doors.clients.door_clusters import lasting_kafka_cluster, servers
from tests.doors.clients.groups.group_member import LIBRARIES
from tests.doors.clients.groups.grouped_topics import PARTITIONS, members, new_topic
from tests.doors.clients.groups.members import Got, Member, Members, check_each_once, check_starts
from tests.doors.clients.groups.published import publish

__all__ = ["lasting_kafka_cluster", "members", "servers"]

pytestmark = pytest.mark.asyncio

#: Of each partition, in each round.
ROUND = 200
#: Longer than a takeover: a member whose requests wait for one stays.
PATIENT = "session=45000"


class Rounds:
    """Messages for two members, published in rounds."""

    def __init__(self, servers: str, topic: str, members: list[Member]) -> None:
        self._servers, self._topic, self.members = servers, topic, members
        self.published: list[Got] = []
        self._end = 0

    async def publish(self) -> None:
        first, self._end = self._end, self._end + ROUND
        self.published += await publish(self._servers, self._topic, range(PARTITIONS), first, self._end)

    def under_way(self) -> bool:
        """Both members have confirmed commits of a part of the last round."""
        middle = self._end - ROUND * 3 // 4
        return all(any(offset >= middle for offset in each.committed.values()) for each in self.members)

    async def done(self) -> None:
        """All that was published has confirmed commits."""

        def all_of_it() -> bool:
            found: dict[int, int] = {}
            for each in self.members:
                found |= {part: max(offset, found.get(part, 0)) for part, offset in each.committed.items()}
            return found == dict.fromkeys(range(PARTITIONS), self._end)

        await self.members[0].run.reaches(all_of_it, f"commits up to {self._end}")

    def check(self) -> None:
        check_starts(self.members)
        check_each_once(self.members, self.published)
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": self._topic})
        try:
            found = consumer.committed([TopicPartition(self._topic, each) for each in range(PARTITIONS)], 60)
            assert [each.offset for each in found] == [self._end] * PARTITIONS
        finally:
            consumer.close()


async def two_members(members: Members, servers: str, topic: str, library: str, *options: str) -> Rounds:
    one = members.start(library, topic, topic, PATIENT, *options)
    await one.has(0, 1, 2, 3)
    two = members.start(library, topic, topic, PATIENT, *options)
    await asyncio.gather(one.has_some(2), two.has_some(2))
    return Rounds(servers, topic, [one, two])


@pytest.mark.parametrize("library", LIBRARIES)
async def test_commits_survive_kills_of_owners_and_of_the_door(
    cluster: Cluster, servers: str, members: Members, library: str
) -> None:
    """No member dies, so each message is processed once."""
    topic = new_topic(cluster, f"killed-{library}")
    rounds = await two_members(members, servers, topic, library)
    for what in (KAFKA_GROUPS, f"{topic}-partition-0", "door-1", KAFKA_GROUPS):
        await rounds.publish()
        name = what if what == "door-1" else await cluster.owner_of(f"public/default/{what}")
        await cluster.kill(name, once=rounds.under_way)
        await cluster.healed()
        await rounds.done()
    await asyncio.to_thread(rounds.check)


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
