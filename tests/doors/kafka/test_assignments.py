"""Partitions in assignments, as clients write them."""

import warnings
from random import Random

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog_doors.core.kafka.assignments import partitions_in
from tests.doors.kafka.assignments import assignment

with warnings.catch_warnings():
    # Of importlib.resources, where kafka-python reads its definitions.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

PARTITIONS = {"orders": (0, 2), "größe": (7,), "none": ()}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_assignments_of_kafka_python_are_read(version: int) -> None:
    one = ConsumerProtocolAssignment.TopicPartition
    topics = [one(topic=name, partitions=list(each)) for name, each in PARTITIONS.items()]
    written = ConsumerProtocolAssignment(version=version, assigned_partitions=topics, user_data=b"mine")
    assert partitions_in(written.encode()) == PARTITIONS


def test_nothing_is_an_assignment_of_nothing() -> None:
    assert partitions_in(b"") == {}
    assert partitions_in(assignment({})) == {}


def test_damaged_assignments_are_refused_or_read() -> None:
    random, whole = Random(1), assignment({"orders": [0, 1], "other": [3]})
    cut = [whole[:length] for length in range(1, len(whole) - 4)]
    for data in cut:
        with pytest.raises(InvalidArgument, match="cannot be read"):
            partitions_in(data)
    for _ in range(500):
        at = random.randrange(2, len(whole))
        try:
            partitions_in(whole[:at] + random.randbytes(random.choice((1, 2, 4))) + whole[at + 1 :])
        except InvalidArgument as error:
            assert error.details["field"] == "assignment"  # noqa: PT017  # some of the bytes raise nothing
