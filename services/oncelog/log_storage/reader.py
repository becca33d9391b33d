"""Reads stored entries and verifies them. Safe to use from any thread.

A record that has a wrong checksum, is another record than the requested one, or cannot be read, is a CorruptEntry: the
caller asks another node. It never counts as missing.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry
from oncelog.log_storage.directory import StorageDirectory
from oncelog.log_storage.segment_format import RECORD, Body, RecordLocation, check_record

OPEN_SEGMENTS_MAX = 256
#: Records of one ledger at most this far apart are read by one call: a call costs about as much as copying 16 KiB.
GAP_BYTES_MAX = 16 * 1024
RUN_BYTES_MAX = 4 * 1024 * 1024


class _OpenSegment:
    """A file descriptor that closes when its last user drops it, so that eviction never closes one in use."""

    __slots__ = ("fd", "seed")

    def __init__(self, fd: int, seed: int) -> None:
        self.fd = fd
        self.seed = seed

    def __del__(self) -> None:
        os.close(self.fd)


class RangePlan(NamedTuple):
    """Consecutive entries of a ledger from `first` on: the location of each, or its body while it is not synced."""

    ledger_id: int
    first: int
    pieces: list[Body | RecordLocation]


class SegmentReader:
    """Reads records at known locations with a limited number of open files."""

    def __init__(self, directory: StorageDirectory) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._open: OrderedDict[int, _OpenSegment] = OrderedDict()

    def read(self, location: RecordLocation, *, ledger_id: int, entry_id: int) -> bytes:
        """The body at `location`, verified to belong to this entry. Raises CorruptEntry."""
        return self.read_run([location], ledger_id=ledger_id, first=entry_id)[0]

    def read_run(self, locations: Sequence[RecordLocation], *, ledger_id: int, first: int) -> list[bytes]:
        """The bodies of consecutive entries from `first` on. Records that are close on the disk are read together.

        Raises CorruptEntry.
        """
        bodies: list[bytes] = []
        at = 0
        while at < len(locations):
            start, end = locations[at].offset, _end(locations[at])
            behind = at + 1
            while (
                behind < len(locations)
                and _joins(locations[at], end, locations[behind])
                and _end(locations[behind]) - start <= RUN_BYTES_MAX
            ):
                end = _end(locations[behind])
                behind += 1
            segment_id = locations[at].segment_id
            data, seed = self._pread(segment_id, start, end - start, ledger_id=ledger_id, entry_id=first + at)
            bodies += [
                self._body(data, locations[index], start, seed, ledger_id=ledger_id, entry_id=first + index)
                for index in range(at, behind)
            ]
            at = behind
        return bodies

    def fetch(self, plan: RangePlan) -> list[tuple[int, bytes]]:
        """(entry_id, body) of every entry of the plan. Raises CorruptEntry."""
        fetched: list[tuple[int, bytes]] = []
        for stored, pieces in groupby(plan.pieces, key=lambda piece: isinstance(piece, RecordLocation)):
            first = plan.first + len(fetched)
            if stored:
                locations = [piece for piece in pieces if isinstance(piece, RecordLocation)]
                bodies = self.read_run(locations, ledger_id=plan.ledger_id, first=first)
            else:
                bodies = [bytes(piece) for piece in pieces if not isinstance(piece, RecordLocation)]
            fetched += enumerate(bodies, first)
        return fetched

    def close(self) -> None:
        with self._lock:
            self._open.clear()

    def _body(
        self, data: bytes, location: RecordLocation, start: int, seed: int, *, ledger_id: int, entry_id: int
    ) -> bytes:
        at = location.offset - start
        if check_record(data, at, seed=seed):
            _, length, _, found_ledger_id, found_entry_id = RECORD.unpack_from(data, at)
            if (length, found_ledger_id, found_entry_id) == (location.length, ledger_id, entry_id):
                return data[at + RECORD.size : at + RECORD.size + length]
        raise self._corrupt(
            location.segment_id,
            location.offset,
            ledger_id,
            entry_id,
            "wrong checksum, or another record",
        )

    def _pread(self, segment_id: int, offset: int, size: int, *, ledger_id: int, entry_id: int) -> tuple[bytes, int]:
        try:
            segment = self._segment(segment_id)
            return os.pread(segment.fd, size, offset), segment.seed
        except OSError as error:
            raise self._corrupt(segment_id, offset, ledger_id, entry_id, str(error)) from error

    def _segment(self, segment_id: int) -> _OpenSegment:
        with self._lock:
            segment = self._open.get(segment_id)
            if segment is None:
                fd = os.open(self._directory.segment_path(segment_id), os.O_RDONLY)
                segment = self._open[segment_id] = _OpenSegment(fd, self._directory.header(segment_id).seed)
                if len(self._open) > OPEN_SEGMENTS_MAX:
                    self._open.popitem(last=False)
            else:
                self._open.move_to_end(segment_id)
            return segment

    def _corrupt(self, segment_id: int, offset: int, ledger_id: int, entry_id: int, why: str) -> CorruptEntry:
        path = self._directory.segment_path(segment_id)
        return CorruptEntry(
            f"ledger {ledger_id} entry {entry_id}: damaged in {path} at offset {offset} ({why}); "
            "read it from another storage node",
            ledger_id=ledger_id,
            entry_id=entry_id,
            file=str(path),
            offset=offset,
        )


def _end(location: RecordLocation) -> int:
    return location.offset + RECORD.size + location.length


def _joins(run: RecordLocation, end: int, location: RecordLocation) -> bool:
    return location.segment_id == run.segment_id and 0 <= location.offset - end <= GAP_BYTES_MAX
