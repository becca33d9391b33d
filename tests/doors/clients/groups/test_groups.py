"""Client libraries of Kafka share the partitions of a topic in groups, and go on where the group has committed."""

import asyncio
import subprocess
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, ConsumerGroupState, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.cluster.cluster_fixture import Cluster
from tests.doors.clients.door_clusters import cluster_with_door, servers
from tests.doors.clients.groups.group_member import LIBRARIES
from tests.doors.clients.groups.grouped_topics import PARTITIONS, members, new_topic
from tests.doors.clients.groups.members import Members, check_each_once, check_starts
from tests.doors.clients.groups.published import publish
from tests.doors.clients.groups.rounds import share_partitions

__all__ = ["members", "servers"]

pytestmark = pytest.mark.asyncio


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_with_door(tmp_path_factory.mktemp("groups"), "kafka", storage_nodes=1) as own:
        yield own


@pytest.mark.parametrize("library", LIBRARIES)
async def test_members_share_partitions_and_go_on_at_commits(
    cluster: Cluster, servers: str, members: Members, library: str
) -> None:
    await share_partitions(cluster, servers, members, library, f"shared-by-{library}")


async def test_members_of_different_libraries_share_a_group(cluster: Cluster, servers: str, members: Members) -> None:
    topic = new_topic(cluster, "mixed")
    round_robin = {"confluent-kafka": ["partition.assignment.strategy=roundrobin"]}
    started = [members.start(library, topic, topic, *round_robin.get(library, ())) for library in LIBRARIES]

    def shared() -> bool:
        found = [each.assigned or [] for each in started]
        return all(found) and sorted(chain.from_iterable(found)) == list(range(PARTITIONS))

    await started[0].run.reaches(shared, "partitions for each of them")
    published = await publish(servers, topic, range(PARTITIONS), 0, 100)
    await started[0].run.reaches(lambda: sum(len(each.got) for each in started) == len(published), "all messages")
    check_each_once(started, published)
    for member in started:
        await member.leaves()
    check_starts(started)


async def test_kcat_goes_on_where_its_group_has_committed(cluster: Cluster, servers: str) -> None:
    topic = new_topic(cluster, "by-kcat")

    def read() -> list[str]:
        command = [
            "kcat", "-b", servers, "-G", "kcat", "-X", "auto.offset.reset=earliest", "-X", "enable.partition.eof=true",
            "-e", "-f", "%p %o %s\\n", topic,
        ]  # fmt: skip
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return sorted(line for line in ran.stdout.splitlines() if not line.startswith("%"))

    first = await publish(servers, topic, range(PARTITIONS), 0, 10)
    assert await asyncio.to_thread(read) == sorted(f"{each.partition} {each.offset} {each.value}" for each in first)
    second = await publish(servers, topic, range(PARTITIONS), 10, 20)
    assert await asyncio.to_thread(read) == sorted(f"{each.partition} {each.offset} {each.value}" for each in second)


async def test_offset_of_a_group_is_the_position_of_its_subscription(
    cluster: Cluster, servers: str, members: Members
) -> None:
    """For operators, and for librdkafka's `committed`."""
    topic = new_topic(cluster, "as-subscription")
    await publish(servers, topic, range(PARTITIONS), 0, 30)
    member = members.start("confluent-kafka", "billing", topic)
    await member.has_committed(dict.fromkeys(range(PARTITIONS), 30))
    await member.leaves()
    await publish(servers, topic, [0], 30, 35)
    stats = await cluster.stats(f"public/default/{topic}-partition-0")
    assert stats["subscriptions"]["billing"]["msg_backlog"] == 5
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "billing"})
    try:
        found = await asyncio.to_thread(consumer.committed, [TopicPartition(topic, each) for each in range(4)], 60)
        assert [each.offset for each in found] == [30] * 4
    finally:
        consumer.close()


async def test_groups_are_described_and_deleted_by_librdkafka(cluster: Cluster, servers: str, members: Members) -> None:
    """As tools do it. Offsets of a deleted group are gone."""
    topic = new_topic(cluster, "administered")
    await publish(servers, topic, range(PARTITIONS), 0, 10)
    member = members.start("confluent-kafka", topic, topic)
    await member.has_committed(dict.fromkeys(range(PARTITIONS), 10))
    admin = AdminClient({"bootstrap.servers": servers})

    def deleted() -> str | None:
        [result] = admin.delete_consumer_groups([topic], request_timeout=60).values()
        try:
            result.result()
        except KafkaException as error:
            return str(error.args[0].name())
        return None

    def described() -> Any:
        [found] = admin.describe_consumer_groups([topic], request_timeout=60).values()
        return found.result()

    found = await asyncio.to_thread(described)
    assert found.state is ConsumerGroupState.STABLE
    assert sorted(each.partition for each in found.members[0].assignment.topic_partitions) == list(range(PARTITIONS))
    listed = await asyncio.to_thread(lambda: admin.list_consumer_groups(request_timeout=60).result())
    assert topic in [each.group_id for each in listed.valid]
    assert await asyncio.to_thread(deleted) == "NON_EMPTY_GROUP"
    await member.leaves()
    assert (await asyncio.to_thread(described)).state is ConsumerGroupState.EMPTY
    assert await asyncio.to_thread(deleted) is None
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic})
    try:
        offsets = await asyncio.to_thread(consumer.committed, [TopicPartition(topic, 0)], 60)
        assert [each.offset for each in offsets] == [OFFSET_INVALID]
    finally:
        consumer.close()
