# mypy: ignore-errors
"""python kafka_feed.py TOPIC COUNT: a topic with one partition and the numbers below COUNT; and one for outputs."""

import os
import sys

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

topic, count = sys.argv[1], int(sys.argv[2])
admin = AdminClient({"bootstrap.servers": os.environ["KAFKA"]})
created = admin.create_topics([NewTopic(name, 1, 1) for name in (topic, f"{topic}-out")])
for each in created.values():
    each.result(30)
producer = Producer({"bootstrap.servers": os.environ["KAFKA"], "enable.idempotence": True})
for number in range(count):
    producer.produce(topic, str(number).encode())
producer.flush(30)
