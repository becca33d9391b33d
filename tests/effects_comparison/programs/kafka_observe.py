# mypy: ignore-errors
"""python kafka_observe.py TOPIC: each committed message of the topic, as a row of observed.effects. Never killed."""

import asyncio
import os
import sys

import psycopg
from aiokafka import AIOKafkaConsumer


async def main() -> None:
    database = psycopg.connect(os.environ["PG_URL"], autocommit=True)
    consumer = AIOKafkaConsumer(
        sys.argv[1], bootstrap_servers=os.environ["KAFKA"], auto_offset_reset="earliest",
        isolation_level="read_committed",
    )  # fmt: skip
    await consumer.start()
    async for message in consumer:
        database.execute("INSERT INTO observed.effects VALUES (%s)", [int(message.value)])


asyncio.run(main())
