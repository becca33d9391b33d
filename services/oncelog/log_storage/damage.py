"""What a start may trust: sorts what does not verify into writes that were never acknowledged and lost data.

Everything acknowledged was synced, and the next write after that sync vouches for it: the header of the next group, the
watermark that follows when nothing else is written, the `previous_end` of the next segment, or the seal. So:

- the last segment: nothing valid behind the stop -> a torn write, cut; a valid group header behind it -> lost data;
- a segment with a successor: must be intact up to the successor's `previous_end` and sealed there. Only while the
  successor holds no group may the seal be missing: the roll was cut short between making the one and sealing the
  other;
- a sealed segment without a successor: the successor existed before the seal, so its file is lost.
"""

from pathlib import Path

from oncelog.log_storage.segments import SEAL_BYTES, SegmentHeader, SegmentScan, damaged


def judge_last(scan: SegmentScan, path: Path) -> list[tuple[int, int]]:
    """After an exhausted scan of the last segment: (offset, size) of what is to be cut. Raises DamagedSegment."""
    if scan.sealed:
        raise damaged(
            path, offset=scan.end, what="seal", why="the segment is sealed, but the file of the next one is missing"
        )
    later, dirty = scan.look_behind()
    if later is not None:
        raise damaged(path, offset=scan.end, what=scan.stopped_at, why=f"the group at {later} vouches for it")
    return dirty


def judge_followed(scan: SegmentScan, path: Path, successor: SegmentHeader, *, successor_used: bool) -> bool:
    """After an exhausted scan of a segment with a successor: whether its seal is to be written (again).

    successor_used: the successor holds a group, or has a successor itself. Before, the seal may not be on the disk
    even if it reads well: see `StorageDirectory.settle`. Raises DamagedSegment.
    """
    end = successor.previous_end
    if scan.sealed and scan.end == end + SEAL_BYTES:
        return not successor_used
    if scan.end < end:
        raise damaged(path, offset=scan.end, what=scan.stopped_at, why=f"the next segment vouches for all below {end}")
    if scan.sealed or scan.end > end:
        raise damaged(path, offset=scan.end, what="seal", why=f"the next segment says that this one ends at {end}")
    if successor_used:
        raise damaged(path, offset=scan.end, what="seal", why="the next segment is in use")
    return True
