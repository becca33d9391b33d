"""core/sdk/consumer: attaching, credit, acknowledgements until they are durable, reconnections, the end."""

import pytest

from oncelog.core.acks.changes import IndexRange, SubscriptionType
from oncelog.core.delivery.credit import UNHANDED_BYTES_MAX
from oncelog.core.delivery.events import (
    AckRequested,
    AnswerAck,
    AnswerSubscribe,
    ConsumerActive,
    ConsumerDetached,
    DeliveredEntry,
    DeliverMessages,
    EndConsumer,
    FlowReported,
    HeldMessages,
    NackRequested,
    RecallMessages,
    StoredEntry,
)
from oncelog.core.errors import (
    ConsumerBusy,
    ConsumerClosed,
    EntriesLost,
    NotOwner,
    ServiceUnavailable,
    SubscriptionGone,
    TooManyRequests,
)
from oncelog.core.ids import ConsumerNumber, EntryId, Generation, LedgerId, OwnerEpoch, Position, SeekEpoch
from oncelog.core.sdk.consumer.events import (
    AckEnded,
    AckWanted,
    HandOut,
    MessagesReady,
    MessagesWanted,
    NackWanted,
    OwnerReported,
    ReportActive,
    ReportAttached,
    SeekEnded,
    SeekWanted,
    SendToOwner,
    SkipUnreadable,
)
from oncelog.core.sdk.consumer.session import ConsumerSessionState
from oncelog.core.sdk.owner_attempts import (
    CloseWanted,
    EpochSeen,
    FailSession,
    LookUp,
    OpenWanted,
    OwnerFound,
    SessionTimerFired,
    StartSessionTimer,
    StreamLost,
    TimerKey,
    TimerKind,
)
from tests.core.sdk.consumer_world import (
    INSTANCE,
    SUBSCRIPTION,
    WINDOW,
    World,
    asked,
    attached,
    flow,
    frame,
    new_session,
    ranges,
    reported,
    requests,
    subscribed,
    taken,
)

C1, EPOCH0, EPOCH1 = ConsumerNumber(1), SeekEpoch(0), SeekEpoch(1)
FAILOVER, EXCLUSIVE = SubscriptionType.FAILOVER, SubscriptionType.EXCLUSIVE


def test_first_opening_may_create_the_subscription() -> None:
    """The request carries everything that the owner needs; the answer opens the credit."""
    session = new_session(ack_timeout_ms=500)
    session.handle(OpenWanted())
    opening = asked(session)
    assert (opening.call, opening.first_index, opening.resume, opening.instance_id) == (1, 0, None, INSTANCE)
    assert opening.ack_timeout_ms == 500
    effects = reported(session, AnswerSubscribe(1, subscribed()))
    assert effects == [
        ReportAttached(EPOCH0, Generation(0)), SendToOwner(1, FlowReported(C1, 0, WINDOW, arrived=0, seek_epoch=EPOCH0))
    ]  # fmt: skip


@pytest.mark.hazard("relative-credit")
def test_credit_is_absolute_and_counts_dropped_messages() -> None:
    """Messages that leave without reaching the application, recalled ones and repeated ones, cost no credit."""
    session = attached()
    assert MessagesReady() in reported(session, frame(0, 2))
    assert taken(session, 1) == [0]
    assert flow(reported(session, RecallMessages(C1, ranges((1, 1))))) == FlowReported(
        C1, 2, WINDOW, ranges((0, 0)), 3, EPOCH0
    )
    assert flow(reported(session, frame(2, 2))) == FlowReported(C1, 3, WINDOW, ranges((0, 0)), 4, EPOCH0)
    assert (session.messages.received, session.messages.left, taken(session)) == (4, 3, [2])


@pytest.mark.hazard("relative-credit")
def test_messages_of_the_former_stream_take_room_in_the_window() -> None:
    """A new stream counts from 0. What still waits from the former one leaves less room until it is handed out."""
    session = attached()
    reported(session, frame(0, 3))
    session.handle(StreamLost(1))
    asked(session)
    c2 = ConsumerNumber(2)
    effects = reported(session, AnswerSubscribe(2, subscribed(consumer=2, kept=ranges((0, 3)))))
    assert flow(effects) == FlowReported(c2, 0, WINDOW - 4, (), 0, EPOCH0)
    effects = session.handle(MessagesWanted(3))
    assert flow(effects) == FlowReported(c2, 0, WINDOW - 1, ranges((0, 2)), 0, EPOCH0)


