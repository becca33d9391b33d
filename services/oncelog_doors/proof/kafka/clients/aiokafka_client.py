"""The program with aiokafka (see `clients`). What is set behind its back has no option."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from oncelog_doors.proof.kafka.clients import say, time_ms, value_of

_WAIT_S = 60.0


class Sending:
    """Batches that the library sends as they are."""

    def __init__(self, producer: AIOKafkaProducer, topic: str, count: int, age_s: str) -> None:
        self.producer, self._topic, self._count, self._age_s = producer, topic, count, age_s
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, partition: int, tags: Sequence[str]) -> None:
        """One batch, or each message in its own."""
        for own in ([tag] for tag in tags) if self._count == 1 else (tags,):
            batch = self.producer.create_batch()
            for tag in own:
                batch.append(key=None, value=value_of(tag), timestamp=time_ms(self._age_s))
            task = asyncio.create_task(
                self._answer(await self.producer.send_batch(batch, self._topic, partition=partition), own)
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, sent: "asyncio.Future[Any]", tags: Sequence[str]) -> None:
        try:
            metadata = await sent
        except KafkaError as error:
            for tag in tags:
                say("failed", tag, type(error).__name__)
        else:
            for number, tag in enumerate(tags):
                say("sent", tag, metadata.offset + number)


async def main(servers: str, topic: str) -> None:
    sending = None
    source = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(source), sys.stdin)
    while line := await source.readline():
        match line.decode().split():
            case "open", count, age_s, "0":
                producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
                await producer.start()
                sending = Sending(producer, topic, int(count), age_s)
                say("opened")
            case "send", partition, *tags if sending is not None:
                await sending.send(int(partition), tags)
            case "renumber", number if sending is not None:
                numbers = sending.producer._txn_manager._sequence_numbers  # noqa: SLF001
                numbers[TopicPartition(topic, 0)] = int(number)
                say("renumbered")
            case ["read"]:
                say("read", *await read(servers, topic))
            case other:
                raise SystemExit(f"unknown line: {other}")


async def read(servers: str, topic: str) -> list[str]:
    found: list[str] = []
    async with AIOKafkaConsumer(topic, bootstrap_servers=servers, enable_auto_commit=False) as consumer:
        for partition in sorted(consumer.partitions_for_topic(topic) or ()):
            place = TopicPartition(topic, partition)
            end = (await consumer.end_offsets([place]))[place]
            await consumer.seek_to_beginning(place)
            while await consumer.position(place) < end:
                each = await asyncio.wait_for(consumer.getone(place), _WAIT_S)
                found += (str(partition), str(each.offset), each.value.decode())
    return found


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
