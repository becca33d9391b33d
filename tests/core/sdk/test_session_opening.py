"""core/session_opening, through the producer session: look-ups, requests, stale answers and retries."""

import pytest

from oncelog.core.errors import (
    EntriesLost,
    ProducerBusy,
    ProducerExpired,
    ProducerFenced,
    ServiceUnavailable,
    TopicLoading,
    TopicNotFound,
    UnknownProducer,
)
from oncelog.core.formats.batch import decode_batch
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import OnConflict, ProducerInstance
from oncelog.core.ids import Generation, OwnerEpoch, SequenceId, SessionNumber
from oncelog.core.sdk.owner_attempts import (
    CloseWanted,
    EpochSeen,
    FailSession,
    LookUp,
    LookUpFailed,
    OpenWanted,
    OwnerFound,
    SessionTimerFired,
    StartSessionTimer,
    StreamLost,
    TimerKey,
    TimerKind,
)
from oncelog.core.sdk.producer.events import Complete, Fail, ReportOpen
from oncelog.core.sdk.producer.opening import (
    CloseSession,
    OpenProducer,
    OpenRefused,
    ProducerSettings,
    WithdrawOpening,
)
from oncelog.core.sdk.producer.pending_batches import SendBatches
from oncelog.core.sdk.producer.session import ProducerSession, ProducerSessionState
from tests.core.sdk.producer_world import (
    INSTANCE,
    PID,
    answered,
    checksum,
    explicit,
    grant,
    new_producer,
    opened,
    ready,
    reopened,
    sent_requests,
    stored,
)

CONTIGUOUS = SequenceMode.CONTIGUOUS


def test_first_open_looks_up_requests_and_reports_once() -> None:
    """The effects of a first open, in order."""
    producer = new_producer()
    assert producer.handle(OpenWanted()) == [
        LookUp(1, fresh=False, owner_epoch=OwnerEpoch(0)),
        StartSessionTimer(TimerKey(TimerKind.OPEN, 1), 5_000),
    ]
    assert producer.handle(OwnerFound(1, OwnerEpoch(3))) == [
        OpenProducer(
            1,
            "importer",
            SequenceMode.MONOTONIC,
            on_conflict=OnConflict.FENCE,
            resume=None,
            present=None,
            owner_epoch=OwnerEpoch(3),
            instance_id=INSTANCE,
        )
    ]
    assert producer.handle(OwnerFound(1, OwnerEpoch(3))) == []
    granted = producer.handle(grant(1, last=41, epoch=3))
    assert granted == [ReportOpen("importer", SequenceId(41), 5 * 1024 * 1024)]
    assert producer.handle(grant(1, last=41, epoch=3)) == [CloseSession(1, SessionNumber(1))]
    assert producer.state is ProducerSessionState.OPEN


def test_higher_epoch_from_any_source_ends_the_session() -> None:
    """The owner of the session is deposed: its answers are ignored, and all pending batches are resent."""
    producer = opened()
    producer.handle(ready(1))
    assert producer.handle(EpochSeen(OwnerEpoch(1))) == []
    assert producer.handle(EpochSeen(OwnerEpoch(4)))[:2] == [
        CloseSession(1, SessionNumber(1)),
        LookUp(2, fresh=True, owner_epoch=OwnerEpoch(4)),
    ]
    assert producer.handle(answered(1, (1, stored(1)))) == []
    assert sent_requests(reopened(producer, session=2, epoch=4)) == [1]
    assert producer.handle(EpochSeen(OwnerEpoch(3))) == []
    assert producer.state is ProducerSessionState.OPEN


@pytest.mark.hazard("deposed-owner-refuses")
def test_answers_of_a_deposed_owner_are_ignored() -> None:
    """Below the highest epoch seen nothing counts: no answer, no grant, no refusal, no end; look up again."""
    producer = opened()
    producer.handle(ready(1))
    producer.handle(StreamLost(1))
    reopened(producer, session=2, epoch=5)
    assert producer.handle(answered(2, (1, ProducerFenced()), epoch=4))[:2] == [
        CloseSession(2, SessionNumber(2)),
        StartSessionTimer(TimerKey(TimerKind.RETRY, 3), 20, jitter=True),
    ]
    producer.handle(SessionTimerFired(TimerKey(TimerKind.RETRY, 3)))
    assert producer.handle(OwnerFound(4, OwnerEpoch(4))) == [
        StartSessionTimer(TimerKey(TimerKind.RETRY, 5), 30, jitter=True)
    ]
    producer.handle(SessionTimerFired(TimerKey(TimerKind.RETRY, 5)))
    (asked,) = producer.handle(OwnerFound(6, OwnerEpoch(5)))
    assert isinstance(asked, OpenProducer)
    assert asked.owner_epoch == 5
    effects = producer.handle(OpenRefused(6, ProducerFenced(), OwnerEpoch(4)))
    assert [type(effect) for effect in effects] == [StartSessionTimer]
    producer.handle(SessionTimerFired(TimerKey(TimerKind.RETRY, 7)))
    producer.handle(OwnerFound(8, OwnerEpoch(5)))
    effects = producer.handle(grant(8, session=3, epoch=4))
    assert [type(effect) for effect in effects] == [CloseSession, StartSessionTimer]
    assert producer.state is ProducerSessionState.OPENING


