"""Administrators by client libraries of Kafka at a door: the life of a topic, and what is refused."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from oncelog_doors.core.kafka.error_codes import ErrorCode
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.until import until_sync
from tests.doors.clients.door_clusters import servers, small_kafka_cluster
from tests.doors.clients.kafka_administrators import ADMINISTRATORS, Administrator
from tests.doors.clients.kafka_programs import NO_OPTIONS, PUBLISHERS, READERS, Message
from tests.doors.kafka.raw_client import raw_client

__all__ = ["servers", "small_kafka_cluster"]

MESSAGES = [Message(b"value %d" % number) for number in range(50)]
#: What is asked of a topic, as REST has it.
TOPIC = "/admin/v2/persistent/public/default"


@pytest.fixture(params=ADMINISTRATORS)
def administrator(servers: str, request: pytest.FixtureRequest) -> Iterator[Administrator]:
    own = ADMINISTRATORS[request.param](servers)
    yield own
    own.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "of-" + "".join(each if each.isalnum() else "-" for each in request.node.name)


def test_the_life_of_a_topic(administrator: Administrator, cluster: Cluster, servers: str, topic: str) -> None:
    """Each step is what the next one builds on; REST sees the same."""
    assert administrator.create(topic, 2, {"retention.ms": "3600000"}) == 0
    assert administrator.create(topic, 2) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert administrator.partitions(topic) == 2
    assert administrator.configs(topic)["retention.ms"] == "3600000"
    assert administrator.set_config(topic, "retention.bytes", "1048576") == 0
    assert administrator.configs(topic)["retention.bytes"] == "1048576"
    assert administrator.grow(topic, 4) == 0
    assert administrator.partitions(topic) == 4
    with httpx.Client(base_url=cluster.admin_url, trust_env=False) as rest:
        assert rest.get(f"{TOPIC}/{topic}/partitions").json() == {"partitions": 4}
        assert rest.get(f"{TOPIC}/{topic}/retention").json()["retentionSizeInMB"] == 1
    assert administrator.delete(topic) == 0
    assert administrator.delete(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert administrator.create(topic, 1) == 0
    assert administrator.delete(topic) == 0


def test_a_topic_that_is_created_by_its_first_use_can_grow(
    administrator: Administrator, cluster: Cluster, servers: str, topic: str
) -> None:
    assert PUBLISHERS["confluent-kafka"](servers, topic, MESSAGES, NO_OPTIONS) == list(range(len(MESSAGES)))
    with httpx.Client(base_url=cluster.admin_url, trust_env=False) as rest:
        assert rest.get(f"{TOPIC}/{topic}/partitions").json() == {"partitions": 1}
    assert administrator.grow(topic, 2) == 0
    assert administrator.partitions(topic) == 2
    assert administrator.delete(topic) == 0


@pytest.mark.hazard("trimmed-too-far")
def test_records_are_deleted_up_to_whole_ledgers(administrator: Administrator, servers: str, topic: str) -> None:
    """The answer is the first offset that is left. In the middle of a ledger nothing goes; at the end all goes."""
    assert administrator.create(topic, 1) == 0
    PUBLISHERS["kafka-python"](servers, topic, MESSAGES, NO_OPTIONS)
    assert administrator.delete_records(topic, 20) == 0
    assert len(READERS["aiokafka"](servers, topic, len(MESSAGES))) == len(MESSAGES)
    assert administrator.delete_records(topic, -1) == len(MESSAGES)
    offsets = PUBLISHERS["kafka-python"](servers, topic, MESSAGES, NO_OPTIONS)
    assert offsets == list(range(len(MESSAGES), 2 * len(MESSAGES)))
    assert administrator.delete_records(topic, len(MESSAGES) + 1) == len(MESSAGES)


@pytest.mark.hazard("compact-refused")
def test_a_topic_of_kafka_connect(administrator: Administrator, topic: str) -> None:
    assert administrator.create(topic, 1, {"cleanup.policy": "compact"}) == 0
    assert administrator.configs(topic)["cleanup.policy"] == "compact"
    assert administrator.set_config(topic, "retention.ms", "60000") in {0, ErrorCode.INVALID_CONFIG}
    found = administrator.configs(topic)
    assert (found["cleanup.policy"], found["retention.ms"]) in {("compact", "-1"), ("delete", "60000")}
    assert administrator.delete(topic) == 0


@pytest.mark.hazard("built-in-config-refused")
def test_topics_with_configurations_that_programs_have_built_in(administrator: Administrator, topic: str) -> None:
    """Of Kafka Streams and of Quix Streams, for what they repartition by and for their state."""
    repartition = {"cleanup.policy": "delete", "segment.bytes": "52428800", "retention.ms": "-1"}
    state = {"cleanup.policy": "compact", "retention.bytes": "-1", "retention.ms": "604800000"}
    for configs in ({**repartition, "message.timestamp.type": "CreateTime"}, state):
        assert administrator.create(topic, 1, configs) == 0
        found = administrator.configs(topic)
        assert (found["cleanup.policy"], found["retention.ms"]) == (configs["cleanup.policy"], "-1")
        assert administrator.delete(topic) == 0


def test_a_partition_that_was_never_used_is_empty_and_can_be_waited_for(servers: str) -> None:
    """A console asks for the offsets of all partitions. Java's client repeats that while one of them fails."""
    administrator = ADMINISTRATORS["confluent-kafka"](servers)
    assert administrator.create("never-used", 3) == 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "never-used", "enable.auto.commit": False})
    try:
        for partition in range(3):
            assert consumer.get_watermark_offsets(TopicPartition("never-used", partition), timeout=60) == (0, 0)
        assert [administrator.delete_records("never-used", offset) for offset in (-1, 0)] == [0, 0]
        with pytest.raises(KafkaException) as refused:
            administrator.delete_records("never-used", 1)
        assert refused.value.args[0].code() == ErrorCode.OFFSET_OUT_OF_RANGE
        [later] = consumer.offsets_for_times([TopicPartition("never-used", 2, 1_000)], timeout=60)
        assert later.offset == -1
        assert asyncio.run(fetched(servers, "never-used", 1)) == 0
        consumer.assign([TopicPartition("never-used", 1, 0)])
        producer = Producer({"bootstrap.servers": servers})
        producer.produce("never-used", b"first", partition=1)
        assert producer.flush(60) == 0
        until_sync(lambda: value_of(consumer.poll(0.5)) == b"first", 60)
    finally:
        consumer.close()
    assert administrator.delete("never-used") == 0