@pytest.mark.hazard("relative-credit")
def test_room_of_an_acknowledged_message_of_the_former_stream_is_reported() -> None:
    """It was delivered again while its acknowledgement was in flight, and never reaches the application: no later
    report would give its room back, so the consumer would starve."""
    session = attached()
    reported(session, frame(0, 4))
    taken(session)
    session.handle(AckWanted(1, EPOCH0, ranges((0, 0))))
    reported(session, frame(0, 0, counts={0: 2}))
    session.handle(StreamLost(1))
    asked(session)
    c2 = ConsumerNumber(2)
    effects = reported(session, AnswerSubscribe(2, subscribed(consumer=2, kept=ranges((0, 4)))))
    assert flow(effects) == FlowReported(c2, 0, WINDOW - 1, ranges((1, 4)), 0, EPOCH0)
    assert flow(reported(session, AnswerAck(c2, 1))) == FlowReported(c2, 0, WINDOW, ranges((1, 4)), 0, EPOCH0)


@pytest.mark.hazard("busy-loop-during-ack")
def test_message_whose_acknowledgement_is_in_flight_is_not_available() -> None:
    """It was delivered again meanwhile. Whoever waits for messages would be woken for ever, and get none."""
    session = attached()
    reported(session, frame(0, 4))
    taken(session)
    session.handle(AckWanted(1, EPOCH0, ranges((0, 2))))
    session.handle(AckWanted(2, EPOCH0, ranges((4, 4))))
    reported(session, frame(0, 4, counts=dict.fromkeys(range(5), 2)))
    assert session.available == 1
    assert taken(session) == [3]
    assert (session.available, taken(session)) == (0, [])
    reported(session, AnswerAck(C1, 1))
    assert (session.available, session.messages.waiting.count) == (0, 1)


@pytest.mark.hazard("delivered-while-held")
def test_reconnection_presents_exactly_what_is_held_and_begun() -> None:
    """Acknowledged messages are not presented; those whose acknowledgement is in flight are, because it may be lost."""
    session = attached()
    reported(session, frame(0, 4))
    assert taken(session, 3) == [0, 1, 2]
    session.handle(AckWanted(1, EPOCH0, ranges((0, 0))))
    reported(session, AnswerAck(C1, 1))
    session.handle(AckWanted(2, EPOCH0, ranges((1, 1))))
    session.handle(StreamLost(1))
    opening = asked(session)
    assert opening.resume == HeldMessages(
        SUBSCRIPTION, EPOCH0, Generation(0), ranges=ranges((1, 4)), begun=ranges((1, 2)), delivery_counts={}
    )
    assert opening.first_index is None


@pytest.mark.hazard("delivered-while-held")
def test_reconnection_drops_what_the_owner_has_given_to_another() -> None:
    """The application may still acknowledge a message that it has; it is not presented any more."""
    session = attached()
    reported(session, frame(0, 4))
    taken(session, 2)
    session.handle(StreamLost(1))
    asked(session)
    reported(session, AnswerSubscribe(2, subscribed(consumer=2, kept=ranges((1, 2)))))
    assert (session.messages.held(), tuple(session.messages.begun)) == (ranges((1, 2)), ranges((1, 1)))
    assert taken(session) == [2]
    sent = requests(session.handle(AckWanted(1, EPOCH0, ranges((0, 0)))))
    assert sent == [AckRequested(ConsumerNumber(2), 1, EPOCH0, ranges((0, 0)))]


def test_unanswered_acknowledgement_is_sent_again_on_the_next_stream() -> None:
    """In order, with the new consumer number, and only settled by an answer of the new stream."""
    session = attached()
    reported(session, frame(0, 2))
    taken(session)
    session.handle(AckWanted(1, EPOCH0, ranges((0, 0))))
    session.handle(NackWanted(2, EPOCH0, ranges((1, 1)), delay_ms=7))
    session.handle(StreamLost(1))
    session.handle(AckWanted(3, EPOCH0, ranges((2, 2))))
    asked(session)
    sent = requests(reported(session, AnswerSubscribe(2, subscribed(consumer=2, kept=ranges((0, 2))))))
    c2 = ConsumerNumber(2)
    assert sent[:-1] == [
        AckRequested(c2, 1, EPOCH0, ranges((0, 0))), NackRequested(c2, 2, EPOCH0, ranges((1, 1)), 7, {}),
        AckRequested(c2, 3, EPOCH0, ranges((2, 2))),
    ]  # fmt: skip
    late = OwnerReported(1, OwnerEpoch(1), AnswerAck(C1, 1))
    assert session.handle(late) == [], "an answer on the former stream"
    assert reported(session, AnswerAck(c2, 1)) == [AckEnded(1)]
    assert reported(session, AnswerAck(c2, 1)) == [], "a second answer"


