"""A door for Kafka's clients in front of a cluster with TLS and tokens: who may do what, and how it ends."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.until import until, until_sync
from tests.contract.process.security_world import token
from tests.core.kafka_batches import numbered
from tests.doors.cluster.conftest import NewDoor
from tests.doors.cluster.door_program import DoorProgram
from tests.doors.kafka.client_batches import batch_of
from tests.doors.kafka.raw_client import RawClient, raw_client

CALL_S = 60


@pytest.fixture(scope="module")
def kafka_door(new_door: NewDoor) -> Iterator[DoorProgram]:
    with new_door("--kafka", "127.0.0.1:0", "--kafka-tls", "127.0.0.1:0") as own:
        yield own


def options(door: DoorProgram, files: Path, password: str, **more: Any) -> dict[str, Any]:
    """Of librdkafka."""
    return {
        "bootstrap.servers": f"localhost:{door.port('kafka+ssl')}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(files / "ca.crt"),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": password,
        **more,
    }


def published(settings: dict[str, Any], topic: str) -> KafkaError | None:
    """What becomes of one message."""
    results: list[KafkaError | None] = []
    producer = Producer(settings)
    producer.produce(topic, b"value", on_delivery=lambda error, _: results.append(error))
    assert producer.flush(CALL_S) == 0
    return results[0]


def read(settings: dict[str, Any], topic: str) -> Any:
    """The first message or error."""
    consumer = Consumer({**settings, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message: Any = consumer.poll(CALL_S)
        assert message is not None
        return message.value() if message.error() is None else message.error().code()
    finally:
        consumer.close()


def test_a_role_does_what_it_may(kafka_door: DoorProgram, files: Path) -> None:
    importer, billing = (options(kafka_door, files, token(role)) for role in ("importer", "billing"))
    assert published({**importer, "enable.idempotence": True}, "secured") is None
    assert published(importer, "secured") is None
    refused = published(billing, "secured")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert read(billing, "secured") == b"value"
    assert read(importer, "secured") == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_bearer_token_is_taken(kafka_door: DoorProgram, files: Path) -> None:
    settings = options(kafka_door, files, "") | {
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token("importer"), 4_000_000_000.0),
    }
    del settings["sasl.username"], settings["sasl.password"]
    assert published(settings, "bearer") is None


def test_a_wrong_token_is_refused_with_a_sentence(new_door: NewDoor, files: Path) -> None:
    """At a door of its own: an address that fails again and again is refused for a minute."""
    errors: list[str] = []
    with new_door("--kafka-tls", "127.0.0.1:0") as door:
        settings = options(door, files, "stolen", error_cb=lambda error: errors.append(str(error)))
        producer = Producer(settings)
        until_sync(lambda: producer.poll(0.1) == 0 and any("token" in each for each in errors), DEADLINE_S)


def test_a_producer_id_of_another_role_stores_nothing(kafka_door: DoorProgram) -> None:
    """Names belong to roles: a client that guesses an id cannot end its producer, or take its numbers."""

    async def steps() -> list[int]:
        async with raw_client(kafka_door.port("kafka")) as first, raw_client(kafka_door.port("kafka")) as second:
            await sign_in(first, "importer")
            await sign_in(second, "other")
            await first.ask("Metadata", 8, {"topics": [{"name": "named"}], "allow_auto_topic_creation": True})
            granted = await first.ask("InitProducerId", 4, {"transactional_id": None})
            return [
                await send(client, batch_of(numbered(1), producer=(granted["producer_id"], 0, sequence)))
                for client, sequence in ((first, 0), (second, 1), (first, 1), (first, 0))
            ]

    codes = asyncio.run(steps())
    assert codes[0] == codes[2] == codes[3] == 0
    assert codes[1] in {29, 47, 49}


async def sign_in(client: RawClient, role: str) -> None:
    await client.ask("SaslHandshake", 1, {"mechanism": "PLAIN"})
    answer = await client.ask("SaslAuthenticate", 1, {"auth_bytes": f"\0me\0{token(role)}".encode()})
    assert answer["error_code"] == 0, answer


async def send(client: RawClient, records: bytes) -> int:
    part = {"index": 0, "records": records}
    body = {"acks": -1, "timeout_ms": 20_000, "topic_data": [{"name": "named", "partition_data": [part]}]}
    answer = await client.ask("Produce", 8, body)
    return int(answer["responses"][0]["partition_responses"][0]["error_code"])


def test_two_doors_hold_one_client_in_turn(kafka_door: DoorProgram, new_door: NewDoor) -> None:
    """A batch that was stored through the first door is known at the second one, and the other way round."""

    async def steps(other: DoorProgram) -> list[int]:
        async with raw_client(kafka_door.port("kafka")) as first, raw_client(other.port("kafka")) as second:
            await sign_in(first, "importer")
            await sign_in(second, "importer")
            await first.ask("Metadata", 8, {"topics": [{"name": "named"}], "allow_auto_topic_creation": True})
            granted = await first.ask("InitProducerId", 4, {"transactional_id": None})
            order = ((first, 0), (second, 0), (second, 1), (first, 1), (first, 2), (second, 2))
            return [
                await send(client, batch_of(numbered(1), producer=(granted["producer_id"], 0, sequence)))
                for client, sequence in order
            ]

    with new_door("--kafka", "127.0.0.1:0") as other:
        codes = asyncio.run(steps(other))
    # A door whose session the other one has ended says once that nothing is known.
    assert set(codes) <= {0, 7}
    assert codes[:3] == [0, 0, 0]


@pytest.mark.asyncio
async def test_a_door_that_is_asked_to_end_answers_first(new_door: NewDoor, cluster: Cluster) -> None:
    waits = [{"topic": "ends", "partitions": [{"partition": 0, "partition_max_bytes": 1_000}]}]
    with new_door("--kafka", "127.0.0.1:0") as door:
        async with raw_client(door.port("kafka")) as client:
            await sign_in(client, "importer")
            await client.ask("Metadata", 8, {"topics": [{"name": "ends"}], "allow_auto_topic_creation": True})
        async with raw_client(door.port("kafka")) as client:
            await sign_in(client, "billing")
            client.send("Fetch", 11, {"max_wait_ms": 30_000, "min_bytes": 1, "topics": waits})
            client.send("ApiVersions", 0, {})
            door.process.send_signal(signal.SIGTERM)
            assert (await client.read("Fetch", 11))[1]["error_code"] == 0
            assert (await client.read("ApiVersions", 0))[1]["error_code"] == 0
            await client.closed()
        await until(lambda: door.process.poll() == 0, DEADLINE_S)
