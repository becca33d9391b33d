"""Go's clients of Kafka at a door: they publish, read, share partitions in groups, and administer."""

import asyncio
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

import oncelog
from tests.cluster.cluster_fixture import Cluster
from tests.doors.clients.door_clusters import servers, small_kafka_cluster
from tests.doors.clients.groups.grouped_topics import PARTITIONS, new_topic
from tests.doors.clients.groups.members import Members, check_each_once, check_starts
from tests.doors.clients.groups.published import publish
from tests.doors.clients.groups.rounds import share_partitions
from tests.doors.clients.kafka_go.go_kafka import IDEMPOTENT, LIBRARIES, GoKafka, WithGo, build
from tests.doors.clients.kafka_programs import NO_OPTIONS, PUBLISHERS, READERS, Message, Options, Read
from tests.doors.clients.test_kafka_administrators import (
    test_a_topic_of_kafka_connect,
    test_records_are_deleted_up_to_whole_ledgers,
    test_the_life_of_a_topic,
    test_what_cannot_be_done_is_refused,
)

__all__ = [
    "servers",
    "small_kafka_cluster",
    "test_a_topic_of_kafka_connect",
    "test_records_are_deleted_up_to_whole_ledgers",
    "test_the_life_of_a_topic",
    "test_what_cannot_be_done_is_refused",
]

MESSAGES = [
    Message(b"value %d" % number, b"key %d" % (number % 7), (("h", b"\xff%d" % number), ("h", b"again")))
    for number in range(200)
]
TOMBSTONE = Message(None, b"key 1")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: For members of different libraries: they agree about it.
RANGE = {"franz-go": ("balancer=range",), "confluent-kafka": ("partition.assignment.strategy=range",)}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(tmp_path_factory.mktemp("go"))


@pytest.fixture(params=LIBRARIES)
def go(program: str, request: pytest.FixtureRequest, tmp_path: Path) -> GoKafka:
    return GoKafka(program, request.param, tmp_path)


@pytest.fixture(params=IDEMPOTENT)
def administrator(program: str, servers: str, request: pytest.FixtureRequest, tmp_path: Path) -> WithGo:
    return WithGo(GoKafka(program, request.param, tmp_path), servers)


@pytest.fixture
def members(program: str, tmp_path: Path, servers: str) -> Iterator[Members]:
    programs = {library: [program, library, "member"] for library in LIBRARIES}
    with Members.of(tmp_path, servers, programs) as own:
        yield own


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """One of this test."""
    return "of-" + "".join(each if each.isalnum() else "-" for each in request.node.name)


# --- records ----------------------------------------------------------------------------------------------------------


def test_each_library_reads_what_one_has_sent(servers: str, go: GoKafka, topic: str) -> None:
    """With keys, headers that are no text, and null values, each once and in order."""
    sent, publishers = [*MESSAGES, TOMBSTONE], {**PUBLISHERS, go.library: go.publish}
    for library, publish_with in publishers.items():
        assert publish_with(servers, f"{topic}-{library}", sent, NO_OPTIONS) == list(range(len(sent)))
    expected = [Read(offset, each) for offset, each in enumerate(sent)]
    topics = [f"{topic}-{library}" for library in publishers]
    assert go.read_from(servers, topics, len(sent)) == dict.fromkeys(topics, expected)
    for read in READERS.values():
        assert read(servers, topics[-1], len(sent)) == expected


def test_batches_with_every_codec_with_and_without_idempotence(servers: str, go: GoKafka, topic: str) -> None:
    """With `acks=0` a client learns no offsets."""
    every: dict[str, Options] = {
        **{f"{topic}-{codec}": {"compression.type": codec} for codec in CODECS},
        **{f"{topic}-acks-{acks}": {"enable.idempotence": "false", "acks": acks} for acks in ("all", "1", "0")},
    }
    count = len(MESSAGES)
    offsets = go.publish_to(servers, MESSAGES, every)
    del offsets[f"{topic}-acks-0"]
    assert all(each == list(range(count)) for each in offsets.values())
    expected = [Read(offset, each) for offset, each in enumerate(MESSAGES)]
    assert go.read_from(servers, list(every), count) == dict.fromkeys(every, expected)