@pytest.mark.hazard("failed-ack-write")
def test_acknowledgement_that_could_not_be_made_durable_is_repeated() -> None:
    """It is not reported as settled, and its message is still held. The pause grows, so a failed ledger is not
    flooded."""
    session = attached()
    reported(session, frame(0, 0))
    taken(session)
    session.handle(AckWanted(1, EPOCH0, ranges((0, 0))))
    again = TimerKey(TimerKind.REPEAT, 1)
    effects = reported(session, AnswerAck(C1, 1, ServiceUnavailable("the ack ledger failed")))
    assert effects == [StartSessionTimer(again, 20, jitter=True)]
    assert session.messages.held() == ranges((0, 0))
    assert requests(session.handle(SessionTimerFired(again))) == [AckRequested(C1, 1, EPOCH0, ranges((0, 0)))]
    assert reported(session, AnswerAck(C1, 1, durable=False)) == [AckEnded(1, None, durable=False)]
    assert session.messages.held() == ()


def test_message_is_withheld_while_its_acknowledgement_is_in_flight() -> None:
    """A takeover delivers again what was acknowledged and not durable. The application gets it only if that fails."""
    session = attached()
    reported(session, frame(0, 2))
    taken(session)
    session.handle(AckWanted(1, EPOCH0, ranges((1, 1))))
    session.handle(StreamLost(1))
    asked(session, epoch=2)
    reported(session, AnswerSubscribe(2, subscribed(consumer=2)), epoch=2)
    reported(session, frame(0, 2, consumer=2), epoch=2)
    assert taken(session) == [0, 2]
    reported(session, AnswerAck(ConsumerNumber(2), 1), epoch=2)
    assert (taken(session), session.messages.held()) == ([], ranges((0, 0), (2, 2)))


@pytest.mark.hazard("deposed-owner-delivers")
def test_frame_of_a_lower_owner_epoch_is_refused() -> None:
    """A deposed owner delivers from its cache. Its consumer drops the frame and looks the owner up again."""
    session = attached()
    reported(session, frame(0, 0))
    session.handle(EpochSeen(OwnerEpoch(1)))
    assert session.state is ConsumerSessionState.ATTACHED
    session.opening.believes(OwnerEpoch(2))  # a stream of another consumer of this client
    effects = reported(session, frame(1, 1))
    assert effects[:2] == [
        SendToOwner(1, ConsumerDetached(C1, lost=True)),
        LookUp(2, fresh=True, owner_epoch=OwnerEpoch(2)),
    ]
    assert session.messages.held() == ranges((0, 0))
    assert asked(session, epoch=2).owner_epoch_seen == 2


@pytest.mark.hazard("deposed-owner-delivers")
def test_higher_epoch_seen_elsewhere_ends_the_attachment() -> None:
    """A consumer that never acknowledges would never learn that its owner was deposed."""
    session = attached()
    session.handle(EpochSeen(OwnerEpoch(2)))
    assert session.state is ConsumerSessionState.RECONNECTING


@pytest.mark.hazard("deposed-owner-delivers", "activation-not-durable")
def test_frames_of_a_lower_generation_are_dropped() -> None:
    """Another consumer was active since; what waits here belongs to it now."""
    session = attached(FAILOVER, generation=1)
    reported(session, frame(0, 3, generation=1))
    assert taken(session, 1) == [0]
    effects = reported(session, ConsumerActive(C1, Generation(0)))
    assert effects[0] == ReportActive(Generation(0))
    assert flow(effects) == FlowReported(C1, 4, WINDOW, (), 4, EPOCH0)
    reported(session, frame(4, 4, generation=1))
    assert (taken(session), session.messages.held()) == ([], ())
    assert reported(session, ConsumerActive(C1, Generation(3)))[0] == ReportActive(Generation(3))
    reported(session, frame(0, 0, generation=2))
    reported(session, frame(4, 4, generation=3))
    assert taken(session) == [4]


