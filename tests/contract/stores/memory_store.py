"""The metadata store in memory, with the interface and the semantics of ZooKeeper, for tests of the stores' users.

A `MemoryTree` is the server, a `MemorySession` is one process's session. Tests inject faults by name: lost requests and
replies, a lost connection, an expired session, a lagging follower. tests/contract runs the same tests against both.
"""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from oncelog.core.errors import NotFound, StoreUnavailable
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.session.rooted_session import RootedSession
from oncelog.metadata_store.session.store_session import (
    CheckStep,
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
from tests.cluster.until import yield_to_loop

OPERATION_TIMEOUT_MS = 10_000


@dataclass(slots=True)
class MemoryTree:
    """The state of the servers: {path: node}, and the one-shot watches."""

    nodes: dict[str, Znode] = field(default_factory=lambda: {"": Znode(b"", 0)})
    #: {path: watches of its data, its creation or its end} and {path: watches of the names below it}.
    node_watches: dict[str, list[Fired]] = field(default_factory=dict)
    children_watches: dict[str, list[Fired]] = field(default_factory=dict)
    session_ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    #: {folder: next number}; like ZooKeeper's, a number never comes twice.
    sequences: dict[str, int] = field(default_factory=dict)
    #: numbers of the transactions that create or delete nodes
    changes: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def children(self, path: str) -> list[str]:
        depth = path.count("/") + 1
        below = (other for other in self.nodes if other.startswith(f"{path}/") and other.count("/") == depth)
        return sorted(other.rpartition("/")[2] for other in below)

    def apply(self, step: Step, *, holder: int | None = None) -> WriteStatus:
        """Raises NotFound when the parent of a new node is missing."""
        node = self.nodes.get(step.path)
        match step:
            case CreateStep():
                parent = _parent(step.path)
                if parent not in self.nodes:
                    raise NotFound(f"there is no parent of {step.path}", path=step.path)
                if node is not None:
                    return WriteStatus.CONFLICT
                created = self._count(parent)
                self.nodes[step.path] = Znode(step.data, 0, holder, _now_ms(), created, created)
                self._fire(self.children_watches, parent)
            case WriteStep():
                if node is None or node.version != step.version:
                    return WriteStatus.CONFLICT
                self.nodes[step.path] = node._replace(data=step.data, version=node.version + 1, modified_ms=_now_ms())
            case DeleteStep():
                if node is None or node.version != step.version or self.children(step.path):
                    return WriteStatus.CONFLICT
                del self.nodes[step.path]
                self._count(_parent(step.path))
                self._fire(self.children_watches, step.path)
                self._fire(self.children_watches, _parent(step.path))
            case CheckStep():
                return WriteStatus.CONFLICT if node is None or node.version != step.version else WriteStatus.OK
            case _:
                assert_never(step)
        self._fire(self.node_watches, step.path)
        return WriteStatus.OK

    def _count(self, parent: str) -> int:
        """Number the transaction that changes the children of this node."""
        number = next(self.changes)
        self.nodes[parent] = self.nodes[parent]._replace(children_changed=number)
        return number

    def apply_all(self, steps: Sequence[Step]) -> WriteStatus:
        trial = replace(self, nodes=dict(self.nodes), node_watches={}, children_watches={})
        if any(trial.apply(step) is not WriteStatus.OK for step in steps):
            return WriteStatus.CONFLICT
        for step in steps:
            self.apply(step)
        return WriteStatus.OK

    def end_session(self, session_id: int) -> None:
        for path in [path for path, node in self.nodes.items() if node.holder == session_id]:
            self.apply(DeleteStep(path, self.nodes[path].version))

    def _fire(self, watches: dict[str, list[Fired]], path: str) -> None:
        for fired in watches.pop(path, []):
            fired()


class MemorySession:
    """A StoreSession over a MemoryTree."""

    def __init__(self, tree: MemoryTree, *, root: str = "", operation_timeout_ms: int = OPERATION_TIMEOUT_MS) -> None:
        self._tree = tree
        self._root = root.rstrip("/")
        self._operation_timeout_ms = operation_timeout_ms
        self._connection = _MemoryConnection(tree)
        #: {path: synced reads of it}
        self.reads_of: Counter[str] = Counter()

    def below(self, root: str) -> StoreSession:
        return RootedSession(self, root) if root else self

    @property
    def state(self) -> SessionState:
        return self._connection.state

    @property
    def session_id(self) -> int | None:
        return self._connection.session_id if self.state is SessionState.CONNECTED else None

    @property
    def closed(self) -> bool:
        return self._connection.closed

    @property
    def faults(self) -> "_MemoryConnection":
        """The faults that a test can inject."""
        return self._connection

    def add_listener(self, listener: StateListener) -> None:
        self._connection.listeners.append(listener)

    def remove_listener(self, listener: StateListener) -> None:
        self._connection.listeners.remove(listener)

    async def read(self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None) -> Znode | None:
        await self._ask(path, timeout_ms)
        self.reads_of[path] += 1
        self._connection.catch_up()
        if fired is not None:
            self._connection.watch(self._tree.node_watches, self._root + path, fired)
        return self._tree.nodes.get(self._root + path)

    async def read_unsynced(self, path: str, *, timeout_ms: int | None = None) -> Znode | None:
        await self._ask(path, timeout_ms)
        return self._connection.seen().get(self._root + path)

    async def children(self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None) -> list[str]:
        await self._ask(path, timeout_ms)
        self._connection.catch_up()
        if self._root + path not in self._tree.nodes:
            raise NotFound(f"there is no {self._root}{path}", path=path)
        if fired is not None:
            self._connection.watch(self._tree.children_watches, self._root + path, fired)
        return self._tree.children(self._root + path)

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, timeout_ms: int | None = None
    ) -> WriteStatus:
        if not await self._send(timeout_ms):
            return WriteStatus.UNKNOWN
        holder = self._connection.session_id if ephemeral else None
        return self._connection.reply(self._tree.apply(CreateStep(self._root + path, data), holder=holder))

    async def create_sequential(
        self, path: str, data: bytes, *, timeout_ms: int | None = None
    ) -> tuple[WriteStatus, str | None]:
        if not await self._send(timeout_ms):
            return WriteStatus.UNKNOWN, None
        folder = _parent(self._root + path)
        number = self._tree.sequences.get(folder, 0)
        self._tree.sequences[folder] = number + 1
        numbered = f"{path}{number:010d}"
        step = CreateStep(self._root + numbered, data)
        status = self._connection.reply(self._tree.apply(step, holder=self._connection.session_id))
        return status, numbered if status is WriteStatus.OK else None

    async def write(self, path: str, data: bytes, *, version: int, timeout_ms: int | None = None) -> WriteResult:
        assert version >= 0, "a write names the version it replaces"
        if not await self._send(timeout_ms):
            return WriteResult(WriteStatus.UNKNOWN)
        status = self._connection.reply(self._tree.apply(WriteStep(self._root + path, data, version)))
        return WriteResult(status, version + 1) if status is WriteStatus.OK else WriteResult(status)

    async def delete(self, path: str, *, version: int, timeout_ms: int | None = None) -> WriteStatus:
        assert version >= 0, "a delete names the version it removes"
        if not await self._send(timeout_ms):
            return WriteStatus.UNKNOWN
        return self._connection.reply(self._tree.apply(DeleteStep(self._root + path, version)))

    async def transact(self, steps: Sequence[Step], *, timeout_ms: int | None = None) -> WriteStatus:
        if not await self._send(timeout_ms):
            return WriteStatus.UNKNOWN
        rooted = [replace(step, path=self._root + step.path) for step in steps]
        return self._connection.reply(self._tree.apply_all(rooted))

    async def ensure_path(self, path: str, *, timeout_ms: int | None = None) -> None:
        await self._ask(path, timeout_ms)
        elements = (self._root + path).split("/")
        for depth in range(2, len(elements) + 1):
            self._tree.apply(CreateStep("/".join(elements[:depth])))

    async def note(self, records: Sequence[str], *, deleted: bool = False) -> None:
        pass  # this session notes nothing

    async def close(self) -> None:
        self._connection.close()

    async def _ask(self, path: str, timeout_ms: int | None) -> None:
        timeout_s = (self._operation_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        try:
            async with asyncio.timeout(timeout_s):
                await self._connection.until_connected()
        except TimeoutError as error:
            raise StoreUnavailable(f"no answer to a read of {path} within {timeout_s:g} s") from error

    async def _send(self, timeout_ms: int | None) -> bool:
        """Whether a write reaches the server at all."""
        timeout_s = (self._operation_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        try:
            async with asyncio.timeout(timeout_s):
                await self._connection.until_connected()
        except TimeoutError:
            return False
        return self._connection.delivers()


class _MemoryConnection:
    """The state of one session, and its injected faults."""

    def __init__(self, tree: MemoryTree) -> None:
        self._tree = tree
        self.session_id = next(tree.session_ids)
        self.state = SessionState.CONNECTED
        self.closed = False
        self.listeners: list[StateListener] = []
        self._state_changed = asyncio.Event()
        self._lost_request = False
        self._lost_reply = False
        #: What the server that this session reads from has seen; None: everything.
        self._behind: dict[str, Znode] | None = None
        self._watches: list[tuple[list[Fired], Fired]] = []

    def lose_next_request(self) -> None:
        """The next write is not applied, and its outcome is UNKNOWN."""
        self._lost_request = True

    def lose_next_reply(self) -> None:
        """The next write is applied, and its outcome is UNKNOWN."""
        self._lost_reply = True

    def fall_behind(self) -> None:
        """Reads without a sync show the present state until the next read with a sync."""
        self._behind = dict(self._tree.nodes)

    def suspend(self) -> None:
        self._enter(SessionState.SUSPENDED)
        # A change could be missed from here on, which is what a watch must tell.
        watches, self._watches = self._watches, []
        for registered, fired in watches:
            if fired in registered:
                registered.remove(fired)
                fired()

    def resume(self) -> None:
        """Connected again: in the same session, or in a new one after `expire`."""
        if self.state is SessionState.LOST:
            self.session_id = next(self._tree.session_ids)
        self._enter(SessionState.CONNECTED)

    def expire(self) -> None:
        """The server ends the session, and the client is notified."""
        if self.state is SessionState.CONNECTED:
            self.suspend()
        self._tree.end_session(self.session_id)
        self._enter(SessionState.LOST)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._tree.end_session(self.session_id)
            self._enter(SessionState.LOST)  # told even if it was so before, as by the real one

    async def until_connected(self) -> None:
        await yield_to_loop()  # as a call to a real server does
        while True:
            if self.closed:
                raise StoreUnavailable("the session was closed")
            if self.state is SessionState.CONNECTED:
                return
            self._state_changed.clear()
            await self._state_changed.wait()

    def delivers(self) -> bool:
        lost, self._lost_request = self._lost_request, False
        return not lost

    def reply(self, status: WriteStatus) -> WriteStatus:
        lost, self._lost_reply = self._lost_reply, False
        return WriteStatus.UNKNOWN if lost else status

    def catch_up(self) -> None:
        self._behind = None

    def seen(self) -> dict[str, Znode]:
        return self._tree.nodes if self._behind is None else self._behind

    def watch(self, watches: dict[str, list[Fired]], path: str, fired: Fired) -> None:
        registered = watches.setdefault(path, [])
        registered.append(fired)
        self._watches = [(some, other) for some, other in self._watches if other in some]
        self._watches.append((registered, fired))

    def _enter(self, state: SessionState) -> None:
        self.state = state
        self._state_changed.set()
        for listener in tuple(self.listeners):
            listener(state)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
