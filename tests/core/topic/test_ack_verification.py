"""The proof that snapshot + ack log == the state of the subscriptions, while the topic serves."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from oncelog.core.acks.ack_state import SubscriptionsState, SubscriptionState
from oncelog.core.acks.changes import IndexRange
from oncelog.core.errors import TopicLoading
from oncelog.core.formats.entry import GivenUp
from oncelog.core.ids import EntryId, LedgerId, SeekEpoch, SubscriptionNumber
from oncelog.core.snapshots.snapshot_writer import SnapshotSettings
from oncelog.core.topic.fold_verification import VerificationState
from oncelog.core.topic.serving import TopicSettings
from oncelog.core.topic_events.events import SnapshotRequested
from tests.core.topic.test_fold_verification import Proof
from tests.core.topic.test_topic_subscriptions import Consuming
from tests.core.topic.topic_world import SETTINGS, Owner, World

SELDOM = replace(SETTINGS, snapshot=SnapshotSettings(entries_max=10_000, gap_ms=0))
BILLING = SubscriptionNumber(1)


def consuming(settings: TopicSettings = SELDOM) -> Consuming:
    """Ten messages; subscription billing has acknowledged 0, 1, 3 and 7."""
    one = Consuming(World(), settings=settings).publish(0, 10)
    subscribed = one.subscribe()
    for request, index in enumerate((0, 1, 3, 7)):
        one.ack(subscribed, request, index)
        one.owner.run()
    return one


def acks_of(owner: Owner) -> SubscriptionsState:
    assert owner.core.serving is not None
    return owner.core.serving.acks.state


def found(proof: Proof) -> list[tuple[str, str]]:
    """(subscription, field) of the differences."""
    assert proof.core.state is VerificationState.DONE, proof.core.failure
    assert proof.found == [], "the producers are equal"
    return [(each.subscription, each.field) for each in proof.core.ack_differences]


@pytest.mark.parametrize("snapshot", [False, True], ids=["ack-log-alone", "snapshot-and-ack-log"])
def test_snapshot_and_ack_log_are_the_state(snapshot: bool) -> None:
    """All subscriptions are compared, at the owner's position in the ack log."""
    one = consuming()
    if snapshot:
        one.owner.handle(SnapshotRequested(1))
        one.owner.run()
    one.ack(one.subscribe(), 9, 5)
    one.owner.run()
    proof = Proof(one.owner).run()
    assert found(proof) == []
    assert (proof.core.subscriptions_compared, proof.core.subscription_count) == (1, 1)
    assert proof.core.ack_position == acks_of(one.owner).position
    assert (proof.core.snapshot.loaded is not None) == snapshot


def test_next_owner_reads_what_the_former_one_wrote() -> None:
    """It has written nothing into the ack log yet."""
    one = consuming()
    two = Owner(one.world, "o2", SELDOM).take_over()
    assert found(Proof(two).run()) == []


def test_acknowledgements_meanwhile_are_no_difference() -> None:
    """Each step compares as of one position."""
    one = consuming()
    subscribed = one.subscribe()
    left = [2, 4, 5, 6]

    def acknowledge() -> None:
        if left:
            one.ack(subscribed, 50 + len(left), left.pop())
            one.owner.run()

    proof = Proof(one.owner).run(acknowledge)
    assert found(proof) == []
    assert left == []


def acknowledge(state: SubscriptionState) -> None:
    state.acks.add([IndexRange(5, 5)])


def seek(state: SubscriptionState) -> None:
    state.seek_epoch = SeekEpoch(9)


def rename(state: SubscriptionState) -> None:
    state.role = "somebody"


@pytest.mark.parametrize("plant", [acknowledge, seek, rename])
def test_changed_state_of_a_subscription_is_found(plant: Callable[[SubscriptionState], None]) -> None:
    """With what the ack log says, and what the owner has."""
    one = consuming()
    plant(acks_of(one.owner).subscriptions[BILLING])
    proof = Proof(one.owner).run()
    assert found(proof) == [("billing", "state")]
    [difference] = proof.core.ack_differences
    assert difference.expected.startswith("first unacknowledged 2, 2 acknowledged above it")
    assert difference.expected != difference.found


def test_lost_and_invented_subscriptions_are_found() -> None:
    """The owner lacks one that the ack log has, and has one that it does not have."""
    one = consuming()
    state = acks_of(one.owner)
    billing = state.subscriptions.pop(BILLING)
    billing.number, billing.name = SubscriptionNumber(7), "ghost"
    state.subscriptions[billing.number] = billing
    assert sorted(found(Proof(one.owner).run())) == [("billing", "subscription"), ("ghost", "subscription")]


def test_damaged_subscriptions_in_a_snapshot_are_found() -> None:
    """A snapshot that was written from a wrong state: the next owner would believe it."""
    one = consuming()
    billing = acks_of(one.owner).subscriptions[BILLING]
    billing.role = "wrong"
    acks_of(one.owner).dirty[BILLING] = None
    one.owner.handle(SnapshotRequested(1))
    one.owner.run()
    billing.role = ""
    assert found(Proof(one.owner).run()) == [("billing", "state")]


def test_entry_of_the_ack_log_that_nobody_gives_is_no_verdict() -> None:
    """It fails, and names the entry."""
    one = consuming()
    [ledger_id, *_] = one.world.record.acks
    one.world.unreadable.add((ledger_id, 1))
    proof = Proof(one.owner).run()
    assert proof.core.state is VerificationState.FAILED
    assert proof.core.failure is not None
    assert (proof.core.failure.ledger_id, proof.core.failure.entry_id) == (ledger_id, 1)


def test_ack_log_with_a_loss_that_it_does_not_say_yet_is_not_verified() -> None:
    """The state is ahead of the chain then."""
    one = consuming()
    assert one.owner.core.serving is not None
    one.owner.core.serving.acks.given_up = (GivenUp(LedgerId(1), EntryId(0), "ann"),)
    with pytest.raises(TopicLoading):
        Proof(one.owner)
