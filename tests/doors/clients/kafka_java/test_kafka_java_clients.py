"""Java's clients of Kafka at a door: the newest one, one of the former major version, and the tools of Kafka."""

import asyncio
import json
from collections.abc import Iterator

import pytest

import oncelog
from tests.cluster.cluster_fixture import Cluster
from tests.doors.clients.door_clusters import cluster_with_door, servers
from tests.doors.clients.kafka_java.java_kafka import VERSIONS, JavaKafka
from tests.doors.clients.kafka_programs import NO_OPTIONS, PUBLISHERS, READERS, Message, Options, Read

__all__ = ["servers"]

MESSAGES = [
    Message(b"value %d" % number, b"key %d" % (number % 7), (("h", b"\xff%d" % number), ("h", b"again")))
    for number in range(200)
]
TOMBSTONE = Message(None, b"key 1")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: Of a record batch, so that a client has to split some.
BATCH_BYTES_MAX = 100_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    shape = {"storage_nodes": 1, "owners": 1, "message_bytes_max": BATCH_BYTES_MAX}
    with cluster_with_door(tmp_path_factory.mktemp("kafka"), "kafka", **shape) as own:
        yield own


@pytest.fixture(scope="module", params=VERSIONS)
def java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> JavaKafka:
    return JavaKafka(request.param, tmp_path_factory.mktemp("classes"), tmp_path_factory.mktemp("given"))


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> JavaKafka:
    return JavaKafka("4.4", tmp_path_factory.mktemp("classes"), tmp_path_factory.mktemp("given"))


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """One of this test."""
    return "".join(each if each.isalnum() else "-" for each in request.node.name)


def test_each_library_reads_what_one_has_sent(servers: str, java: JavaKafka, topic: str) -> None:
    """With keys, headers that are no text, and null values, each once and in order."""
    sent, publishers = [*MESSAGES, TOMBSTONE], {**PUBLISHERS, "java": java.publish}
    for library, publish in publishers.items():
        assert publish(servers, f"{topic}-{library}", sent, NO_OPTIONS) == list(range(len(sent)))
    expected = [Read(offset, each) for offset, each in enumerate(sent)]
    topics = [f"{topic}-{library}" for library in publishers]
    assert java.read_from(servers, topics, len(sent)) == dict.fromkeys(topics, expected)
    for read in READERS.values():
        assert read(servers, topics[-1], len(sent)) == expected


@pytest.mark.hazard("batch-before-the-close")
def test_batches_with_every_codec_with_and_without_idempotence(servers: str, java: JavaKafka, topic: str) -> None:
    """With `acks=0` a client learns no offsets."""
    one_by_one = {"enable.idempotence": "false", "max.in.flight.requests.per.connection": 1}
    every: dict[str, Options] = {
        **{f"{topic}-{codec}": {"compression.type": codec} for codec in CODECS},
        **{f"{topic}-acks-{acks}": {**one_by_one, "acks": acks} for acks in ("all", "1", "0")},
    }
    count = len(MESSAGES)
    learned = {each: [-1] * count if each.endswith("acks-0") else list(range(count)) for each in every}
    assert java.publish_to(servers, MESSAGES, every) == learned
    expected = [Read(offset, each) for offset, each in enumerate(MESSAGES)]
    found = java.read_from(servers, list(every), count, {"isolation.level": "read_committed"})
    assert found == dict.fromkeys(every, expected)


def test_consumer_finds_ends_and_times(servers: str, java: JavaKafka, topic: str) -> None:
    """Nothing is newer than tomorrow. A name with a namespace is one topic."""
    full = f"public/default/{topic}"
    java.publish(servers, full, MESSAGES, NO_OPTIONS)
    count, late = len(MESSAGES), 4_000_000_000_000
    assert java.offsets(servers, full, 1_000, late) == [
        "partitions 1",
        "listed false",
        "first 0",
        f"end {count}",
        "at 1000 0",
        f"at {late} none",
        f"position {count}",
        "position 0",
        "done",
    ]
    assert java.offsets(servers, topic)[1] == "listed true"


@pytest.mark.asyncio
async def test_java_reads_what_the_sdk_has_sent(cluster: Cluster, servers: str, java: JavaKafka, topic: str) -> None:
    """Its client checks the checksums of the batches that the door makes."""
    async with oncelog.AsyncClient(cluster.url) as client:
        producer = await client.create_producer(topic)
        for number in range(3):
            await producer.send(b"%d" % number, key=b"k", properties={"type": "one"})
        await producer.send_many([b"%d" % number for number in range(3, 10)])
    found = await asyncio.to_thread(java.read, servers, topic, 10)
    assert [each.message.value for each in found] == [b"%d" % number for number in range(10)]
    assert found[0] == Read(0, Message(b"0", b"k", (("type", b"one"),)))


@pytest.mark.hazard("refused-batch-uses-a-number")
def test_a_batch_that_is_too_large_is_split_and_stored_once(servers: str, tools: JavaKafka, topic: str) -> None:
    """Some batches are in flight while the first one is refused. The halves have its number."""
    messages = [Message(b"%d" % number + b"." * 1_000) for number in range(1_000)]
    options: Options = {"batch.size": 150_000, "linger.ms": 200}
    offsets = tools.publish(servers, topic, messages, options)
    assert offsets == list(range(len(messages)))
    assert tools.read(servers, topic, len(messages)) == [Read(at, each) for at, each in enumerate(messages)]


def test_a_program_with_transactions_is_told_at_once(servers: str, java: JavaKafka) -> None:
    with pytest.raises(AssertionError, match="TransactionalIdAuthorizationException"):
        java.publish(servers, "transactions", MESSAGES, {"transactional.id": "one"})


def test_console_and_verifiable_producer(servers: str, tools: JavaKafka) -> None:
    """With the tools' own settings, but for the number of messages; `kafka-get-offsets` finds all of them."""
    lines = [b"line %d" % number for number in range(500)]
    at = ("--bootstrap-server", servers, "--topic")
    tools.tool("ConsoleProducer", *at, "console", given="".join(f"{line.decode()}\n" for line in lines))
    assert [each.message.value for each in tools.read(servers, "console", 500)] == lines
    written = tools.tool("VerifiableProducer", *at, "verifiable", "--max-messages", "500")
    results = [json.loads(line) for line in written.splitlines()]
    stored = [each for each in results if each["name"] == "producer_send_success"]
    assert [(each["offset"], each["value"]) for each in stored] == [(number, str(number)) for number in range(500)]
    assert "500 records sent" in tools.tool(
        "ProducerPerformance", "--topic", "performance", "--num-records", "500", "--record-size", "100",
        "--throughput", "-1", "--bootstrap-server", servers,
    )  # fmt: skip
    for topic in ("console", "verifiable", "performance"):
        assert tools.tool("GetOffsetShell", *at, topic) == f"{topic}:0:500\n"
        assert tools.tool("GetOffsetShell", *at, topic, "--time", "earliest") == f"{topic}:0:0\n"
