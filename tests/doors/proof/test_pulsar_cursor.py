"""Pulsar's rule for acknowledgements, as its own tests (ManagedCursorTest) and Guava's RateLimiter have it."""

from collections.abc import Iterable

from oncelog_doors.proof.pulsar.cursor import RANGES_MAX, PulsarCursor, WriteLimit

FIRST, SECOND, THIRD = 5, 7, 9
#: The next write is allowed by then.
LATER_S = 100.0


def cursor(*acknowledged: tuple[int, Iterable[int]]) -> PulsarCursor:
    """acknowledged: (ledger, messages), in one acknowledgement whose write used the limit up."""
    made = PulsarCursor(0.0)
    made.acknowledged({number: ledger for ledger, numbers in acknowledged for number in numbers}, 0.0)
    return made


def written(made: PulsarCursor) -> list[int]:
    found = made.acknowledged({}, LATER_S)
    assert found is not None
    return sorted(found)


def test_only_the_first_acknowledgement_of_a_second_is_written() -> None:
    made = PulsarCursor(0.0)
    found = [made.acknowledged({number: FIRST}, at_s) for number, at_s in enumerate((0.0, 0.1, 0.999, 1.0))]
    assert found == [frozenset({0}), None, None, frozenset(range(4))]


def test_limit_that_was_not_used_for_a_second_allows_two_writes_at_once() -> None:
    limit = WriteLimit(0.0)
    assert [limit.allows(1.0) for _ in range(3)] == [True, True, False]
    assert [limit.allows(1.9), limit.allows(2.0)] == [False, True]


def test_limit_keeps_what_was_not_used_for_a_second_at_most() -> None:
    limit = WriteLimit(0.0)
    assert [limit.allows(60.0) for _ in range(3)] == [True, True, False]


def test_all_messages_in_front_of_the_first_unacknowledged_one_are_written() -> None:
    many = range(10 * RANGES_MAX)
    assert written(cursor((FIRST, many))) == list(many)


def test_first_ledger_is_written_whole() -> None:
    """However many ranges it has."""
    ranges = list(range(1, 10 * RANGES_MAX, 2))
    assert written(cursor((FIRST, ranges))) == ranges


def test_ledger_is_left_out_if_those_before_it_have_more_acknowledged_messages_than_the_limit() -> None:
    """Messages are counted, not ranges, and of ledgers that are left out, too."""
    at_limit = list(range(1, RANGES_MAX + 1))
    assert written(cursor((FIRST, at_limit), (SECOND, [20]))) == [*at_limit, 20]
    above = list(range(1, RANGES_MAX + 2))
    assert written(cursor((FIRST, above), (SECOND, [20]), (THIRD, [30]))) == above


def test_pause_counts_ranges() -> None:
    """Many messages in few ranges do not begin it."""
    assert not cursor((FIRST, range(1, 100))).paused
    at_limit = range(1, 2 * RANGES_MAX, 2)
    assert not cursor((FIRST, at_limit)).paused
    made = cursor((FIRST, [*at_limit, 2 * RANGES_MAX + 1]))
    assert made.paused
    made.acknowledged({0: FIRST}, 0.1)
    assert not made.paused


def test_broker_that_starts_does_not_pause() -> None:
    assert not PulsarCursor(0.0).paused
