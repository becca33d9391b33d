"""One subscription, exclusive or shared: attaching, delivery, credit, acknowledgements, and what is refused."""

from dataclasses import replace

import pytest

from oncelog.core.acks.changes import ConsumerActivated
from oncelog.core.delivery.events import (
    AnswerAdmin,
    AnswerSeek,
    ConsumerActive,
    CreateRequested,
    DeleteRequested,
    PropertiesRequested,
    SeekRequested,
    SkipRequested,
)
from oncelog.core.delivery.subscription import DEFERRED_MAX
from oncelog.core.errors import (
    ConsumerBusy,
    ConsumerFenced,
    DeadlineExceeded,
    InvalidArgument,
    NotOwner,
    ServiceUnavailable,
    StaleSeekEpoch,
    SubscriptionGone,
    SubscriptionNotFound,
    SubscriptionTypeMismatch,
    TooManyRequests,
)
from tests.core.delivery.subscription_world import EXCLUSIVE, FAILOVER, SHARED, Client, World


def test_exclusive_consumer_gets_every_message_in_order() -> None:
    world = World(messages=[3, 2])
    consumer = world.subscribe(window=100)
    assert consumer.take() == [0, 1, 2, 3, 4]
    world.store(2)
    assert consumer.take() == [5, 6]


@pytest.mark.hazard("activation-not-durable")
def test_grant_is_told_only_when_it_is_durable() -> None:
    """A generation that was told and then lost would be given to another consumer."""
    world = World(messages=[1])
    world.detach(world.subscribe("a"), lost=False)
    second = world.subscribe("b", written=False)
    assert world.clients == {}
    world.fail()
    assert isinstance(second.answer, ServiceUnavailable)
    third = world.subscribe("c")
    assert third.subscribed.generation == 2


@pytest.mark.hazard("activation-not-durable")
def test_grant_waits_for_nobody() -> None:
    """The former holder's stream broke; the next consumer is active at once and gets what it held."""
    world = World(messages=[3])
    first = world.subscribe("a", FAILOVER, window=10)
    second = world.subscribe("b", FAILOVER, window=10)
    assert second.subscribed.generation == 0
    assert first.take() == [0, 1, 2]
    world.detach(first)
    world.write()
    assert [(active.consumer, active.generation) for active in world.other(ConsumerActive)] == [(second.number, 2)]
    assert second.take() == [0, 1, 2]


def test_second_exclusive_consumer_is_busy() -> None:
    world = World(messages=[1])
    world.subscribe("a")
    assert isinstance(world.subscribe("b").answer, ConsumerBusy)


@pytest.mark.hazard("activation-not-durable")
def test_connected_name_is_busy_unless_the_same_instance_comes_back() -> None:
    """Two processes of one name would depose each other for ever."""
    world = World(messages=[2])
    first = world.subscribe("a", SHARED, instance="one", window=10)
    assert isinstance(world.subscribe("a", SHARED, instance="two").answer, ConsumerBusy)
    again = world.reconnect(first, held=[0, 1], window=10)
    assert first.ended is not None
    assert [tuple(kept) for kept in again.subscribed.kept] == [(0, 1)]
    assert again.take() == []


@pytest.mark.hazard("activation-not-durable")
def test_request_to_attach_that_was_overtaken_ends_no_newer_stream() -> None:
    """A client that waits too long asks again, and an owner looks up the rights of each request on its own. The first
    request, if it came into effect last, would end the consumer that the second one has attached."""
    world = World(messages=[2])
    first = world.subscribe("a", SHARED, instance="one", window=10)
    late = world.openings[0] = Client(replace(first.opening, call=0))
    world.post(late.opening)
    assert isinstance(late.answer, ServiceUnavailable)
    assert first.ended is None
    assert first.take() == [0, 1]


def test_subscription_keeps_its_type_while_it_has_consumers() -> None:
    world = World(messages=[1])
    first = world.subscribe("a", SHARED)
    assert isinstance(world.subscribe("b", EXCLUSIVE).answer, SubscriptionTypeMismatch)
    world.detach(first, lost=False)
    assert world.subscribe("b", EXCLUSIVE).subscribed.generation == 1


