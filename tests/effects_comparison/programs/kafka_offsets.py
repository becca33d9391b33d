# mypy: ignore-errors
"""aiokafka, the offset in the transaction of the effect: read when a partition is assigned, as commonly written."""

import asyncio
import os

import psycopg
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

database = psycopg.connect(os.environ["PG_URL"], autocommit=True)
database.execute("CREATE TABLE IF NOT EXISTS offsets (part integer PRIMARY KEY, following bigint)")


class Seeks(ConsumerRebalanceListener):
    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: object) -> None:
        pass

    async def on_partitions_assigned(self, assigned: object) -> None:
        for part in assigned:
            row = database.execute("SELECT following FROM offsets WHERE part = %s", [part.partition]).fetchone()
            self._consumer.seek(part, row[0] if row else 0)


async def main() -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=os.environ["KAFKA"], group_id="effects", enable_auto_commit=False,
        auto_offset_reset="earliest", session_timeout_ms=2000, heartbeat_interval_ms=500,
    )  # fmt: skip
    consumer.subscribe([os.environ["TOPIC"]], listener=Seeks(consumer))
    await consumer.start()
    async for message in consumer:
        with database.transaction():
            database.execute("INSERT INTO effects VALUES (%s)", [int(message.value)])
            database.execute(
                "INSERT INTO offsets VALUES (%s, %s) ON CONFLICT (part) DO UPDATE SET following = excluded.following",
                [message.partition, message.offset + 1],
            )


asyncio.run(main())
