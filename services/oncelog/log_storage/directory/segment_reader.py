"""Reads stored entries and verifies them. Safe to use from any thread.

A record that has a wrong checksum, is another record than the requested one, or cannot be read, is a CorruptEntry: the
caller asks another node. It never counts as missing.
"""

import asyncio
import errno
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

from crc32c import crc32c

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.entry import decode_entry
from oncelog.core.ids import EntryId, LedgerId
from oncelog.log_storage.directory.damage import KnownDamage
from oncelog.log_storage.directory.segment_format import RECORD, Body, RecordLocation, check_record
from oncelog.log_storage.directory.segment_writer import SYSTEM, DiskCalls
from oncelog.log_storage.directory.storage_directory import StorageDirectory

OPEN_SEGMENTS_MAX = 256
#: Records of one ledger at most this far apart are read by one call: a call costs about as much as copying 16 KiB.
GAP_BYTES_MAX = 16 * 1024
RUN_BYTES_MAX = 4 * 1024 * 1024
#: Errors of a read that say nothing about the bytes on the disk.
_NO_DAMAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
#: Where the CRC32C is in the header of an entry, see `core.formats.entry`.
_ENTRY_CRC = slice(4, 8)


def shows_damage(error: CorruptEntry) -> bool:
    """False: the read failed, for example for lack of descriptors, and the bytes on the disk may be sound."""
    cause = error.__cause__
    return not (isinstance(cause, OSError) and cause.errno in _NO_DAMAGE)


class _OpenSegment:
    """A file descriptor that closes when its last user drops it, so that eviction never closes one in use."""

    __slots__ = ("fd", "seed")

    def __init__(self, fd: int, seed: int) -> None:
        self.fd = fd
        self.seed = seed

    def __del__(self) -> None:
        os.close(self.fd)


class SegmentPin:
    """Held by each plan that reads a segment: the file stays until the last of these plans is dropped."""

    __slots__ = ("__weakref__",)


class RangePlan(NamedTuple):
    """Consecutive entries of a ledger from `first` on: the location of each, or its body while it is not synced."""

    ledger_id: int
    first: int
    pieces: list[Body | RecordLocation]
    pins: tuple[SegmentPin, ...] = ()


class VerifyPlan(NamedTuple):
    """Consecutive ids of a ledger from `first` on: the location of each entry; None if it is missing or unsynced."""

    ledger_id: int
    first: int
    places: list[RecordLocation | None]
    unsynced: frozenset[int]
    pins: tuple[SegmentPin, ...] = ()


class Verified(NamedTuple):
    """checksums: for each id, the CRC32C in the header of the entry; 0 if it is not sound. bytes: of sound entries."""

    checksums: list[int]
    missing: list[int]
    unreadable: list[int]
    next_entry: int
    bytes: int


class SegmentReader:
    """Reads records at known locations with a limited number of open files. Notes what it cannot read."""

    def __init__(
        self, directory: StorageDirectory, damage: KnownDamage | None = None, disk: DiskCalls = SYSTEM
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._damage = KnownDamage() if damage is None else damage
        self._lock = threading.Lock()
        self._open: OrderedDict[int, _OpenSegment] = OrderedDict()
        #: {segment_id: its pin}, used by the event loop only
        self._pins: dict[int, SegmentPin] = {}

    def pins(self, locations: Iterable[object]) -> tuple[SegmentPin, ...]:
        """What a plan must hold while it reads these locations; anything else is ignored. On the event loop."""
        segments = {location.segment_id for location in locations if isinstance(location, RecordLocation)}
        return tuple(self._pins.setdefault(segment_id, SegmentPin()) for segment_id in segments)

    async def until_unused(self, segment_id: int) -> None:
        """Wait until no plan reads the segment, and close its file. No new plan may point to it. On the event loop."""
        pin = self._pins.pop(segment_id, None)
        if pin is not None:
            loop = asyncio.get_running_loop()
            unused = asyncio.Event()
            # The last plan may be dropped on another thread.
            weakref.finalize(pin, loop.call_soon_threadsafe, unused.set).atexit = False
            del pin
            await unused.wait()
        with self._lock:
            self._open.pop(segment_id, None)

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

    def verify(self, plan: VerifyPlan) -> Verified:
        """Read the entries of the plan back from the disk, not from the page cache, and check every checksum.

        The checksum in the header of the entry is checked, too: the record's checksum alone would not find an entry
        that was already damaged when it was stored.
        """
        verified = Verified([], [], [], plan.first + len(plan.places), 0)
        size = 0
        for entry_id, place in enumerate(plan.places, plan.first):
            checksum = 0
            if place is None:
                (verified.unreadable if entry_id in plan.unsynced else verified.missing).append(entry_id)
            else:
                try:
                    self.drop_pages(place)
                    data = self.read(place, ledger_id=plan.ledger_id, entry_id=entry_id)
                    decode_entry(data, ledger_id=LedgerId(plan.ledger_id), entry_id=EntryId(entry_id), checksum=crc32c)
                except CorruptEntry as error:
                    if "offset" not in error.details:  # the record is sound, but not the entry in it
                        self._damage.note(plan.ledger_id, entry_id)
                    verified.unreadable.append(entry_id)
                else:
                    checksum = int.from_bytes(data[_ENTRY_CRC], "little")
                    size += len(data)
                    if self._damage:
                        # An older read of the same entry may have failed at a place that is not used any more.
                        self._damage.stored_again(plan.ledger_id, entry_id)
            verified.checksums.append(checksum)
        return verified._replace(bytes=size)

    def drop_pages(self, place: RecordLocation) -> None:
        """Drop the pages of a synced record from the page cache, so that the next read is one of the disk."""
        with suppress(OSError):  # the read itself reports what is wrong
            fd = self._segment(place.segment_id).fd
            os.posix_fadvise(fd, place.offset, RECORD.size + place.length, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        with self._lock:
            self._open.clear()

    def _body(
        self, data: bytes, location: RecordLocation, start: int, seed: int, *, ledger_id: int, entry_id: int
    ) -> bytes:
        at = location.offset - start
        if check_record(data, at, seed=seed):
            _, length, _, found_ledger_id, found_entry_id, _ = RECORD.unpack_from(data, at)
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
            return self._disk.read(segment.fd, size, offset), segment.seed
        except OSError as error:
            damaged = error.errno not in _NO_DAMAGE
            raise self._corrupt(segment_id, offset, ledger_id, entry_id, str(error), damaged=damaged) from error

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

    def _corrupt(
        self, segment_id: int, offset: int, ledger_id: int, entry_id: int, why: str, *, damaged: bool = True
    ) -> CorruptEntry:
        if damaged and ledger_id:  # a note is of no ledger: nothing repairs it but who sends it again
            self._damage.note(ledger_id, entry_id)
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