def test_unknown_subscription_is_not_created_without_a_start() -> None:
    assert isinstance(World().subscribe(first_index=None).answer, SubscriptionNotFound)


@pytest.mark.hazard("recreated-subscription")
def test_reconnecting_never_creates_a_subscription() -> None:
    """A zombie's reconnect would create a deleted subscription again, or take one of the same name."""
    world = World(messages=[1])
    consumer = world.subscribe(window=10)
    world.delete()
    assert isinstance(consumer.ended, SubscriptionGone)
    assert isinstance(world.reconnect(consumer, held=[0]).answer, SubscriptionGone)
    world.subscribe("other")
    assert isinstance(world.reconnect(consumer, held=[0]).answer, SubscriptionGone)


def test_acknowledgement_is_answered_when_it_is_durable() -> None:
    world = World(messages=[3])
    consumer = world.subscribe(window=10)
    assert world.ack(consumer, 1, written=False) == "waits"
    assert world.acked() == []
    world.write()
    assert world.acked() == [1]
    assert world.answers[-1].error is None


@pytest.mark.hazard("failed-ack-write")
def test_dropped_acknowledgement_leaves_its_message_outstanding_with_its_timer() -> None:
    """An acknowledgement in flight hides its message and does nothing else."""
    world = World(messages=[2])
    consumer = world.subscribe("a", SHARED, window=10, ack_timeout_ms=10_000)
    world.receive(consumer, 0, 1, window=10)
    world.pass_time(6_000)
    world.ack(consumer, 0, written=False)
    world.fail()
    assert isinstance(world.answers[-1].error, ServiceUnavailable)
    consumer.take()
    world.pass_time(5_000)
    world.write()
    assert consumer.got == [(0, 2), (1, 2)]


def test_acknowledgements_are_refused_while_there_is_no_room_for_them() -> None:
    """They are to be sent again: nothing is half taken, and the message stays with its consumer."""
    world = World(messages=[2])
    consumer = world.subscribe("a", SHARED, window=10)
    world.has_room = False
    assert isinstance(world.ack(consumer, 0), TooManyRequests)
    assert isinstance(world.nack(consumer, 1), TooManyRequests)
    world.has_room = True
    assert world.acked() == []
    assert world.ack(consumer, 0) is None
    assert world.acked() == [0]


def test_few_requests_wait_for_a_seek_in_flight() -> None:
    world = World(messages=[2])
    consumer = world.subscribe("a", SHARED, window=10)
    world.seek(0, written=False)
    answers = [world.ack(consumer, 0, written=False) for _ in range(DEFERRED_MAX + 1)]
    assert set(answers[:-1]) == {"waits"}
    assert isinstance(answers[-1], TooManyRequests)
    world.write()
    assert isinstance(world.ack(consumer, 0, epoch=0), StaleSeekEpoch)


def test_message_with_an_acknowledgement_in_flight_is_not_delivered() -> None:
    world = World(messages=[2])
    first = world.subscribe("a", SHARED, window=10)
    world.ack(first, 0, written=False)
    world.detach(first, lost=False)
    second = world.subscribe("b", SHARED, window=10, written=False)
    assert second.take() == [1]
    world.fail()
    assert second.take() == [0]


@pytest.mark.hazard("ack-before-delivery")
def test_acknowledgement_of_what_this_owner_never_delivered_counts() -> None:
    """The former owner delivered 1 and died; refusing its acknowledgement would have it
    worked on twice, and moving a read pointer to 2 would lose 0."""
    world = World(messages=[3])
    consumer = world.subscribe("a", SHARED)
    assert world.ack(consumer, 1) is None
    world.flow(consumer, 10)
    assert consumer.take() == [0, 2]


def test_acknowledgement_above_the_durable_end_is_refused() -> None:
    world = World(messages=[3])
    consumer = world.subscribe(window=10)
    assert isinstance(world.ack(consumer, 3), InvalidArgument)
    assert isinstance(world.ack(consumer, below=4), InvalidArgument)
    assert world.ack(consumer, below=3) is None


def test_cumulative_acknowledgement_on_a_shared_subscription_is_refused() -> None:
    world = World(messages=[3])
    assert isinstance(world.ack(world.subscribe("a", SHARED), below=2), InvalidArgument)


