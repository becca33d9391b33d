"""Which ledgers keep a retired storage node from being emptied."""

import pytest

from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata
from oncelog.core.repair.emptied import may_need

A, B, C, D = (Incarnation(letter * 32) for letter in "abcd")
RESTORED_BELOW = LedgerId(100)
OPEN = LedgerMetadata(LedgerId(7), TopicId("f" * 32), (A, B, C), 2)
CLOSED = OPEN.closed(end=EntryId(9), length=1)


def needs(record: LedgerMetadata, *, restored_below: LedgerId = LedgerId(0)) -> bool:
    return may_need(record, D, restored_below=restored_below)


@pytest.mark.hazard("replaced-disk-is-missing")
def test_ledger_that_names_the_node_keeps_it() -> None:
    """Also while a repair was to fill it: it may have the only copy of an entry until the ledger is whole."""
    joined = CLOSED.join(D)
    assert needs(joined)
    assert needs(joined.swap(A).mark_verified())
    assert needs(LedgerMetadata(LedgerId(7), TopicId("f" * 32), (A, D), 2))
    assert not needs(OPEN)
    assert not needs(CLOSED), "the node that took its place holds every entry"


@pytest.mark.hazard("replaced-disk-is-missing")
def test_ledger_that_a_restore_has_written_keeps_it_until_it_is_whole() -> None:
    """The restore has named the nodes that it asked, and each of them may have a part only."""
    assert needs(CLOSED, restored_below=RESTORED_BELOW)
    assert not needs(CLOSED, restored_below=CLOSED.ledger_id)
    assert not needs(CLOSED.mark_verified(), restored_below=RESTORED_BELOW)
    lost = CLOSED.mark_lost((EntryRange(EntryId(3), EntryId(3)),))
    assert not needs(lost, restored_below=RESTORED_BELOW)
    assert not needs(OPEN.closed(end=EntryId(-1), length=0), restored_below=RESTORED_BELOW)
    assert not needs(OPEN, restored_below=RESTORED_BELOW), "it has the members of its head"
