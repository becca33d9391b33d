"""Subscriptions of a topic at its owner: what is delivered and acknowledged outlives owners and ledgers, and pins the
log."""

from dataclasses import replace

import pytest

from oncelog.core.acks.changes import IndexRange, SubscriptionType
from oncelog.core.chain.managed_ledger import EntriesAnswered
from oncelog.core.delivery.events import (
    AckRequested,
    AnswerAck,
    AnswerAdmin,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerOpening,
    DeleteRequested,
    DeliverMessages,
    EndConsumer,
    FlowReported,
    HeldMessages,
    SeekRequested,
    Subscribed,
)
from oncelog.core.errors import NotOwner, OncelogError, SubscriptionGone, TopicLoading
from oncelog.core.ids import (
    ConsumerNumber,
    EntryId,
    Generation,
    Incarnation,
    LedgerId,
    Position,
    SeekEpoch,
    SessionNumber,
)
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.snapshots.snapshot_writer import SnapshotSettings
from oncelog.core.topic.serving import TopicSettings
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.effects import EndSession, TopicClosed
from oncelog.core.topic_events.events import DrainRequested, TopicAssigned, TrimRequested
from tests.core.builders import A, B, received
from tests.core.topic.topic_world import SETTINGS, Owner, World

#: The log is soon trimmed: a ledger holds four entries, and every snapshot is a base.
SMALL = replace(SETTINGS, ledger_entries_max=4, snapshot=SnapshotSettings(entries_max=1, gap_ms=0, deltas_max=0))


class Consuming:
    """An owner with one producer, whose batch number n holds message n."""

    def __init__(self, world: World, name: str = "o1", settings: TopicSettings = SETTINGS) -> None:
        self.world = world
        self.owner = Owner(world, name, settings).take_over()
        self._calls = 100

    def publish(self, first: int, count: int) -> "Consuming":
        granted = self.owner.open("p")
        pid, generation = granted.instance
        for number in range(first, first + count):
            self.owner.now_ms += 10
            self.owner.send(granted.session, received(number, [number], pid=pid, generation=generation))
            self.owner.run()
        return self

    def opening(self, **fields: object) -> ConsumerOpening:
        self._calls += 1
        settings: dict[str, object] = {"first_index": 0} | fields
        return ConsumerOpening(
            self._calls, "billing", SubscriptionType.EXCLUSIVE, "c", b"i" * 16, **settings  # type: ignore[arg-type]
        )  # fmt: skip

    def subscribe(self, *, window: int = 100, **fields: object) -> Subscribed:
        """A consumer attaches, after the time in which a former owner's consumer could come back (hazard
        delivered-while-held)."""
        self.owner.tick(1_000).run()
        self.owner.tick(1_000).run()
        opening = self.opening(**fields)
        self.owner.handle(opening)
        self.owner.run()
        (result,) = [e.result for e in self.owner.emitted(AnswerSubscribe) if e.call == opening.call]
        assert isinstance(result, Subscribed), result
        self.owner.handle(FlowReported(result.consumer, 0, window))
        self.owner.run()
        return result

    def delivered(self, consumer: ConsumerNumber) -> list[int]:
        frames = [effect for effect in self.owner.emitted(DeliverMessages) if effect.consumer == consumer]
        ranges = [each for frame in frames for entry in frame.entries for each in entry.ranges]
        return [index for first, last in ranges for index in range(first, last + 1)]

    def ack(self, subscribed: Subscribed, request: int, *indexes: int) -> None:
        ranges = tuple(IndexRange(index, index) for index in indexes)
        self.owner.handle(AckRequested(subscribed.consumer, request, subscribed.seek_epoch, ranges))

    def answered(self, request: int) -> list[AnswerAck]:
        return [answer for answer in self.owner.emitted(AnswerAck) if answer.request == request]


@pytest.mark.hazard("failed-ack-write", "ack-before-delivery")
def test_acknowledged_messages_are_not_delivered_by_the_next_owner() -> None:
    """What was delivered is not recorded; what was acknowledged is, and nothing else is missing."""
    one = Consuming(World()).publish(0, 3)
    first = one.subscribe()
    one.publish(3, 2)
    assert one.delivered(first.consumer) == [0, 1, 2, 3, 4]
    one.ack(first, 1, 1, 3)
    assert one.answered(1) == []
    one.owner.run()
    assert [answer.error for answer in one.answered(1)] == [None]
    two = Consuming(one.world, "o2")
    again = two.subscribe()
    assert again.subscription_id == first.subscription_id
    assert two.delivered(again.consumer) == [0, 2, 4]
    one.owner.handle(one.opening())
    one.owner.run()


