# mypy: ignore-errors
"""Celery with Redis and acks_late; the visibility timeout is 5 seconds."""

import os

import psycopg
from celery import Celery

app = Celery("effects", broker=os.environ["REDIS_URL"])
app.conf.task_default_queue = os.environ["TOPIC"]
app.conf.broker_transport_options = {"visibility_timeout": 5}
app.conf.task_acks_late = True
app.conf.worker_prefetch_multiplier = 4


@app.task(name="effect")
def effect(n: int) -> None:
    with psycopg.connect(os.environ["PG_URL"]) as database:
        database.execute("INSERT INTO effects VALUES (%s)", [n])


if __name__ == "__main__":
    app.worker_main(["worker", "--pool=solo", "--loglevel=ERROR", "--without-mingle", "--without-gossip"])
