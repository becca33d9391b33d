"""Subscriptions to a pattern of Pulsar's own Python client, in front of a cluster of real processes."""

import re

import pulsar

from tests.doors.cluster.door_program import DEADLINE_S, DoorProgram
from tests.doors.cluster.test_schemas import client_of, topic


def test_pattern_subscribes_to_the_topics_that_fit(door: DoorProgram) -> None:
    """To none that does not fit, and each message is acknowledged."""
    client = client_of(door)
    for name in ("pattern-a", "pattern-b", "other-c"):
        client.create_producer(topic(name).decode()).send(name.encode())
    pattern = re.compile("persistent://public/default/pattern-.*")
    consumer = client.subscribe(pattern, "billing", initial_position=pulsar.InitialPosition.Earliest)
    got = [consumer.receive(int(DEADLINE_S * 1000)) for _ in range(2)]
    assert sorted(each.data() for each in got) == [b"pattern-a", b"pattern-b"]
    for each in got:
        consumer.acknowledge(each)
    client.close()
