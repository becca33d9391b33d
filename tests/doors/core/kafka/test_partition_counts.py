"""How many partitions topics get, and which numbers are refused."""

import pytest

from oncelog.core.names import PARTITIONS_MAX
from oncelog_doors.core.kafka.administration_codes import Refused
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.core.kafka.partition_counts import check_growth, count_of_new


@pytest.mark.parametrize(
    ("count", "factor", "assigned", "found"),
    [
        (-1, -1, (), 4),
        (6, 3, (), 6),
        (PARTITIONS_MAX, 32_767, (), PARTITIONS_MAX),
        (-1, -1, (1, 0, 2), 3),
    ],
)
def test_a_new_topic_has_as_many_partitions_as_wanted(
    count: int, factor: int, assigned: tuple[int, ...], found: int
) -> None:
    """Any replication factor is taken: Kafka Connect asks for 3."""
    assert count_of_new(count, factor, assigned, 4) == found


@pytest.mark.parametrize(
    ("count", "factor", "assigned", "code"),
    [
        (0, 1, (), ErrorCode.INVALID_PARTITIONS),
        (-2, 1, (), ErrorCode.INVALID_PARTITIONS),
        (PARTITIONS_MAX + 1, 1, (), ErrorCode.INVALID_PARTITIONS),
        (100_001, 1, (), ErrorCode.INVALID_PARTITIONS),
        (2**31 - 1, 1, (), ErrorCode.INVALID_PARTITIONS),
        (1, 0, (), ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -5, (), ErrorCode.INVALID_REPLICATION_FACTOR),
        (2, -1, (0, 1), ErrorCode.INVALID_REQUEST),
        (-1, 1, (0, 1), ErrorCode.INVALID_REQUEST),
        (-1, -1, (0, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, (0, 0), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, tuple(range(PARTITIONS_MAX + 1)), ErrorCode.INVALID_PARTITIONS),
    ],
)
def test_other_numbers_are_refused(count: int, factor: int, assigned: tuple[int, ...], code: ErrorCode) -> None:
    with pytest.raises(Refused) as raised:
        count_of_new(count, factor, assigned, 4)
    assert raised.value.code is code
    assert raised.value.sentence


def test_a_topic_gets_more_partitions() -> None:
    check_growth(1, 4, None)
    check_growth(1, 4, 3)


@pytest.mark.parametrize(
    ("present", "count", "assigned", "code"),
    [
        (0, 3, None, ErrorCode.INVALID_PARTITIONS),
        (3, 3, None, ErrorCode.INVALID_PARTITIONS),
        (3, 2, None, ErrorCode.INVALID_PARTITIONS),
        (3, -1, None, ErrorCode.INVALID_PARTITIONS),
        (3, 100_001, None, ErrorCode.INVALID_PARTITIONS),
        (3, 5, 1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_never_shrinks(present: int, count: int, assigned: int | None, code: ErrorCode) -> None:
    with pytest.raises(Refused) as raised:
        check_growth(present, count, assigned)
    assert raised.value.code is code