@pytest.mark.hazard("deposed-owner-refuses")
def test_resuming_never_lowers_the_next_id() -> None:
    """A last_sequence_id, final or not, does not take ids back."""
    producer = opened(last=10)
    producer.handle(ready(1, 5))
    producer.handle(StreamLost(1))
    reopened(producer, session=2, last=10)
    producer.handle(ready(2))
    answers = producer.handle(answered(2, (1, stored(5)), (2, stored(1))))
    assert answers == [Complete(1, explicit(11, 15), stored(5)), Complete(2, explicit(16), stored(1))]


@pytest.mark.hazard("log-went-back")
@pytest.mark.parametrize("final", [True, False])
def test_producer_that_was_told_of_more_than_the_log_has_fails(final: bool) -> None:
    """Sending on would hide the loss. What is pending may have been stored before, or not."""
    producer = opened(last=10)
    producer.handle(ready(1, 5))
    producer.handle(answered(1, (1, stored(5))))
    producer.handle(ready(2))
    producer.handle(StreamLost(1))
    producer.handle(OwnerFound(2, OwnerEpoch(1)))
    effects = producer.handle(grant(2, session=2, last=14, final=final))
    assert effects[0] == CloseSession(2, SessionNumber(2))
    assert [(each.request, each.stored) for each in effects if isinstance(each, Fail)] == [(2, None)]
    assert isinstance(producer.error, EntriesLost)
    assert producer.error.details == {"acked": 15, "stored": 14}


def test_first_grant_must_have_a_final_last_id() -> None:
    """Without a durable grant last_sequence_id may still change, so the client repeats the request."""
    producer = new_producer()
    producer.handle(OpenWanted())
    producer.handle(OwnerFound(1, OwnerEpoch(1)))
    effects = producer.handle(grant(1, last=5, final=False))
    assert effects[:2] == [CloseSession(1, SessionNumber(1)), LookUp(2, fresh=True, owner_epoch=OwnerEpoch(1))]
    assert not producer.numbers.known


def test_instance_resumes_without_a_final_last_id() -> None:
    """(producer id, generation) go along; a resume that is not final still counts as a session."""
    producer = opened(on_conflict=OnConflict.REFUSE)
    producer.handle(StreamLost(1))
    (asked,) = producer.handle(OwnerFound(2, OwnerEpoch(2)))
    assert isinstance(asked, OpenProducer)
    assert (asked.resume, asked.present, asked.on_conflict) == (
        ProducerInstance(PID, Generation(1)),
        None,
        OnConflict.FENCE,
    )
    assert producer.handle(grant(2, session=9, epoch=2, final=False)) == []
    assert producer.state is ProducerSessionState.OPEN


def test_unknown_producer_is_opened_by_name_with_its_id_and_generation() -> None:
    """From an answer and from a refused resume; on_conflict does not apply to a living instance."""
    producer = opened(on_conflict=OnConflict.REFUSE)
    producer.handle(ready(1))
    producer.handle(answered(1, (1, UnknownProducer())))
    (asked,) = producer.handle(OwnerFound(2, OwnerEpoch(1)))
    assert isinstance(asked, OpenProducer)
    assert (asked.resume, asked.present, asked.on_conflict) == (
        None,
        ProducerInstance(PID, Generation(1)),
        OnConflict.FENCE,
    )
    assert sent_requests(producer.handle(grant(2, session=2))) == [1]
    producer.handle(StreamLost(2))
    resumed = reopened_question(producer)
    assert resumed.resume == ProducerInstance(PID, Generation(1))
    producer.handle(OpenRefused(resumed.attempt, UnknownProducer(), OwnerEpoch(1)))
    assert reopened_question(producer).present == ProducerInstance(PID, Generation(1))


def reopened_question(producer: ProducerSession) -> OpenProducer:
    """The next OpenProducer of a producer that waits for its retry or looks up."""
    if producer.opening.phase.value == "waiting":
        producer.handle(SessionTimerFired(TimerKey(TimerKind.RETRY, producer.opening.attempt)))
    (asked,) = producer.handle(OwnerFound(producer.opening.attempt, OwnerEpoch(1)))
    assert isinstance(asked, OpenProducer)
    return asked


