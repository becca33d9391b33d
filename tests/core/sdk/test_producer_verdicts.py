"""core/producer_session: the three kinds of verdict (hazard endless-resend), and any faults at all."""

import pytest

from oncelog.core.errors import (
    InvalidBatch,
    NotOwner,
    OncelogError,
    ProducerExpired,
    ProducerFenced,
    SequenceGap,
    ServiceUnavailable,
    SessionEnded,
    StaleSequence,
    TooManyRequests,
    TopicLoading,
    UnknownProducer,
)
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.ids import OwnerEpoch, SequenceId, SessionNumber
from oncelog.core.sdk.owner_attempts import (
    CloseWanted,
    FailSession,
    OwnerFound,
    SessionTimerFired,
    StreamLost,
    TimerKey,
    TimerKind,
)
from oncelog.core.sdk.producer.events import Complete, Fail, ProducerEffect, SessionClosedByOwner
from oncelog.core.sdk.producer.opening import CloseSession, OpenRefused
from oncelog.core.sdk.producer.sequence_ids import BatchIds
from oncelog.core.sdk.producer.session import ProducerSessionState
from tests.core.sdk.producer_world import World, answered, explicit, opened, ready, reopened, sent_requests, stored

CONTIGUOUS = SequenceMode.CONTIGUOUS


@pytest.mark.hazard("marks-of-a-failed-write")
def test_answers_of_an_older_session_are_ignored() -> None:
    """A late verdict of session 1 decides nothing in session 2."""
    producer = opened()
    producer.handle(ready(1))
    producer.handle(StreamLost(1))
    reopened(producer, session=2)
    assert producer.handle(answered(1, (1, stored(1)))) == []
    assert producer.handle(answered(1, (1, ProducerFenced()))) == []
    assert producer.handle(SessionClosedByOwner(SessionNumber(1), SessionEnded())) == []
    assert producer.handle(StreamLost(1)) == []
    assert producer.handle(answered(2, (1, stored(1)))) == [Complete(1, explicit(0), stored(1))]
    assert producer.handle(answered(2, (1, stored(1)))) == []


@pytest.mark.hazard("endless-resend")
@pytest.mark.parametrize(
    "error", [SessionEnded(), NotOwner(), UnknownProducer(), ServiceUnavailable(), TopicLoading(), TooManyRequests()]
)
def test_retriable_verdict_resends_all_pending_batches(error: OncelogError) -> None:
    """Hazard endless-resend, first kind: as an answer and as the end of the session; nothing fails, nothing is
    reordered."""
    for event in (
        answered(1, (2, error), (1, stored(1))),
        SessionClosedByOwner(SessionNumber(1), error, OwnerEpoch(1)),
    ):
        producer = opened()
        for request in (1, 2, 3):
            producer.handle(ready(request))
        effects = producer.handle(event)
        assert not [effect for effect in effects if isinstance(effect, Fail | FailSession)]
        assert producer.state is ProducerSessionState.OPENING
        completed = [effect.request for effect in effects if isinstance(effect, Complete)]
        assert sent_requests(reopened(producer, session=2)) == [r for r in (1, 2, 3) if r not in completed]


@pytest.mark.hazard("endless-resend")
def test_final_verdict_for_a_batch_fails_only_that_batch() -> None:
    """Hazard endless-resend, second kind: a monotonic producer resends the others and goes on."""
    producer = opened()
    for request in (1, 2, 3):
        producer.handle(ready(request, ids=explicit(request * 10)))
    stale = StaleSequence(high_water=25)
    effects = producer.handle(answered(1, (1, stored(1)), (2, stale)))
    assert Fail(2, stale, stored=False) in effects
    assert producer.state is ProducerSessionState.OPENING
    assert sent_requests(reopened(producer, session=2)) == [3]
    assert producer.handle(answered(2, (3, stored(1)))) == [Complete(3, explicit(30), stored(1))]


