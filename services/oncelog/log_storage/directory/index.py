"""The index: which entries of which ledgers this node holds, and where. In memory, rebuilt by the scan at start.

Rules
1. It is complete: an entry that is not in it was never stored here, or was deleted with its ledger. The answer "no such
   entry" depends on that.
2. It also has the entries that are not yet synced, with their sequence number in the journal and their body. So they
   can be read at once, and a repeated add can wait for the sync of the first copy.
3. Only the thread of the event loop uses it.

A ledger is a list of ranges of consecutive entry ids, ascending and never adjacent. A range needs 12 bytes per entry:
the place, as segment id << 32 | offset, and the length. An entry that arrives in order is appended to the last range.
An entry out of order starts a range of its own, or joins two.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from oncelog.core.node.notes import HeldNotes
from oncelog.log_storage.directory.segment_format import RECORD, Body, RecordLocation


class Unsynced(NamedTuple):
    """An entry that is being written. lsn: the number of its record in the journal."""

    lsn: int
    body: Body


class _Run:
    """Consecutive entries from `first` on."""

    __slots__ = ("first", "lengths", "places")

    def __init__(self, first: int) -> None:
        self.first = first
        self.places = array("Q")
        self.lengths = array("I")

    @property
    def end(self) -> int:
        """One above the last entry."""
        return self.first + len(self.places)


class LedgerEntries:
    """The stored entries of one ledger: a place and a length for each."""

    __slots__ = ("count", "firsts", "runs")

    def __init__(self) -> None:
        self.runs: list[_Run] = []
        #: The `first` of each run, for bisection.
        self.firsts: list[int] = []
        self.count = 0

    def put(self, entry_id: int, place: int, length: int) -> tuple[int, int] | None:
        """The place and length that the entry had before; None if it is new."""
        if self.runs and entry_id == self.runs[-1].end:
            self.runs[-1].places.append(place)
            self.runs[-1].lengths.append(length)
            self.count += 1
            return None
        at = bisect_right(self.firsts, entry_id) - 1
        if at < 0 or entry_id > self.runs[at].end:
            at += 1
            self.runs.insert(at, _Run(entry_id))
            self.firsts.insert(at, entry_id)
        run = self.runs[at]
        if entry_id < run.end:
            # Stored a second time (a retry, a recovery, a compaction): the bytes are equal; the later copy is used.
            at = entry_id - run.first
            before = run.places[at], run.lengths[at]
            run.places[at], run.lengths[at] = place, length
            return before
        run.places.append(place)
        run.lengths.append(length)
        self.count += 1
        if at + 1 < len(self.runs) and self.firsts[at + 1] == run.end:
            behind = self.runs.pop(at + 1)
            del self.firsts[at + 1]
            run.places += behind.places
            run.lengths += behind.lengths
        return None

    def count_up_to(self, end: int) -> int:
        """How many of the entries 0..end are stored."""
        return sum(min(run.end, end + 1) - run.first for run in self.runs if run.first <= end)

    def find(self, entry_id: int) -> tuple[int, int] | None:
        """(place, length), or None."""
        at = bisect_right(self.firsts, entry_id) - 1
        if at < 0:
            return None
        run = self.runs[at]
        if entry_id >= run.end:
            return None
        return run.places[entry_id - run.first], run.lengths[entry_id - run.first]


class LedgerIndex:
    """The entries of every ledger of this node, and its notes."""

    def __init__(self) -> None:
        self.notes: HeldNotes[RecordLocation] = HeldNotes()
        self._stored: dict[int, LedgerEntries] = {}
        #: {ledger_id: {entry_id: Unsynced}}; no empty inner dicts.
        self._unsynced: dict[int, dict[int, Unsynced]] = {}
        #: {segment_id: bytes of the records in it that this index points to}
        self.live_bytes: dict[int, int] = {}

    def put(self, ledger_id: int, entry_id: int, location: RecordLocation) -> None:
        """The entry is stored and synced at `location`."""
        entries = self._stored.get(ledger_id)
        if entries is None:
            entries = self._stored[ledger_id] = LedgerEntries()
        segment_id, offset, length = location
        before = entries.put(entry_id, segment_id << 32 | offset, length)
        live = self.live_bytes
        live[segment_id] = live.get(segment_id, 0) + RECORD.size + length
        if before is not None:
            live[before[0] >> 32] -= RECORD.size + before[1]

    def move(self, ledger_id: int, entry_id: int, source: RecordLocation, location: RecordLocation) -> None:
        """A copy of the record at `source` is synced at `location`. Ignored if `source` is not used any more."""
        if self.location(ledger_id, entry_id) == source:
            self.put(ledger_id, entry_id, location)

    def put_note(self, body: Body, location: RecordLocation) -> None:
        """The note, or a copy of it, is stored and synced at `location`. Raises CorruptEntry."""
        live = self.live_bytes
        live[location.segment_id] = live.get(location.segment_id, 0) + RECORD.size + location.length
        unused = self.notes.put(body, location)
        if unused is not None:
            live[unused.segment_id] -= RECORD.size + unused.length

    def drop_note(self, path: str, location: RecordLocation) -> None:
        """The note at `location` cannot be read. Ignored if that place is not used any more."""
        held = self.notes.get(path)
        if held is not None and held.place == location:
            self.notes.drop(path)
            self.live_bytes[location.segment_id] -= RECORD.size + location.length

    def drop_notes(self, segment_id: int) -> None:
        """No note in the segment can be read."""
        for path, held in self.notes.behind("", len(self.notes)):
            if held.place.segment_id == segment_id:
                self.drop_note(path, held.place)

    def stage(self, ledger_id: int, entry_id: int, unsynced: Unsynced) -> None:
        """The entry was handed to the journal."""
        self._unsynced.setdefault(ledger_id, {})[entry_id] = unsynced

    def settle(self, ledger_id: int, entry_id: int, lsn: int, location: RecordLocation) -> None:
        """The record `lsn` of this entry is synced at `location`."""
        staged = self._unsynced.get(ledger_id)
        if staged is not None and entry_id in staged and staged[entry_id].lsn == lsn:
            del staged[entry_id]
            if not staged:
                del self._unsynced[ledger_id]
        self.put(ledger_id, entry_id, location)

    def drop(self, ledger_id: int) -> None:
        """The ledger was erased. Entries that are not yet synced stay until `settle`."""
        entries = self._stored.pop(ledger_id, None)
        if entries is not None:
            for run in entries.runs:
                for place, length in zip(run.places, run.lengths, strict=True):
                    self.live_bytes[place >> 32] -= RECORD.size + length

    def entries(self, ledger_id: int) -> Iterator[tuple[int, RecordLocation]]:
        """The synced entries of a ledger, ascending."""
        stored = self._stored.get(ledger_id)
        for run in [] if stored is None else stored.runs:
            for entry_id, (place, length) in enumerate(zip(run.places, run.lengths, strict=True), run.first):
                yield entry_id, RecordLocation(place >> 32, place & 0xFFFF_FFFF, length)

    def runs(self, ledger_id: int) -> list[tuple[int, int]]:
        """The first and the last id of each run of synced entries, ascending."""
        stored = self._stored.get(ledger_id)
        return [] if stored is None else [(run.first, run.end - 1) for run in stored.runs]

    def contains(self, ledger_id: int, entry_id: int) -> bool:
        return self.unsynced(ledger_id, entry_id) is not None or self.location(ledger_id, entry_id) is not None

    def location(self, ledger_id: int, entry_id: int) -> RecordLocation | None:
        """Where the entry is on disk; None if it is not there, though it may be `unsynced`."""
        entries = self._stored.get(ledger_id)
        found = None if entries is None else entries.find(entry_id)
        return None if found is None else RecordLocation(found[0] >> 32, found[0] & 0xFFFF_FFFF, found[1])

    def unsynced(self, ledger_id: int, entry_id: int) -> Unsynced | None:
        """The entry that is being written, or None. The latest copy if there are two."""
        staged = self._unsynced.get(ledger_id)
        return None if staged is None else staged.get(entry_id)

    def last_entry(self, ledger_id: int) -> int | None:
        """The highest entry id held, synced or not; None for a ledger without entries."""
        entries = self._stored.get(ledger_id)
        last = None if entries is None else entries.runs[-1].end - 1
        staged = self._unsynced.get(ledger_id)
        if staged is None:
            return last
        return max(staged) if last is None else max(last, *staged)

    def count_up_to(self, ledger_id: int, end: int) -> int:
        """How many of the entries 0..end are held, synced or not."""
        entries = self._stored.get(ledger_id)
        stored = 0 if entries is None else entries.count_up_to(end)
        staged = [entry_id for entry_id in self._unsynced.get(ledger_id, ()) if entry_id <= end]
        return stored + sum(entries is None or entries.find(entry_id) is None for entry_id in staged)

    def ledgers(self) -> Iterator[int]:
        """Every ledger with an entry here, ascending."""
        yield from sorted(self._stored.keys() | self._unsynced.keys())
