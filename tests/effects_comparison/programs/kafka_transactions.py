# mypy: ignore-errors
"""aiokafka transactions, topic to topic: an output and the offset of its input in one transaction each."""

import asyncio
import os

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition


async def main() -> None:
    servers, topic = os.environ["KAFKA"], os.environ["TOPIC"]
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"effects-{topic}")
    await producer.start()
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=servers, group_id="effects", enable_auto_commit=False, auto_offset_reset="earliest",
        isolation_level="read_committed", session_timeout_ms=2000, heartbeat_interval_ms=500,
    )  # fmt: skip
    await consumer.start()
    async for message in consumer:
        async with producer.transaction():
            await producer.send_and_wait(f"{topic}-out", message.value)
            following = {TopicPartition(message.topic, message.partition): message.offset + 1}
            await producer.send_offsets_to_transaction(following, "effects")


asyncio.run(main())