def test_a_final_verdict_for_a_batch_ends_a_contiguous_producer() -> None:
    """Its later ids could never be accepted: everything pending fails with the reason."""
    producer = opened(mode=CONTIGUOUS)
    for request in (1, 2, 3):
        producer.handle(ready(request))
    stale = StaleSequence()
    effects = producer.handle(answered(1, (2, stale)))
    assert effects == [
        Fail(2, stale, stored=False),
        FailSession(stale),
        CloseSession(1, SessionNumber(1)),
        Fail(1, stale, stored=None),
        Fail(3, stale, stored=False),
    ]
    assert producer.handle(ready(4)) == [Fail(4, stale, stored=False)]


@pytest.mark.hazard("endless-resend")
@pytest.mark.parametrize("error", [ProducerFenced(current=2), ProducerExpired()])
def test_a_final_verdict_for_the_producer_ends_it(error: OncelogError) -> None:
    """Hazard endless-resend, third kind: by an answer, by the session's end, by a refused open."""
    by_answer = opened()
    by_answer.handle(ready(1))
    assert FailSession(error) in by_answer.handle(answered(1, (1, error)))
    by_end = opened()
    by_end.handle(ready(1))
    assert Fail(1, error, stored=None) in by_end.handle(SessionClosedByOwner(SessionNumber(1), error, OwnerEpoch(1)))
    by_open = opened()
    by_open.handle(ready(1))
    by_open.handle(StreamLost(1))
    by_open.handle(OwnerFound(2, OwnerEpoch(1)))
    assert by_open.handle(OpenRefused(2, error, OwnerEpoch(1))) == [FailSession(error), Fail(1, error, stored=None)]
    for producer in (by_answer, by_end, by_open):
        assert producer.state is ProducerSessionState.FAILED
        assert producer.handle(ready(2)) == [Fail(2, error, stored=False)]
        assert producer.handle(SessionTimerFired(TimerKey(TimerKind.RETRY, producer.opening.attempt))) == []
        producer.check_invariants()


def test_a_gap_that_pending_batches_close_is_resent() -> None:
    """A SequenceGap at or above the oldest pending id ends only the session."""
    producer = opened(mode=CONTIGUOUS)
    for request in (1, 2):
        producer.handle(ready(request))
    producer.handle(answered(1, (2, SequenceGap(expected=0))))
    assert sent_requests(reopened(producer, session=2)) == [1, 2]


@pytest.mark.hazard("endless-resend")
def test_a_gap_below_the_oldest_pending_is_final() -> None:
    """No pending batch closes it: the batch would be resent and refused for ever."""
    producer = opened(mode=CONTIGUOUS)
    for request in (1, 2):
        producer.handle(ready(request))
    producer.handle(answered(1, (1, stored(1))))
    gap = SequenceGap(expected=0)
    assert FailSession(gap) in producer.handle(answered(1, (2, gap)))


def test_answer_with_a_wrong_message_count_ends_the_session() -> None:
    """The peer made an error: the batch stays pending and is sent in a new session."""
    producer = opened()
    producer.handle(ready(1, 3))
    producer.handle(answered(1, (1, (ResultRange(ResultKind.STORED, 2, None, 0),))))
    assert producer.state is ProducerSessionState.OPENING
    assert sent_requests(reopened(producer, session=2)) == [1]


@pytest.mark.parametrize("mode", list(SequenceMode))
@pytest.mark.parametrize("seed", range(60))
def test_every_batch_takes_effect_once_through_any_faults(seed: int, mode: SequenceMode) -> None:
    """Lost streams, takeovers, failed writes, answers out of order: each id is stored once, in order, and answered."""
    world = World(seed, mode)
    while not world.open:
        world.step(faults=False)
    sizes = [world.random.randint(1, 4) for _ in range(40)]
    for request, size in enumerate(sizes):
        world.feed(ready(request, size))
        for _ in range(world.random.randint(0, 8)):
            world.step(faults=True)
    for _ in range(5_000):
        if len(world.completed) == len(sizes) or not world.step(faults=False):
            break
    assert world.failed == []
    assert world.owner.log == list(range(sum(sizes)))
    assert [world.completed[request].last for request in range(len(sizes))] == [
        sum(sizes[: request + 1]) - 1 for request in range(len(sizes))
    ]


# --- failures and whether the message may be stored -------------------------------------------------------------------