@pytest.mark.hazard("key-moves-too-early")
def test_recalled_messages_are_dropped_unless_the_application_has_them() -> None:
    """A key's later messages wait for the earlier one; they come again in their order."""
    session = attached(SubscriptionType.KEY_SHARED)
    reported(session, frame(0, 2))
    assert taken(session, 2) == [0, 1]
    session.handle(NackWanted(1, EPOCH0, ranges((0, 0))))
    reported(session, RecallMessages(C1, ranges((1, 2))))
    assert (taken(session), tuple(session.messages.begun)) == ([], ranges((0, 0)))
    reported(session, frame(0, 0, counts={0: 2}))
    reported(session, frame(2, 2))
    (handed_out, *_) = session.handle(MessagesWanted(9))
    assert isinstance(handed_out, HandOut)
    assert [(run.first, run.delivery_counts) for run in handed_out.runs] == [(0, {0: 2}), (2, {})]


def test_consumer_of_a_topic_that_was_created_anew_ends() -> None:
    """It says that a new consumer begins in the new topic."""
    session = attached()
    session.handle(StreamLost(1))
    (failed, *_) = session.handle(OwnerFound(2, OwnerEpoch(1), another_topic=True))
    assert isinstance(failed, FailSession)
    assert isinstance(failed.error, SubscriptionGone)
    assert "subscribe again" in failed.error.message


@pytest.mark.hazard("recreated-subscription")
@pytest.mark.parametrize("answer", [SubscriptionGone("deleted"), subscribed(consumer=2, subscription_id="cd" * 16)])
def test_reconnection_to_a_deleted_subscription_is_final(answer: object) -> None:
    """Also when a subscription of the same name exists: it is another one."""
    session = attached()
    reported(session, frame(0, 0))
    taken(session)
    session.handle(StreamLost(1))
    session.handle(AckWanted(1, EPOCH0, ranges((0, 0))))
    asked(session)
    effects = reported(session, AnswerSubscribe(2, answer))  # type: ignore[arg-type]
    assert isinstance(effects[0], FailSession)
    assert isinstance(effects[0].error, SubscriptionGone)
    assert session.state is ConsumerSessionState.CLOSED
    assert [effect.error for effect in effects if isinstance(effect, AckEnded)] == [effects[0].error]


@pytest.mark.hazard("activation-not-durable")
def test_busy_is_final_for_a_new_consumer_and_retried_by_a_reconnecting_one() -> None:
    """Two processes of one name must not depose each other; a former stream of this consumer ends soon."""
    session = new_session()
    session.handle(OpenWanted())
    asked(session)
    assert isinstance(reported(session, AnswerSubscribe(1, ConsumerBusy("in use")))[0], FailSession)
    session = attached()
    session.handle(StreamLost(1))
    asked(session)
    reported(session, AnswerSubscribe(2, ConsumerBusy("in use")))
    assert session.state is ConsumerSessionState.RECONNECTING


def test_late_attachment_is_ended() -> None:
    """The owner would deliver to an attachment that no longer counts."""
    session = new_session()
    session.handle(OpenWanted())
    asked(session)
    session.handle(SessionTimerFired(TimerKey(TimerKind.OPEN, 1)))
    late = OwnerReported(1, OwnerEpoch(1), AnswerSubscribe(1, subscribed()))
    assert session.handle(late) == [SendToOwner(1, ConsumerDetached(C1, lost=False))]
    asked(session)
    reported(session, AnswerSubscribe(2, subscribed(consumer=2)))
    assert reported(session, frame(0, 0, consumer=1)) == [], "a frame for the former attachment"
    session.handle(CloseWanted())
    late = OwnerReported(2, OwnerEpoch(1), AnswerSubscribe(2, subscribed(consumer=3)))
    assert session.handle(late) == [SendToOwner(2, ConsumerDetached(ConsumerNumber(3), lost=False))]


def test_owner_that_answers_nothing_is_looked_up_again() -> None:
    """An acknowledgement is in flight and no answer comes within the time."""
    session = attached()
    reported(session, frame(0, 0))
    taken(session)
    watched = TimerKey(TimerKind.ANSWER, 1)
    assert session.handle(AckWanted(1, EPOCH0, ranges((0, 0))))[-1] == StartSessionTimer(watched, 30_000)
    session.handle(SessionTimerFired(watched))
    assert session.state is ConsumerSessionState.RECONNECTING