@pytest.mark.hazard("forgotten-producer")
def test_expired_producer_reopens_only_if_it_sent_no_batch() -> None:
    """What was sent may be stored, and could not be told from new; a never-sent batch could not."""
    producer = opened(last=4)
    producer.handle(StreamLost(1))
    producer.handle(ready(1))
    producer.handle(OwnerFound(2, OwnerEpoch(1)))
    producer.handle(OpenRefused(2, ProducerExpired(), OwnerEpoch(1)))
    asked = reopened_question(producer)
    assert (asked.name, asked.resume, asked.present) == ("importer", None, None)
    effects = producer.handle(grant(asked.attempt, session=2, producer_id=99))
    assert isinstance(effects[0], SendBatches)
    header = decode_batch(effects[0].batches[0][1], checksum)
    assert (header.producer_id, header.first) == (99, 5)
    contiguous = opened(mode=CONTIGUOUS)
    contiguous.handle(StreamLost(1))
    contiguous.handle(OwnerFound(2, OwnerEpoch(1)))
    contiguous.handle(OpenRefused(2, ProducerExpired(), OwnerEpoch(1)))
    assert contiguous.state is ProducerSessionState.FAILED


@pytest.mark.hazard("forgotten-producer")
def test_expired_producer_does_not_fence_a_newer_one_that_has_its_name() -> None:
    """Its application has not asked again for the name; the newer instance's has."""
    producer = opened(last=4)
    producer.handle(StreamLost(1))
    producer.handle(OwnerFound(2, OwnerEpoch(1)))
    producer.handle(OpenRefused(2, ProducerExpired(), OwnerEpoch(1)))
    asked = reopened_question(producer)
    assert asked.on_conflict is OnConflict.REFUSE
    producer.handle(OpenRefused(asked.attempt, ProducerBusy(), OwnerEpoch(1)))
    assert isinstance(producer.error, ProducerBusy)


def test_expired_producer_gives_its_assigned_name_back() -> None:
    """Under the old name the new id would count as one with a chosen name, which may live for ever."""
    producer = ProducerSession(ProducerSettings(), checksum, INSTANCE)
    producer.handle(OpenWanted())
    producer.handle(OwnerFound(1, OwnerEpoch(1)))
    producer.handle(grant(1, session=1))
    producer.handle(StreamLost(1))
    producer.handle(OwnerFound(2, OwnerEpoch(1)))
    producer.handle(OpenRefused(2, ProducerExpired(), OwnerEpoch(1)))
    assert reopened_question(producer).name is None


def test_instance_that_gets_another_producer_id_is_expired() -> None:
    """The marks that ack_limit what was sent belong to the old id: resending under a new one would store twice."""
    producer = opened()
    producer.handle(ready(1))
    producer.handle(StreamLost(1))
    producer.handle(OwnerFound(2, OwnerEpoch(1)))
    producer.handle(grant(2, session=2, producer_id=99))
    assert isinstance(producer.error, ProducerExpired)


def test_busy_name_fails_an_open_with_refuse() -> None:
    """With on_conflict="refuse" the error is final. After the first grant such an answer is an error of the owner."""
    producer = new_producer(on_conflict=OnConflict.REFUSE)
    producer.handle(OpenWanted())
    (asked,) = producer.handle(OwnerFound(1, OwnerEpoch(1)))
    assert isinstance(asked, OpenProducer)
    assert asked.on_conflict is OnConflict.REFUSE
    busy = ProducerBusy()
    assert producer.handle(OpenRefused(1, busy, OwnerEpoch(1))) == [FailSession(busy)]


def test_retries_begin_at_once_and_back_off() -> None:
    """At once, then 20 ms growing by half up to 1 s; a good answer makes the next failure a first one."""
    producer = opened()
    producer.handle(StreamLost(1))
    pauses = []
    for _ in range(14):
        (timer,) = producer.handle(LookUpFailed(producer.opening.attempt, ServiceUnavailable()))
        assert isinstance(timer, StartSessionTimer)
        assert timer.jitter
        pauses.append(timer.after_ms)
        producer.handle(SessionTimerFired(timer.key))
    assert pauses[:5] == [20, 30, 45, 67, 101]
    assert pauses[-1] == 1_000
    assert pauses == sorted(pauses)
    reopened(producer, session=2)
    producer.handle(ready(1))
    producer.handle(answered(2, (1, stored(1))))
    assert isinstance(producer.handle(StreamLost(producer.opening.attempt))[0], LookUp)


def test_a_fatal_look_up_fails_the_producer_and_a_late_one_does_not() -> None:
    """An unknown topic is told; the completion of an older attempt, or of one that was answered, is dropped."""
    producer = new_producer()
    producer.handle(OpenWanted())
    error = ProducerFenced()
    assert producer.handle(LookUpFailed(7, error)) == []
    assert producer.handle(LookUpFailed(1, error)) == [FailSession(error)]
    answered_already = opened()
    assert answered_already.handle(LookUpFailed(1, error)) == []


