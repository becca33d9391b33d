"""Ephemeral records of live processes: made, kept through new sessions, listed and watched.

Rules
- They only say whom to ask. That one is missing proves nothing, and that one is there proves little more.
- A record belongs to the session that made it. When the session is lost the record is made anew in the next one, by
  `Registration.keep`.
- A process that comes back before its former session has ended finds its own old record: it is replaced, so that it
  cannot vanish later with the session that it came from. The path names an incarnation, so nobody else's is touched.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar

from oncelog.core.errors import CorruptEntry, StoreUnavailable
from oncelog.stores.store_session import SessionState, StoreSession, Znode
from oncelog.stores.watch import NodesWatch

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
        """A record under a name of its own; nothing is written before `establish` or `keep`."""
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
        """All records now, and again whenever one comes, goes or changes, or that could have been missed."""
        async for nodes in NodesWatch(self._session, self._folder):
            yield self._decoded(nodes)

    def _decoded(self, nodes: dict[str, Znode]) -> dict[str, T]:
        """Without those that cannot be read: they say nothing, as if their processes were not there."""
        found: dict[str, T] = {}
        for name, node in nodes.items():
            with contextlib.suppress(CorruptEntry):  # counted and told by its decoder
                found[name] = self._decode(name, node.data)
        return found


class Registration(Generic[T]):
    """One ephemeral record of this process. `establish` once at the start, then run `keep` as a task."""

    def __init__(
        self, session: StoreSession, path: str, record: T, encode: Callable[[T], bytes], *, sequential: bool
    ) -> None:
        self._session = session
        self._path = path
        self._record = record
        self._encode = encode
        self._sequential = sequential
        self._established_in: int | None = None
        #: Two at a time could make two numbered nodes.
        self._one_at_a_time = asyncio.Lock()

    @property
    def name(self) -> str | None:
        """The node's name; None for a numbered one that is not established."""
        return self._path.rpartition("/")[2] or None

    async def establish(self) -> None:
        """Return once the record is there, of this session and as it should be. Raises StoreUnavailable."""
        try:
            async with asyncio.timeout(REGISTER_TIMEOUT_S), self._one_at_a_time:
                while not await self._established():
                    pass  # each turn asks the store at least once, and waits for it
        except TimeoutError as error:
            raise StoreUnavailable(f"{self._path} could not be registered in {REGISTER_TIMEOUT_S:g} s") from error

    async def update(self, record: T) -> None:
        """Replace what the record says. Raises StoreUnavailable; `keep` then goes on trying."""
        self._record = record
        self._established_in = None
        await self.establish()

    async def keep(self) -> None:
        """Never return: establish the record in every new session, however long ZooKeeper was away.

        Raises StoreUnavailable when the session was closed.
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
        """Take the record away; stop `keep` first. Raises StoreUnavailable: it then goes with the session."""
        async with self._one_at_a_time:
            if self.name is None:
                return
            while (node := await self._session.read(self._path)) is not None:
                if node.holder != self._session.session_id:
                    return  # of another process, or of a session that has ended
                await self._session.delete(self._path, version=node.version)

    async def leave(self) -> None:
        """Take the record away if ZooKeeper answers soon; else it goes with the session. For the end of a process."""
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self.withdraw()
        except (StoreUnavailable, TimeoutError):
            logger.warning("%s is left to the end of the session", self._path)

    async def _established(self) -> bool:
        """One turn towards it; the reading at its end decides, whatever the writing was answered."""
        session_id = self._session.session_id
        data = self._encode(self._record)
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
        """The record if it is of the present session; one of a former session of ours is taken away."""
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
