"""What is remembered of batches that were answered without being stored."""

from oncelog.core.ids import PRODUCER_ID_MAX, ProducerId
from oncelog.core.publishing.refusals import REFUSALS_MAX, Refusals, RefusalsOfId
from tests.core.builders import PID, parts, received, sequence
from tests.core.topic.test_topic import serving

OTHER = ProducerId(PRODUCER_ID_MAX)


def of(refusals: Refusals, number: int, pid: ProducerId = PID) -> RefusalsOfId:
    return refusals.of(pid, sequence(number))


def sent(refusals: Refusals, ids: list[int] | range, *, now_ms: int, verdict: str = "duplicate") -> None:
    refusals.refused(parts(ids)[0], verdict, now_ms=now_ms, peer=f"10.0.0.1:{now_ms}")


def test_resend_of_one_batch_is_counted_with_its_times_and_its_last_client() -> None:
    refusals = Refusals(since_ms=5)
    assert of(refusals, 1) == RefusalsOfId({}, {}, None, None, "", 5, True)
    for now_ms in (100, 90_000, 200_000):
        sent(refusals, [4, 5, 6], now_ms=now_ms)
    assert of(refusals, 5) == RefusalsOfId({"duplicate": 3}, {}, 100, 200_000, "10.0.0.1:200000", 5, True)
    assert of(refusals, 3).counts == of(refusals, 7).counts == of(refusals, 5, OTHER).counts == {}


def test_run_of_batches_is_one_row_that_knows_its_dense_ids() -> None:
    """A resumed import repeats a million messages: it does not displace what is remembered of others."""
    refusals = Refusals(since_ms=0)
    sent(refusals, [9_999_999], now_ms=1, verdict="stale_sequence")
    for number in range(3 * REFUSALS_MAX):
        sent(refusals, range(10 * number, 10 * number + 10), now_ms=100 + number)
    assert of(refusals, 1_234).counts == {"duplicate": 1}
    assert of(refusals, 9_999_999).counts == {"stale_sequence": 1}
    assert of(refusals, 1).complete


def test_run_with_holes_says_that_an_id_may_have_been_in_it() -> None:
    """Only its ends are known: an id between them is counted apart. After a pause another run begins, so that the time
    of an old resend is not that of a new one."""
    refusals = Refusals(since_ms=0)
    for first in (0, 30, 60):
        sent(refusals, [first, first + 10, first + 20], now_ms=first)
    sent(refusals, [90], now_ms=50_000)
    for number, counts, possible, last_ms in ((0, 1, 0, 60), (45, 0, 1, 60), (80, 1, 0, 60), (90, 1, 0, 50_000)):
        found = of(refusals, number)
        assert (sum(found.counts.values()), sum(found.possible_counts.values())) == (counts, possible)
        assert (found.first_ms, found.last_ms) == (0 if number < 90 else 50_000, last_ms)


def test_oldest_rows_are_dropped_and_the_answer_says_since_when() -> None:
    refusals = Refusals(since_ms=5)
    for number in range(REFUSALS_MAX + 3):
        sent(refusals, [number * 2], now_ms=20_000 * number)
    found = of(refusals, 2)
    assert (found.counts, found.since_ms, found.complete) == ({}, 40_000, False)
    assert of(refusals, 2 * REFUSALS_MAX).counts == {"duplicate": 1}


def test_results_of_parts_of_a_batch_are_told_apart() -> None:
    """Stored before, refused, and new ones in one batch."""
    _, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0, 2]))
    owner.run()
    owner.send(granted.session, received(2, [0, 1, 2, 9]))
    owner.run()
    assert owner.core.serving is not None
    refusals = owner.core.serving.sessions.refusals
    found = [of(refusals, number) for number in (0, 1, 2, 9)]
    assert [each.counts for each in found] == [{"duplicate": 1}, {"stale_sequence": 1}, {"duplicate": 1}, {}]
    assert found[1].possible_counts == {"duplicate": 1}
    owner.send(granted.session, received(3, [1]))
    owner.run()
    assert of(refusals, 1).counts == {"stale_sequence": 2}


def test_stored_batches_leave_no_row() -> None:
    """The accept path pays nothing, and a topic without refusals has no list."""
    _, owner = serving()
    granted = owner.open()
    for number in range(5):
        owner.send(granted.session, received(number, [number]))
    owner.run()
    assert owner.core.serving is not None
    assert owner.core.serving.sessions.refusals._rows is None
