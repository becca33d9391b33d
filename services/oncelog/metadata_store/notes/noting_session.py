"""A session with ZooKeeper whose changes of noted records return only when storage nodes hold notes of them.

    session = NotingSession(session, NoteHolders(session, credentials).store)

    write, create, delete, transact -> ZooKeeper -> synced read back -> notes of what was read, to all storage nodes
        -> return when as many have synced them as an entry of a ledger needs (`note_holders`)

Rules
- A note is sent from a synced read behind the write, never from an intent: the outcome of a write can be unknown, and
  another value can have been written (hazard note-of-an-intent).
- What was answered to a change is noted, so it survives the loss of ZooKeeper (hazard revoked-right-returns). That is
  so for what a change finds, too, because another process may have written it and ended before it was noted. "It exists
  already", "it has this value" and "there is none" are answered when that is noted:
    - an attempt to create what exists notes it before CONFLICT is returned;
    - a change to the present value is written again, or noted (`note`), by those who change records;
    - so is a deletion that finds nothing. A topic's is work that has not ended before it is noted (`deletion_store`).
- A read is no such answer: it shows what ZooKeeper has, noted or not.
- The note of a deletion is above all that ever was at this path: its order is that of the last change in the folder.
  A record that is created later is above it.
- If too few nodes have synced it in time, the change is written, and StoreUnavailable says that it is not noted. The
  call can be repeated. The elected metadata service notes it, too (`note_comparison`).
- A record that cannot be read is never noted: the note of what it was stays (`readable`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

from oncelog.core.errors import InvalidArgument, StoreUnavailable
from oncelog.core.formats.note import VALUE_BYTES_MAX, Note, NoteOrder
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.notes.readable import damage_of
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterStore
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import (
    CreateStep,
    DeleteStep,
    Fired,
    SessionState,
    StateListener,
    Step,
    StoreSession,
    WriteResult,
    WriteStep,
    Znode,
)

logger = logging.getLogger(__name__)

#: Reads what is to be noted. Raises StoreUnavailable.
CollectNotes = Callable[[], Awaitable[tuple[Sequence[Note], ClusterRecord | None]]]
#: Calls it, and returns when enough storage nodes have synced the notes. Raises StoreUnavailable.
StoreNotes = Callable[[CollectNotes], Awaitable[None]]


def note_of(path: str, node: Znode, cluster: ClusterRecord) -> Note:
    """Of a record as it is in ZooKeeper."""
    return Note(path, NoteOrder(cluster.era.number, node.created, False, node.version), node.data)


def deletion_of(note: NoteOrder, path: str) -> Note:
    """The note that the record with that note was deleted."""
    return Note(path, note._replace(deleted=True), b"")


class NotingSession:
    """A StoreSession over another one."""

    def __init__(self, session: StoreSession, store: StoreNotes) -> None:
        self._session = session
        self._store = store
        self._cluster = ClusterStore(session)

    # -- passed on

    def below(self, root: str) -> StoreSession:
        return NotingSession(self._session.below(root), self._store) if root else self

    @property
    def state(self) -> SessionState:
        return self._session.state

    @property
    def session_id(self) -> int | None:
        return self._session.session_id

    @property
    def closed(self) -> bool:
        return self._session.closed

    def add_listener(self, listener: StateListener) -> None:
        self._session.add_listener(listener)

    def remove_listener(self, listener: StateListener) -> None:
        self._session.remove_listener(listener)

    async def read(self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None) -> Znode | None:
        return await self._session.read(path, fired=fired, timeout_ms=timeout_ms)

    async def read_unsynced(self, path: str, *, timeout_ms: int | None = None) -> Znode | None:
        return await self._session.read_unsynced(path, timeout_ms=timeout_ms)

    async def children(self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None) -> list[str]:
        return await self._session.children(path, fired=fired, timeout_ms=timeout_ms)

    async def create_sequential(
        self, path: str, data: bytes, *, timeout_ms: int | None = None
    ) -> tuple[WriteStatus, str | None]:
        return await self._session.create_sequential(path, data, timeout_ms=timeout_ms)

    async def ensure_path(self, path: str, *, timeout_ms: int | None = None) -> None:
        await self._session.ensure_path(path, timeout_ms=timeout_ms)

    async def close(self) -> None:
        await self._session.close()

    # -- noted

    async def note(self, records: Sequence[str], *, deleted: bool = False) -> None:
        """Return when what these records are now is noted; deleted: also that they do not exist. Raises
        StoreUnavailable."""
        await self._noted(records, records if deleted else ())

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, timeout_ms: int | None = None
    ) -> WriteStatus:
        _require_fitting([CreateStep(path, data)])
        status = await self._session.create(path, data, ephemeral=ephemeral, timeout_ms=timeout_ms)
        await self._noted(_to_note([CreateStep(path)], status), {})
        return status

    async def write(self, path: str, data: bytes, *, version: int, timeout_ms: int | None = None) -> WriteResult:
        step = WriteStep(path, data, version)
        _require_fitting([step])
        result = await self._session.write(path, data, version=version, timeout_ms=timeout_ms)
        await self._noted(_to_note([step], result.status), {})
        return result

    async def delete(self, path: str, *, version: int, timeout_ms: int | None = None) -> WriteStatus:
        step = DeleteStep(path, version)
        status = await self._session.delete(path, version=version, timeout_ms=timeout_ms)
        await self._noted(_to_note([step], status), [path])
        return status

    async def transact(self, steps: Sequence[Step], *, timeout_ms: int | None = None) -> WriteStatus:
        _require_fitting(steps)
        status = await self._session.transact(steps, timeout_ms=timeout_ms)
        await self._noted(_to_note(steps, status), [step.path for step in steps if isinstance(step, DeleteStep)])
        return status

    async def _noted(self, changed: Sequence[str], deleted: Collection[str]) -> None:
        """Return when what these records are now is noted. deleted: those whose absence is a deletion."""
        if not changed:
            return

        async def collect() -> tuple[Sequence[Note], ClusterRecord | None]:
            cluster, *nodes = await asyncio.gather(self._cluster.read(), *map(self._session.read, changed))
            assert cluster is None or isinstance(cluster, ClusterRecord)
            if cluster is None:
                return (), cluster
            found = {path: node for path, node in zip(changed, nodes, strict=True) if isinstance(node, Znode)}
            gone = [path for path in changed if path not in found and path in deleted]
            notes = await asyncio.gather(*(self._deletion(path, cluster) for path in gone))
            notes += [note_of(path, node, cluster) for path, node in found.items()]
            return [note for note in notes if _is_readable(note)], cluster

        await self._store(collect)

    async def _deletion(self, path: str, cluster: ClusterRecord) -> Note:
        """That the record was deleted, or what it is if it was created again. Raises StoreUnavailable."""
        folder, above = path, None
        while above is None:
            if not folder:
                raise StoreUnavailable(
                    f"ZooKeeper has no records of era {cluster.era.number} any more: see docs/lost-zookeeper.md"
                )
            folder = folder.rpartition("/")[0]
            above = await self._session.read(folder)
        # After the look at the folder: a record that was created since is found, or is above that look.
        node = await self._session.read(path)
        if node is not None:
            return note_of(path, node, cluster)
        return deletion_of(NoteOrder(cluster.era.number, above.children_changed, False, 0), path)


def _is_readable(note: Note) -> bool:
    damage = None if note.order.deleted else damage_of(note.path, note.value)
    if damage is not None:
        logger.error("a damaged record is not noted", extra={"fields": {"record": note.path, "reason": damage}})
    return damage is None


def _to_note(steps: Sequence[Step], status: WriteStatus) -> list[str]:
    """The noted records that the steps have changed, or may have. CONFLICT: those that were to be created."""
    kinds = CreateStep if status is WriteStatus.CONFLICT else CreateStep | WriteStep | DeleteStep
    return [step.path for step in steps if isinstance(step, kinds) and paths.is_noted(step.path)]


def _require_fitting(steps: Sequence[Step]) -> None:
    """Raises InvalidArgument for a record that is too large for a note."""
    for step in steps:
        if isinstance(step, CreateStep | WriteStep) and len(step.data) > VALUE_BYTES_MAX and paths.is_noted(step.path):
            raise InvalidArgument(
                f"the record {step.path} would have {len(step.data)} bytes, and the limit is {VALUE_BYTES_MAX}",
                field=step.path,
                limit=VALUE_BYTES_MAX,
            )