@pytest.mark.hazard("former-consumer-acks")
def test_cumulative_acknowledgement_of_a_former_consumer_is_fenced() -> None:
    """The new consumer has rejected a message; the former one wakes and acknowledges everything below."""
    world = World(messages=[5])
    former = world.subscribe("b", FAILOVER, window=10)
    world.subscribe("a", FAILOVER, window=10)
    assert former.generation == 1
    assert isinstance(world.ack(former, below=5, generation=1), ConsumerFenced)
    assert world.ack(former, 4) is None
    assert world.acked() == [4]


def test_cumulative_acknowledgement_waits_for_a_grant_in_flight() -> None:
    """Behind the grant in the chain the fold would ignore it."""
    world = World(messages=[5])
    former = world.subscribe("b", FAILOVER, window=10)
    world.subscribe("a", FAILOVER, written=False)
    assert world.ack(former, below=5, written=False) == "waits"
    world.write()
    assert isinstance(world.answers[-1].error, ConsumerFenced)


def test_cumulative_acknowledgement_counts_when_the_grant_in_flight_fails() -> None:
    world = World(messages=[5])
    former = world.subscribe("b", FAILOVER, window=10)
    world.subscribe("a", FAILOVER, written=False)
    assert world.ack(former, below=5, written=False) == "waits"
    world.fail()
    world.write()
    assert world.answers[-1].error is None
    assert world.acked() == [0, 1, 2, 3, 4]


def test_next_message_is_the_lowest_one_that_is_neither_acknowledged_nor_outstanding() -> None:
    world = World(messages=[4, 4])
    first = world.subscribe("a", SHARED, window=3)
    assert first.take() == [0, 1, 2]
    world.ack(first, 1, 5)
    second = world.subscribe("b", SHARED, window=100)
    assert second.take() == [3, 4, 6, 7]
    world.detach(first, lost=False)
    assert second.take() == [0, 2]


def test_shared_messages_are_cut_at_the_window() -> None:
    world = World(messages=[10])
    first = world.subscribe("a", SHARED, window=4)
    second = world.subscribe("b", SHARED, window=3)
    assert (first.take(), second.take()) == ([0, 1, 2, 3], [4, 5, 6])


def test_consumer_without_credit_stops_no_other() -> None:
    world = World(messages=[1])
    slow = world.subscribe("a", SHARED, window=1)
    fast = world.subscribe("b", SHARED, window=100)
    for _ in range(10):
        world.store(1)
    assert slow.take() == [0]
    assert fast.take() == list(range(1, 11))


@pytest.mark.hazard("relative-credit")
def test_credit_is_absolute() -> None:
    """A report that is lost or repeated harms nothing, and a removed consumer leaves no debt."""
    world = World(messages=[1] * 20)
    consumer = world.subscribe("a", SHARED, window=4)
    assert consumer.take() == [0, 1, 2, 3]
    world.flow(consumer, 4)
    assert consumer.take() == []
    world.flow(consumer, 4, handed_out=4)
    world.flow(consumer, 4, handed_out=4)
    world.flow(consumer, 4, handed_out=2)
    assert consumer.take() == [4, 5, 6, 7]
    world.flow(consumer, 4, handed_out=1_000)
    assert consumer.take() == [8, 9, 10, 11]


def test_shared_consumers_take_turns() -> None:
    world = World(messages=[2] * 6)
    first, second = world.subscribe("a", SHARED), world.subscribe("b", SHARED)
    world.flow(first, 4)
    world.flow(second, 100)
    assert (first.take(), second.take()) == ([0, 1, 2, 3], [4, 5, 6, 7, 8, 9, 10, 11])
    world.flow(first, 100, handed_out=4)
    for _ in range(4):
        world.store(1)
    assert sorted([first.take(), second.take()]) == [[12, 14], [13, 15]]


def test_look_ahead_reads_nothing_without_credit() -> None:
    world = World(messages=[5] * 50)
    world.reads_answered = False
    consumer = world.subscribe("a", SHARED)
    assert world.reads == []
    world.flow(consumer, 5)
    assert [read.first_index for read in world.reads] == [0]
    world.flow(consumer, 5)
    assert len(world.reads) == 1