def test_client_finds_ends_and_times(servers: str, go: GoKafka, topic: str) -> None:
    """Nothing is newer than tomorrow: franz-go says the end then. A name with a namespace is one topic, but for
    kafka-go: its writer knows only topics that are listed, and lists have names without one."""
    full = topic if go.library == "kafka-go" else f"public/default/{topic}"
    go.publish(servers, full, MESSAGES, NO_OPTIONS)
    count, late = len(MESSAGES), 4_000_000_000_000
    none = count if go.library == "franz-go" else -1
    assert go.offsets(servers, full, 1_000, late) == [
        "partitions 1",
        "first 0",
        f"end {count}",
        "at 1000 0",
        f"at {late} {none}",
    ]


@pytest.mark.asyncio
async def test_go_reads_what_the_sdk_has_sent(cluster: Cluster, servers: str, go: GoKafka, topic: str) -> None:
    """Its clients check the checksums of the batches that the door makes."""
    async with oncelog.AsyncClient(cluster.url) as client:
        producer = await client.create_producer(topic)
        for number in range(3):
            await producer.send(b"%d" % number, key=b"k", properties={"type": "one"})
        await producer.send_many([b"%d" % number for number in range(3, 10)])
    found = await asyncio.to_thread(go.read, servers, topic, 10)
    assert [each.message.value for each in found] == [b"%d" % number for number in range(10)]
    assert found[0] == Read(0, Message(b"0", b"k", (("type", b"one"),)))


@pytest.mark.parametrize("library", IDEMPOTENT)
def test_a_program_with_transactions_is_told_at_once(servers: str, program: str, library: str, tmp_path: Path) -> None:
    programs = GoKafka(program, library, tmp_path)
    with pytest.raises(AssertionError, match=r"(?i)transactional.?id authorization|transactional id.*authoriz"):
        programs.publish(servers, "transactions", MESSAGES, {"transactional.id": "one", "metadata.retries": 3})


# --- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize("library", LIBRARIES)
async def test_members_share_partitions_and_go_on_at_commits(
    cluster: Cluster, servers: str, members: Members, library: str
) -> None:
    await share_partitions(cluster, servers, members, library, f"shared-by-{library}")


@pytest.mark.asyncio
async def test_members_of_different_libraries_share_a_group(cluster: Cluster, servers: str, members: Members) -> None:
    topic = new_topic(cluster, "mixed")
    libraries = (*IDEMPOTENT, "confluent-kafka")
    started = [members.start(library, topic, topic, *RANGE.get(library, ())) for library in libraries]

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


@pytest.mark.asyncio
async def test_groups_are_described_and_deleted(
    cluster: Cluster, servers: str, members: Members, go: GoKafka, topic: str
) -> None:
    new_topic(cluster, topic)
    await publish(servers, topic, range(PARTITIONS), 0, 10)
    member = members.start(go.library, topic, topic)
    await member.has_committed(dict.fromkeys(range(PARTITIONS), 10))
    admin = WithGo(go, servers)
    found = await asyncio.to_thread(admin.group, topic, topic)
    offsets = {str(partition): 10 for partition in range(PARTITIONS)}
    assert found == {"listed": True, "state": "Stable", "members": 1, "offsets": offsets}
    assert await asyncio.to_thread(admin.delete_group, topic) == 68  # NON_EMPTY_GROUP
    await member.leaves()
    found = await asyncio.to_thread(admin.group, topic, topic)
    assert found == {"listed": True, "state": "Empty", "members": 0, "offsets": offsets}
    assert await asyncio.to_thread(admin.delete_group, topic) == 0
    found = await asyncio.to_thread(admin.group, topic, topic)
    assert found == {"listed": False, "state": "Dead", "members": 0, "offsets": {}}


# --- administration ---------------------------------------------------------------------------------------------------


def test_kafka_go_administers(servers: str, program: str, topic: str, tmp_path: Path) -> None:
    """It deletes no records."""
    admin = WithGo(GoKafka(program, "kafka-go", tmp_path), servers)
    assert admin.create(topic, 2, {"retention.ms": "3600000"}) == 0
    assert admin.create(topic, 2) == 36  # TOPIC_ALREADY_EXISTS
    assert admin.set_config(topic, "retention.bytes", "1048576") == 0
    configs = admin.configs(topic)
    assert (configs["retention.ms"], configs["retention.bytes"]) == ("3600000", "1048576")
    assert admin.grow(topic, 4) == 0
    assert admin.partitions(topic) == 4
    assert admin.delete(topic) == 0
    assert admin.delete(topic) == 3  # UNKNOWN_TOPIC_OR_PARTITION
