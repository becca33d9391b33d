"""A storage node and ZooKeeper's records: it has notes of all of them before it becomes a member, and takes part in no
cluster whose records are older than its notes.

Rules
- A new node gets data only when so many other nodes hold the note of its cookie as must hold any note (hazard
  unnoted-member), and when it holds all notes itself (hazard holders-fade): those of records from ZooKeeper, and those
  of deletions, which are in no record, from all nodes that answer, and these must be enough. Until then it is
  registered as joining.
- ZooKeeper is older than the notes if it has a lower state of a noted record, or lacks a record without the tombstone
  that would prove its deletion (`proof_of_deletion`). That another record is missing proves nothing: it may have been
  deleted while this node was away. The newest notes are compared: what went back in time lacks these first.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from oncelog.core.era import FIRST_ERA
from oncelog.core.errors import StorageDirectoryRefused, StoreUnavailable
from oncelog.core.formats.note import Note
from oncelog.core.ids import Incarnation
from oncelog.log_storage.serve.notes import NodeNotes
from oncelog.metadata_store.notes.note_holders import STORE_TIMEOUT_S, NoteHolders
from oncelog.metadata_store.notes.noted_records import GROUP_MAX, NotedRecords, proof_of_deletion
from oncelog.metadata_store.notes.noting_session import NotingSession, note_of
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterStore
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.runtime.credentials import Credentials

#: Notes that a start compares with ZooKeeper: the newest of names and tombstones, and of all others.
COMPARED_MAX = 1_024


class JoinByNotes:
    """What a node does before it becomes a member. me: its incarnation. peers: for calls to the other nodes."""

    def __init__(
        self, session: StoreSession, notes: NodeNotes, me: Incarnation, peers: Credentials, *,
        timeout_s: float = STORE_TIMEOUT_S,
    ) -> None:  # fmt: skip
        self._session = session
        self._notes = notes
        self._era = peers.era or FIRST_ERA
        self._cookie = paths.storage_cookie(me)
        self._holders = NoteHolders(session, peers, me=me, timeout_s=timeout_s)

    def is_needed(self) -> bool:
        """Whether the node was never a member. Its own cookie is the last record that it notes, so a node that has this
        note was."""
        return self._cookie not in self._notes.orders()

    async def get_noted(self) -> None:
        """Return when the node may become a member; its cookie exists. Raises StoreUnavailable, JournalFailed."""
        await NotingSession(self._session, self._holders.store).note([self._cookie])
        cluster = await ClusterStore(self._session).require()
        if cluster.era != self._era:
            raise StoreUnavailable(f"ZooKeeper is in era {cluster.era.number} since this node has joined it: retry")
        own: list[Note] = []
        async for group in NotedRecords(self._session).refresh(cluster):
            own += [note for note in group if note.path == self._cookie]
            await self._notes.store([note for note in group if note.path != self._cookie])
        await self._notes.store(await self._holders.deletions(cluster))
        await self._notes.store(own)

    async def close(self) -> None:
        await self._holders.close()


async def refuse_older_than_notes(path: Path, session: StoreSession, notes: NodeNotes) -> None:
    """path: of the directory. Raises StorageDirectoryRefused, StoreUnavailable."""
    cluster = await ClusterStore(session).read()
    if cluster is None:
        return
    held = sorted(notes.orders().items(), key=lambda each: each[1], reverse=True)
    names = [each for each, _ in held if each.startswith((f"{paths.NAMES}/", f"{paths.TOMBSTONES}/"))][:COMPARED_MAX]
    others = [each for each, _ in held if not each.startswith((f"{paths.NAMES}/", f"{paths.TOMBSTONES}/"))]
    compared = [*names, *others[:COMPARED_MAX]]
    for start in range(0, len(compared), GROUP_MAX):
        older = await _older(session, cluster, notes, compared[start : start + GROUP_MAX])
        # A second look: a note can be stored here after its record was read.
        if older and (older := await _older(session, cluster, notes, older)):
            raise StorageDirectoryRefused(
                f"{path}: ZooKeeper is older than the notes of this storage node: it has not the state of {older[0]} "
                "that was noted here. It was restored from an older backup, or is another one: rights that were "
                "revoked and topics that were deleted would be back. Stop the cluster, keep all directories as they "
                "are, and restore a ZooKeeper that is not older than they are",
                record=older[0],
            )


async def _older(session: StoreSession, cluster: ClusterRecord, notes: NodeNotes, compared: Sequence[str]) -> list[str]:
    """The records of which ZooKeeper has a lower state than the notes."""

    async def is_older(note: Note) -> bool:
        node = await session.read(note.path)
        if node is not None:
            return note_of(note.path, node, cluster).order < note.order
        proof = None if note.order.deleted or note.order.era < cluster.era.number else proof_of_deletion(note)
        return proof is not None and await session.read(proof) is None

    held = await notes.some(compared)
    found = await asyncio.gather(*map(is_older, held))
    return [note.path for note, older in zip(held, found, strict=True) if older]
