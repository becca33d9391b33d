"""Lasting watches: asynchronous iterators over nodes, built on the session's one-shot watches.

Rules
- The first item is the present state, at once; another item follows each possible change. Changes during the consumer's
  work are combined into one item. Each item was read after a sync, so the last item is current.
- A broken connection or a new session causes another item, so that no change is missed.
- A watch survives any outage; it ends with its session (StoreUnavailable) or with its consumer.
- An item may equal the one before: a node that is deleted and created again leaves the same names.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, Protocol, Self, TypeVar
from weakref import WeakSet

from oncelog.core.errors import StoreUnavailable
from oncelog.metadata_store.session.store_session import Fired, SessionState, StoreSession, Znode

T = TypeVar("T")
ValueT = TypeVar("ValueT")
T_co = TypeVar("T_co", covariant=True)


class _Watch(ABC, Generic[T]):
    def __init__(self, session: StoreSession, path: str) -> None:
        self._session = session
        self._path = path
        self._stale = asyncio.Event()
        self._stale.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Raises NotFound if the node itself does not exist."""
        while True:
            await _wait(self._stale, self._session)
            self._stale.clear()
            try:
                return await self._refresh()
            except StoreUnavailable:
                # The failed call took its whole timeout, so retry without a pause, unless the session is closed.
                self._stale.set()
                if self._session.closed:
                    raise
            except BaseException:
                self._stale.set()  # cancelled: the next call reads again
                raise

    @abstractmethod
    async def _refresh(self) -> T:
        """Read what is stale. The watches that this sets set `_stale`."""


class ChildrenWatch(_Watch[list[str]]):
    """`async for names in ChildrenWatch(session, path)`: the sorted names of the children, at each change of them."""

    async def _refresh(self) -> list[str]:
        return await self._session.children(self._path, fired=self._stale.set)


class NodesWatch(_Watch[dict[str, Znode]]):
    """`async for nodes in NodesWatch(session, path)`: {name: node} of the children, at each change of names or data."""

    def __init__(self, session: StoreSession, path: str) -> None:
        super().__init__(session, path)
        self._names: _WatchedValue[list[str]] | None = None
        self._nodes: dict[str, _WatchedValue[Znode | None]] = {}

    async def _refresh(self) -> dict[str, Znode]:
        """Read only what has changed, so that a thousand unchanged nodes cost nothing."""
        if self._names is None or self._names.fired:
            self._names = await self._keep(self._session.children, self._path)
        names = self._names.value
        for name in names:
            if name not in self._nodes or self._nodes[name].fired:
                self._nodes[name] = await self._keep(self._session.read, f"{self._path}/{name}")
        self._nodes = {name: self._nodes[name] for name in names}
        # A node that is None was deleted meanwhile; the watch of the names reports that.
        return {name: kept.value for name, kept in self._nodes.items() if kept.value is not None}

    async def _keep(self, read: "_WatchedRead[ValueT]", path: str) -> "_WatchedValue[ValueT]":
        watch = _OneShot(self._stale.set)
        return _WatchedValue(await read(path, fired=watch.fire), watch)


class PathsWatch(NodesWatch):
    """The same for nodes at any paths, of which some may not exist: {path: node} of those that do."""

    def __init__(self, session: StoreSession, paths: tuple[str, ...], shared: "SharedNodes | None" = None) -> None:
        """shared: has the nodes at those paths that it takes part in; the others are read for this watch alone."""
        super().__init__(session, "")
        self._paths = paths
        self._shared = shared

    async def _refresh(self) -> dict[str, Znode]:
        due = [path for path in self._paths if path not in self._nodes or self._nodes[path].fired]
        self._nodes |= zip(due, await asyncio.gather(*map(self._read, due)), strict=True)
        return {path: kept.value for path, kept in self._nodes.items() if kept.value is not None}

    async def _read(self, path: str) -> "_WatchedValue[Znode | None]":
        if self._shared is not None and path in self._shared:
            return await self._shared.read(path, self._stale)
        return await self._keep(self._session.read, path)


class SharedNodes:
    """Nodes that many watches of one process follow: each is read once, and again once after each change.

    Without it, a change of a namespace's policies would be read by each of its thousands of topics.
    """

    def __init__(self, session: StoreSession) -> None:
        self._session = session
        #: {path: its value, or the read that is under way}
        self._nodes: dict[str, asyncio.Task[_WatchedValue[Znode | None]]] = {}
        #: {path: the watches that follow the present value}; a watch that ended leaves
        self._followers: dict[str, WeakSet[asyncio.Event]] = {}
        self._paths: set[str] = set()

    def add(self, path: str) -> None:
        """From now on this node is shared."""
        self._paths.add(path)

    def __contains__(self, path: str) -> bool:
        return path in self._paths

    async def read(self, path: str, stale: asyncio.Event) -> "_WatchedValue[Znode | None]":
        """The node, current until `stale` is set."""
        reading = self._nodes.get(path)
        if reading is None or (reading.done() and (_failed(reading) or reading.result().fired)):
            reading = self._nodes[path] = asyncio.create_task(self._keep(path))
            self._followers[path] = WeakSet()
        self._followers.setdefault(path, WeakSet()).add(stale)
        # Shielded: the others wait for it, too.
        node = await asyncio.shield(reading)
        if node.fired:
            stale.set()  # it changed during the read, maybe before this watch followed it
        return node

    async def _keep(self, path: str) -> "_WatchedValue[Znode | None]":
        watch = _OneShot(partial(self._tell, path))
        return _WatchedValue(await self._session.read(path, fired=watch.fire), watch)

    def _tell(self, path: str) -> None:
        for stale in self._followers.pop(path, ()):
            stale.set()


def _failed(reading: "asyncio.Task[_WatchedValue[Znode | None]]") -> bool:
    return reading.cancelled() or reading.exception() is not None


async def _wait(stale: asyncio.Event, session: StoreSession) -> None:
    """Wait until the last result is stale. A change of the session's state counts, because its watches end with it.

    Raises StoreUnavailable once the session is closed: otherwise the same result would be returned for ever.
    """

    def note_change(_state: SessionState) -> None:
        stale.set()

    session.add_listener(note_change)
    try:
        if not session.closed:
            await stale.wait()
        if session.closed:
            raise StoreUnavailable("the session and its watches were closed")
    finally:
        session.remove_listener(note_change)


class _OneShot:
    """Remembers that a watch fired, even before the read that set it has returned to its caller."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self.fired = False

    def fire(self) -> None:
        self.fired = True
        self._tell()


class _WatchedValue(Generic[T]):
    """A value that is current until its watch fires."""

    def __init__(self, value: T, watch: _OneShot) -> None:
        self.value = value
        self._watch = watch

    @property
    def fired(self) -> bool:
        return self._watch.fired


class _WatchedRead(Protocol[T_co]):
    def __call__(self, path: str, *, fired: Fired | None) -> Awaitable[T_co]: ...
