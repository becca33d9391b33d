"""core/producer_session: the three kinds of verdict (hazard 14), and any faults at all."""

import pytest

from oncelog.core.entry import SequenceMode
from oncelog.core.errors import (
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
from oncelog.core.ids import OwnerEpoch, SessionNumber
from oncelog.core.outcome import Part, PartKind
from oncelog.core.producer_session import (
    Complete,
    Fail,
    FailProducer,
    State,
)
from oncelog.core.producer_session import SessionEnded as SessionEndedEvent
from oncelog.core.session_opening import (
    EndSession,
    OpenRefused,
    OwnerFound,
    StreamLost,
    TimerFired,
    TimerKey,
    TimerKind,
)
from tests.core.producer_world import (
    World,
    answered,
    explicit,
    opened,
    ready,
    reopened,
    sent_requests,
    stored,
)

CONTIGUOUS = SequenceMode.CONTIGUOUS


def test_answers_of_an_older_session_are_ignored() -> None:
    """Hazard 10: a late verdict of session 1 decides nothing in session 2."""
    producer = opened()
    producer.handle(ready(1))
    producer.handle(StreamLost(1))
    reopened(producer, session=2)
    assert producer.handle(answered(1, (1, stored(1)))) == []
    assert producer.handle(answered(1, (1, ProducerFenced()))) == []
    assert producer.handle(SessionEndedEvent(SessionNumber(1), SessionEnded())) == []
    assert producer.handle(StreamLost(1)) == []
    assert producer.handle(answered(2, (1, stored(1)))) == [Complete(1, explicit(0), stored(1))]
    assert producer.handle(answered(2, (1, stored(1)))) == []


@pytest.mark.parametrize(
    "error", [SessionEnded(), NotOwner(), UnknownProducer(), ServiceUnavailable(), TopicLoading(), TooManyRequests()]
)
def test_a_retriable_verdict_resends_everything(error: OncelogError) -> None:
    """Hazard 14, first kind: as an answer and as the end of the session; nothing fails, nothing is reordered."""
    for event in (answered(1, (2, error), (1, stored(1))), SessionEndedEvent(SessionNumber(1), error, OwnerEpoch(1))):
        producer = opened()
        for request in (1, 2, 3):
            producer.handle(ready(request))
        effects = producer.handle(event)
        assert not [effect for effect in effects if isinstance(effect, Fail | FailProducer)]
        assert producer.state is State.OPENING
        completed = [effect.request for effect in effects if isinstance(effect, Complete)]
        assert sent_requests(reopened(producer, session=2)) == [r for r in (1, 2, 3) if r not in completed]


def test_a_final_verdict_for_a_batch_fails_it_alone() -> None:
    """Hazard 14, second kind: a monotonic producer resends the others and goes on."""
    producer = opened()
    for request in (1, 2, 3):
        producer.handle(ready(request, ids=explicit(request * 10)))
    stale = StaleSequence(high_water=25)
    effects = producer.handle(answered(1, (1, stored(1)), (2, stale)))
    assert Fail(2, stale) in effects
    assert producer.state is State.OPENING
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
        Fail(2, stale),
        FailProducer(stale),
        EndSession(1, SessionNumber(1)),
        Fail(1, stale),
        Fail(3, stale),
    ]
    assert producer.handle(ready(4)) == [Fail(4, stale)]


@pytest.mark.parametrize("error", [ProducerFenced(current=2), ProducerExpired()])
def test_a_final_verdict_for_the_producer_ends_it(error: OncelogError) -> None:
    """Hazard 14, third kind: by an answer, by the session's end, by a refused open."""
    by_answer = opened()
    by_answer.handle(ready(1))
    assert FailProducer(error) in by_answer.handle(answered(1, (1, error)))
    by_end = opened()
    by_end.handle(ready(1))
    assert Fail(1, error) in by_end.handle(SessionEndedEvent(SessionNumber(1), error, OwnerEpoch(1)))
    by_open = opened()
    by_open.handle(ready(1))
    by_open.handle(StreamLost(1))
    by_open.handle(OwnerFound(2, OwnerEpoch(1)))
    assert by_open.handle(OpenRefused(2, error, OwnerEpoch(1))) == [FailProducer(error), Fail(1, error)]
    for producer in (by_answer, by_end, by_open):
        assert producer.state is State.FAILED
        assert producer.handle(ready(2)) == [Fail(2, error)]
        assert producer.handle(TimerFired(TimerKey(TimerKind.RETRY, producer.opening.attempt))) == []
        producer.check_invariants()


def test_a_gap_that_pending_batches_close_is_resent() -> None:
    """A SequenceGap at or above the oldest pending id is the session's trouble only."""
    producer = opened(mode=CONTIGUOUS)
    for request in (1, 2):
        producer.handle(ready(request))
    producer.handle(answered(1, (2, SequenceGap(expected=0))))
    assert sent_requests(reopened(producer, session=2)) == [1, 2]


def test_a_gap_below_the_oldest_pending_is_final() -> None:
    """Nothing that is pending closes it: resend and refuse would go round for ever."""
    producer = opened(mode=CONTIGUOUS)
    for request in (1, 2):
        producer.handle(ready(request))
    producer.handle(answered(1, (1, stored(1))))
    gap = SequenceGap(expected=0)
    assert FailProducer(gap) in producer.handle(answered(1, (2, gap)))


def test_an_answer_for_another_number_of_messages_is_not_believed() -> None:
    """A peer's fault: the batch stays pending and goes to a fresh session."""
    producer = opened()
    producer.handle(ready(1, 3))
    producer.handle(answered(1, (1, (Part(PartKind.STORED, 2, None, 0),))))
    assert producer.state is State.OPENING
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
