"""Counts in sentences."""

from oncelog.core.counted import counted


def test_one_is_singular() -> None:
    assert [counted(count, "row") for count in (0, 1, 2, 2000)] == ["0 rows", "1 row", "2 rows", "2,000 rows"]
    assert [counted(count, "entry", "entries") for count in (1, 2)] == ["1 entry", "2 entries"]
