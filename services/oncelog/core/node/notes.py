"""The notes that one storage node has: which note of a path stays, and the digests over all.

The values stay on the disk. Memory has the order, a checksum and the place of each note. Only synced notes are here, so
what the digests cover is durable.
"""

from bisect import bisect_right
from typing import Generic, NamedTuple, TypeVar

from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.note import Note, NoteOrder, NotesDigest, checksum_of_note

PlaceT = TypeVar("PlaceT")


class HeldNote(NamedTuple, Generic[PlaceT]):
    order: NoteOrder
    checksum: int
    place: PlaceT


class HeldNotes(Generic[PlaceT]):
    """place: where the value of a note is on the disk."""

    def __init__(self) -> None:
        self._held: dict[str, HeldNote[PlaceT]] = {}
        #: all paths, ascending; None after a change
        self._paths: list[str] | None = None
        #: of the notes that are not deleted, and of the others
        self.digest = self.deletions = NotesDigest()

    def __len__(self) -> int:
        """With the notes of deletions."""
        return len(self._held)

    def get(self, path: str) -> HeldNote[PlaceT] | None:
        return self._held.get(path)

    def put(self, body: Buffer, place: PlaceT) -> PlaceT | None:
        """A note is stored at this place. Returns the place that is not used any more: of the lower note, or of the
        same note before it was copied. Raises CorruptEntry."""
        note = Note.decode(body)
        former = self._held.get(note.path)
        if former is not None and former.order > note.order:
            return place
        if former is None:
            self._paths = None
        else:
            self._uncount(former)
        held = self._held[note.path] = HeldNote(note.order, checksum_of_note(body), place)
        if note.order.deleted:
            self.deletions = self.deletions.plus(held.checksum)
        else:
            self.digest = self.digest.plus(held.checksum)
        return None if former is None else former.place

    def drop(self, path: str) -> None:
        """The note cannot be read any more. So a digest differs, and the note is sent again."""
        self._uncount(self._held.pop(path))
        self._paths = None

    def behind(self, after: str, count_max: int) -> list[tuple[str, HeldNote[PlaceT]]]:
        """The notes with the next higher paths, ascending."""
        if self._paths is None:
            self._paths = sorted(self._held)
        first = bisect_right(self._paths, after)
        return [(path, self._held[path]) for path in self._paths[first : first + count_max]]

    def _uncount(self, held: HeldNote[PlaceT]) -> None:
        if held.order.deleted:
            self.deletions = self.deletions.minus(held.checksum)
        else:
            self.digest = self.digest.minus(held.checksum)
