"""Which connections are read, by the bytes that are not decided."""

from oncelog_doors.core.shared.byte_budget import ByteBudget


def test_a_connection_at_its_limit_is_not_read_until_something_is_decided() -> None:
    budget = ByteBudget(connection_bytes=100, process_bytes=1_000)
    assert not budget.taken(1, 99)
    assert budget.taken(1, 1)
    assert not budget.taken(2, 50)
    assert budget.decided(2, 50) == []
    assert budget.decided(1, 1) == [1]
    assert budget.total == 99


def test_at_the_limit_of_the_process_the_connections_that_reach_it_are_not_read() -> None:
    budget = ByteBudget(connection_bytes=100, process_bytes=150)
    budget.taken(1, 90)
    assert budget.taken(2, 60)
    assert budget.taken(3, 1)
    assert budget.decided(1, 1) == []
    assert budget.decided(1, 1) == [2, 3]


def test_what_a_connection_that_is_over_has_sent_counts_until_it_is_decided() -> None:
    budget = ByteBudget(connection_bytes=100, process_bytes=150)
    budget.taken(1, 100)
    budget.gone(1)
    assert budget.taken(2, 60)
    assert budget.decided(1, 100) == [2]
    assert budget.total == 60