def failures(effects: list[ProducerEffect]) -> dict[int, bool | None]:
    """{request: the field `stored` of its failure}."""
    return {effect.request: effect.stored for effect in effects if isinstance(effect, Fail)}


def test_batch_that_was_never_sent_fails_as_not_stored() -> None:
    """The window held it back, or no session was open, so no owner received it, whatever ends the producer."""
    producer = opened(in_flight_count_max=2)
    for request in (1, 2, 3):
        producer.handle(ready(request))
    assert failures(producer.handle(CloseWanted())) == {1: None, 2: None, 3: False}
    assert failures(producer.handle(ready(4))) == {4: False}


def test_fenced_batch_that_was_sent_once_fails_as_not_stored() -> None:
    """The owner drops batches behind the refused one. Batches before it may still be stored."""
    producer = opened()
    for request in (1, 2, 3):
        producer.handle(ready(request))
    assert failures(producer.handle(answered(1, (2, ProducerFenced())))) == {1: None, 2: False, 3: False}


@pytest.mark.hazard("endless-resend")
def test_refusal_of_a_resent_batch_leaves_its_outcome_unknown() -> None:
    """The first copy may be stored. Only a batch that was sent in this session alone is known not to be."""
    producer = opened()
    producer.handle(ready(1))
    producer.handle(StreamLost(1))
    reopened(producer, session=2)
    producer.handle(ready(2))
    assert failures(producer.handle(answered(2, (1, ProducerFenced())))) == {1: None, 2: False}


def test_stale_id_fails_as_not_stored_after_any_number_of_sends() -> None:
    """A stored earlier copy gives the answer duplicate, never stale. A malformed batch proves nothing about it."""
    for error, told in ((StaleSequence(), False), (InvalidBatch(), None)):
        producer = opened()
        producer.handle(ready(1))
        producer.handle(StreamLost(1))
        reopened(producer, session=2)
        assert failures(producer.handle(answered(2, (1, error)))) == {1: told}


def test_send_timeout_reports_an_unknown_outcome() -> None:
    """Also for a batch that was not sent yet: it keeps its place."""
    producer = opened(send_timeout_ms=100, in_flight_count_max=1)
    for request in (1, 2):
        producer.handle(ready(request))
        assert failures(producer.handle(SessionTimerFired(TimerKey(TimerKind.SEND, request)))) == {request: None}


def test_duplicate_reports_whether_this_instance_stored_it() -> None:
    """Ids up to the mark of the first grant were stored by an earlier instance; higher ids by this one."""
    producer = opened(last=4)
    producer.handle(ready(1, 3, ids=explicit(4, 6)))
    producer.handle(StreamLost(1))
    reopened(producer, session=2)
    duplicate = (ResultRange(ResultKind.DUPLICATE, 3, None, 0),)
    assert producer.handle(answered(2, (1, duplicate))) == [
        Complete(1, explicit(4, 6), duplicate, own_above=SequenceId(4))
    ]
    producer.handle(ready(2, 3, ids=explicit(4, 6)))
    assert producer.handle(answered(2, (2, duplicate))) == [Complete(2, explicit(4, 6), duplicate)]


def test_a_stale_message_ends_neither_its_batch_nor_its_session() -> None:
    """2 is stored, 4 was never stored, 6 is new: one answer for each. Batches in flight behind them stay in flight."""
    producer = opened(last=5)
    producer.handle(ready(1, 3, ids=BatchIds(SequenceId(2), SequenceId(6), b"\x01\x01")))
    producer.handle(ready(2, ids=explicit(7)))
    outcome = (
        ResultRange(ResultKind.DUPLICATE, 1, None, 0),
        ResultRange(ResultKind.STALE_SEQUENCE, 1, None, 0),
        ResultRange(ResultKind.STORED, 1, None, 2),
    )  # fmt: skip
    (told,) = producer.handle(answered(1, (1, outcome)))
    assert isinstance(told, Complete)
    assert (told.outcome, told.high_water) == (outcome, 6)
    assert producer.state is ProducerSessionState.OPEN
    assert producer.handle(answered(1, (2, stored(1)))) == [Complete(2, explicit(7), stored(1))]
