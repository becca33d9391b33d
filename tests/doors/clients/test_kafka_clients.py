"""Client libraries of Kafka at a door: each reads what another one has sent, and so does the SDK."""

import asyncio
from typing import Any

import pytest

import oncelog
from tests.cluster.cluster_fixture import Cluster
from tests.doors.clients.door_clusters import servers, small_kafka_cluster
from tests.doors.clients.kafka_programs import DEADLINE_S, NO_OPTIONS, PUBLISHERS, READERS, Message, Options, Read

__all__ = ["servers", "small_kafka_cluster"]

MESSAGES = [
    Message(b"value %d" % number, b"key %d" % (number % 7), (("h", b"\xff%d" % number), ("h", b"again")))
    for number in range(200)
]
TOMBSTONE = Message(None, b"key 1")


@pytest.mark.parametrize("library", PUBLISHERS)
def test_each_library_reads_what_one_has_sent(servers: str, library: str) -> None:
    """In its order, each once, with keys, headers that are no text, and null values; offsets begin with 0."""
    topic, sent = f"of-{library}", [*MESSAGES, TOMBSTONE]
    assert PUBLISHERS[library](servers, topic, sent, NO_OPTIONS) == list(range(len(sent)))
    for read in READERS.values():
        assert read(servers, topic, len(sent)) == [Read(offset, each) for offset, each in enumerate(sent)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotence", [True, False])
def test_batches_of_librdkafka_with_every_codec(servers: str, codec: str, idempotence: bool) -> None:
    """The client's compression stays as it is."""
    options: Options = {"compression.type": codec, "enable.idempotence": idempotence}
    topic = f"codec-{codec}-{idempotence}"
    assert PUBLISHERS["confluent-kafka"](servers, topic, MESSAGES, options) == list(range(len(MESSAGES)))
    found = READERS["confluent-kafka"](servers, topic, len(MESSAGES))
    assert found == [Read(offset, each) for offset, each in enumerate(MESSAGES)]


@pytest.mark.asyncio
async def test_the_sdk_and_clients_of_kafka_read_what_the_other_has_sent(cluster: Cluster, servers: str) -> None:
    await asyncio.to_thread(PUBLISHERS["aiokafka"], servers, "both", MESSAGES, NO_OPTIONS)
    async with oncelog.AsyncClient(cluster.url) as client:
        producer = await client.create_producer("both")
        await producer.send(b"of the SDK", key=b"k", properties={"type": "last"})
        async with await client.create_reader("both", start=oncelog.EARLIEST) as reader:
            read = [await reader.read_next() for _ in range(len(MESSAGES) + 1)]
    assert [each.value for each in read[:-1]] == [each.value for each in MESSAGES]
    assert read[0].headers == MESSAGES[0].headers
    last = Read(len(MESSAGES), Message(b"of the SDK", b"k", (("type", b"last"),)))
    for library in READERS.values():
        assert (await asyncio.to_thread(library, servers, "both", len(MESSAGES) + 1))[-1] == last


def test_a_consumer_by_librdkafka_finds_offsets_by_time_and_ends(servers: str) -> None:
    """`offsets_for_times` and the watermarks; nothing is newer than tomorrow."""
    from confluent_kafka import Consumer, TopicPartition

    PUBLISHERS["confluent-kafka"](servers, "times", MESSAGES, NO_OPTIONS)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False})
    try:
        assert consumer.get_watermark_offsets(TopicPartition("times", 0), timeout=60) == (0, len(MESSAGES))
        [first] = consumer.offsets_for_times([TopicPartition("times", 0, 1_000)], timeout=60)
        [later] = consumer.offsets_for_times([TopicPartition("times", 0, 4_000_000_000_000)], timeout=60)
        assert (first.offset, later.offset) == (0, -1)
        assert "times" in consumer.list_topics(timeout=60).topics
    finally:
        consumer.close()


def _error_of(message: Any) -> Any:
    assert message is not None, "the end of the partition does not come"
    return message.error()


def test_a_partition_is_there_before_its_first_use(cluster: Cluster, servers: str) -> None:
    """It is empty. With an error instead, no consumer of the topic begins. One that the topic does not have stays
    unknown."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    done = cluster.run("admin", "topics", "create", "unused", "--partitions", "4")
    assert done.returncode == 0, done.stderr
    options = {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**options, "enable.partition.eof": True})
    try:
        assert consumer.get_watermark_offsets(TopicPartition("unused", 1), timeout=60) == (0, 0)
        [none] = consumer.offsets_for_times([TopicPartition("unused", 2, 1_000)], timeout=60)
        assert (none.offset, none.error) == (-1, None)
        consumer.assign([TopicPartition("unused", 3, 0)])
        while (error := _error_of(consumer.poll(DEADLINE_S))).code() != KafkaError._PARTITION_EOF:
            assert "consumer groups are not offered" in str(error)
        with pytest.raises(KafkaException, match="Unknown"):
            consumer.get_watermark_offsets(TopicPartition("unused", 4), timeout=60)
    finally:
        consumer.close()
