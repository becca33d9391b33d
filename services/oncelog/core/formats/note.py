"""A note: the copy of a record that changes rarely, which storage nodes keep so that a lost ZooKeeper can be rebuilt.

The body of a journal record, little-endian:

    format u8 = 1 | era u32 | created i64 | deleted u8 | version i64 | bytes of the path u16 | path, UTF-8 | value

Rules
- Of two notes of one path the one with the higher (era, created, deleted, version) is the newer one. A record that was
  deleted and made again begins at version 0, and `created` is higher (hazard late-note).
- A deletion is a note, with the order of the record that was deleted.
- The digest is over the notes that are not deleted: their number, and the sum of their checksums modulo 2^64. So it can
  be computed from the records in ZooKeeper, too, and does not depend on the order in which notes arrive.
- Deletions have a digest of their own, which only nodes can be compared by: ZooKeeper has no record of them.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, Self

from oncelog.core.errors import CorruptEntry, InvalidArgument
from oncelog.core.formats.batch import Buffer

FORMAT = 1
#: Limits of one note.
VALUE_BYTES_MAX = 64 * 1024
PATH_BYTES_MAX = 4096
_HEAD = struct.Struct("<BIqBqH")
_CHECKSUM_BYTES = 8
_MODULUS = 1 << 64


class NoteOrder(NamedTuple):
    """created: the transaction of ZooKeeper that created the record. version: of the record."""

    era: int
    created: int
    deleted: bool
    version: int


@dataclass(frozen=True, slots=True)
class Note:
    """path: below the root of its era. value: empty if the record was deleted."""

    path: str
    order: NoteOrder
    value: bytes

    def encode(self) -> bytes:
        """Raises InvalidArgument for a note that exceeds a limit."""
        path = self.path.encode()
        if not self.path.startswith("/") or len(path) > PATH_BYTES_MAX:
            raise InvalidArgument(
                f"the path of a note begins with / and has at most {PATH_BYTES_MAX} bytes: {self.path[:80]!r}",
                field="path",
                limit=PATH_BYTES_MAX,
            )
        if len(self.value) > VALUE_BYTES_MAX:
            raise InvalidArgument(
                f"the note of {self.path} has {len(self.value)} bytes: at most {VALUE_BYTES_MAX} are stored",
                field="value",
                limit=VALUE_BYTES_MAX,
            )
        era, created, deleted, version = self.order
        try:
            return _HEAD.pack(FORMAT, era, created, deleted, version, len(path)) + path + self.value
        except struct.error as error:
            raise InvalidArgument(f"the order {self.order} of the note of {self.path}: {error}", field="era") from error

    @classmethod
    def decode(cls, body: Buffer) -> Self:
        """Raises CorruptEntry."""
        data = bytes(body)
        if not data or data[0] != FORMAT or len(data) < _HEAD.size:
            raise CorruptEntry(
                f"a note of format {data[0] if data else None}: this program reads format {FORMAT}; start a newer one"
            )
        _, era, created, deleted, version, path_bytes = _HEAD.unpack_from(data)
        end = _HEAD.size + path_bytes
        if len(data) < end:
            raise CorruptEntry(f"a note of {len(data)} bytes ends within its path")
        try:
            path = data[_HEAD.size : end].decode()
        except UnicodeDecodeError as error:
            raise CorruptEntry(f"the path of a note is no text: {error}") from error
        return cls(path, NoteOrder(era, created, bool(deleted), version), data[end:])


class NotesDigest(NamedTuple):
    """Of notes. notes: their number. total: the sum of their checksums, modulo 2^64."""

    notes: int = 0
    total: int = 0

    def plus(self, checksum: int) -> "NotesDigest":
        return NotesDigest(self.notes + 1, (self.total + checksum) % _MODULUS)

    def minus(self, checksum: int) -> "NotesDigest":
        return NotesDigest(self.notes - 1, (self.total - checksum) % _MODULUS)


class NotesDigests(NamedTuple):
    """Of one storage node. deletions: of its notes of deletions; None: it does not say. records: of the others."""

    records: NotesDigest = NotesDigest()
    deletions: NotesDigest | None = NotesDigest()


def checksum_of_note(encoded: Buffer) -> int:
    """Over path, order and value."""
    return int.from_bytes(blake2b(encoded, digest_size=_CHECKSUM_BYTES).digest(), "little")


def digest_of(notes: Iterable[Note]) -> NotesDigest:
    """Of notes with different paths. Raises InvalidArgument."""
    digest = NotesDigest()
    for note in notes:
        if not note.order.deleted:
            digest = digest.plus(checksum_of_note(note.encode()))
    return digest
