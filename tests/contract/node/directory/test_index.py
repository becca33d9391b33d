"""The index, compared with a plain dict, for any order of arrival."""

from hypothesis import given
from hypothesis import strategies as st

from oncelog.log_storage.directory.index import LedgerIndex, Unsynced
from oncelog.log_storage.directory.segment_format import RecordLocation

ENTRIES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=120)


@given(ENTRIES)
def test_order_of_arrival_does_not_matter(arrivals: list[tuple[int, int]]) -> None:
    """Ranges open, grow and join: no order, gap or repetition may lose or invent an entry."""
    index = LedgerIndex()
    expected: dict[tuple[int, int], RecordLocation] = {}
    for number, (ledger_id, entry_id) in enumerate(arrivals):
        location = RecordLocation(number + 1, number * 512, number)
        index.put(ledger_id, entry_id, location)
        expected[ledger_id, entry_id] = location
    for ledger_id in range(3):
        held = sorted(entry_id for ledger, entry_id in expected if ledger == ledger_id)
        assert index.count_up_to(ledger_id, 40) == len(held)
        assert index.last_entry(ledger_id) == (held[-1] if held else None)
        for entry_id in range(42):
            assert index.count_up_to(ledger_id, entry_id) == sum(each <= entry_id for each in held)
            assert index.location(ledger_id, entry_id) == expected.get((ledger_id, entry_id))
            assert index.contains(ledger_id, entry_id) == ((ledger_id, entry_id) in expected)
    assert list(index.ledgers()) == sorted({ledger_id for ledger_id, _ in expected})


def test_unsynced_entry_counts_once() -> None:
    """Staged, staged again, settled late: it counts as one entry all the time."""
    index = LedgerIndex()
    index.stage(1, 5, Unsynced(1, b"x"))
    index.stage(1, 5, Unsynced(2, b"x"))
    assert (index.count_up_to(1, 5), index.last_entry(1), list(index.ledgers())) == (1, 5, [1])
    index.settle(1, 5, 1, RecordLocation(1, 512, 1))
    assert index.unsynced(1, 5) == Unsynced(2, b"x")
    assert index.count_up_to(1, 5) == 1
    index.settle(1, 5, 2, RecordLocation(1, 1024, 1))
    assert index.unsynced(1, 5) is None
    assert index.location(1, 5) == RecordLocation(1, 1024, 1)
    assert index.count_up_to(1, 5) == 1