@pytest.mark.hazard("failed-ack-write", "deposed-owner-acks")
def test_failed_ack_ledger_makes_the_acknowledgement_retriable_and_ends_no_session() -> None:
    """The same acknowledgement goes into the next ledger."""
    one = Consuming(World()).publish(0, 2)
    subscribed = one.subscribe()
    one.world.silent = {A, B}
    one.ack(subscribed, 1, 0)
    one.owner.run()
    assert one.answered(1) == []
    assert one.owner.core.serving is not None
    writer = one.owner.core.serving.acks.ledgers.writer
    assert writer is not None
    one.world.silent = set()
    for member in (A, B):
        one.owner.handle(EntriesAnswered(writer.ledger_id, member, list[EntryId](), AppendStatus.READ_ONLY))
    one.owner.run()
    assert [answer.error is not None and answer.error.retriable for answer in one.answered(1)] == [True]
    assert one.owner.emitted(EndSession) == []
    one.ack(subscribed, 2, 0)
    one.owner.run()
    assert [answer.error for answer in one.answered(2)] == [None]
    two = Consuming(one.world, "o2")
    assert two.delivered(two.subscribe().consumer) == [1]


@pytest.mark.hazard("seek-below-a-trim")
def test_unacknowledged_messages_pin_their_ledger_and_the_ledgers_behind_it() -> None:
    """By the durable fold alone: an acknowledgement in flight frees nothing (hazard failed-ack-write)."""
    one = Consuming(World(), settings=SMALL)
    subscribed = one.subscribe()
    one.publish(0, 30)
    beyond = TrimRequested(Position(LedgerId(1 << 40), EntryId(0)))
    one.owner.handle(beyond)
    one.owner.run()
    first = one.world.record.ledgers[0]
    assert (first.base_index, one.world.record.deleted_below) == (0, 0)
    one.ack(subscribed, 1, *range(20))
    one.owner.handle(beyond)
    assert one.world.record.ledgers[0] == first
    one.owner.run()
    one.owner.handle(beyond)
    one.owner.run()
    kept = one.world.record.ledgers[0]
    assert 0 < kept.base_index <= 20
    following = next(link for link in one.world.record.ledgers if link.ledger_id > kept.ledger_id)
    assert following.base_index > 20 or following == one.world.record.ledgers[-1]
    two = Consuming(one.world, "o2", SMALL)
    assert two.delivered(two.subscribe().consumer) == list(range(20, 30))


@pytest.mark.hazard("seek-below-a-trim")
def test_step_back_waits_for_a_trim_in_flight_and_then_begins_where_the_log_begins() -> None:
    """A new subscription from the first message on: its place is below the target of the trim."""
    one = Consuming(World(), settings=SMALL)
    one.publish(0, 30)
    one.owner.handle(TrimRequested(Position(LedgerId(1 << 40), EntryId(0))))
    opening = one.opening()
    one.owner.handle(opening)
    assert not one.owner.emitted(AnswerSubscribe)
    one.owner.run()
    begins = one.world.record.ledgers[0].base_index
    assert begins > 0
    (answer,) = one.owner.emitted(AnswerSubscribe)
    assert isinstance(answer.result, Subscribed)
    one.owner.handle(FlowReported(answer.result.consumer, 0, 100))
    one.owner.run()
    assert one.delivered(answer.result.consumer) == list(range(begins, 30))


def test_hand_over_answers_acknowledgements_and_ends_consumers() -> None:
    """They look the topic up again, and the next owner has what was answered."""
    one = Consuming(World()).publish(0, 2)
    subscribed = one.subscribe()
    one.ack(subscribed, 1, 0)
    one.owner.handle(DrainRequested())
    one.ack(subscribed, 2, 1)
    one.owner.run()
    assert one.owner.emitted(TopicClosed)
    assert [answer.error for answer in one.answered(1)] == [None]
    assert [isinstance(answer.error, NotOwner) for answer in one.answered(2)] == [True]
    (ended,) = one.owner.emitted(EndConsumer)
    assert (ended.consumer, ended.error.retriable) == (subscribed.consumer, True)
    two = Consuming(one.world, "o2")
    assert two.delivered(two.subscribe().consumer) == [1]