async def fetched(servers: str, topic: str, partition: int) -> int:
    """The error code of a Fetch."""
    part = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1_000}
    body = {"max_wait_ms": 100, "min_bytes": 1, "topics": [{"topic": topic, "partitions": [part]}]}
    async with raw_client(int(servers.rpartition(":")[2])) as client:
        answer = await client.ask("Fetch", 11, body)
    return int(answer["responses"][0]["partitions"][0]["error_code"]) if answer["responses"] else 0


def value_of(message: Any) -> bytes | None:
    return None if message is None or message.error() is not None else message.value()


def test_what_cannot_be_done_is_refused(administrator: Administrator, topic: str) -> None:
    assert administrator.create("bad name", 1) == ErrorCode.INVALID_TOPIC
    assert administrator.create(topic, 100_000) == ErrorCode.INVALID_PARTITIONS
    assert administrator.create(topic, 1, {"no.such": "1"}) == ErrorCode.INVALID_CONFIG
    assert administrator.create(topic, 1, {"retention.ms": "soon"}) == ErrorCode.INVALID_CONFIG
    assert administrator.create(topic, 3) == 0
    assert administrator.grow(topic, 3) == ErrorCode.INVALID_PARTITIONS
    assert administrator.grow(topic, 2) == ErrorCode.INVALID_PARTITIONS
    assert administrator.set_config(topic, "min.insync.replicas", "2") == ErrorCode.INVALID_CONFIG
    assert administrator.partitions(topic) == 3
    assert administrator.delete(topic) == 0