def test_open_without_a_grant_is_retried_after_a_timeout() -> None:
    """The deadline of an attempt starts the next one. After the grant it is ignored."""
    producer = new_producer()
    producer.handle(OpenWanted())
    producer.handle(OwnerFound(1, OwnerEpoch(1)))
    assert isinstance(producer.handle(SessionTimerFired(TimerKey(TimerKind.OPEN, 1)))[1], LookUp)
    assert opened().handle(SessionTimerFired(TimerKey(TimerKind.OPEN, 1))) == []


def interruptions() -> list[str]:
    return ["look-up failed", "open timed out", "stream lost", "stale owner", "refused"]


@pytest.mark.parametrize("kind", interruptions())
@pytest.mark.parametrize("step", range(3))
def test_an_open_survives_an_interruption_after_every_step(step: int, kind: str) -> None:
    """Look-up, question, session with a batch in flight: wherever it breaks, the batch is completed once."""
    producer = opened()
    producer.handle(ready(1))
    producer.handle(StreamLost(1))
    attempt = producer.opening.attempt
    if step >= 1:
        producer.handle(OwnerFound(attempt, OwnerEpoch(2)))
    if step >= 2:
        producer.handle(grant(attempt, session=2, epoch=2))
    match kind:
        case "look-up failed":
            producer.handle(LookUpFailed(attempt, ServiceUnavailable()))
        case "open timed out":
            producer.handle(SessionTimerFired(TimerKey(TimerKind.OPEN, attempt)))
        case "stream lost":
            producer.handle(StreamLost(attempt))
        case "stale owner":
            producer.handle(answered(2, (1, ProducerFenced()), epoch=1))
        case _:
            producer.handle(OpenRefused(attempt, TopicLoading(), OwnerEpoch(2)))
    producer.check_invariants()
    if producer.state is ProducerSessionState.OPENING:
        if producer.opening.phase.value == "asking":
            producer.handle(grant(attempt, session=3, epoch=2))
        else:
            reopened(producer, session=3, epoch=2)
    session = producer.session
    assert session is not None
    assert producer.handle(answered(session, (1, stored(1)), epoch=2)) == [Complete(1, explicit(0), stored(1))]


def test_an_unanswered_request_is_withdrawn_before_it_is_made_again() -> None:
    """The owner must not grant it later; and it knows the next one by the same instance id."""
    producer = new_producer()
    producer.handle(OpenWanted())
    (first,) = producer.handle(OwnerFound(1, OwnerEpoch(1)))
    effects = producer.handle(SessionTimerFired(TimerKey(TimerKind.OPEN, 1)))
    assert effects[0] == WithdrawOpening(1)
    (second,) = producer.handle(OwnerFound(2, OwnerEpoch(1)))
    assert isinstance(first, OpenProducer)
    assert isinstance(second, OpenProducer)
    assert second.instance_id == first.instance_id == INSTANCE


def test_a_request_is_withdrawn_only_while_its_answer_is_due() -> None:
    """A look-up asks no owner yet, and a stream that is lost takes its requests with it."""
    producer = new_producer()
    producer.handle(OpenWanted())
    effects = producer.handle(SessionTimerFired(TimerKey(TimerKind.OPEN, 1)))
    assert [type(effect) for effect in effects] == [LookUp, StartSessionTimer]
    producer.handle(OwnerFound(2, OwnerEpoch(1)))
    assert WithdrawOpening(2) not in producer.handle(StreamLost(2))


def test_a_producer_that_is_closed_withdraws_its_request() -> None:
    """Otherwise the closed producer would fence another instance."""
    producer = new_producer()
    producer.handle(OpenWanted())
    producer.handle(OwnerFound(1, OwnerEpoch(1)))
    assert WithdrawOpening(1) in producer.handle(CloseWanted())
    assert WithdrawOpening(1) not in opened().handle(CloseWanted())


def test_producer_of_a_topic_that_was_created_anew_fails() -> None:
    """Its pending messages belong to the former log. Before the first grant it belongs to no log yet."""
    producer = opened()
    producer.handle(StreamLost(1))
    (failed,) = producer.handle(OwnerFound(2, OwnerEpoch(1), another_topic=True))
    assert isinstance(failed, FailSession)
    assert isinstance(failed.error, TopicNotFound)
    assert "create another producer" in failed.error.message
    new = new_producer()
    new.handle(OpenWanted())
    new.handle(OwnerFound(1, OwnerEpoch(5)))
    new.handle(StreamLost(1))
    (asked,) = new.handle(OwnerFound(2, OwnerEpoch(1), another_topic=True))
    assert isinstance(asked, OpenProducer)
