"""Ephemeral records of live processes: created, kept through new sessions, listed and watched.

Rules
- A record is only a hint where to connect. That it is missing proves nothing, and that it exists proves little more.
- A record belongs to the session that created it. After a lost session `Registration.keep` creates it again in the
  next.
- A process that reconnects before its former session has ended finds its own old record and replaces it, so that the
  record cannot disappear later with that session. The path names an incarnation, so it is nobody else's record.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeVar

from oncelog.core.errors import CorruptEntry, StoreUnavailable
from oncelog.metadata_store.session.store_session import SessionState, StoreSession, Znode
from oncelog.metadata_store.session.watch import NodesWatch

T = TypeVar("T")
logger = logging.getLogger(__name__)

REGISTER_TIMEOUT_S = 30.0
LEAVE_TIMEOUT_S = 2.0


class EphemeralFolder(Generic[T]):
    """The live records of one kind: {name of the node: record}."""

    def __init__(
        self, session: StoreSession, folder: str, *, encode: Callable[[T], bytes], decode: Callable[[str, bytes], T]
    ) -> None:
        self._session = session
        self._folder = folder
        self._encode = encode
        self._decode = decode

    def registration(self, name: str, record: T) -> "Registration[T]":
        """A record under its own name. Nothing is written before `establish` or `keep`."""
        return Registration(self._session, f"{self._folder}/{name}", record, self._encode, sequential=False)

    def sequential_registration(self, record: T) -> "Registration[T]":
        """A record under the next number of the folder."""
        return Registration(self._session, f"{self._folder}/", record, self._encode, sequential=True)

    async def live(self) -> dict[str, T]:
        """All records after a sync, by name. Raises StoreUnavailable, NotFound without a cluster."""
        names = await self._session.children(self._folder)
        nodes = await asyncio.gather(*(self._session.read(f"{self._folder}/{name}") for name in names))
        return self._decoded({name: node for name, node in zip(names, nodes, strict=True) if node is not None})

    async def watch(self) -> AsyncGenerator[dict[str, T], None]:
        """All records now, and again whenever one is created, deleted or changed, or a change may have been missed."""
        async for nodes in NodesWatch(self._session, self._folder):
            yield self._decoded(nodes)

    def _decoded(self, nodes: dict[str, Znode]) -> dict[str, T]:
        """Without the records that cannot be read, as if their processes were not registered."""
        found: dict[str, T] = {}
        for name, node in nodes.items():
            with contextlib.suppress(CorruptEntry):  # counted and logged by its decoder
                found[name] = self._decode(name, node.data)
        return found


class Registration(Generic[T]):
    """One ephemeral record of this process. Call `establish` once at the start, then run `keep` as a task."""

    def __init__(
        self, session: StoreSession, path: str, record: T, encode: Callable[[T], bytes], *, sequential: bool
    ) -> None:
        self._session = session
        self._path = path
        self._record = record
        self._encode = encode
        self._sequential = sequential
        self._established_in: int | None = None
        self._registered_in: int | None = None
        #: awaited before the record is written in a new session; may raise
        self.before: Callable[[], Awaitable[None]] | None = None
        #: Two attempts at the same time could create two numbered nodes.
        self._one_at_a_time = asyncio.Lock()

    @property
    def name(self) -> str | None:
        """The node's name; None for a numbered node that is not established."""
        return self._path.rpartition("/")[2] or None

    async def establish(self) -> None:
        """Return once the record exists in this session with the right content. Raises StoreUnavailable."""
        try:
            async with asyncio.timeout(REGISTER_TIMEOUT_S), self._one_at_a_time:
                while not await self._established():
                    pass  # each attempt waits for the store
        except TimeoutError as error:
            raise StoreUnavailable(f"{self._path} could not be registered in {REGISTER_TIMEOUT_S:g} s") from error

    async def update(self, record: T) -> None:
        """Replace the record's content. Raises StoreUnavailable; `keep` then retries."""
        self._record = record
        self._established_in = None
        await self.establish()

    async def keep(self) -> None:
        """Never return: establish the record in every new session, however long ZooKeeper was away.

        Raises StoreUnavailable when the session is closed.
        """
        changed = asyncio.Event()

        def note_change(state: SessionState) -> None:
            changed.set()

        self._session.add_listener(note_change)
        try:
            while True:
                changed.clear()
                session_id = self._session.session_id
                idle = session_id is None or session_id == self._established_in
                if idle and not self._session.closed:
                    await changed.wait()
                    continue
                try:
                    await self.establish()
                except StoreUnavailable:
                    if self._session.closed:
                        raise
        finally:
            self._session.remove_listener(note_change)

    async def withdraw(self) -> None:
        """Delete the record; stop `keep` first. Raises StoreUnavailable: the record then ends with the session."""
        async with self._one_at_a_time:
            if self.name is None:
                return
            while (node := await self._session.read(self._path)) is not None:
                if node.holder != self._session.session_id:
                    return  # it belongs to another process, or to a session that has ended
                await self._session.delete(self._path, version=node.version)

    async def leave(self) -> None:
        """Delete the record if ZooKeeper answers soon; otherwise it ends with the session. For the end of a process."""
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self.withdraw()
        except (StoreUnavailable, TimeoutError):
            logger.warning("could not delete %s; it ends with the ZooKeeper session", self._path)

    async def _established(self) -> bool:
        """One attempt. The read at its end decides, whatever the write returned."""
        session_id = self._session.session_id
        data = self._encode(self._record)
        if self.before is not None and self._registered_in != session_id:
            await self.before()
        self._registered_in = session_id
        node = await self._own()
        if node is None:
            await self._create(data)
            node = await self._own()
        elif node.data != data:
            await self._session.write(self._path, data, version=node.version)
            node = await self._own()
        if node is None or node.data != data or self._session.session_id != session_id or session_id is None:
            return False
        self._established_in = session_id
        return True

    async def _own(self) -> Znode | None:
        """The record if it belongs to the present session. A record of an earlier session of ours is deleted."""
        if self._sequential:
            return await self._own_numbered()
        node = await self._session.read(self._path)
        if node is not None and node.holder != self._session.session_id and self._session.session_id is not None:
            await self._session.delete(self._path, version=node.version)
            return None
        return node

    async def _own_numbered(self) -> Znode | None:
        folder = self._path.rpartition("/")[0]
        for name in await self._session.children(folder):
            node = await self._session.read(f"{folder}/{name}")
            if node is not None and node.holder == self._session.session_id:
                self._path = f"{folder}/{name}"
                return node
        self._path = f"{folder}/"
        return None

    async def _create(self, data: bytes) -> None:
        if self._sequential:
            await self._session.create_sequential(self._path, data)
        else:
            await self._session.create(self._path, data, ephemeral=True)
