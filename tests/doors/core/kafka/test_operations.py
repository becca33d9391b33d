"""Rights of roles as Kafka's operations."""

from oncelog.core.access import Right
from oncelog_doors.core.kafka.operations import (
    Operation,
    cluster_operations,
    may_create_topics,
    may_describe_broker,
    topic_operations,
)


def operations(bits: int) -> set[Operation]:
    return {each for each in Operation if bits >> each & 1}


def test_each_right_allows_its_operations_of_topics() -> None:
    o = Operation
    assert operations(topic_operations([Right.PRODUCE])) == {o.WRITE, o.CREATE, o.DESCRIBE}
    assert operations(topic_operations([Right.CONSUME])) == {o.READ, o.DESCRIBE}
    admin = {o.CREATE, o.DELETE, o.ALTER, o.DESCRIBE, o.DESCRIBE_CONFIGS, o.ALTER_CONFIGS}
    assert operations(topic_operations([Right.ADMIN])) == admin
    assert operations(topic_operations(list(Right))) == admin | {o.READ, o.WRITE}
    assert topic_operations([]) == 0


def test_nobody_may_alter_the_broker() -> None:
    found = operations(cluster_operations(list(Right)))
    assert not found & {Operation.ALTER, Operation.ALTER_CONFIGS, Operation.DELETE}
    assert {Operation.CREATE, Operation.DESCRIBE_CONFIGS, Operation.IDEMPOTENT_WRITE} <= found


def test_who_may_create_topics_and_look_at_the_broker() -> None:
    assert may_create_topics([Right.PRODUCE])
    assert may_create_topics([Right.ADMIN])
    assert not may_create_topics([Right.CONSUME])
    assert may_describe_broker([Right.ADMIN])
    assert not may_describe_broker([Right.PRODUCE, Right.CONSUME])
