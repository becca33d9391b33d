"""The journal: group commit by a single writer thread, and the node's reads.

Rules
1. No timer delays a write: the records appended during an fsync are the next group. One group, one write, one fsync.
2. `on_synced(lsn)` is called on the event loop once per group, after its fsync: every record up to lsn is durable.
3. A failed write or fsync ends the journal for ever, before that group or a later one is reported. Nothing is retried:
   the kernel may have dropped the pages, and reports that only once. `on_failed` then ends the process.
4. If nothing is appended for `idle_ms` after a sync, and at close, a durability marker confirms the last group. Without
   it, damage in that group would look like a torn write.
5. An entry can be read as soon as it is appended.

Everything except the writer thread's own class runs on the event loop.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from oncelog.core.errors import InvalidArgument, JournalFailed, StoreUnavailable
from oncelog.core.node.node_ledger import RecordKind
from oncelog.core.node.starts import JournalEnd
from oncelog.log_storage.directory.control_records import OF_LEDGERS
from oncelog.log_storage.directory.damage import KnownDamage
from oncelog.log_storage.directory.index import Unsynced
from oncelog.log_storage.directory.replay import Replayed
from oncelog.log_storage.directory.segment_format import (
    ENTRY_KINDS,
    RECORD,
    RECORD_BYTES_MAX,
    Body,
    RecordLocation,
    SegmentRecord,
    group_total,
)
from oncelog.log_storage.directory.segment_reader import RangePlan, SegmentReader, VerifyPlan
from oncelog.log_storage.directory.segment_writer import DiskCalls, SegmentWriter
from oncelog.log_storage.directory.spare_space import DISK_FULL
from oncelog.log_storage.directory.storage_directory import StorageDirectory

#: New records that get no lsn, because the core does not write them.
_WITHOUT_LSN = frozenset({RecordKind.SEGMENT_REMOVED, RecordKind.NOTE})
GROUP_BYTES_MAX = (
    4 * 1024 * 1024
)  # above a megabyte a group gains no throughput, and its first record waits for its last
IDLE_MS = 10


class _Group(NamedTuple):
    """The records that one fsync made durable. first_number: of the first new record; the next ones follow."""

    records: list[SegmentRecord]
    locations: list[RecordLocation]
    first_number: int


class _GroupWriter(threading.Thread):
    """The writer thread: takes the waiting records, writes them as one group, syncs, reports."""

    def __init__(
        self,
        directory: StorageDirectory,
        segment: SegmentWriter,
        disk: DiskCalls,
        *,
        idle_s: float,
        report: Callable[[_Group | JournalFailed | None], object],
    ) -> None:
        super().__init__(name="journal", daemon=True)
        #: Batches of records in order; None requests the end.
        self.inbox: queue.SimpleQueue[Sequence[SegmentRecord] | None] = queue.SimpleQueue()
        self._directory = directory
        self._segment = segment
        self._disk = disk
        self._idle_s = idle_s
        #: Called with each synced group, and last with None or the failure.
        self._report = report
        #: Taken from the inbox, not yet written.
        self._waiting: deque[SegmentRecord] = deque()
        self._ending = False
        #: Whether nothing was written after the last synced group.
        self._unconfirmed = False

    def run(self) -> None:
        try:
            while records := self._take():
                self._commit(records)
            self._write_marker()
        except OSError as error:
            self._report(_journal_failed(error, self._segment))
        except BaseException as error:
            self._report(JournalFailed(f"journal thread failed: {error!r}; this is a bug, and the process must end"))
            raise
        else:
            self._report(None)
        finally:
            self._segment.close(self._disk)

    def _write_marker(self) -> None:
        if self._unconfirmed:
            self._segment = self._directory.confirm_end(self._segment, self._disk)
            self._unconfirmed = False

    def _take(self) -> list[SegmentRecord]:
        """The records of the next group: all that wait, up to GROUP_BYTES_MAX; empty at the end."""
        if not self._waiting and not self._ending:
            self._receive(self._next())
        while not self._ending and not self.inbox.empty():
            self._receive(self.inbox.get())
        records: list[SegmentRecord] = []
        size = 0
        while self._waiting and (not records or size + len(self._waiting[0].body) <= GROUP_BYTES_MAX):
            record = self._waiting.popleft()
            records.append(record)
            size += RECORD.size + len(record.body)
        return records

    def _receive(self, batch: Sequence[SegmentRecord] | None) -> None:
        if batch is None:
            self._ending = True
        else:
            self._waiting.extend(batch)

    def _next(self) -> Sequence[SegmentRecord] | None:
        """Wait for a batch. If none comes within `idle_s`, write the durability marker and wait on."""
        if self._unconfirmed:
            try:
                return self.inbox.get(timeout=self._idle_s)
            except queue.Empty:
                self._write_marker()
        return self.inbox.get()

    def _commit(self, records: list[SegmentRecord]) -> None:
        total_bytes = group_total(records)
        if not self._segment.has_room(total_bytes):
            self._segment = self._directory.roll(self._segment, self._disk, group_bytes=total_bytes)
        first_number = self._segment.next_number
        locations = self._segment.write_group(records, self._disk)
        self._segment.sync(self._disk)
        self._unconfirmed = True
        self._report(_Group(records, locations, first_number))


def _journal_failed(error: OSError, segment: SegmentWriter) -> JournalFailed:
    if error.errno in DISK_FULL:
        text = (
            f"disk full: {segment.path.parent}: {error}; the process ends, and nothing acknowledged is lost: "
            "free disk space and start it again"
        )
    else:
        text = (
            f"{segment.path}: write or fsync failed: {error}; the process ends, "
            "because durability is unknown after this: check the disk"
        )
    return JournalFailed(text, file=str(segment.path), errno=error.errno)


class Journal:
    """Appends and reads records, and reports what is durable. All methods run on the event loop.

    Record numbers (lsn) are consecutive and start at 1 with each start of the process.
    """

    def __init__(
        self,
        directory: StorageDirectory,
        replayed: Replayed,
        *,
        loop: asyncio.AbstractEventLoop,
        on_synced: Callable[[int], None],
        on_failed: Callable[[JournalFailed], None],
        disk: DiskCalls | None = None,
        idle_ms: int = IDLE_MS,
    ) -> None:
        """directory: replayed. It can be read at once, and nothing is changed in it before `begin`. From then on the
        journal keeps the replayed index current.

        on_synced(lsn), on_failed(error): called on the loop; on_failed at most once, and nothing is synced after it.
        """
        self.index = self._index = replayed.index
        self.control = replayed.control
        self.damage = KnownDamage()
        self._directory = directory
        self._disk = disk or DiskCalls()
        self._idle_s = idle_ms / 1000
        self._loop = loop
        self._reader = SegmentReader(directory, self.damage, self._disk)
        self._on_synced = on_synced
        self._on_failed = on_failed
        self._last_lsn = 0
        self._synced_lsn = 0
        self._pending_bytes = 0
        #: Records without an lsn (notes, copies, removals) that were appended and synced.
        self._own_appended = 0
        self._own_synced = 0
        #: [(number of the last of them, future)]
        self._own_waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        #: Why nothing can be appended any more; None while it can.
        self._stopped: JournalFailed | None = None
        self._ended: asyncio.Future[None] = loop.create_future()
        #: the segment of the last group that is synced and in the index; the index knows all records of lower ones
        self.written_segment = directory.segment_ids[-1]
        #: up to here everything is durable once the journal has begun
        self.synced_end = directory.scanned_end
        self._writer: _GroupWriter | None = None

    @property
    def begun(self) -> bool:
        """Whether it writes."""
        return self._writer is not None

    def begin(self) -> None:
        """Make the replayed end durable, confirm it with a durability marker, start the writer. Blocks for a few syncs.

        The directory is in limbo if it has new holes. Raises OSError if it cannot be made durable.
        """
        directory, disk = self._directory, self._disk
        segment = directory.settle(disk)
        self.control.note(RecordKind.LIMBO, directory.limbo_below, 0, directory.limbo_number)
        directory.finish_removals(lambda segment_id: bool(self._index.live_bytes.get(segment_id)), disk)
        self.written_segment = segment.segment_id
        self._writer = _GroupWriter(
            directory,
            segment,
            disk,
            idle_s=self._idle_s,
            report=lambda report: self._loop.call_soon_threadsafe(self._take_report, report),
        )
        self._writer.start()

    def _begun_writer(self) -> _GroupWriter:
        """Raises JournalFailed once the journal has stopped, and StoreUnavailable before it has begun."""
        if self._stopped is not None:
            raise self._stopped
        if self._writer is None:
            raise StoreUnavailable(
                "this storage node waits for the record of its cluster: until then it stores nothing but an era"
            )
        return self._writer

    @property
    def last_lsn(self) -> int:
        """The number of the last record appended; 0 before the first."""
        return self._last_lsn

    @property
    def synced_lsn(self) -> int:
        """Every record up to this one is durable, and `on_synced` has reported it."""
        return self._synced_lsn

    @property
    def pending_bytes(self) -> int:
        """Bytes of the records appended and not yet synced."""
        return self._pending_bytes

    def append(self, kind: RecordKind, *, ledger_id: int, entry_id: int = 0, body: Body = b"") -> int:
        """Append one record; returns its lsn. See `append_many`."""
        return self.append_many([SegmentRecord(kind, ledger_id, entry_id, body)])

    def append_many(self, records: Sequence[SegmentRecord]) -> int:
        """Queue records for writing, in this order; returns the lsn of the last one (of the last ever, if none).

        Bodies are kept, not copied: they must not change. They are durable when on_synced names their lsn or a higher
        one. Raises InvalidArgument (nothing is appended), and the errors of `_begun_writer`.
        """
        writer = self._begun_writer()
        for record in records:
            if len(record.body) > RECORD_BYTES_MAX:
                raise InvalidArgument(
                    f"entry of {len(record.body)} bytes is too large", field="body", limit=RECORD_BYTES_MAX
                )
        for record in records:
            self._last_lsn += 1
            self._pending_bytes += RECORD.size + len(record.body)
            if record.kind in ENTRY_KINDS:
                self._index.stage(record.ledger_id, record.entry_id, Unsynced(self._last_lsn, record.body))
        if records:
            writer.inbox.put(records)
        return self._last_lsn

    def append_own(self, records: Sequence[SegmentRecord]) -> "asyncio.Future[None]":
        """Queue notes, or copies for compaction. They get no lsn. The result is there when all are synced and in the
        index.

        Raises the errors of `_begun_writer`, and JournalFailed as the future's exception.
        """
        writer = self._begun_writer()
        self._own_appended += len(records)
        synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._own_waiting.append((self._own_appended, synced))
        writer.inbox.put(records)
        return synced

    def append_removal(self, segment_id: int) -> "asyncio.Future[None]":
        """Queue the record that a segment is removed; see `append_own`."""
        return self.append_own([SegmentRecord(RecordKind.SEGMENT_REMOVED, 0, segment_id)])

    def read(self, *, ledger_id: int, entry_id: int) -> bytes | None:
        """One entry, verified; None if this node never stored it. Reads the disk on this thread.

        Raises CorruptEntry.
        """
        found = self.read_range(ledger_id=ledger_id, first=entry_id, entries_max=1, bytes_max=0)
        return found[0][1] if found else None

    def read_range(self, *, ledger_id: int, first: int, entries_max: int, bytes_max: int) -> list[tuple[int, bytes]]:
        """(entry_id, body) of consecutive entries from `first` on; see `plan_range`. Reads the disk on this thread."""
        return self._reader.fetch(
            self.plan_range(ledger_id=ledger_id, first=first, entries_max=entries_max, bytes_max=bytes_max)
        )

    @property
    def reader(self) -> SegmentReader:
        """For `fetch` on another thread."""
        return self._reader

    def plan_range(self, *, ledger_id: int, first: int, entries_max: int, bytes_max: int) -> RangePlan:
        """What to fetch for consecutive entries from `first` on. Does not read the disk.

        Ends before the first entry that is not held, and before the entry that would exceed a limit; the first entry is
        always included.
        """
        pieces: list[Body | RecordLocation] = []
        size = 0
        while len(pieces) < entries_max:
            piece = self._find(ledger_id, first + len(pieces))
            if piece is None:
                break
            size += piece.length if isinstance(piece, RecordLocation) else len(piece)
            if pieces and size > bytes_max:
                break
            pieces.append(piece)
        return RangePlan(ledger_id, first, pieces, self._reader.pins(pieces))

    def plan_verify(self, *, ledger_id: int, first: int, entries_max: int, bytes_max: int) -> VerifyPlan:
        """Where the entries from `first` on are, for `SegmentReader.verify`. bytes_max: 0: no limit.

        At least one id is looked at. An entry that is not synced yet has no place on the disk and counts as unreadable.
        """
        places: list[RecordLocation | None] = []
        unsynced: set[int] = set()
        size = 0
        for entry_id in range(first, first + entries_max):
            location = self._index.location(ledger_id, entry_id)
            size += 0 if location is None else location.length
            if places and bytes_max and size > bytes_max:
                break
            if self._index.unsynced(ledger_id, entry_id) is not None:
                unsynced.add(entry_id)
                location = None
            places.append(location)
        return VerifyPlan(ledger_id, first, places, frozenset(unsynced), self._reader.pins(places))

    async def close(self) -> None:
        """Sync what was appended, confirm it with a durability marker, end the writer. Also after a failure."""
        writer = self._writer
        if self._stopped is None:
            self._stopped = JournalFailed("the journal is closed")
            if writer is not None:
                writer.inbox.put(None)
        if writer is not None:
            await asyncio.shield(self._ended)
            writer.join()
        self._reader.close()

    def _find(self, ledger_id: int, entry_id: int) -> Body | RecordLocation | None:
        unsynced = self._index.unsynced(ledger_id, entry_id)
        return self._index.location(ledger_id, entry_id) if unsynced is None else unsynced.body

    def _take_report(self, report: _Group | JournalFailed | None) -> None:
        """Take a report of the writer thread, on the event loop."""
        if isinstance(report, _Group):
            self._group_synced(report)
            return
        self._ended.set_result(None)
        failed = report or JournalFailed("the journal is closed")
        for _, waiting in self._own_waiting:
            if not waiting.done():
                waiting.set_exception(failed)
        self._own_waiting.clear()
        if report is not None:
            self._stopped = report
            self._on_failed(report)

    def _group_synced(self, group: _Group) -> None:
        lsn, number = self._synced_lsn, group.first_number
        last = group.locations[-1]
        self.synced_end = JournalEnd(last.segment_id, last.offset + 1)
        index, control, damaged = self._index, self.control, bool(self.damage)
        noted = -1
        for (kind, ledger_id, entry_id, body, own_number, source), location in zip(
            group.records, group.locations, strict=True
        ):
            if kind in ENTRY_KINDS:
                if ledger_id != noted:
                    control.note_stored(ledger_id, location.segment_id)
                    noted = ledger_id
                if source is not None:
                    self._own_synced += 1
                    index.move(ledger_id, entry_id, source, location)
                    continue
                lsn += 1
                index.settle(ledger_id, entry_id, lsn, location)
                if damaged:
                    self.damage.stored_again(ledger_id, entry_id)
            elif own_number or kind in _WITHOUT_LSN:
                self._own_synced += 1
                number += not own_number
                if kind == RecordKind.NOTE:
                    index.put_note(body, location)
                elif kind in OF_LEDGERS:
                    control.note_stored(ledger_id, location.segment_id)
                continue
            else:
                lsn += 1
                control.note(kind, ledger_id, entry_id, number, location.segment_id, body)
                if kind == RecordKind.LEDGER_ERASED:
                    index.drop(ledger_id)
                    self.damage.erased(ledger_id)
            self._pending_bytes -= RECORD.size + location.length
            number += 1
        self._synced_lsn = lsn
        self.written_segment = group.locations[-1].segment_id
        while self._own_waiting and self._own_waiting[0][0] <= self._own_synced:
            waiting = self._own_waiting.popleft()[1]
            if not waiting.done():
                waiting.set_result(None)
        self._on_synced(lsn)
