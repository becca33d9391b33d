"""The memory of HTTP consume: one budget, half of it for one caller."""

import pytest

from oncelog.core.errors import TooManyRequests
from oncelog.core.http_consume.session_bytes import SHARE_BYTES_MIN, SessionBytes

MIB = 1 << 20


def test_shares_of_all_sessions_are_the_budget() -> None:
    """A session gets something to do, too, where there may be very many."""
    assert SessionBytes(128 * MIB, 128).share_bytes == MIB
    assert SessionBytes(MIB, 1_000).share_bytes == SHARE_BYTES_MIN


@pytest.mark.hazard("abandoned-http-session")
def test_one_caller_holds_half_of_the_budget() -> None:
    """Then its largest session ends, whichever has grown."""
    budget = SessionBytes(8 * MIB, 8)
    budget.changed("a", 1, 3 * MIB)
    budget.changed("a", 2, MIB)
    assert budget.too_large("a") is None
    with pytest.raises(TooManyRequests, match="4194304 bytes of messages wait for the open sessions of a"):
        budget.check_room("a")
    budget.check_room("b")
    budget.changed("a", 2, 1)
    assert budget.too_large("a") == 1
    budget.ended("a", 1)
    assert budget.too_large("a") is None
    budget.check_room("a")
    budget.check_invariants()


def test_all_callers_hold_the_whole_budget() -> None:
    """Then the largest session of the one that holds the most ends, not of the one that came last."""
    budget = SessionBytes(8 * MIB, 8)
    for caller, size in (("a", 4 * MIB), ("b", 3 * MIB), ("c", MIB)):
        budget.changed(caller, caller, size)
    assert budget.too_large("c") is None
    with pytest.raises(TooManyRequests, match="clients of this metadata service"):
        budget.check_room("d")
    budget.changed("c", "c", 1)
    assert budget.too_large("c") == "a"
    budget.check_invariants()


def test_session_that_has_ended_gives_nothing_back_twice() -> None:
    """Its consumer may go on to tell what it lets go."""
    budget = SessionBytes(8 * MIB, 8)
    budget.changed("a", 1, MIB)
    budget.ended("a", 1)
    budget.ended("a", 1)
    budget.changed("a", 1, -MIB)
    assert budget.bytes == 0
    budget.check_invariants()
