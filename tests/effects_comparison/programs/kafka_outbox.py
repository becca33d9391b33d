# mypy: ignore-errors
"""confluent-kafka, idempotent; an outbox table that is polled behind the highest id that was sent."""

import os
import threading

import psycopg
from confluent_kafka import Producer

#: Between two looks at an empty outbox.
POLL_S = 0.02
producer = Producer({"bootstrap.servers": os.environ["KAFKA"], "enable.idempotence": True, "linger.ms": 0})
with psycopg.connect(os.environ["PG_URL"], autocommit=True) as database:
    database.execute("CREATE TABLE IF NOT EXISTS sent (one integer PRIMARY KEY, up_to bigint)")
    database.execute("INSERT INTO sent VALUES (1, 0) ON CONFLICT DO NOTHING")
    while True:
        rows = database.execute(
            "SELECT id, value FROM outbox WHERE id > (SELECT up_to FROM sent) ORDER BY id LIMIT 10"
        ).fetchall()
        for _, value in rows:
            producer.produce(f"{os.environ['TOPIC']}-out", bytes(value))
        if rows:
            producer.flush(30)
            database.execute("UPDATE sent SET up_to = %s", [rows[-1][0]])
        else:
            threading.Event().wait(POLL_S)
