"""A consumer in a group, as programs of users are: LIBRARY SERVERS GROUP TOPIC [option=value ...].

Each line that it prints is a JSON list of the time, in ns, and one of: "assigned", [partitions]; "revoked",
[partitions]; "got", partition, offset, value; "committed", {partition: offset}; "failed", error; "left". It commits
what it has printed after each batch. A line on its standard input makes it leave the group. Options are those of the
library, and session=MS of all; hold=SECONDS, of librdkafka: it says "holds" and waits before its first commit.
"""

import asyncio
import json
import sys
import threading
import time
import warnings
from collections.abc import Iterable
from typing import Any

POLL_S = 0.2
BATCH = 20


def say(*words: object) -> None:
    print(json.dumps([time.time_ns(), *words]), flush=True)


def got(partition: int | None, offset: int | None, value: bytes | None) -> None:
    say("got", partition, offset, (value or b"").decode())


def numbers(partitions: Iterable[Any]) -> list[int]:
    return sorted(each.partition for each in partitions)


def session_of(options: dict[str, str]) -> int:
    return int(options.pop("session", 6_000))


def consume_with_confluent(
    servers: str, group: str, topic: str, options: dict[str, str], leave: threading.Event
) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException

    hold_s = float(options.pop("hold", 0))
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "session.timeout.ms": session_of(options), "heartbeat.interval.ms": 500,
            **options,
        }
    )  # fmt: skip
    cooperative = "cooperative" in options.get("partition.assignment.strategy", "")

    def assigned(own: Any, partitions: Any) -> None:
        (own.incremental_assign if cooperative else own.assign)(partitions)
        say("assigned", numbers(own.assignment()))

    def revoked(own: Any, partitions: Any) -> None:
        say("revoked", numbers(partitions))

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
    owes = False
    while not leave.is_set():
        messages = [each for each in consumer.consume(BATCH, POLL_S) if each.error() is None]
        for each in messages:
            got(each.partition(), each.offset(), each.value())
        if messages or owes:
            if hold_s:
                say("holds")
                leave.wait(hold_s)
                hold_s = 0
            try:
                done = consumer.commit(asynchronous=False)
                # Partitions without a message since the last commit are in the answer, too, with an offset below 0.
                say("committed", {each.partition: each.offset for each in done or () if each.offset >= 0})
                owes = False
            except KafkaException as error:
                say("failed", str(error))
                # NO_OFFSET: what was owed is of partitions that the member has lost.
                owes = error.args[0].code() != KafkaError._NO_OFFSET
    consumer.close()


def consume_with_kafka_python(
    servers: str, group: str, topic: str, options: dict[str, str], leave: threading.Event
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import ConsumerRebalanceListener, KafkaConsumer
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            say("revoked", numbers(revoked))

        def on_partitions_assigned(self, assigned: Any) -> None:
            say("assigned", numbers(consumer.assignment()))

    consumer = KafkaConsumer(
        bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
        session_timeout_ms=session_of(options), heartbeat_interval_ms=500,
        partition_assignment_strategy=[RoundRobinPartitionAssignor], **options,
    )  # fmt: skip
    consumer.subscribe([topic], listener=Listener())
    owed: set[Any] = set()
    while not leave.is_set():
        batches = consumer.poll(timeout_ms=int(POLL_S * 1000), max_records=BATCH)
        for records in batches.values():
            for each in records:
                got(each.partition, each.offset, each.value)
        owed = (owed | set(batches)) & consumer.assignment()
        if owed:
            try:
                consumer.commit()
                say("committed", {each.partition: consumer.position(each) for each in owed})
                owed = set()
            except KafkaError as error:
                say("failed", repr(error))
    consumer.close(autocommit=False)


def consume_with_aiokafka(
    servers: str, group: str, topic: str, options: dict[str, str], leave: threading.Event
) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            say("revoked", numbers(revoked))

        async def on_partitions_assigned(self, assigned: Any) -> None:
            say("assigned", numbers(assigned))

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
            session_timeout_ms=session_of(options), heartbeat_interval_ms=500, **options,
        )  # fmt: skip
        consumer.subscribe([topic], listener=Listener())
        await consumer.start()
        owed: dict[Any, int] = {}
        while not leave.is_set():
            batches = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=BATCH)
            for records in batches.values():
                for each in records:
                    got(each.partition, each.offset, each.value)
            owed |= {partition: records[-1].offset + 1 for partition, records in batches.items()}
            owed = {partition: offset for partition, offset in owed.items() if partition in consumer.assignment()}
            if owed:
                try:
                    await consumer.commit(owed)
                    say("committed", {each.partition: offset for each, offset in owed.items()})
                    owed = {}
                except KafkaError as error:
                    say("failed", repr(error))
        await consumer.stop()

    asyncio.run(run())


LIBRARIES = {
    "confluent-kafka": consume_with_confluent,
    "kafka-python": consume_with_kafka_python,
    "aiokafka": consume_with_aiokafka,
}


def main(library: str, servers: str, group: str, topic: str, *options: str) -> int:
    leave = threading.Event()

    def wait_for_a_line() -> None:
        sys.stdin.readline()
        leave.set()

    threading.Thread(target=wait_for_a_line, daemon=True).start()
    given = dict(each.split("=", 1) for each in options)
    LIBRARIES[library](servers, group, topic, given, leave)
    say("left")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
