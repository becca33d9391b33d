"""Messages that are published for groups: known by their partition and number."""

import asyncio
from collections.abc import Iterable

from confluent_kafka import Producer

from tests.doors.clients.groups.members import Got

DEADLINE_S = 60.0


def _publish(servers: str, topic: str, partitions: Iterable[int], first: int, end: int) -> list[Got]:
    numbers = range(first, end)
    messages = [Got(partition, number, f"{partition}-{number}") for partition in partitions for number in numbers]
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for each in messages:
        producer.produce(topic, each.value.encode(), partition=each.partition)
    assert producer.flush(DEADLINE_S) == 0
    return messages


async def publish(servers: str, topic: str, partitions: Iterable[int], first: int, end: int) -> list[Got]:
    """To each of the partitions the messages with these numbers, which are their offsets."""
    return await asyncio.to_thread(_publish, servers, topic, partitions, first, end)
