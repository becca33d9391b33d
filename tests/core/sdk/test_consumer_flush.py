"""core/sdk/consumer: a flush ends when everything that was given before it is answered, and not a step earlier."""

import pytest

from oncelog.core.delivery.events import (
    AckRequested,
    AnswerAck,
    AnswerSubscribe,
    EndConsumer,
    FlowReported,
    SubscriptionSought,
)
from oncelog.core.errors import (
    ConsumerClosed,
    NotOwner,
    OncelogError,
    ServiceUnavailable,
    StaleSeekEpoch,
    SubscriptionGone,
)
from oncelog.core.ids import ConsumerNumber, OwnerEpoch, SeekEpoch
from oncelog.core.sdk.consumer.events import (
    AckEnded,
    AckWanted,
    ConsumerEffect,
    FlushAbandoned,
    FlushEnded,
    FlushWanted,
    MessagesWanted,
    NackWanted,
    SeekEnded,
    SeekWanted,
)
from oncelog.core.sdk.consumer.session import ConsumerSession, ConsumerSessionState
from oncelog.core.sdk.owner_attempts import (
    CloseWanted,
    EpochSeen,
    LookUp,
    OpenWanted,
    SessionTimerFired,
    StartSessionTimer,
    StreamLost,
    TimerKey,
    TimerKind,
)
from tests.core.sdk.consumer_world import (
    World,
    asked,
    attached,
    frame,
    new_session,
    ranges,
    reported,
    requests,
    subscribed,
    taken,
)

C1, C2, EPOCH0, EPOCH1 = ConsumerNumber(1), ConsumerNumber(2), SeekEpoch(0), SeekEpoch(1)


def question(request: int, *, consumer: ConsumerNumber = C1, epoch: SeekEpoch = EPOCH0) -> AckRequested:
    return AckRequested(consumer, request, epoch, ())


def answered(session: ConsumerSession, request: int, *, consumer: ConsumerNumber = C1) -> list[ConsumerEffect]:
    return reported(session, AnswerAck(consumer, request))


def with_messages(count: int = 3) -> ConsumerSession:
    session = attached()
    reported(session, frame(0, count - 1))
    assert len(taken(session)) == count
    return session


def again(session: ConsumerSession) -> list[ConsumerEffect]:
    """The stream is lost; the consumer attaches as consumer 2, and keeps what it holds."""
    effects = session.handle(StreamLost(session.opening.attempt))
    opening = asked(session)
    assert opening.resume is not None
    kept = opening.resume.ranges
    return [*effects, *reported(session, AnswerSubscribe(opening.call, subscribed(consumer=2, kept=kept)))]


@pytest.mark.hazard("flushed-before-applied")
def test_flush_waits_for_every_acknowledgement_before_it() -> None:
    """Also for a negative one; in whichever order the answers come. One that is given later does not count."""
    session = with_messages()
    session.handle(AckWanted(1, EPOCH0, ranges((0, 0))))
    session.handle(NackWanted(2, EPOCH0, ranges((1, 1))))
    assert session.handle(FlushWanted(3, reports=False)) == []
    session.handle(AckWanted(4, EPOCH0, ranges((2, 2))))
    assert FlushEnded(3) not in answered(session, 2)
    effects = answered(session, 1)
    assert [each for each in effects if isinstance(each, AckEnded | FlushEnded)] == [AckEnded(1), FlushEnded(3)]


@pytest.mark.hazard("flushed-before-applied")
def test_flush_of_reports_asks_behind_them() -> None:
    """A report has no answer. The owner takes requests in their order, so the answer to one behind it proves it."""
    session = attached()
    reported(session, frame(0, 2))
    (report,) = requests(session.handle(MessagesWanted(2)))
    assert isinstance(report, FlowReported)
    assert report.begun == ranges((0, 1))
    assert requests(session.handle(FlushWanted(1, reports=True))) == [question(1)]
    assert answered(session, 1) == [FlushEnded(1)]


def test_flush_ends_when_both_are_answered() -> None:
    """The question may be answered first: an acknowledgement takes a write to the log."""
    session = with_messages()
    session.handle(AckWanted(1, EPOCH0, ranges((0, 0))))
    assert requests(session.handle(FlushWanted(2, reports=True))) == [question(2)]
    assert answered(session, 2) == []
    assert answered(session, 1)[-1] == FlushEnded(2)
    session.handle(AckWanted(3, EPOCH0, ranges((1, 1))))
    session.handle(FlushWanted(4, reports=True))
    assert FlushEnded(4) not in answered(session, 3)
    assert answered(session, 4) == [FlushEnded(4)]


