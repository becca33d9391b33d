"""The calls about notes. A node that waits for the cluster's record serves them, too: they are of its directory alone.

Rules
- A note is answered when it is synced, or when one that is not lower is.
- A note that cannot be read is forgotten, so that a digest differs and it is sent again. One that cannot be read now,
  for example for lack of descriptors, is not: no answer leaves it out, because a restore would take an older state.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry, InvalidArgument, StoreUnavailable
from oncelog.core.formats.note import Note, NoteOrder
from oncelog.core.ids import Incarnation
from oncelog.core.node.node_ledger import RecordKind
from oncelog.core.node.notes import HeldNote
from oncelog.log_storage.directory.segment_format import RecordLocation, SegmentRecord
from oncelog.log_storage.directory.segment_reader import shows_damage
from oncelog.log_storage.serve.journal import Journal
from oncelog.rpc.codecs.restore_codec import NOTES_MAX, PUT_NOTES, READ_NOTES, note_of, note_to_wire
from oncelog.rpc.server import Server
from oncelog.wire import recovery_pb2 as pb
from oncelog.wire import storage_pb2

logger = logging.getLogger(__name__)

#: Of the values in one answer, apart from the first.
ANSWER_BYTES_MAX = 768 * 1024
#: That are read back at once.
VERIFIED_NOTES = 64


class _Unsynced(NamedTuple):
    order: NoteOrder
    synced: "asyncio.Future[None]"


class NodeNotes:
    """Of one node. All methods run on the event loop."""

    def __init__(self, incarnation: Incarnation, journal: Journal) -> None:
        self._incarnation = incarnation
        self._journal = journal
        #: {path: the highest note that is being written}
        self._unsynced: dict[str, _Unsynced] = {}

    def add_to(self, server: Server) -> None:
        server.unary(PUT_NOTES, self.put_notes)
        server.unary(READ_NOTES, self.read_notes, any_era=True)

    async def store(self, notes: Sequence[Note]) -> None:
        """Return when these notes, or higher ones of their paths, are synced. Raises InvalidArgument, JournalFailed."""
        bodies = [(note, note.encode()) for note in notes]
        waiting: dict[asyncio.Future[None], None] = {}
        for note, body in bodies:
            held, unsynced = self._journal.index.notes.get(note.path), self._unsynced.get(note.path)
            if held is not None and held.order >= note.order:
                continue
            if unsynced is None or unsynced.order < note.order:
                record = SegmentRecord(RecordKind.NOTE, 0, 0, body)
                unsynced = self._unsynced[note.path] = _Unsynced(note.order, self._journal.append_own([record]))
                unsynced.synced.add_done_callback(partial(self._settled, note.path))
            waiting[unsynced.synced] = None
        for synced in waiting:
            await asyncio.shield(synced)

    def _settled(self, path: str, synced: "asyncio.Future[None]") -> None:
        unsynced = self._unsynced.get(path)
        if unsynced is not None and unsynced.synced is synced:
            del self._unsynced[path]
        if not synced.cancelled():
            synced.exception()  # seen, although perhaps nobody waits any more

    def orders(self) -> dict[str, NoteOrder]:
        """Of all notes that are synced here."""
        notes = self._journal.index.notes
        return {path: held.order for path, held in notes.behind("", len(notes))}

    async def read(self, after: str, count_max: int) -> tuple[list[Note], bool]:
        """Notes with the next higher paths, and whether there are more. Raises StoreUnavailable."""
        behind = self._journal.index.notes.behind(after, count_max + 1)
        page: list[tuple[str, HeldNote[RecordLocation]]] = []
        size = 0
        for path, held in behind[:count_max]:
            size += held.place.length
            if page and size > ANSWER_BYTES_MAX:
                break
            page.append((path, held))
        return await self._fetch(page), len(behind) > len(page)

    async def some(self, wanted: Iterable[str]) -> list[Note]:
        """The notes of these paths, without those that are not here or are damaged. Raises StoreUnavailable."""
        held = self._journal.index.notes
        return await self._fetch([(path, found) for path in wanted if (found := held.get(path)) is not None])

    async def verify(self, after: str) -> tuple[str, int]:
        """Read the notes with the next higher paths back from the disk, not from the page cache, and forget those that
        cannot be read. (The last path, empty behind the last note; how many bytes they have.)"""
        page = self._journal.index.notes.behind(after, VERIFIED_NOTES)
        with suppress(StoreUnavailable):  # the next pass reads them
            await self._fetch(page, from_disk=True)
        return page[-1][0] if page else "", sum(held.place.length for _, held in page)

    async def _fetch(self, page: list[tuple[str, HeldNote[RecordLocation]]], *, from_disk: bool = False) -> list[Note]:
        pins = self._journal.reader.pins(held.place for _, held in page)
        found = await asyncio.to_thread(lambda: [self._read(held.place, from_disk=from_disk) for _, held in page])
        del pins
        notes: list[Note] = []
        for (path, held), note in zip(page, found, strict=True):
            if note is None:
                self._journal.index.drop_note(path, held.place)
                logger.error("a note cannot be read; it is sent again", extra={"fields": {"path": path}})
            else:
                notes.append(note)
        return notes

    def _read(self, place: RecordLocation, *, from_disk: bool) -> Note | None:
        """On any thread. None: it is damaged. Raises StoreUnavailable if it cannot be read now."""
        try:
            if from_disk:
                self._journal.reader.drop_pages(place)
            return Note.decode(self._journal.reader.read(place, ledger_id=0, entry_id=0))
        except CorruptEntry as error:
            if not shows_damage(error):
                raise StoreUnavailable(
                    f"the notes of this storage node cannot be read now: {error.__cause__}"
                ) from error
            return None

    async def put_notes(self, request: pb.PutNotesRequest) -> pb.PutNotesAnswer:
        """Raises InvalidArgument, JournalFailed."""
        if request.target != self._incarnation:
            return pb.PutNotesAnswer(status=storage_pb2.STORAGE_STATUS_WRONG_INCARNATION)
        _check_count("notes", len(request.notes))
        await self.store([note_of(sent) for sent in request.notes])
        return pb.PutNotesAnswer(status=storage_pb2.STORAGE_STATUS_OK)

    async def read_notes(self, request: pb.ReadNotesRequest) -> pb.ReadNotesAnswer:
        """Raises InvalidArgument, StoreUnavailable."""
        if request.target != self._incarnation:
            return pb.ReadNotesAnswer(status=storage_pb2.STORAGE_STATUS_WRONG_INCARNATION)
        _check_count("notes_max", request.notes_max)
        notes, more = await self.read(request.after_path, request.notes_max) if request.notes_max else ([], False)
        digest, deletions = self._journal.index.notes.digest, self._journal.index.notes.deletions
        return pb.ReadNotesAnswer(
            status=storage_pb2.STORAGE_STATUS_OK,
            notes=map(note_to_wire, notes),
            more=more,
            count=digest.notes,
            digest=digest.total,
            deletions=deletions.notes,
            deletions_digest=deletions.total,
        )


def _check_count(field: str, count: int) -> None:
    if count > NOTES_MAX:
        raise InvalidArgument(f"{field}={count}: at most {NOTES_MAX} notes in one call", field=field, limit=NOTES_MAX)
