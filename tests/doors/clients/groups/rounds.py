"""Groups with members that come, leave and are killed, and with members while what is behind them is killed."""

import asyncio

from confluent_kafka import Consumer, TopicPartition

from oncelog.core.names import KAFKA_GROUPS
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.kills import any_time
from tests.doors.clients.groups.grouped_topics import PARTITIONS, new_topic
from tests.doors.clients.groups.members import Got, Member, Members, check_each_once, check_starts
from tests.doors.clients.groups.published import publish

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


async def commit_through_kills(
    cluster: Cluster, servers: str, members: Members, library: str, topic: str, *options: str
) -> None:
    """Kill owners and the door. No member dies, so each message is processed once."""
    new_topic(cluster, topic)
    rounds = await two_members(members, servers, topic, library, *options)
    for what in (KAFKA_GROUPS, f"{topic}-partition-0", "door-1", KAFKA_GROUPS):
        await rounds.publish()
        name = what if what == "door-1" else await cluster.owner_of(f"public/default/{what}")
        await cluster.kill(name, once=rounds.under_way)
        await cluster.healed()
        await rounds.done()
    await asyncio.to_thread(rounds.check)


async def share_partitions(
    cluster: Cluster, servers: str, members: Members, library: str, topic: str, *options: str
) -> None:
    """A member joins, one leaves, one is killed, and the group starts again."""
    new_topic(cluster, topic)
    published = await publish(servers, topic, range(PARTITIONS), 0, 50)
    one = members.start(library, topic, topic, *options)
    await one.has(0, 1, 2, 3)
    two = members.start(library, topic, topic, *options)
    await asyncio.gather(one.has_some(2), two.has_some(2))
    published += await publish(servers, topic, range(PARTITIONS), 50, 100)
    await one.has_committed(dict.fromkeys(one.assigned or (), 100))
    await two.has_committed(dict.fromkeys(two.assigned or (), 100))
    check_each_once([one, two], published)
    await two.leaves()
    await one.has(0, 1, 2, 3)
    published += await publish(servers, topic, range(PARTITIONS), 100, 150)
    await one.has_committed(dict.fromkeys(range(PARTITIONS), 150))
    check_each_once([one, two], published)
    await one.run.kill(once=any_time)
    three = members.start(library, topic, topic, *options)
    await three.has(0, 1, 2, 3)
    published += await publish(servers, topic, range(PARTITIONS), 150, 160)
    await three.has_committed(dict.fromkeys(range(PARTITIONS), 160))
    check_each_once([one, two, three], published)
    check_starts([one, two, three])
