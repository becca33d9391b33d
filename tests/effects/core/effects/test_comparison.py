"""What an operator is told: the same as a consumer that begins now would find."""

from dataclasses import replace

import pytest

from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.store_binding.events import SubscriptionEffects
from oncelog.core.effect_errors import RedoLost, StoreAhead, StoreMissing, StoreTooOld
from oncelog.core.errors import OncelogError, StoreMismatch
from oncelog.core.ids import SeekEpoch
from oncelog_effects.core.effects.comparison import Comparison, compared
from oncelog_effects.core.effects.ordered import Rank, StoredPosition
from tests.core.delivery.bound_log import LOG, STORE
from tests.effects.core.effects.test_ordered import ROW, UNBOUND

CASES: list[tuple[str, StoredPosition | None, SubscriptionEffects, str, type[OncelogError]]] = [
    ("other store", ROW, LOG, "0b" * 16, StoreMismatch),
    ("no row", None, LOG, STORE, StoreMissing),
    ("old backup", replace(ROW, position=5), LOG, STORE, StoreTooOld),
    ("log restored", replace(ROW, position=101), LOG, STORE, StoreAhead),
    ("other subscription", replace(ROW, rank=Rank(3, 0, 1)), LOG, STORE, StoreAhead),
    ("redo forgotten", replace(ROW, rank=Rank(2, 7, 1)), LOG, STORE, RedoLost),
]


@pytest.mark.parametrize(("_name", "row", "log", "store_id", "error"), CASES, ids=[case[0] for case in CASES])
def test_trouble_is_told(
    _name: str, row: StoredPosition | None, log: SubscriptionEffects, store_id: str, error: type[OncelogError]
) -> None:
    found = compared(row, log, store_id)
    assert (found.position, type(found.trouble)) == (None, error)


def test_where_a_program_would_go_on() -> None:
    """With the row of the consumer that is active now, before the first claim, and at a redo."""
    assert compared(replace(ROW, rank=Rank(2, 0, 3)), LOG, STORE) == Comparison(45)
    assert compared(None, UNBOUND, STORE) == Comparison(40)
    redo = replace(LOG, redo_epoch=SeekEpoch(4), redo_index=12, consumed=())
    assert compared(ROW, redo, STORE) == Comparison(12)


def test_what_is_lost_is_told() -> None:
    found = compared(replace(ROW, position=30), LOG, STORE)
    assert (found.lost, found.lost_count, found.trouble) == ((IndexRange(30, 39),), 10, None)
