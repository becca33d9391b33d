"""When a reader is offered to read from storage nodes."""

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog.core.read_offers import ReadOffers

LEDGER, FIRST, LAST = LedgerId(7), EntryId(10), EntryId(19)


def offers(*sizes: int, after_bytes: int | None = 1_000) -> ReadOffers:
    own = ReadOffers(after_bytes)
    own.read(list(sizes))
    return own


def answer(own: ReadOffers, entry_id: int, *, takes_more: bool = True, ledger_id: LedgerId = LEDGER) -> EntryId:
    at = Position(ledger_id, EntryId(entry_id))
    return own.answered(at, takes_more=takes_more, ledger_id=LEDGER, first=FIRST, last=LAST)


def test_short_read_gets_no_offer() -> None:
    """It is not worth the connections and the tickets."""
    assert not offers(500, 499).is_due(1_000_000)
    assert not offers(after_bytes=0).is_due(1_000_000)


def test_rest_is_worth_an_offer_at_the_average_size_so_far() -> None:
    """Ten more entries of 100 bytes have 1,000 bytes again."""
    assert offers(*[100] * 10).is_due(10)
    assert not offers(*[100] * 10).is_due(9)


def test_reader_that_takes_no_offers_gets_none() -> None:
    """It did not say that it can read from storage nodes, or its right was revoked."""
    assert not offers(5_000, after_bytes=None).is_due(100)
    own = offers(5_000)
    own.stop()
    assert not own.is_due(100)


def test_reader_that_read_everything_gets_the_next_offer_at_once() -> None:
    """It goes on behind the last entry of the offer."""
    own = offers(1_000)
    assert answer(own, 20) == 20
    assert own.is_due(1)


def test_reader_that_broke_an_offer_off_gets_none_until_it_has_read_as_much_again() -> None:
    """What made it stop may last."""
    own = offers(1_000)
    assert answer(own, 15) == 15
    assert not own.is_due(100)
    own.read([1_000])
    assert own.is_due(1)


def test_reader_that_takes_no_more_offers_gets_none() -> None:
    own = offers(1_000)
    answer(own, 20, takes_more=False)
    assert not own.is_due(100)


@pytest.mark.parametrize(("ledger_id", "entry_id"), [(LEDGER, 9), (LEDGER, 21), (LedgerId(8), 10)])
def test_position_outside_of_the_offer_is_refused(ledger_id: LedgerId, entry_id: int) -> None:
    """Entries in between would be missing without a trace."""
    with pytest.raises(InvalidArgument):
        answer(offers(1_000), entry_id, ledger_id=ledger_id)