@pytest.mark.hazard("deposed-owner-delivers")
def test_deposed_owner_ends_its_consumers_and_answers_nothing_more() -> None:
    """The acknowledgement in flight is repeated at the next owner."""
    one = Consuming(World()).publish(0, 2)
    subscribed = one.subscribe()
    two = Consuming(one.world, "o2")
    one.ack(subscribed, 1, 0)
    one.owner.run()
    assert one.owner.core.phase is Phase.DEPOSED
    assert [answer for answer in one.answered(1) if answer.error is None] == []
    assert [effect.consumer for effect in one.owner.emitted(EndConsumer)] == [subscribed.consumer]
    assert two.delivered(two.subscribe().consumer) == [0, 1]


def test_requests_for_consumers_are_refused_while_the_topic_does_not_serve() -> None:
    """During a takeover the error is retriable at the same owner; afterwards the topic is looked up again."""
    world = World()
    owner = Owner(world, "o1")

    def refused() -> list[OncelogError | None]:
        owner.handle(ConsumerOpening(1, "s", SubscriptionType.SHARED, "c", b"i", 0))
        owner.handle(SeekRequested(2, 1, 0))  # type: ignore[arg-type]
        owner.handle(DeleteRequested(3, "s"))
        subscribe, seek, admin = owner.emitted(AnswerSubscribe), owner.emitted(AnswerSeek), owner.emitted(AnswerAdmin)
        errors = [subscribe[-1].result, seek[-1].result, admin[-1].error]
        return [error for error in errors if isinstance(error, OncelogError)]

    assert [type(error) for error in refused()] == [TopicLoading] * 3
    owner.take_over()
    world.place(Incarnation("o2"))
    owner.core.ownership.suspect()
    owner.queue += owner.core._step.take()
    owner.run()
    assert owner.core.phase is Phase.DEPOSED
    assert [type(error) for error in refused()] == [NotOwner] * 3


def test_consumers_of_one_process_never_share_a_number() -> None:
    """Also not before and after a takeover by the same owner, whose clients may hold both."""
    one = Consuming(World()).publish(0, 1)
    first = one.subscribe()
    one.owner.core.ownership.suspect()
    one.owner.queue += one.owner.core._step.take()
    one.owner.run()
    assert one.owner.core.phase is Phase.SERVING
    second = one.subscribe()
    assert second.consumer > first.consumer
    assert (second.seek_epoch, first.generation < second.generation) == (SeekEpoch(0), True)
    assert first.generation > Generation(0)


@pytest.mark.hazard("recreated-subscription")
@pytest.mark.parametrize("same_core", [True, False])
def test_recreated_subscription_has_another_id_after_a_takeover_at_the_same_epoch(same_core: bool) -> None:
    """The process recovers the topic, or closed it and takes it again when nobody else did: the epoch stays. A consumer
    of the deleted subscription, which comes back only now, is refused."""
    one = Consuming(World()).publish(0, 1)
    first = one.subscribe()
    held = HeldMessages(first.subscription_id, first.seek_epoch, first.generation, (IndexRange(0, 0),))
    if same_core:
        one.owner.core.ownership.suspect()
        one.owner.queue += one.owner.core._step.take()
        one.owner.run()
    else:
        one.owner.handle(DrainRequested())
        one.owner.run()
        one.owner = Owner(one.world, "o1", first_session=SessionNumber(1 << 40))
        one.owner.handle(TopicAssigned())
        one.owner.run()
    assert one.owner.core.ownership.epoch == 1
    one.owner.handle(DeleteRequested(1, "billing", force=True))
    one.owner.run()
    second = one.subscribe()
    assert second.subscription_id != first.subscription_id
    one.owner.handle(one.opening(first_index=None, resume=held))
    assert isinstance(one.owner.emitted(AnswerSubscribe)[-1].result, SubscriptionGone)
