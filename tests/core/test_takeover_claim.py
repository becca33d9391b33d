"""The claim of the dedup cursor: written once for an epoch, by compare-and-set, never mistaken for another write."""

import pytest

from oncelog.core.ids import EntryId, LedgerId, OwnerEpoch, Position
from oncelog.core.ledger_recovery import ReadLedger
from oncelog.core.store_status import WriteStatus
from oncelog.core.takeover import (
    CursorGivenUp,
    CursorRecordRead,
    CursorRecordWritten,
    Marked,
    ReadCursorRecord,
    Takeover,
    TakeoverFailed,
    TakeoverState,
    WriteCursorRecord,
)
from oncelog.core.topic_record import CursorLink, CursorRecord, TopicRecord
from tests.core.builders import TOPIC, C, checksum

EPOCH = OwnerEpoch(5)


def claiming() -> Takeover:
    takeover = Takeover(TopicRecord(TOPIC, "t", C, EPOCH), checksum=checksum)
    assert takeover.start() == [Marked("B", 0), ReadCursorRecord()]
    return takeover


LINKS = (CursorLink(LedgerId(3), Position(LedgerId(1), EntryId(4))),)


def test_claim_keeps_the_ledgers() -> None:
    """Only the epoch changes."""
    takeover = claiming()
    claimed = CursorRecord(EPOCH, LINKS)
    old = CursorRecord(OwnerEpoch(4), LINKS)
    assert takeover.handle(CursorRecordRead(old, 7)) == [WriteCursorRecord(claimed, 7)]
    assert takeover.handle(CursorRecordWritten(WriteStatus.OK, 8)) == [ReadLedger(LedgerId(3))]
    assert takeover.cursor == (claimed, 8)


@pytest.mark.parametrize("status", [WriteStatus.CONFLICT, WriteStatus.UNKNOWN])
def test_claim_that_failed_is_read_again(status: WriteStatus) -> None:
    """A conflict may hide the own write whose first reply was lost; an unknown one may be applied or not."""
    takeover = claiming()
    takeover.handle(CursorRecordRead(None, -1))
    assert takeover.handle(CursorRecordWritten(status, 0)) == [ReadCursorRecord()]
    applied = CursorRecord(EPOCH)
    assert takeover.handle(CursorRecordRead(applied, 0))[0] == Marked("C", 0)
    assert takeover.cursor == (applied, 0)


def test_claim_stops_at_a_higher_epoch() -> None:
    """Another owner came later: this one must read its record."""
    (out,) = claiming().handle(CursorRecordRead(CursorRecord(OwnerEpoch(6)), 9))
    assert isinstance(out, TakeoverFailed)


def test_late_answer_of_an_earlier_stretch_is_no_claim() -> None:
    """A link of the stretch before, answered now, would be taken for the claim, and the list forgotten."""
    takeover = claiming()
    assert takeover.handle(CursorRecordWritten(WriteStatus.OK, 4)) == []
    assert takeover.state is TakeoverState.CLAIM


def test_cursor_that_is_not_recovered_in_time_is_given_up() -> None:
    """Its members may stay away for ever; an older snapshot, or none, costs a longer replay and nothing else."""
    takeover = claiming()
    takeover.handle(CursorRecordRead(CursorRecord(EPOCH, LINKS), 7))
    assert takeover.state is TakeoverState.CURSOR
    out = takeover.handle(CursorGivenUp())
    assert out[0] == Marked("C", 0)
    assert takeover.loaded is None
    assert takeover.handle(CursorGivenUp()) == []
