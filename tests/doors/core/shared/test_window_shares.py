"""How much all readers of a door may hold ready."""

from random import Random

import pytest

from oncelog_doors.core.shared.window_shares import BYTES_MAX, WindowShares

LIMIT = 256 * 1024 * 1024


def test_first_readers_are_fast() -> None:
    """Those of a small door get all that a reader can use."""
    windows = WindowShares(LIMIT)
    assert [windows.opened() for _ in range(25)] == [BYTES_MAX] * 25
    assert windows.opened() < BYTES_MAX


def test_twelve_thousand_readers_keep_the_limit() -> None:
    """Each of them can still read."""
    windows = WindowShares(LIMIT)
    shares = [windows.opened() for _ in range(12_000)]
    assert sum(shares) == windows.total_bytes <= LIMIT
    assert min(shares) > 2000


def test_limit_is_kept_whatever_was_opened_and_closed() -> None:
    """By chance, and where the oldest, which have the largest shares, stay or go."""
    random = Random(5)
    for leaving in ("oldest", "newest", "any"):
        windows, shares = WindowShares(LIMIT), list[int]()
        for _ in range(20_000):
            if shares and random.random() < 0.45:
                at = {"oldest": 0, "newest": -1, "any": random.randrange(len(shares))}[leaving]
                windows.closed(shares.pop(at))
            else:
                shares.append(windows.opened())
            assert windows.total_bytes <= LIMIT
        assert windows.total_bytes == sum(shares)


def test_closed_reader_makes_room() -> None:
    windows = WindowShares(LIMIT)
    shares = [windows.opened() for _ in range(1000)]
    for share in shares:
        windows.closed(share)
    assert windows.total_bytes == 0
    assert windows.opened() == BYTES_MAX


@pytest.mark.parametrize("limit", [1, 4096])
def test_small_limit_still_reads(limit: int) -> None:
    """At least one byte is asked for, and so one entry comes."""
    windows = WindowShares(limit)
    assert min(windows.opened() for _ in range(5000)) == 1
