"""core/publishing: ids that were never stored (hazard id-between-stored-ids); each message of a batch has its own
answer."""

import pytest

from oncelog.core.errors import StaleSequence
from oncelog.core.formats.outcome import RESULT_RANGES_MAX, ResultRange
from oncelog.core.publishing.dedup_table import Accept, NothingNew
from tests.core.builders import CONTIGUOUS, at, parts, sequence
from tests.core.publishing.test_dedup import DUPLICATE, STALE, DedupWorld, known, refused


@pytest.mark.hazard("id-between-stored-ids")
@pytest.mark.parametrize("ids", [[4], [0], [6, 7]])
def test_id_that_was_never_stored_is_stale(ids: list[int]) -> None:
    """{2,3,5} and {8} stored: 4, 0 and 7 are inside the marks, and a test on ranges would lose them."""
    world = DedupWorld().stored([2, 3, 5], [8])
    assert refused(world.check(ids), StaleSequence).error.details == {"high_water": 8}


@pytest.mark.hazard("id-between-stored-ids")
def test_stale_id_does_not_affect_other_ids_of_its_batch() -> None:
    """Each message of a batch has its own answer: stored before, never stored, new."""
    world = DedupWorld().stored([2, 3, 5], [8])
    assert known(world.check([2, 3, 4])) == [ResultRange(DUPLICATE, 2, at(1), 0), ResultRange(STALE, 1, None, 0)]
    assert known(world.check([3, 4, 5])) == [
        ResultRange(DUPLICATE, 1, at(1), 1), ResultRange(STALE, 1, None, 0), ResultRange(DUPLICATE, 1, at(1), 2),
    ]  # fmt: skip
    assert known(world.check([0, 1, 4, 6, 7, 8])) == [
        ResultRange(STALE, 5, None, 0),
        ResultRange(DUPLICATE, 1, at(2), 0),
    ]
    assert world.check([0, 9]) == Accept(1, (ResultRange(STALE, 1, None, 0),))
    verdict = world.write([2, 4, 8, 9])
    assert verdict == Accept(
        3, (ResultRange(DUPLICATE, 1, at(1), 0), ResultRange(STALE, 1, None, 0), ResultRange(DUPLICATE, 1, at(2), 0))
    )
    world.persist()
    assert known(world.check([4, 9])) == [ResultRange(STALE, 1, None, 0), ResultRange(DUPLICATE, 1, at(3), 3)]


def test_stale_id_is_answered_after_the_later_write_is_durable() -> None:
    """5 is stored, 8 is in flight: 7 is stale only if the write of 8 succeeds."""
    world = DedupWorld().stored([5])
    world.write([8])
    verdict = world.check([5, 7])
    assert verdict == NothingNew((ResultRange(DUPLICATE, 1, at(1), 0), ResultRange(STALE, 1, None, 0)), at(2))


def test_a_contiguous_batch_with_a_stale_id_is_refused_as_a_whole() -> None:
    """Its producer cannot continue after an id that is never stored. Such holes come from disabled dedup."""
    world = DedupWorld(CONTIGUOUS).stored([0, 1])
    world.table.dedup_enabled = False
    world.write([4])
    world.persist()
    world.table.dedup_enabled = True
    refused(world.check(range(1, 3)), StaleSequence)


def test_batch_whose_answer_has_too_many_parts_is_refused() -> None:
    """With every second id stored, the answer would be too large for a frame."""
    world = DedupWorld()
    world.write(list(range(0, 2 * RESULT_RANGES_MAX, 2)))
    refused(world.check(range(2 * RESULT_RANGES_MAX)), StaleSequence)
    assert len(known(world.check(range(1000)))) == 1000


@pytest.mark.hazard("id-between-stored-ids")
def test_never_stored_id_in_flight_is_stale() -> None:
    """6 and 8 are in flight, then 7 arrives: it is neither a duplicate nor new."""
    world = DedupWorld()
    world.write([6])
    world.write([8])
    refused(world.check([7]), StaleSequence)


@pytest.mark.hazard("id-between-stored-ids")
def test_batch_with_a_stale_head_stores_its_tail() -> None:
    """The head is answered as stale, so that it does not count as stored. The tail is new."""
    world = DedupWorld().stored([2, 5])
    assert world.check([2, 3, 9]) == Accept(2, (ResultRange(DUPLICATE, 1, at(1), 0), ResultRange(STALE, 1, None, 0)))


def test_large_claimed_count_over_holes_takes_no_time() -> None:
    """A dense batch of a billion ids, by its header, over a batch with holes."""
    world = DedupWorld().stored([0, 10**9 + 1])
    batch, deltas = parts([0, 1])
    huge = batch._replace(last=sequence(10**9 + 1), count=10**9 + 2)
    assert known(world.table.check(huge, deltas)) == [
        ResultRange(DUPLICATE, 1, at(1), 0), ResultRange(STALE, 10**9, None, 0), ResultRange(DUPLICATE, 1, at(1), 1),
    ]  # fmt: skip
