"""Which segment is compacted next: the one that gives back the most space for the bytes that must be copied.

    dead share    1 - live bytes / bytes of the file

Rules
- Segments without live bytes go first, the oldest of them first: nothing is copied for them (hazard
  reserve-used-by-repair).
- Another segment is worth its copies when at least half of it is dead; when the disk is nearly full, a fifth.
- When the disk is nearly full, a segment is only chosen if its live bytes fit into the free space.
- The last segment is never chosen, because it is still written. A segment that may have held something unreadable is
  not chosen before all that it may have held is whole again (hazard compaction-skips-damage): the caller leaves both
  out.
Source: the cleaning policy of log-structured file systems; no age in it, because ledgers die whole.
"""

from collections.abc import Iterable
from typing import NamedTuple

DEAD_SHARE_MIN = 0.5
#: When the disk is nearly full.
DEAD_SHARE_MIN_FULL = 0.2


class SegmentSpace(NamedTuple):
    """file_bytes: what a removal gives back. live_bytes: records of entries that are used."""

    segment_id: int
    file_bytes: int
    live_bytes: int

    @property
    def dead_share(self) -> float:
        return 1 - self.live_bytes / self.file_bytes


def next_segment(segments: Iterable[SegmentSpace], *, disk_full: bool, free_bytes: int) -> SegmentSpace | None:
    """The segment to compact; None if none is worth it. disk_full: ordinary adds are refused for lack of space."""
    candidates = sorted(segments)
    for segment in candidates:
        if segment.live_bytes == 0:
            return segment
    share_min = DEAD_SHARE_MIN_FULL if disk_full else DEAD_SHARE_MIN
    worth = [
        segment
        for segment in candidates
        if segment.dead_share >= share_min and (not disk_full or segment.live_bytes <= free_bytes)
    ]
    return max(worth, key=lambda segment: segment.dead_share, default=None)
