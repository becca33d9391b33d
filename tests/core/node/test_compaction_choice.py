"""Which segment is compacted next."""

from oncelog.core.node.compaction_choice import SegmentSpace, next_segment

MIB = 1 << 20


def chosen(*live_mib: int, disk_full: bool = False, free_mib: int = 1000) -> int | None:
    """The id of the chosen one of segments of 100 MiB with these live bytes; ids count from 1."""
    segments = [SegmentSpace(at, 100 * MIB, live * MIB) for at, live in enumerate(live_mib, 1)]
    segment = next_segment(segments, disk_full=disk_full, free_bytes=free_mib * MIB)
    return None if segment is None else segment.segment_id


def test_segment_without_live_bytes_goes_first_and_the_oldest_of_them() -> None:
    """It costs no copies, and gives all of its space back."""
    assert chosen(1, 0, 0) == 2


def test_segment_with_the_highest_dead_share_is_next() -> None:
    """The most space for the fewest copies."""
    assert chosen(40, 10, 30) == 2


def test_segment_that_is_mostly_live_is_left_alone() -> None:
    """Otherwise compaction writes more than producers do."""
    assert chosen(60, 90) is None
    assert chosen() is None


def test_full_disk_lowers_the_bar() -> None:
    """Space is needed more than the disk's time."""
    assert chosen(60, 90, disk_full=True) == 1
    assert chosen(90, disk_full=True) is None


def test_copies_must_fit_into_a_full_disk() -> None:
    """Half a copy gives nothing back."""
    assert chosen(60, 70, disk_full=True, free_mib=65) == 1
    assert chosen(60, 70, disk_full=True, free_mib=10) is None
    assert chosen(60, 0, disk_full=True, free_mib=10) == 2
