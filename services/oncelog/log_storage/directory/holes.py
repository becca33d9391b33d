"""Holes: parts of a directory that cannot be read, and that may have held records which this node acknowledged.

A hole is found by the scan at start: a damaged group or record, a damaged header, a sector that cannot be read, a file
that is missing or has the wrong size. Bytes at the end of the last segment that nothing confirms are no hole but a torn
write. A start that finds a hole puts the node into limbo: it writes a LIMBO record whose body lists every hole that the
directory has then. So a later start tells a hole that is new from one whose loss is known already.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from oncelog.log_storage.directory.segment_format import Body

_HOLE = struct.Struct("<QII")
#: The end of a hole that is a whole file.
WHOLE_FILE = 0xFFFF_FFFF
#: More holes of one segment are listed as one: the body of a LIMBO record is limited.
LISTED_PER_SEGMENT_MAX = 1024


class Hole(NamedTuple):
    """The bytes from `start` to before `end` of a segment. what: a description for logs and tools."""

    segment_id: int
    start: int
    end: int
    what: str = ""

    def covers(self, other: "Hole") -> bool:
        return self.segment_id == other.segment_id and self.start <= other.start and other.end <= self.end


def encode_holes(holes: Sequence[Hole]) -> bytes:
    return b"".join(_HOLE.pack(hole.segment_id, hole.start, hole.end) for hole in _listed(holes))


def decode_holes(body: Body) -> tuple[Hole, ...]:
    return tuple(Hole(*fields) for fields in _HOLE.iter_unpack(body))


def new_holes(found: Iterable[Hole], known: Sequence[Hole]) -> tuple[Hole, ...]:
    """Those that no known hole covers."""
    by_segment: dict[int, list[Hole]] = {}
    for hole in known:
        by_segment.setdefault(hole.segment_id, []).append(hole)
    return tuple(hole for hole in found if not any(one.covers(hole) for one in by_segment.get(hole.segment_id, ())))


def _listed(holes: Sequence[Hole]) -> list[Hole]:
    by_segment: dict[int, list[Hole]] = {}
    for hole in holes:
        by_segment.setdefault(hole.segment_id, []).append(hole)
    listed: list[Hole] = []
    for segment_id, some in by_segment.items():
        if len(some) > LISTED_PER_SEGMENT_MAX:
            listed.append(Hole(segment_id, min(hole.start for hole in some), max(hole.end for hole in some)))
        else:
            listed += some
    return listed
