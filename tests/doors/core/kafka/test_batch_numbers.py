"""The batches of one producer on one partition, by their numbers, against a model of what the log holds."""

from random import Random

import pytest

from oncelog.core.formats.epoched_ids import first_of
from oncelog.core.ids import NO_SEQUENCE, SequenceId
from oncelog_doors.core.kafka.batch_numbers import GAP_MS, BatchNumbers, Give, GivenIds, Join, Refuse
from oncelog_doors.core.kafka.error_codes import ErrorCode

AGAIN = Refuse(ErrorCode.NOT_ENOUGH_REPLICAS, final=False)


def ids(first: int, count: int = 1, *, epoch: int = 0) -> GivenIds:
    return GivenIds(SequenceId(first_of(epoch) + first), SequenceId(first_of(epoch) + first + count - 1))


def test_batches_are_given_in_their_order() -> None:
    numbers = BatchNumbers(NO_SEQUENCE)
    assert numbers.judge(0, 0, 5, 0) == Give(ids(0, 5))
    assert numbers.judge(0, 5, 3, 0) == Give(ids(5, 3))
    numbers.decided(ids(0, 5), refused=False)
    numbers.decided(ids(5, 3), refused=False)
    assert numbers.mark == 7


def test_the_same_batch_is_joined_until_it_is_decided_and_judged_by_the_log_after_that() -> None:
    numbers = BatchNumbers(NO_SEQUENCE)
    numbers.judge(0, 0, 5, 0)
    assert numbers.judge(0, 0, 5, 0) == Join(ids(0, 5))
    numbers.decided(ids(0, 5), refused=False)
    assert numbers.judge(0, 0, 5, 0) == Give(ids(0, 5))
    assert numbers.mark == 4


@pytest.mark.hazard("lost-first-batch")
def test_an_unknown_producer_starts_at_zero() -> None:
    numbers = BatchNumbers(NO_SEQUENCE)
    assert numbers.judge(0, 5, 5, 0) == AGAIN
    assert numbers.mark == NO_SEQUENCE
    assert numbers.judge(0, 0, 5, 1) == Give(ids(0, 5))
    assert numbers.judge(0, 5, 5, 2) == Give(ids(5, 5))


@pytest.mark.hazard("gap-for-ever")
def test_a_gap_that_stays_is_refused_for_good() -> None:
    """A client that only tries again would hang for ever."""
    numbers = BatchNumbers(SequenceId(4))
    assert numbers.judge(0, 6, 1, 1_000) == AGAIN
    assert numbers.judge(0, 6, 1, 1_000 + GAP_MS - 1) == AGAIN
    assert numbers.judge(0, 6, 1, 1_000 + GAP_MS) == Refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, final=True)
    unknown = BatchNumbers(NO_SEQUENCE)
    unknown.judge(0, 6, 1, 0)
    assert unknown.judge(0, 6, 1, GAP_MS) == Refuse(ErrorCode.UNKNOWN_PRODUCER_ID, final=True)


def test_the_time_of_a_gap_begins_again_when_the_client_has_moved_on() -> None:
    numbers = BatchNumbers(SequenceId(4))
    numbers.judge(0, 6, 1, 0)
    assert numbers.judge(0, 5, 1, 5_000) == Give(ids(5))
    assert numbers.judge(0, 8, 1, GAP_MS) == AGAIN


@pytest.mark.hazard("gap-for-ever")
def test_a_repeated_batch_does_not_end_a_gap() -> None:
    numbers = BatchNumbers(SequenceId(4))
    numbers.judge(0, 6, 1, 0)
    assert numbers.judge(0, 3, 2, 5_000) == Give(ids(3, 2))
    assert numbers.judge(0, 6, 1, GAP_MS) == Refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, final=True)


@pytest.mark.hazard("refused-batch-uses-a-number")
def test_a_refused_batch_uses_up_no_number() -> None:
    """The client splits a batch that is too large, and sends the halves under its numbers."""
    numbers = BatchNumbers(SequenceId(4))
    assert numbers.judge(0, 5, 10, 0) == Give(ids(5, 10))
    assert numbers.judge(0, 15, 1, 0) == Give(ids(15))
    numbers.decided(ids(5, 10), refused=True)
    assert numbers.judge(0, 5, 5, 0) == Give(ids(5, 5))
    numbers.decided(ids(15), refused=True)
    assert numbers.judge(0, 10, 5, 0) == Give(ids(10, 5))
    assert numbers.mark == 14


def test_a_refused_repetition_takes_no_number_of_others_back() -> None:
    numbers = BatchNumbers(SequenceId(9))
    assert numbers.judge(0, 5, 2, 0) == Give(ids(5, 2))
    assert numbers.judge(0, 10, 5, 0) == Give(ids(10, 5))
    numbers.decided(ids(5, 2), refused=True)
    assert numbers.mark == 14


def test_a_higher_epoch_begins_at_zero_and_ends_the_lower_one() -> None:
    numbers = BatchNumbers(SequenceId(4))
    assert numbers.judge(1, 3, 1, 0) == AGAIN
    assert numbers.judge(1, 0, 2, 0) == Give(ids(0, 2, epoch=1))
    assert numbers.judge(0, 5, 1, 0) == Refuse(ErrorCode.INVALID_PRODUCER_EPOCH, final=True)


@pytest.mark.hazard("refused-batch-uses-a-number")
@pytest.mark.parametrize("seed", range(50))
def test_each_batch_is_stored_once_whatever_is_refused_and_repeated(seed: int) -> None:
    """The log takes only the next batch. A client sends again what is refused, and what it got no answer for."""
    random, now_ms, stored = Random(seed), 0, -1
    numbers, unanswered = BatchNumbers(NO_SEQUENCE), [(number * 3, 3) for number in range(10)]
    open_batches: list[tuple[GivenIds, tuple[int, int]]] = []
    while unanswered or open_batches:
        now_ms += 1
        if open_batches and random.random() < 0.5:
            given, back = open_batches.pop(0)
            refused = given.first > stored + 1 or (given.first == stored + 1 and random.random() < 0.2)
            if not refused:
                stored = max(stored, given.last)
            numbers.decided(given, refused=refused)
            if refused:
                unanswered = sorted({*unanswered, back})
            continue
        if not unanswered:
            continue
        batch = unanswered[0] if random.random() < 0.7 else random.choice(unanswered[:5])
        verdict = numbers.judge(0, *batch, now_ms)
        if isinstance(verdict, Give):
            open_batches.append((verdict.ids, batch))
            if random.random() < 0.8:
                unanswered.remove(batch)
        elif isinstance(verdict, Join):
            unanswered.remove(batch)
            assert verdict.ids in [given for given, _ in open_batches]
        else:
            assert verdict.code is ErrorCode.NOT_ENOUGH_REPLICAS or now_ms > GAP_MS
    assert stored == 29
