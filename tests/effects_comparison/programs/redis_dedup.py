# mypy: ignore-errors
"""Redis Streams with a table of processed ids in PostgreSQL, in the transaction of the effect."""

import os

import psycopg
import redis

topic, group = os.environ["TOPIC"], "effects"
store = redis.Redis.from_url(os.environ["REDIS_URL"])
name = f"consumer-{os.getpid()}"
with psycopg.connect(os.environ["PG_URL"], autocommit=True) as database:
    database.execute("CREATE TABLE IF NOT EXISTS processed (id text PRIMARY KEY)")
    while True:
        # What a dead consumer had is idle for a second; then what is new.
        claimed = store.xautoclaim(topic, group, name, min_idle_time=1000, count=10)[1]
        new = [] if claimed else store.xreadgroup(group, name, {topic: ">"}, count=10, block=200)
        for entry, fields in claimed or [each for _, entries in new for each in entries]:
            with database.transaction():
                made = database.execute("INSERT INTO processed VALUES (%s) ON CONFLICT DO NOTHING", [entry.decode()])
                if made.rowcount:
                    database.execute("INSERT INTO effects VALUES (%s)", [int(fields[b"n"])])
            store.xack(topic, group, entry)