def test_retriable_end_is_followed_by_a_reconnection() -> None:
    """The owner drains: everything that is held is presented to the next one."""
    session = attached()
    reported(session, frame(0, 0))
    reported(session, EndConsumer(C1, NotOwner("the topic moves")))
    assert (session.state, session.messages.held()) == (ConsumerSessionState.RECONNECTING, ranges((0, 0)))


@pytest.mark.parametrize("skips", [True, False])
def test_messages_that_no_node_can_give_are_skipped_if_wanted(skips: bool) -> None:
    """Their acknowledgement goes before the credit that lets the owner read on; while it is in flight, another end of
    that kind is no news. Otherwise the consumer fails."""
    session = attached(skips_unreadable=skips)
    lost = EntriesLost("lost", ledger_id=1, first=2, last=3, first_index=4, count=2)
    effects = reported(session, EndConsumer(C1, lost))
    if not skips:
        assert effects[0] == FailSession(lost)
        return
    assert effects[-1] == SkipUnreadable(EPOCH0, IndexRange(4, 5), lost)
    session.handle(AckWanted(1, EPOCH0, ranges((4, 5))))
    asked(session)
    sent = requests(reported(session, AnswerSubscribe(2, subscribed(consumer=2))))
    assert [type(request) for request in sent] == [AckRequested, FlowReported]
    again = session.handle(OwnerReported(2, OwnerEpoch(1), EndConsumer(ConsumerNumber(2), lost)))
    assert not any(isinstance(effect, SkipUnreadable) for effect in again)


def test_closing_fails_what_is_not_settled() -> None:
    """Its outcome is unknown: it may be durable."""
    session = attached()
    reported(session, frame(0, 1))
    taken(session)
    session.handle(AckWanted(1, EPOCH0, ranges((0, 0))))
    session.handle(SeekWanted(2, 0))
    effects = session.handle(CloseWanted())
    assert effects[0] == SendToOwner(1, ConsumerDetached(C1, lost=False))
    assert [type(effect) for effect in effects[1:]] == [AckEnded, SeekEnded]
    (after,) = session.handle(AckWanted(3, EPOCH0, ranges((1, 1))))
    assert isinstance(after, AckEnded)
    assert isinstance(after.error, ConsumerClosed)
    assert session.handle(MessagesWanted(1)) == [HandOut(())]


def test_pending_acknowledgements_are_bounded() -> None:
    """An owner that is away must not let the client's memory grow."""
    session = attached(requests_max=1)
    session.handle(AckWanted(1, EPOCH0, ranges((0, 0))))
    (refused,) = session.handle(AckWanted(2, EPOCH0, ranges((1, 1))))
    assert isinstance(refused, AckEnded)
    assert isinstance(refused.error, TooManyRequests)


@pytest.mark.hazard("ack-before-delivery", "delivered-while-held")
@pytest.mark.parametrize("seed", range(40))
def test_every_message_is_acknowledged_once_durably(seed: int) -> None:
    """Under lost streams, takeovers, failed ack writes and seeks: no message is missed, and none comes again after its
    acknowledgement was durable."""
    World(seed).run(faults=300)


@pytest.mark.hazard("delivered-while-held")
def test_stream_may_be_lost_after_every_step() -> None:
    """The same history, interrupted after each of its steps."""
    for step in range(120):
        World(7, messages=8, lose_at=step, seeks=False).run(faults=0)


def test_window_is_full_where_the_owner_sends_no_more() -> None:
    """By count, as the owner does not cut an entry; by bytes; and not any more when messages were taken."""
    session = attached()

    def full() -> bool:
        return session.messages.is_full

    reported(session, frame(0, 2))
    assert not full(), "half of the window is free"
    reported(session, frame(3, 3))
    assert full()
    taken(session)
    assert not full()
    large = StoredEntry(Position(LedgerId(1), EntryId(4)), 4, 1, 0, bytes(UNHANDED_BYTES_MAX))
    entry = DeliveredEntry(large, ranges((4, 4)))
    reported(session, DeliverMessages(ConsumerNumber(1), SeekEpoch(0), Generation(0), (entry,), {}))
    assert full(), "the owner waits until these bytes are taken"
    taken(session)
    assert not full()
