"""Which ledgers an operator may end, or give up entries of."""

import pytest

from oncelog.core.errors import Conflict, InvariantViolated
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.giving_up import members_to_give_up
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata, decode_ledger, encode_ledger
from tests.core.builders import TOPIC, A, B, C

OPEN = LedgerMetadata(LedgerId(4), TOPIC, (A, B, C), 2)


@pytest.mark.hazard("open-ledger-without-quorum")
def test_members_that_are_not_registered_are_given_up() -> None:
    assert members_to_give_up(OPEN, {B}) == (A, C)
    assert members_to_give_up(OPEN.in_recovery(), set()) == (A, B, C)
    assert members_to_give_up(OPEN.give_up((A, B), by="ann"), set()) == (A, B, C), "the last one is gone by now, too"


@pytest.mark.hazard("open-ledger-without-quorum")
def test_ledger_that_can_be_recovered_is_not_ended() -> None:
    """Two of three members can close it, and lose nothing."""
    with pytest.raises(Conflict, match="2 are enough to recover it"):
        members_to_give_up(OPEN, {A, B})


@pytest.mark.hazard("open-ledger-without-quorum", "directory-went-back")
def test_members_in_limbo_cannot_say_where_a_ledger_ends() -> None:
    """They are asked for what they hold, so only members that are not registered are given up."""
    assert members_to_give_up(OPEN, {A, B, C}, lacking={A, B}) == ()
    assert members_to_give_up(OPEN, {A, B}, lacking={A}) == (C,)
    with pytest.raises(Conflict, match="2 of its 3 storage nodes are registered and lack nothing"):
        members_to_give_up(OPEN, {A, B, C}, lacking={A})


@pytest.mark.hazard("lost-too-early")
def test_entries_of_a_closed_ledger_are_given_up_only_if_they_can_be_lost() -> None:
    """Each has two copies: with one member away every entry is on another one."""
    closed = OPEN.in_recovery().closed(end=EntryId(3), length=9)
    for registered in ({A, B, C}, {A, B}):
        with pytest.raises(Conflict, match="every entry has 2 copies"):
            members_to_give_up(closed, registered)
    assert members_to_give_up(closed, {C}) == (A, B)
    lost = closed.mark_lost([EntryRange(EntryId(1), EntryId(2))])
    assert members_to_give_up(lost, {A, B, C}) == ()
    given_up = lost.give_up_entries((), by="ann")
    assert (given_up.state, given_up.given_up_by, given_up.given_up) == (closed.state, "ann", ())
    assert decode_ledger(encode_ledger(given_up)) == given_up
    with pytest.raises(InvariantViolated):
        closed.give_up_entries((), by="ann")
