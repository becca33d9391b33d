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


def test_run_without_gaps_is_one_row_that_knows_its_ids() -> None:
    """A resumed import repeats a million messages: it does not displace what is remembered of others."""
    refusals = Refusals(since_ms=0)
    sent(refusals, [9_999_999], now_ms=1, verdict="stale_sequence")
    for number in range(3 * REFUSALS_MAX):
        sent(refusals, range(10 * number, 10 * number + 10), now_ms=100 + number)
    assert of(refusals, 1_234).counts == {"duplicate": 1}
    assert of(refusals, 9_999_999).counts == {"stale_sequence": 1}
    assert of(refusals, 1).complete


def test_run_with_gaps_knows_each_batch_until_there_are_too_many() -> None:
    """A resumed import whose ids are byte offsets. Then an id between the ends of the run is counted apart: it may have
    been in it. Another run begins after a pause, so the time of an old resend is not that of a new one."""
    refusals = Refusals(since_ms=0)
    for number in range(REFUSALS_MAX - 1):
        sent(refusals, [number * 10], now_ms=number)
    sent(refusals, [9_990], now_ms=50_000)
    assert (of(refusals, 30).counts, of(refusals, 30).first_ms) == ({"duplicate": 1}, 3)
    assert (of(refusals, 35).counts, of(refusals, 35).possible_counts) == ({}, {})
    for number in range(5):
        sent(refusals, [10_000 + number * 10], now_ms=50_001 + number)
    known = [of(refusals, number) for number in (0, 35, 40, 50, 60, 9_990)]
    assert [each.counts.get("duplicate", 0) for each in known] == [1, 0, 0, 1, 1, 1]
    assert [each.possible_counts.get("duplicate", 0) for each in known] == [0, 1, 1, 0, 0, 0]
    assert [(each.first_ms, each.last_ms) for each in (known[1], known[-1])] == [(0, 5), (50_000, 50_000)]
    assert known[0].complete


def test_single_batch_with_holes_knows_its_ends() -> None:
    refusals = Refusals(since_ms=0)
    sent(refusals, [0, 10, 20], now_ms=7)
    found = [of(refusals, number) for number in (0, 10, 20, 21)]
    assert [each.counts.get("duplicate", 0) for each in found] == [1, 0, 1, 0]
    assert [each.possible_counts.get("duplicate", 0) for each in found] == [0, 1, 0, 0]


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
    owner.send(granted.session, received(3, [0, 2], payload=b"another"))
    owner.run()
    assert of(refusals, 0).counts == {"duplicate": 2, "content_differs": 1}
    owner.send(granted.session, received(4, [1]))
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