def test_nothing_to_wait_for_ends_a_flush_at_once() -> None:
    """A consumer that was never attached has reported nothing."""
    assert attached().handle(FlushWanted(1, reports=False)) == [FlushEnded(1)]
    session = new_session()
    session.handle(OpenWanted())
    assert session.handle(FlushWanted(1, reports=True)) == [FlushEnded(1)]


def test_new_stream_carries_the_question_again_behind_its_credit() -> None:
    """The new owner learns from the opening what was received, and from the report of credit what it may send. A late
    answer of the former stream counts for nothing."""
    session = with_messages()
    attempt = session.opening.attempt
    session.handle(AckWanted(1, EPOCH0, ranges((0, 0))))
    session.handle(FlushWanted(2, reports=True))
    sent = requests(again(session))
    ack, flow, asks = sent[-3:]
    assert (ack, asks) == (AckRequested(C2, 1, EPOCH0, ranges((0, 0))), question(2, consumer=C2))
    assert isinstance(flow, FlowReported)
    assert session.opening.attempt > attempt
    assert answered(session, 2) == []
    assert answered(session, 2, consumer=C2) == []
    assert answered(session, 1, consumer=C2)[-1] == FlushEnded(2)


def test_flush_without_a_stream_waits_for_the_next() -> None:
    """It is asked when the consumer has attached."""
    session = with_messages()
    session.handle(StreamLost(session.opening.attempt))
    assert session.handle(FlushWanted(1, reports=True)) == []
    opening = asked(session)
    effects = reported(session, AnswerSubscribe(opening.call, subscribed(consumer=2, kept=ranges((0, 2)))))
    assert requests(effects)[-1] == question(1, consumer=C2)
    assert answered(session, 1, consumer=C2) == [FlushEnded(1)]


def test_answer_of_a_deposed_owner_proves_nothing() -> None:
    """The consumer leaves it, and asks the owner of the higher epoch."""
    session = with_messages()
    session.handle(FlushWanted(1, reports=True))
    session.handle(EpochSeen(OwnerEpoch(2)))
    assert answered(session, 1) == []
    opening = asked(session, epoch=2)
    answer = AnswerSubscribe(opening.call, subscribed(consumer=2, kept=ranges((0, 2))))
    assert requests(reported(session, answer, epoch=2))[-1] == question(1, consumer=C2)
    effects = reported(session, AnswerAck(C2, 1), epoch=1)
    assert not [each for each in effects if isinstance(each, FlushEnded)]
    assert session.state is ConsumerSessionState.RECONNECTING


@pytest.mark.parametrize("error", [ServiceUnavailable("the ack ledger failed"), NotOwner("the topic moves")])
def test_owner_that_cannot_answer_now_is_asked_again(error: OncelogError) -> None:
    """After the pause that a refused acknowledgement has, too."""
    session = with_messages()
    session.handle(FlushWanted(1, reports=True))
    reported(session, AnswerAck(C1, 1, error))
    assert requests(session.handle(FlushWanted(2, reports=True))) == []
    effects = session.handle(SessionTimerFired(TimerKey(TimerKind.REPEAT, session.opening.attempt)))
    assert requests(effects) == [question(2)]
    assert answered(session, 2) == [FlushEnded(1), FlushEnded(2)]


def test_seek_does_not_end_a_flush_of_reports() -> None:
    """It voids acknowledgements; that the owner has handled the reports before the question is proved by its answer
    alone, which may be that the question is of a former seek epoch."""
    session = with_messages()
    session.handle(AckWanted(1, EPOCH0, ranges((0, 0))))
    session.handle(FlushWanted(2, reports=True))
    effects = reported(session, SubscriptionSought(C1, EPOCH1))
    assert [each.request for each in effects if isinstance(each, AckEnded)] == [1]
    assert FlushEnded(2) not in effects
    assert reported(session, AnswerAck(C1, 2, StaleSeekEpoch(seek_epoch=EPOCH1))) == [FlushEnded(2)]
    assert requests(session.handle(FlushWanted(3, reports=True))) == [question(3, epoch=EPOCH1)]


