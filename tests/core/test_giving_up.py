"""Which open ledgers an operator may end."""

import pytest

from oncelog.core.errors import Conflict
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.giving_up import members_to_give_up
from oncelog.core.ledger.metadata import LedgerMetadata
from tests.core.builders import TOPIC, A, B, C

OPEN = LedgerMetadata(LedgerId(4), TOPIC, (A, B, C), 2)


@pytest.mark.hazard(79)
def test_members_that_are_not_registered_are_given_up() -> None:
    assert members_to_give_up(OPEN, {B}) == (A, C)
    assert members_to_give_up(OPEN.in_recovery(), set()) == (A, B, C)
    assert members_to_give_up(OPEN.give_up((A, B), by="ann"), set()) == (A, B, C), "the last one is gone by now, too"


@pytest.mark.hazard(79)
def test_ledger_that_can_be_recovered_is_not_ended() -> None:
    """Two of three members can close it, and lose nothing."""
    with pytest.raises(Conflict, match="2 are enough to recover it"):
        members_to_give_up(OPEN, {A, B})


def test_closed_ledger_is_not_ended() -> None:
    with pytest.raises(Conflict, match="closed already"):
        members_to_give_up(OPEN.in_recovery().closed(end=EntryId(3), length=9), set())
