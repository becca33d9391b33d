"""The account of consumers: what counts as delivered, as redelivered, and as acknowledged and seen again."""

from oncelog.lab.consumer_program import ranges_of
from oncelog.lab.consumption import IN_FLIGHT_S, Consumption


def test_everything_once() -> None:
    """Nothing is missing, nothing comes again."""
    account = Consumption()
    account.receive([(0, 4), (8, 9)], empty_at_s=0.0)
    account.acknowledge([(0, 4), (8, 9)], at_s=1.0)
    account.receive([(5, 7)], empty_at_s=2.0)
    assert (account.delivered, account.redelivered, account.acked_seen_again) == (10, 0, 0)
    assert (account.never_delivered(10), account.never_delivered(12)) == (0, 2)
    assert account.acked.count == 7


def test_message_that_was_not_acknowledged_may_come_again() -> None:
    """Its consumer was killed, or did not learn that the acknowledgement is durable."""
    account = Consumption()
    account.receive([(0, 9)], empty_at_s=0.0)
    account.acknowledge([(0, 4)], at_s=1.0)
    account.receive([(5, 9)], empty_at_s=100.0)
    assert (account.redelivered, account.acked_seen_again) == (5, 0)


def test_acknowledged_message_that_arrives_later_is_seen_again() -> None:
    """It arrived at a consumer whose buffer was empty long after the acknowledgement."""
    account = Consumption()
    account.receive([(0, 9)], empty_at_s=0.0)
    account.acknowledge([(0, 9)], at_s=1.0)
    account.receive([(3, 4), (8, 12)], empty_at_s=1.1 + IN_FLIGHT_S)
    assert (account.redelivered, account.acked_seen_again) == (4, 4)


def test_message_in_another_buffer_may_be_handed_out_after_its_acknowledgement() -> None:
    """It was sent before: the buffer was not empty since."""
    account = Consumption()
    account.receive([(0, 9)], empty_at_s=0.0)
    account.acknowledge([(0, 9)], at_s=5.0)
    account.receive([(3, 4)], empty_at_s=4.9)
    account.receive([(5, 5)], empty_at_s=5.0 + IN_FLIGHT_S)
    assert (account.redelivered, account.acked_seen_again) == (3, 0)


def test_ranges_of_indexes() -> None:
    """Whatever the order in which partitions and entries came."""
    assert ranges_of([5, 6, 1, 2, 9]) == [[1, 2], [5, 6], [9, 9]]
    assert ranges_of([]) == []
