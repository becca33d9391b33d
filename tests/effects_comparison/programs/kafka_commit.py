# mypy: ignore-errors
"""aiokafka, the offset committed after each effect: the usual consumer."""

import asyncio
import os

import psycopg
from aiokafka import AIOKafkaConsumer


async def main() -> None:
    database = psycopg.connect(os.environ["PG_URL"])
    consumer = AIOKafkaConsumer(
        os.environ["TOPIC"], bootstrap_servers=os.environ["KAFKA"], group_id="effects", enable_auto_commit=False,
        auto_offset_reset="earliest", session_timeout_ms=2000, heartbeat_interval_ms=500,
    )  # fmt: skip
    await consumer.start()
    async for message in consumer:
        database.execute("INSERT INTO effects VALUES (%s)", [int(message.value)])
        database.commit()
        await consumer.commit()


asyncio.run(main())
