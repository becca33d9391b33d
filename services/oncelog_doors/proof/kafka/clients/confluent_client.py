"""The program with confluent-kafka, which is librdkafka (see `clients`)."""

import sys
from functools import partial
from threading import Thread
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from oncelog_doors.proof.kafka.clients import lines, say, time_ms, value_of

_WAIT_S = 60.0


def main(servers: str, topic: str) -> None:
    producer, age_s = None, "0"
    for line in lines():
        match line:
            case "open", count, age_s, "0":
                producer = Producer(
                    {
                        "bootstrap.servers": servers, "enable.idempotence": True, "batch.num.messages": int(count),
                        "linger.ms": 50 if count == "1" else 60_000, "retry.backoff.ms": 50,
                        "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200,
                    }
                )  # fmt: skip
                Thread(target=poll, args=(producer,), daemon=True).start()
                say("opened")
            case "send", partition, *tags if producer is not None:
                for tag in tags:
                    producer.produce(
                        topic, value_of(tag), partition=int(partition), timestamp=time_ms(age_s),
                        on_delivery=partial(delivered, tag),
                    )  # fmt: skip
            case ["read"]:
                say("read", *read(servers, topic))
            case other:
                raise SystemExit(f"unknown line: {other}")


def poll(producer: Any) -> None:
    while True:
        try:
            producer.poll(1.0)
        except KafkaException as error:
            if not error.args[0].fatal():  # then nothing more is sent, and what was sent is still answered
                raise


def delivered(tag: str, error: Any, message: Any) -> None:
    if error is None:
        offset = message.offset()
        say("sent", tag, -1 if offset is None else offset)
    else:
        say("failed", tag, error.name())


def read(servers: str, topic: str) -> list[str]:
    # librdkafka wants a group, also if the program assigns partitions.
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False})
    found: list[str] = []
    try:
        for partition in sorted(consumer.list_topics(topic, _WAIT_S).topics[topic].partitions):
            place = TopicPartition(topic, partition, OFFSET_BEGINNING)
            _, end = consumer.get_watermark_offsets(place, _WAIT_S)
            if not end:
                continue
            consumer.assign([place])
            offset = -1
            while offset < end - 1:
                message: Any = consumer.poll(_WAIT_S)
                if message is None:
                    raise SystemExit(f"nothing comes behind {offset} of {end}")
                if message.error() is None:
                    offset = message.offset()
                    found += (str(partition), str(offset), message.value().decode())
                elif message.error().code() != KafkaError.UNSUPPORTED_VERSION:  # of groups
                    raise SystemExit(str(message.error()))
    finally:
        consumer.close()
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
