"""The records that storage nodes keep as notes, as ZooKeeper has them: read once, then kept current cheaply.

    records = NotedRecords(session)
    async for notes in records.refresh(cluster): ...     # the first time all, then those that have changed
    records.digest, records.known                        # to compare with what a storage node has

Rules
- Folders, and records that can change, are watched, so a refresh reads only what has changed. The name of a topic
  without partitions and a tombstone never change. So 100,000 topics need no watch.
- A name that was deleted and made again looks the same in its folder. The tombstone of the former topic tells.
- A record that cannot be read has no note. What is known of it stays its last sound state, as storage nodes hold it
  (hazard damaged-record-is-noted).
- Reads are paced: other requests to ZooKeeper are not delayed.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry, NotFound
from oncelog.core.formats.note import VALUE_BYTES_MAX, Note, NoteOrder, NotesDigest, checksum_of_note
from oncelog.core.ids import TopicId
from oncelog.metadata_store.notes.noting_session import note_of
from oncelog.metadata_store.notes.readable import damage_of
from oncelog.metadata_store.records.cluster_store import ClusterRecord
from oncelog.metadata_store.records.topic_store import decode_name
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession

READS_PER_S_MAX = 2_000
#: Reads that are sent together.
GROUP_MAX = 64


class KnownNote(NamedTuple):
    order: NoteOrder
    checksum: int


class NotedRecords:
    """`refresh` has one caller at a time; `look_again` may have several."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session
        #: {path of each record that exists: what its note is}
        self.known: dict[str, KnownNote] = {}
        self.digest = NotesDigest()
        #: records that are too large for a note: older versions allowed them, and to close rights adds bytes
        self.too_large: set[str] = set()
        #: {record that exists and cannot be read: why}
        self.damaged: dict[str, str] = {}
        #: {folder: its names as last listed}, unless they have changed since; None: they are being listed
        self._names: dict[str, list[str] | None] = {}
        #: {topic without partitions: path of its name}
        self._named: dict[TopicId, str] = {}
        #: records whose watch has fired
        self._changed: set[str] = set()

    async def refresh(self, cluster: ClusterRecord) -> AsyncIterator[Sequence[Note]]:
        """Groups of the notes of records that are new or have changed. Raises StoreUnavailable."""
        present = dict.fromkeys(paths.NOTED)
        for folder, depths in paths.NOTED_FOLDERS.items():
            present |= dict.fromkeys(await self._below(folder, 1, depths))
        for gone in [path for path in (*self.known, *self.damaged) if path not in present]:
            self._forget(gone)
            self.damaged.pop(gone, None)
        self.too_large.intersection_update(present)
        due = [path for path in present if path in self._changed or path not in self.known]
        ended = [TopicId(path.rpartition("/")[2]) for path in due if path.startswith(f"{paths.TOMBSTONES}/")]
        due += [path for topic_id in ended if (path := self._named.pop(topic_id, None)) in present]
        for start in range(0, len(due), GROUP_MAX):
            yield await self.look_again(due[start : start + GROUP_MAX], cluster)

    async def look_again(self, wanted: Iterable[str], cluster: ClusterRecord) -> list[Note]:
        """The notes of those records that exist, read after a sync. Raises StoreUnavailable."""
        some = list(wanted)
        began_s = asyncio.get_running_loop().time()
        self._changed.difference_update(some)
        found = await asyncio.gather(*(self._read(path, cluster) for path in some))
        notes: list[Note] = []
        for path, note in zip(some, found, strict=True):
            if path in self.damaged:
                continue
            self._forget(path)
            if note is not None:
                self._know(note)
                notes.append(note)
        left_s = began_s + len(some) / READS_PER_S_MAX - asyncio.get_running_loop().time()
        if len(some) == GROUP_MAX and left_s > 0:
            await asyncio.sleep(left_s)
        return notes

    def take_held(self, note: Note) -> None:
        """Learn from a storage node what a damaged record was. A node that lacks this note does not hold all notes."""
        known = self.known.get(note.path)
        if (known is None or known.order < note.order) and damage_of(note.path, note.value) is None:
            self._forget(note.path)
            self._know(note)

    def _know(self, note: Note) -> None:
        checksum = checksum_of_note(note.encode())
        self.known[note.path] = KnownNote(note.order, checksum)
        self.digest = self.digest.plus(checksum)

    async def _below(self, folder: str, depth: int, depths: tuple[int, ...]) -> list[str]:
        """The paths of the records below the folder, which may have gone."""
        found = [f"{folder}/{name}" for name in await self._names_of(folder)]
        records = list(found) if depth in depths else []
        if depth < depths[-1]:
            for start in range(0, len(found), GROUP_MAX):
                some = found[start : start + GROUP_MAX]
                lists = await asyncio.gather(*(self._below(path, depth + 1, depths) for path in some))
                records += [path for each in lists for path in each]
        return records

    async def _names_of(self, folder: str) -> list[str]:
        known = self._names.get(folder)
        if known is not None:
            return known
        self._names[folder] = None
        try:
            names = await self._session.children(folder, fired=partial(self._relist, folder))
        except NotFound:
            del self._names[folder]
            return []
        if folder in self._names:  # the watch has not fired yet
            self._names[folder] = names
        return names

    def _relist(self, folder: str) -> None:
        self._names.pop(folder, None)

    async def _read(self, path: str, cluster: ClusterRecord) -> Note | None:
        node = await self._session.read(path) if path.startswith((f"{paths.NAMES}/", f"{paths.TOMBSTONES}/")) else None
        if node is None or not self._is_settled(path, node.data):
            node = await self._session.read(path, fired=partial(self._changed.add, path))
        if node is not None and len(node.data) > VALUE_BYTES_MAX:
            self.too_large.add(path)
            return None
        self.too_large.discard(path)
        damage = None if node is None else damage_of(path, node.data)
        if damage is not None:
            self.damaged[path] = damage
            return None
        self.damaged.pop(path, None)
        return None if node is None else note_of(path, node, cluster)

    def _is_settled(self, path: str, data: bytes) -> bool:
        """Whether this name or tombstone never changes."""
        if path.startswith(f"{paths.TOMBSTONES}/"):
            return True
        try:
            name = decode_name(data, path)
        except CorruptEntry:
            return False
        if name.partitions or name.deleted:
            return False
        self._named[name.topic_id] = path
        return True

    def _forget(self, path: str) -> None:
        known = self.known.pop(path, None)
        if known is not None:
            self.digest = self.digest.minus(known.checksum)


def proof_of_deletion(note: Note) -> str | None:
    """The tombstone that exists if this record was deleted: a topic's is written in the transaction that removes its
    name and policies, and stays. So ZooKeeper without both is older than the note. None: nothing proves a deletion."""
    if note.path.startswith(f"{paths.TOMBSTONES}/"):
        return note.path
    if note.path.startswith(f"{paths.TOPIC_POLICIES}/"):
        return paths.tombstone(TopicId(note.path.rpartition("/")[2]))
    if note.path.startswith(f"{paths.NAMES}/"):
        try:
            return paths.tombstone(decode_name(note.value, note.path).topic_id)
        except CorruptEntry:
            return None
    return None
