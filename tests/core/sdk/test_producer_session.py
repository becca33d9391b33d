"""core/producer_session: numbers, the window, resends, deadlines, the end."""

import pytest

from oncelog.core.errors import (
    DeadlineExceeded,
    InvalidSequenceId,
    InvariantViolated,
    MessageTooLarge,
    NotEnoughStorageNodes,
    ProducerClosed,
    SequenceGap,
    SequenceIdRequired,
    SessionEnded,
    TooManyRequests,
)
from oncelog.core.formats.batch import decode_batch
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import ProducerInstance
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.ids import SEQUENCE_ID_MAX, Generation, OwnerEpoch, SequenceId, SessionNumber
from oncelog.core.sdk.owner_attempts import (
    CloseWanted,
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
from oncelog.core.sdk.producer.events import Complete, Fail, SessionClosedByOwner, SessionDedupToggled
from oncelog.core.sdk.producer.opening import BATCH_OVERHEAD_BYTES, CloseSession, OpenRefused
from oncelog.core.sdk.producer.pending_batches import SendBatches
from oncelog.core.sdk.producer.session import ProducerSessionState
from tests.core.sdk.producer_world import (
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


def test_batch_before_the_first_grant_is_an_internal_error() -> None:
    """The application has no producer before it was reported open."""
    with pytest.raises(InvariantViolated):
        new_producer().handle(ready(1))


def test_batch_is_packed_with_the_granted_id_and_generation() -> None:
    """Ids continue after the last id of the log. The bytes decode to the given messages."""
    producer = opened(last=41)
    effects = producer.handle(ready(1, 3))
    assert isinstance(effects[0], SendBatches)
    ((request, data),) = effects[0].batches
    header = decode_batch(data, checksum)
    assert (request, header.producer_id, header.generation) == (1, PID, 1)
    assert (header.first, header.last, header.count, header.publish_time_ms) == (42, 44, 3, 1_001)
    assert effects[1:] == [StartSessionTimer(TimerKey(TimerKind.ANSWER, 1), 30_000)]
    assert producer.handle(answered(1, (1, stored(3)))) == [Complete(1, explicit(42, 44), stored(3))]
    assert producer.numbers.stored == 44


@pytest.mark.parametrize(
    ("initial", "last", "first"), [(None, -1, 0), (-1, -1, 0), (None, 9, 10), (99, 9, 100), (-1, 9, 0)]
)
def test_automatic_ids_begin_one_above_the_last(initial: int | None, last: int, first: int) -> None:
    """initial_sequence_id is the last one used; without it the log decides; 0 is a legal id."""
    producer = opened(last=last, initial_sequence_id=initial)
    producer.handle(ready(1))
    assert producer.handle(answered(1, (1, stored(1)))) == [Complete(1, explicit(first), stored(1))]


@pytest.mark.parametrize("final", [True, False])
def test_producer_that_was_opened_behind_repeats_every_id(final: bool) -> None:
    """Also over a new session: an id that is skipped would store a repetition as a new message."""
    repeated = (ResultRange(ResultKind.DUPLICATE, 1, None, 0),)
    lease: dict[str, object] = {} if final else {"lease": ProducerInstance(PID, Generation(1)), "mode": CONTIGUOUS}
    producer = new_producer(initial_sequence_id=3, **lease)
    producer.handle(OpenWanted())
    producer.handle(OwnerFound(1, OwnerEpoch(1)))
    producer.handle(grant(1, last=6, final=final))
    assert (producer.numbers.stored, producer.numbers.repeats_ahead) == (6, 3)
    for number in (4, 5, 6, 7):
        producer.handle(ready(number))
        (complete,) = producer.handle(answered(number - 3, (number, repeated if number < 7 else stored(1))))
        assert isinstance(complete, Complete)
        assert complete.ids == explicit(number)
        assert producer.numbers.repeats_ahead == max(0, 6 - number)
        producer.handle(StreamLost(number - 3))
        reopened(producer, session=number - 2, last=max(6, number))


@pytest.mark.parametrize("wrong", [-2, 2**63 - 1, True])
def test_an_impossible_initial_id_is_refused(wrong: int) -> None:
    """-1 to 2**63 - 2: there must be a next one."""
    with pytest.raises(InvalidSequenceId):
        new_producer(initial_sequence_id=wrong)


def test_contiguous_producer_cannot_start_after_a_gap() -> None:
    """An initial_sequence_id above the log's last would be refused for ever, so it fails at once."""
    producer = new_producer(initial_sequence_id=10, mode=CONTIGUOUS)
    producer.handle(OpenWanted())
    producer.handle(OwnerFound(1, OwnerEpoch(1)))
    effects = producer.handle(grant(1, last=4))
    assert [type(effect) for effect in effects] == [CloseSession, FailSession]
    assert isinstance(producer.error, SequenceGap)
    assert producer.error.details == {"expected": 5}


def test_explicit_and_automatic_ids_are_not_mixed() -> None:
    """Once explicit, always explicit, and the reverse; the refused batch costs nothing."""
    for given, other in ((explicit(5), None), (None, explicit(5))):
        producer = opened()
        producer.handle(ready(1, ids=given))
        (effect,) = producer.handle(ready(2, ids=other))
        assert isinstance(effect, Fail)
        assert isinstance(effect.error, SequenceIdRequired)
        assert sent_requests(producer.handle(ready(3, ids=None if given is None else explicit(6)))) == [3]


def test_automatic_ids_stop_at_the_largest_id() -> None:
    """Automatic ids stop at 2**63 - 1 by an error, not by overflow."""
    producer = opened(initial_sequence_id=SEQUENCE_ID_MAX - 2)
    assert sent_requests(producer.handle(ready(1, 2))) == [1]
    (effect,) = producer.handle(ready(2))
    assert isinstance(effect, Fail)
    assert isinstance(effect.error, InvalidSequenceId)


def test_explicit_ids_of_a_contiguous_producer_leave_no_gap() -> None:
    """A gap is refused before it costs the session; a repeat is sent, for the owner knows whether it is a duplicate."""
    producer = opened(mode=CONTIGUOUS, last=4)
    (gap,) = producer.handle(ready(1, ids=explicit(6)))
    assert isinstance(gap, Fail)
    assert isinstance(gap.error, SequenceGap)
    assert gap.error.details == {"expected": 5}
    assert sent_requests(producer.handle(ready(2, ids=explicit(5)))) == [2]
    assert sent_requests(producer.handle(ready(3, ids=explicit(3)))) == [3]
    (holes,) = producer.handle(ready(4, 2, ids=explicit(6)._replace(last=SequenceId(9), deltas=b"\x02")))
    assert isinstance(holes, Fail)
    assert isinstance(holes.error, InvalidSequenceId)


def test_window_limits_the_batches_in_flight() -> None:
    """More is sent only as answers come, always in order, and one batch is always allowed."""
    producer = opened(in_flight_count_max=2)
    sent = [sent_requests(producer.handle(ready(request))) for request in (1, 2, 3, 4)]
    assert sent == [[1], [2], [], []]
    assert sent_requests(producer.handle(answered(1, (2, stored(1))))) == [3]
    assert sent_requests(producer.handle(answered(1, (3, stored(1)), (1, stored(1))))) == [4]
    narrow = opened(in_flight_bytes_max=1)
    assert sent_requests(narrow.handle(ready(1))) == [1]
    assert sent_requests(narrow.handle(ready(2))) == []
    assert sent_requests(narrow.handle(answered(1, (1, stored(1))))) == [2]


def test_pending_memory_is_bounded() -> None:
    """Over pending_bytes_max a batch is refused, not queued; one alone always passes; room comes back with answers."""
    producer = opened(pending_bytes_max=200)
    assert sent_requests(producer.handle(ready(1, value=b"x" * 300))) == [1]
    (refused,) = producer.handle(ready(2))
    assert isinstance(refused, Fail)
    assert isinstance(refused.error, TooManyRequests)
    producer.handle(answered(1, (1, stored(1))))
    assert producer.pending.bytes_total == 0
    assert sent_requests(producer.handle(ready(3))) == [3]


def test_batch_over_the_owners_limit_is_refused_by_the_client() -> None:
    """The grant contains the limit. Nothing is sent, and the producer continues."""
    producer = opened()
    producer.message_bytes_max = 100
    assert sent_requests(producer.handle(ready(0, value=b"x" * 100))) == [0]
    (refused,) = producer.handle(ready(1, value=b"x" * (100 + BATCH_OVERHEAD_BYTES)))
    assert isinstance(refused, Fail)
    assert isinstance(refused.error, MessageTooLarge)
    assert refused.error.details["limit"] == 100 + BATCH_OVERHEAD_BYTES
    assert sent_requests(producer.handle(ready(2))) == [2]


def test_pending_batches_are_resent_in_order_with_the_same_bytes() -> None:
    """After answers in another order and a lost stream: what is unanswered, oldest first, byte for byte."""
    producer = opened(in_flight_count_max=3)
    sent = {}
    for request in range(1, 6):
        for effect in producer.handle(ready(request, request)):
            sent.update(dict(effect.batches) if isinstance(effect, SendBatches) else {})
    producer.handle(answered(1, (2, stored(2))))
    assert producer.handle(StreamLost(1))[0] == LookUp(2, fresh=True, owner_epoch=OwnerEpoch(1))
    effects = reopened(producer, session=2)
    assert isinstance(effects[0], SendBatches)
    assert [request for request, _ in effects[0].batches] == [1, 3, 4]
    for request, data in effects[0].batches:
        if request in sent:
            assert data == sent[request]
    assert sent_requests(producer.handle(answered(2, (1, stored(1))))) == [5]


def test_a_changed_generation_repacks_the_batch_under_its_ids() -> None:
    """Granted anew under a higher generation, the batch keeps ids, count and payload; only its header changes."""
    producer = opened()
    (sent, _) = producer.handle(ready(1, 2))
    producer.handle(StreamLost(1))
    producer.handle(OwnerFound(2, OwnerEpoch(1)))
    (again, _) = producer.handle(grant(2, session=2, generation=4))
    assert isinstance(sent, SendBatches)
    assert isinstance(again, SendBatches)
    before, after = (decode_batch(effect.batches[0][1], checksum) for effect in (sent, again))
    assert after == before._replace(generation=Generation(4), checksum=after.checksum)


def test_session_of_a_silent_owner_ends_after_a_timeout() -> None:
    """Each answer extends the deadline. With nothing in flight there is none."""
    producer = opened()
    deadline = SessionTimerFired(TimerKey(TimerKind.ANSWER, 1))
    producer.handle(ready(1))
    producer.handle(ready(2))
    producer.handle(answered(1, (1, stored(1))))
    assert producer.handle(deadline) == [StartSessionTimer(TimerKey(TimerKind.ANSWER, 1), 30_000)]
    producer.handle(answered(1, (2, stored(1))))
    assert producer.handle(deadline) == []
    assert producer.handle(ready(3))[1:] == [StartSessionTimer(TimerKey(TimerKind.ANSWER, 1), 30_000)]
    effects = producer.handle(deadline)
    assert effects[:1] == [CloseSession(1, SessionNumber(1))]
    assert producer.state is ProducerSessionState.OPENING


def test_a_send_timeout_fails_the_result_and_keeps_the_batch() -> None:
    """The caller gets one unknown outcome. The order towards the owner stays, and the memory stays counted."""
    producer = opened(send_timeout_ms=100)
    effects = producer.handle(ready(1))
    assert effects[-1] == StartSessionTimer(TimerKey(TimerKind.SEND, 1), 100)
    producer.handle(ready(2))
    (failed,) = producer.handle(SessionTimerFired(TimerKey(TimerKind.SEND, 1)))
    assert isinstance(failed, Fail)
    assert isinstance(failed.error, DeadlineExceeded)
    assert producer.handle(SessionTimerFired(TimerKey(TimerKind.SEND, 1))) == []
    producer.handle(StreamLost(1))
    assert sent_requests(reopened(producer, session=2)) == [1, 2]
    assert producer.pending.bytes_total > 0
    assert producer.handle(answered(2, (1, stored(1)), (2, stored(1)))) == [Complete(2, explicit(1), stored(1))]
    assert producer.handle(SessionTimerFired(TimerKey(TimerKind.SEND, 2))) == []


def test_send_timeout_names_why_there_is_no_session() -> None:
    """A full disk, for instance. Once there is a session again, an older reason is none."""
    producer = opened(send_timeout_ms=100)
    for request in (1, 2, 3):
        producer.handle(ready(request))
    full = NotEnoughStorageNodes("storage nodes have no space: a, b")
    producer.handle(SessionClosedByOwner(SessionNumber(1), SessionEnded("a write failed"), OwnerEpoch(1)))
    (failed,) = producer.handle(SessionTimerFired(TimerKey(TimerKind.SEND, 1)))
    assert isinstance(failed, Fail)
    assert "a write failed" in failed.error.message
    retry = producer.opening.attempt
    producer.handle(OwnerFound(retry, OwnerEpoch(1)))
    producer.handle(OpenRefused(retry, full, OwnerEpoch(1)))
    assert (producer.trouble, producer.state) == (full, ProducerSessionState.OPENING)
    (failed,) = producer.handle(SessionTimerFired(TimerKey(TimerKind.SEND, 2)))
    assert isinstance(failed, Fail)
    assert isinstance(failed.error, DeadlineExceeded)
    told = failed.error.of_send(failed.stored)
    assert full.message in told.message
    assert (told.details["reason"], told.__cause__, told.stored) == (full.code, full, None)
    reopened(producer, session=2)
    assert (producer.trouble, producer.state) == (None, ProducerSessionState.OPEN)
    (failed,) = producer.handle(SessionTimerFired(TimerKey(TimerKind.SEND, 3)))
    assert isinstance(failed, Fail)
    assert failed.error.details == {}


def test_closing_fails_pending_batches() -> None:
    """The client ends the session at the owner, and returns a grant that comes later."""
    producer = opened()
    producer.handle(ready(1))
    effects = producer.handle(CloseWanted())
    assert effects[0] == CloseSession(1, SessionNumber(1))
    assert isinstance(effects[1], Fail)
    assert isinstance(effects[1].error, ProducerClosed)
    assert producer.handle(grant(1, session=5)) == [CloseSession(1, SessionNumber(5))]
    (late,) = producer.handle(ready(2))
    assert isinstance(late, Fail)
    assert isinstance(late.error, ProducerClosed)
    producer.check_invariants()


def test_only_the_owner_of_the_session_sets_whether_dedup_is_enabled() -> None:
    """With each grant, and when dedup is toggled. Values from the owner of an older session are ignored."""
    producer = opened()
    assert producer.deduplication
    assert producer.handle(SessionDedupToggled(SessionNumber(2), on=False)) == []
    assert producer.deduplication
    told = []
    for event in (SessionDedupToggled(SessionNumber(1), on=False), StreamLost(1)):
        producer.handle(event)
        told.append(producer.deduplication)
    reopened(producer, session=2)
    assert [*told, producer.deduplication] == [False, False, True]