def test_own_seek_is_no_acknowledgement() -> None:
    """Its caller waits for it; a flush does not, and its outcome is nothing to a flush."""
    session = with_messages()
    session.handle(SeekWanted(1, 0))
    assert session.handle(FlushWanted(2, reports=False)) == [FlushEnded(2)]
    session.handle(FlushWanted(3, reports=True))
    effects = session.handle(StreamLost(session.opening.attempt))
    assert [each.request for each in effects if isinstance(each, SeekEnded)] == [1]
    assert not [each for each in effects if isinstance(each, FlushEnded)]


def test_one_question_answers_all_flushes_before_it() -> None:
    """Two at once, and one that nobody waits for any more."""
    session = with_messages()
    assert requests(session.handle(FlushWanted(1, reports=True))) == [question(1)]
    assert requests(session.handle(FlushWanted(2, reports=True))) == [question(2)]
    session.handle(FlushAbandoned(1))
    assert answered(session, 2) == [FlushEnded(2)]
    assert answered(session, 1) == []
    session.handle(FlushWanted(3, reports=True))
    session.handle(FlushWanted(4, reports=True))
    assert requests(again(session))[-1] == question(4, consumer=C2)
    assert answered(session, 4, consumer=C2) == [FlushEnded(3), FlushEnded(4)]


def test_later_flush_does_not_end_with_an_earlier_question() -> None:
    """A report between the two may still be on its way."""
    session = with_messages()
    session.handle(FlushWanted(1, reports=True))
    reported(session, frame(3, 3))
    taken(session)
    session.handle(FlushWanted(2, reports=True))
    assert answered(session, 1) == [FlushEnded(1)]
    assert answered(session, 2) == [FlushEnded(2)]


def test_abandoned_flush_is_forgotten() -> None:
    """A caller that gives up again and again, while no owner answers, leaves nothing behind."""
    session = with_messages()
    session.handle(StreamLost(session.opening.attempt))
    for request in range(1, 100):
        session.handle(FlushWanted(request, reports=True))
        assert session.handle(FlushAbandoned(request)) == []
    assert not session.requests.flushes
    opening = asked(session)
    effects = reported(session, AnswerSubscribe(opening.call, subscribed(consumer=2, kept=ranges((0, 2)))))
    assert isinstance(requests(effects)[-1], FlowReported)


def test_owner_that_answers_nothing_is_left() -> None:
    """The question has the deadline of every request."""
    session = with_messages()
    effects = session.handle(FlushWanted(1, reports=True))
    (timer,) = [each.key for each in effects if isinstance(each, StartSessionTimer)]
    assert timer == TimerKey(TimerKind.ANSWER, session.opening.attempt)
    assert any(isinstance(each, LookUp) for each in session.handle(SessionTimerFired(timer)))


def test_end_of_the_consumer_ends_its_flushes_with_the_reason() -> None:
    """Closed, or failed; and a flush after the end gets the same error at once."""
    session = with_messages()
    session.handle(FlushWanted(1, reports=True))
    effects = session.handle(CloseWanted())
    (ended,) = [each for each in effects if isinstance(each, FlushEnded)]
    assert isinstance(ended.error, ConsumerClosed)
    (later,) = session.handle(FlushWanted(2, reports=True))
    assert isinstance(later, FlushEnded)
    assert later.error is ended.error
    failed = with_messages()
    failed.handle(FlushWanted(1, reports=True))
    gone = SubscriptionGone("it was deleted")
    assert FlushEnded(1, gone) in reported(failed, EndConsumer(C1, gone))


@pytest.mark.hazard("flushed-before-applied")
@pytest.mark.parametrize("seed", range(80))
def test_flushed_is_applied_whatever_is_lost(seed: int) -> None:
    """Streams are lost, owners change, the ack log fails: at the end of a flush the owner has every acknowledgement
    that was given before it, and knows of every message that the application had received before it, and still has."""
    world = World(seed, seeks=False)
    for _ in range(100):
        world.step(faults=True)
    given = dict(world.acking)
    received = {index for index, _ in world.working}
    world.requests += 1
    flush = FlushWanted(world.requests, reports=True)
    world.feed(flush)
    for _ in range(3_000):
        if world.flushed:
            break
        world.step(faults=world.random.random() < 0.5)
    assert world.flushed == [FlushEnded(flush.request)]
    assert not given.keys() & world.acking.keys()
    assert {index for index, _ in given.values()} <= world.owner.acked
    assert received & {index for index, _ in world.working} <= world.owner.begun
