"""What the answer of an owner says about one batch."""

import pytest

from oncelog.client.values.results import AnsweredRange
from oncelog.core.errors import StaleSequence
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog_doors.core.pulsar.verdicts import Known
from oncelog_doors.log_client.known_batches import known_of

HERE, THERE = Position(LedgerId(5), EntryId(7)), Position(LedgerId(5), EntryId(3))
STORED, DUPLICATE, BELOW = ResultKind.STORED, ResultKind.DUPLICATE, ResultKind.BELOW_MARK
STALE = AnsweredRange(1, None, error=StaleSequence("4 is below 5"))


def found(
    kind: ResultKind, place: Position | None = HERE, *, differs: bool | None = None, resent: bool = False
) -> AnsweredRange:
    return AnsweredRange(2, ResultRange(kind, 2, place, 0, differs), resent)


@pytest.mark.parametrize(
    ("ranges", "known", "place"),
    [
        ([found(STORED)], Known.STORED, HERE),
        ([found(DUPLICATE, differs=False)], Known.SAME_BATCH, HERE),
        ([found(DUPLICATE, resent=True)], Known.SAME_BATCH, HERE),
        ([found(DUPLICATE)], Known.OTHER_BATCHES, None),
        ([found(DUPLICATE), found(DUPLICATE, THERE)], Known.OTHER_BATCHES, None),
        ([found(DUPLICATE, THERE), found(STORED)], Known.PARTLY_NEW, None),
        ([found(DUPLICATE, differs=True)], Known.OTHER_CONTENT, None),
        ([found(BELOW, None)], Known.UNVERIFIED, None),
        ([found(BELOW, None), found(DUPLICATE, THERE)], Known.UNVERIFIED, None),
        ([STALE], Known.STALE, None),
        ([found(DUPLICATE), STALE, found(STORED)], Known.STALE, None),
    ],
)
@pytest.mark.hazard("place-of-another-batch")
def test_place_is_that_of_exactly_this_batch(ranges: list[AnsweredRange], known: Known, place: Position | None) -> None:
    """A place of another batch would be the place of other messages."""
    assert known_of(ranges) == (known, place)
