"""What programs do with client libraries of Kafka, in one form for all of them. They block: run them in a thread."""

import asyncio
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition

with warnings.catch_warnings():
    # Of importlib.resources, where kafka-python reads its definitions.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as PythonPartition

DEADLINE_S = 60.0
Options = Mapping[str, Any]
NO_OPTIONS: Options = {}


class Message(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()


class Read(NamedTuple):
    offset: int
    message: Message


#: (servers, topic, messages, options) -> their offsets
Publish = Callable[[str, str, Sequence[Message], Options], list[int]]
#: (servers, topic, count) -> the first messages of partition 0
ReadAll = Callable[[str, str, int], list[Read]]


def _with_confluent(servers: str, topic: str, messages: Sequence[Message], options: Options) -> list[int]:
    """options: of librdkafka."""
    found: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, str(error)
        found.append(message.offset())

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, **options})
    for each in messages:
        producer.produce(topic, each.value, each.key, headers=list(each.headers), on_delivery=delivered)
    assert producer.flush(DEADLINE_S) == 0
    return found


def _with_kafka_python(servers: str, topic: str, messages: Sequence[Message], options: Options) -> list[int]:
    producer = KafkaProducer(bootstrap_servers=servers, enable_idempotence=True, acks="all", **options)
    try:
        sent = [producer.send(topic, each.value, key=each.key, headers=list(each.headers)) for each in messages]
        return [each.get(DEADLINE_S).offset for each in sent]
    finally:
        producer.close()


def _with_aiokafka(servers: str, topic: str, messages: Sequence[Message], options: Options) -> list[int]:
    async def publish() -> list[int]:
        async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True, **options) as producer:
            sent = [await producer.send(topic, each.value, each.key, headers=list(each.headers)) for each in messages]
            return [(await asyncio.wait_for(each, DEADLINE_S)).offset for each in sent]

    return asyncio.run(publish())


def _read_with_confluent(servers: str, topic: str, count: int) -> list[Read]:
    # librdkafka wants a group, also if the program assigns partitions.
    options = {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False}
    consumer, found = Consumer(options), list[Read]()
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        while len(found) < count:
            message: Any = consumer.poll(DEADLINE_S)
            assert message is not None, f"{len(found)} of {count} messages came"
            assert message.error() is None, message.error()
            headers = tuple(message.headers() or ())
            found.append(Read(message.offset(), Message(message.value(), message.key(), headers)))
    finally:
        consumer.close()
    return found


def _read_with_kafka_python(servers: str, topic: str, count: int) -> list[Read]:
    consumer = KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
    try:
        consumer.assign([PythonPartition(topic, 0)])
        consumer.seek(PythonPartition(topic, 0), 0)
        return [_read_of(next(consumer)) for _ in range(count)]
    finally:
        consumer.close()


def _read_with_aiokafka(servers: str, topic: str, count: int) -> list[Read]:
    async def read() -> list[Read]:
        async with AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False) as consumer:
            consumer.assign([AioPartition(topic, 0)])
            consumer.seek(AioPartition(topic, 0), 0)
            return [_read_of(await asyncio.wait_for(consumer.getone(), DEADLINE_S)) for _ in range(count)]

    return asyncio.run(read())


def _read_of(record: Any) -> Read:
    return Read(record.offset, Message(record.value, record.key, tuple(record.headers)))


PUBLISHERS: dict[str, Publish] = {
    "confluent-kafka": _with_confluent,
    "kafka-python": _with_kafka_python,
    "aiokafka": _with_aiokafka,
}
READERS: dict[str, ReadAll] = {
    "confluent-kafka": _read_with_confluent,
    "kafka-python": _read_with_kafka_python,
    "aiokafka": _read_with_aiokafka,
}
