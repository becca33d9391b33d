"""Compaction: gives back the space of erased ledgers. One segment at a time, in the background.

    choose a segment (core.node.compaction_choice)
      -> read it; append a copy of each live record to the journal, under the record's own number
      -> all copies synced, and nothing in the segment is used any more
      -> append SEGMENT_REMOVED, synced
      -> wait until no reader uses the file -> unlink it -> sync the directory

Rules
- The copies go through the journal's queue, so the order of records is kept. A power cut loses them as it loses any
  write that was not synced: the segment is still there then. A start finishes an interrupted removal (hazard
  removed-segment).
- Only a segment is chosen behind which a group was synced and is in the index: then the index knows all of its records.
- A copy takes the place of its original in the index only if the original is still the record that is used.
- A segment in which anything cannot be read stays: what it holds is not known. It may go when every ledger that it may
  have held is whole again (hazard compaction-skips-damage).
- Reading and copying are limited to a rate, except when the disk is nearly full. The directory keeps the space of one
  segment for the copies (hazard reserve-used-by-repair).
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Sequence

from oncelog.core.formats.note import Note
from oncelog.core.ids import LedgerId
from oncelog.core.node.compaction_choice import SegmentSpace, next_segment
from oncelog.core.node.node_ledger import RecordKind
from oncelog.log_storage.directory.segment_format import ENTRY_KINDS, RECORD, SegmentRecord, StoredRecord
from oncelog.log_storage.directory.segment_scan import SegmentScan
from oncelog.log_storage.directory.segment_writer import DiskCalls
from oncelog.log_storage.directory.storage_directory import StorageDirectory
from oncelog.log_storage.serve.journal import Journal

logger = logging.getLogger(__name__)

INTERVAL_S = 5.0
BYTES_PER_S = 32 * 1024 * 1024
#: Reading costs less than copying.
READ_FACTOR = 8
#: Of one batch: small enough that neither the event loop nor an add waits for long.
BATCH_BYTES = 512 * 1024
BATCH_RECORDS = 512


class Compactor:
    """`watch` never returns."""

    def __init__(
        self,
        directory: StorageDirectory,
        journal: Journal,
        *,
        disk_full: Callable[[], bool] = lambda: False,
        holes_settled: Callable[[], bool] = lambda: False,
        forgotten: Callable[[Sequence[LedgerId]], None] = lambda _: None,
        bytes_per_s: int = BYTES_PER_S,
        disk: DiskCalls | None = None,
    ) -> None:
        """disk_full: whether ordinary adds are refused for lack of space.

        holes_settled: whether every ledger that was in limbo is whole again. forgotten: called with deleted ledgers of
        which no file holds a record any more.
        """
        self._directory = directory
        self._journal = journal
        self._disk_full = disk_full
        self._holes_settled = holes_settled
        self._forgotten = forgotten
        #: deleted ledgers whose tombstones were not copied out of the segment that goes
        self._dropped: set[int] = set()
        self._bytes_per_s = bytes_per_s
        self._disk = disk or DiskCalls()
        #: segments that turned out to be damaged in this run
        self.damaged: set[int] = set()
        self.reclaimed_bytes = 0

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self.compact()
            except OSError as error:
                logger.error("compaction failed; will retry: %s", error)

    async def compact(self) -> int:
        """Compact what is worth it; returns the number of segments. Copies made now are looked at the next time.

        Raises JournalFailed, OSError.
        """
        below, count = self._journal.written_segment, 0
        while await self._compact_next(below):
            count += 1
        return count

    @property
    def dead_bytes(self) -> int:
        """Bytes that compaction can give back, in all segments but the one that is written."""
        return sum(space.file_bytes - space.live_bytes for space in self._spaces())

    def _spaces(self) -> Iterator[SegmentSpace]:
        live = self._journal.index.live_bytes
        for segment_id in self._directory.segment_ids:
            if segment_id < self._journal.written_segment:
                file_bytes = self._directory.header(segment_id).file_bytes
                yield SegmentSpace(segment_id, file_bytes, live.get(segment_id, 0))

    async def _compact_next(self, below: int) -> bool:
        """Compact the segment with a lower id than `below` that is worth it most. False if there is none."""
        kept = set(self.damaged)
        if not self._holes_settled():
            kept |= {hole.segment_id for hole in self._directory.holes}
        candidates = [space for space in self._spaces() if space.segment_id < below and space.segment_id not in kept]
        free_bytes = self._directory.free_bytes()
        chosen = next_segment(candidates, disk_full=self._disk_full(), free_bytes=free_bytes)
        if chosen is None:
            return False
        if await self._copy(chosen.segment_id):
            await self._remove(chosen)
        else:
            self.damaged.add(chosen.segment_id)
            logger.error(
                "a damaged segment cannot be compacted; it stays until repair has restored what it held",
                extra={"fields": {"segment": chosen.segment_id}},
            )
        return True

    async def _copy(self, segment_id: int) -> bool:
        """Copy what is live. False if the segment holds something that cannot be read, or that is still used then."""
        journal, first = self._journal, self._directory.identity.first_segment_id
        self._dropped.clear()
        fd = os.open(self._directory.segment_path(segment_id), os.O_RDONLY)
        try:
            scan = SegmentScan(fd, self._directory.header(segment_id), self._disk)
            records = scan.records()
            while batch := await asyncio.to_thread(_batch, records):
                copies = [self._copied(record) for record in batch if self._is_live(record, first)]
                if copies:
                    await journal.append_own(copies)
                if not self._disk_full():
                    size = _bytes(copies) + _bytes(batch) / READ_FACTOR
                    await asyncio.sleep(size / self._bytes_per_s)
        finally:
            self._disk.advise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
        self._disk.step("copies synced")
        if journal.index.live_bytes.get(segment_id):
            self._note_damage(segment_id)
            return False
        return (scan.sealed and not scan.holes) or self._holes_settled()

    def _is_live(self, record: StoredRecord, first_segment_id: int) -> bool:
        if record.kind in ENTRY_KINDS:
            return self._journal.index.location(record.ledger_id, record.entry_id) == record.location
        if record.kind is RecordKind.NOTE:
            held = self._journal.index.notes.get(Note.decode(record.body).path)
            return held is not None and held.place == record.location
        control = self._journal.control
        needed = control.is_needed(record, first_segment_id=first_segment_id)
        if not needed and record.kind is RecordKind.LEDGER_ERASED and record.ledger_id in control.deleted:
            self._dropped.add(record.ledger_id)
        return needed

    @staticmethod
    def _copied(record: StoredRecord) -> SegmentRecord:
        kind, ledger_id, entry_id, number, location, body = record
        return SegmentRecord(kind, ledger_id, entry_id, body, number, location)

    def _note_damage(self, segment_id: int) -> None:
        """What is used of the segment was not found in it: these entries and notes cannot be read."""
        index = self._journal.index
        index.drop_notes(segment_id)
        for ledger_id in index.ledgers():
            for entry_id, location in index.entries(ledger_id):
                if location.segment_id == segment_id:
                    self._journal.damage.note(ledger_id, entry_id)

    async def _remove(self, segment: SegmentSpace) -> None:
        journal, directory, segment_id = self._journal, self._directory, segment.segment_id
        await journal.append_removal(segment_id)
        self._disk.step("removal synced")
        await journal.reader.until_unused(segment_id)
        await asyncio.to_thread(directory.unlink_segment, segment_id, self._disk)
        directory.forget_segment(segment_id)
        journal.index.live_bytes.pop(segment_id, None)
        journal.control.segment_removed(segment_id)
        self._forgotten([LedgerId(ledger_id) for ledger_id in journal.control.forget(self._dropped)])
        await asyncio.to_thread(directory.raise_first_segment, self._disk)
        self.reclaimed_bytes += segment.file_bytes
        logger.info(
            "segment compacted",
            extra={"fields": {"segment": segment_id, "copied_bytes": segment.live_bytes,
                              "reclaimed_bytes": segment.file_bytes}},
        )  # fmt: skip


def _bytes(records: Sequence[SegmentRecord | StoredRecord]) -> int:
    return sum(RECORD.size + len(record.body) for record in records)


def _batch(records: Iterator[StoredRecord]) -> list[StoredRecord]:
    """The next records; none at the end."""
    batch: list[StoredRecord] = []
    size = 0
    for record in records:
        batch.append(record)
        size += RECORD.size + record.location.length
        if size >= BATCH_BYTES or len(batch) >= BATCH_RECORDS:
            break
    return batch
