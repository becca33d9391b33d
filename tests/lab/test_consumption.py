"""The account of consumers: what counts as delivered, as redelivered, and as acknowledged and seen again."""

from oncelog.client.consuming.subscribing import SubscriptionTypeName
from oncelog_lab.consumer_program import ranges_of
from oncelog_lab.consumption import IN_FLIGHT_S, Consumption
from oncelog_lab.verdict import LogVerdict
from oncelog_lab.workload.consumers import WorkloadSubscription, with_consumers


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


def subscription(kind: SubscriptionTypeName) -> WorkloadSubscription:
    return WorkloadSubscription(kind, "flights")


def plain(*indexes: int) -> list[tuple[int, bytes | None]]:
    return [(index, None) for index in indexes]


def test_new_messages_ascend_for_one_consumer() -> None:
    """What was received before may come again; another session may begin anywhere."""
    own = subscription("failover")
    own.receive("a", plain(0, 1, 5), empty_at_s=0.0)
    own.receive("a", plain(1, 6), empty_at_s=0.0)
    assert own.out_of_order == 0
    own.receive("b", plain(3), empty_at_s=0.0)
    assert own.out_of_order == 0
    own.receive("a", plain(4), empty_at_s=0.0)
    assert own.out_of_order == 1
    own.session_ends("a")
    own.receive("a", plain(2), empty_at_s=0.0)
    assert own.out_of_order == 1


def test_new_messages_of_a_key_ascend_whoever_gets_them() -> None:
    own = subscription("key_shared")
    own.receive("a", [(0, b"x"), (9, b"y"), (4, b"x")], empty_at_s=0.0)
    own.receive("b", [(5, b"x"), (10, b"y"), (3, None)], empty_at_s=0.0)
    own.receive("b", [(4, b"x")], empty_at_s=0.0)
    assert own.out_of_order == 0
    own.receive("b", [(8, b"y")], empty_at_s=0.0)
    assert own.out_of_order == 1


def test_shared_messages_have_no_order() -> None:
    own = subscription("shared")
    own.receive("a", [(4, b"x"), (1, b"x")], empty_at_s=0.0)
    assert own.out_of_order == 0


def test_verdict_counts_what_subscriptions_got() -> None:
    """Each fault fails the run and names its subscription."""
    good, bad = subscription("shared"), subscription("exclusive")
    for each in (good, bad):
        each.account.acknowledge(each.receive("a", plain(0, 1, 2), empty_at_s=0.0), at_s=1.0)
    verdict = LogVerdict(3, 3)
    fine = with_consumers(verdict, [good, bad], {"flights": 3})
    assert (fine.perfect, fine.delivered, fine.redelivered) == (True, 6, 0)
    bad.receive("a", plain(5, 4, 2), empty_at_s=10.0)
    found = with_consumers(verdict, [good, bad], {"flights": 3})
    assert (found.perfect, found.acked_seen_again, found.consumer_order, found.never_delivered) == (False, 1, 1, 0)
    assert found.violations == (
        "workload-exclusive: 1 acknowledged messages came again", "workload-exclusive: wrong order",
    )  # fmt: skip
    lacking = with_consumers(verdict, [good], {"flights": 5})
    assert (lacking.perfect, lacking.violations) == (False, ("workload-shared: 2 messages were never delivered",))