@pytest.mark.hazard("index-given-twice")
def test_indexes_that_no_entry_holds_count_as_skipped() -> None:
    """A lost ledger was given up, and its numbers are left out."""
    world = World(messages=[2])
    world.log.next_index += 1000
    world.store(2)
    consumer = world.subscribe("a", SHARED, window=10)
    assert consumer.take() == [0, 1, 1002, 1003]
    world.write()
    world.ack(consumer, 0, 1, 1002, 1003)
    assert world.state.subscriptions[world.number].acks.mark_delete == 1004


@pytest.mark.hazard("late-ack-after-seek")
def test_seek_voids_deliveries_and_late_acknowledgements() -> None:
    """Hazard late-ack-after-seek: 0 is out, seek to 0, the late acknowledgement of 0 would undo the seek."""
    world = World(messages=[3])
    consumer = world.subscribe(window=10)
    assert consumer.take() == [0, 1, 2]
    world.ack(consumer, below=3)
    world.seek(0, written=False)
    assert world.ack(consumer, 0, written=False) == "waits"
    world.store(1)
    assert consumer.take() == []
    world.write()
    assert isinstance(world.answers[-1].error, StaleSeekEpoch)
    assert consumer.seek_epoch == 1
    world.flow(consumer, 10, handed_out=3)
    assert consumer.take() == [0, 1, 2, 3]
    assert isinstance(world.ack(consumer, 0, epoch=0), StaleSeekEpoch)


def test_seek_that_was_not_written_changes_nothing() -> None:
    world = World(messages=[3])
    consumer = world.subscribe(window=10)
    world.seek(0, written=False)
    assert world.ack(consumer, 0, written=False) == "waits"
    world.fail()
    assert isinstance(world.other(AnswerSeek)[0].result, ServiceUnavailable)
    world.write()
    assert world.answers[-1].error is None
    assert consumer.seek_epoch == 0
    assert world.acked() == [0]


@pytest.mark.hazard("late-ack-after-seek")
def test_what_is_in_flight_at_the_end_of_an_owner_is_unknown() -> None:
    """The next owner may find it in the chain; NotOwner would have it made twice. What waits was not written."""
    world = World(messages=[3])
    world.subscribe(window=10)
    world.topic.trim_began(2)
    world.post(SeekRequested(1, world.number, 1))
    world.topic.handle(SkipRequested(2, world.number, count=1))
    world.topic.handle(PropertiesRequested(3, world.number, (("a", "b"),)))
    world.topic.handle(SeekRequested(4, world.number, 2))
    world.topic.handle(CreateRequested(5, "other", 3))
    world.topic.handle(DeleteRequested(6, "s", force=True))
    world.topic.end(NotOwner("the topic moved"))
    world.settle()
    seeks = {answer.call: type(answer.result) for answer in world.other(AnswerSeek)}
    admin = {answer.call: type(answer.error) for answer in world.other(AnswerAdmin)}
    assert seeks == {1: NotOwner, 4: DeadlineExceeded}
    assert admin == dict.fromkeys((2, 3, 5, 6), DeadlineExceeded)


def test_seek_out_of_range_is_refused() -> None:
    world = World(messages=[3])
    world.subscribe()
    world.seek(4)
    assert isinstance(world.other(AnswerSeek)[0].result, InvalidArgument)


def test_failed_grant_is_granted_again_to_an_attached_consumer() -> None:
    world = World(messages=[2])
    first = world.subscribe("a", FAILOVER, window=10)
    second = world.subscribe("b", FAILOVER, window=10)
    world.detach(first, lost=False)
    world.fail()
    assert [type(change) for change, _ in world.chain] == [ConsumerActivated]
    world.write()
    assert second.take() == [0, 1]


def test_priority_then_name_decides_who_is_active() -> None:
    world = World(messages=[1])
    b = world.subscribe("b", FAILOVER, priority=1, window=10)
    world.subscribe("c", FAILOVER, priority=1)
    assert b.take() == [0]
    a = world.subscribe("z", FAILOVER, priority=0, window=10)
    assert a.take() == [0]


def test_partitions_are_spread_over_failover_consumers() -> None:
    world = World(messages=[1], partition=1)
    world.subscribe("a", FAILOVER, window=10)
    second = world.subscribe("b", FAILOVER, window=10)
    assert second.take() == [0]
