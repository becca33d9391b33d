"""The program with kafka-python (see `clients`). What is set behind its back has no option."""

import sys
import warnings
from functools import partial
from threading import Thread
from typing import Any

with warnings.catch_warnings():
    # Of importlib.resources, where the library reads its definitions.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from oncelog_doors.proof.kafka.clients import lines, say, time_ms, value_of

_IN_FLIGHT = "max_in_flight_requests_per_connection"
_CONNECTING = {"reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 200}
#: It gives nothing up while answers are held.
_PATIENCE = {"request_timeout_ms": 120_000, "delivery_timeout_ms": 300_000}


def main(servers: str, topic: str) -> None:
    producer, age_s = None, "0"
    for line in lines():
        match line:
            case "open", count, age_s, limit:
                batching = {"batch_size": 0} if count == "1" else {"linger_ms": 60_000}
                own = {**batching, **_CONNECTING, **_PATIENCE}
                producer = KafkaProducer(bootstrap_servers=servers, enable_idempotence=True, acks="all", **own)
                if int(limit):
                    raise_limit(producer, int(limit))
                say("opened")
            case "send", partition, *tags if producer is not None:
                for tag in tags:
                    sent = producer.send(topic, value_of(tag), partition=int(partition), timestamp_ms=time_ms(age_s))
                    sent.add_callback(partial(delivered, tag))
                    sent.add_errback(partial(failed, tag))
                if len(tags) > 1:
                    Thread(target=producer.flush, daemon=True).start()
            case "renumber", number if producer is not None:
                numbers = producer._transaction_manager  # noqa: SLF001
                numbers.set_sequence_number(TopicPartition(topic, 0), int(number))
                say("renumbered")
            case ["read"]:
                say("read", *read(servers, topic))
            case other:
                raise SystemExit(f"unknown line: {other}")


def raise_limit(producer: Any, limit: int) -> None:
    """It allows five batches in flight, of one partition only one."""
    sender = producer._sender  # noqa: SLF001
    sender.config["guarantee_message_order"] = False
    manager = sender._client._manager  # noqa: SLF001
    for config in (manager.config, *(each.config for each in manager._conns.values())):  # noqa: SLF001
        config[_IN_FLIGHT] = limit


def delivered(tag: str, metadata: Any) -> None:
    say("sent", tag, metadata.offset)


def failed(tag: str, error: Any) -> None:
    say("failed", tag, type(error).__name__)


def read(servers: str, topic: str) -> list[str]:
    consumer = KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False, **_CONNECTING)
    found: list[str] = []
    try:
        partitions = [TopicPartition(topic, each) for each in sorted(consumer.partitions_for_topic(topic))]
        for partition, end in sorted(consumer.end_offsets(partitions).items()):
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            while consumer.position(partition) < end:
                for batch in consumer.poll(timeout_ms=1_000).values():
                    for each in batch:
                        found += (str(each.partition), str(each.offset), each.value.decode())
    finally:
        consumer.close()
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
