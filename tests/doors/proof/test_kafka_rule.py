"""Kafka's rule, as its own tests (ProducerStateManagerTest, UnifiedLogTest) have it."""

import pytest

from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.proof.kafka.rule import (
    BATCHES_KEPT,
    EXPIRATION_MS,
    SWEEP_MS,
    Batch,
    Duplicate,
    KafkaRule,
    Refused,
    Stored,
)

NOW_MS = 10 * EXPIRATION_MS
GAP, OLD, INVALID = (
    Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    Refused(ErrorCode.INVALID_PRODUCER_EPOCH),
    Refused(ErrorCode.INVALID_RECORD),
)


def batch(first: int, count: int = 1, *, epoch: int = 0, time_ms: int = NOW_MS, producer_id: int = 7) -> Batch:
    return Batch(producer_id, epoch, first, count, time_ms)


def rule(*batches: Batch) -> KafkaRule:
    made = KafkaRule(NOW_MS)
    for each in batches:
        assert isinstance(made.judge(each, NOW_MS), Stored)
    return made


def numbered(count: int) -> list[Batch]:
    return [batch(number) for number in range(count)]


def test_next_number_is_stored_and_others_are_refused() -> None:
    made = rule(batch(0, 3))
    assert made.judge(batch(4), NOW_MS) == GAP
    assert made.judge(batch(2), NOW_MS) == GAP  # a part of the last batch
    assert made.judge(batch(3, 2), NOW_MS) == Stored(1)


def test_one_of_the_last_five_is_a_duplicate_of_its_first_copy() -> None:
    made = rule(*numbered(BATCHES_KEPT + 1))
    assert [made.judge(each, NOW_MS) for each in numbered(3)] == [GAP, Duplicate(1), Duplicate(2)]


def test_unknown_producer_begins_at_any_number() -> None:
    assert rule().judge(batch(2**31 - 7), NOW_MS) == Stored(0)
    assert rule(batch(0)).judge(batch(5, producer_id=8), NOW_MS) == Stored(1)


def test_numbers_go_on_with_0_and_never_below() -> None:
    made = rule(batch(2**31 - 2, 2), batch(0))
    assert made.judge(batch(-(2**31) + 1), NOW_MS) == INVALID
    straddling = rule(batch(2**31 - 1, 3))
    assert straddling.judge(batch(2**31 - 1, 3), NOW_MS) == Duplicate(0)
    assert straddling.judge(batch(2), NOW_MS) == Stored(1)


def test_higher_epoch_begins_at_0_and_the_lower_one_is_over() -> None:
    made = rule(batch(0), batch(1))
    assert made.judge(batch(2, epoch=1), NOW_MS) == GAP
    assert made.judge(batch(0, epoch=1), NOW_MS) == Stored(2)
    assert made.judge(batch(1), NOW_MS) == OLD


def test_broker_that_starts_knows_the_last_batch_alone() -> None:
    made = KafkaRule.recovered(numbered(3), NOW_MS)
    assert [made.judge(each, NOW_MS) for each in numbered(3)] == [GAP, GAP, Duplicate(2)]
    assert made.judge(batch(3), NOW_MS) == Stored(3)


@pytest.mark.parametrize("starts", [False, True])
def test_producer_whose_records_are_a_day_old_is_forgotten(starts: bool) -> None:
    """By the time of its last batch. A moment later it would not be."""
    for age_ms, expected in ((EXPIRATION_MS, Stored(1)), (EXPIRATION_MS - SWEEP_MS - 1, Duplicate(0))):
        old = batch(0, time_ms=NOW_MS - age_ms)
        made = KafkaRule.recovered([old], NOW_MS) if starts else rule(old)
        assert made.judge(old, NOW_MS + SWEEP_MS) == expected


def test_nothing_is_forgotten_before_the_broker_looks() -> None:
    old = batch(0, time_ms=NOW_MS - 2 * EXPIRATION_MS)
    assert rule(old).judge(old, NOW_MS + SWEEP_MS - 1) == Duplicate(0)
