"""A view of a session with another root: the records of one era. The connection, its state and its end are shared."""

from collections.abc import Sequence
from dataclasses import replace

from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import (
    Fired,
    SessionState,
    StateListener,
    Step,
    StoreSession,
    WriteResult,
    Znode,
)


class RootedSession:
    """A StoreSession. root: below that of `base`, such as "/era-2". What belongs to no era stays below the root of
    `base` (`paths.of_no_era`)."""

    def __init__(self, base: StoreSession, root: str) -> None:
        self._base = base
        self._root = root

    def _full(self, path: str) -> str:
        return path if paths.of_no_era(path) else self._root + path

    def below(self, root: str) -> StoreSession:
        return self._base.below(self._root + root)

    @property
    def state(self) -> SessionState:
        return self._base.state

    @property
    def session_id(self) -> int | None:
        return self._base.session_id

    @property
    def closed(self) -> bool:
        return self._base.closed

    def add_listener(self, listener: StateListener) -> None:
        self._base.add_listener(listener)

    def remove_listener(self, listener: StateListener) -> None:
        self._base.remove_listener(listener)

    async def read(self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None) -> Znode | None:
        return await self._base.read(self._full(path), fired=fired, timeout_ms=timeout_ms)

    async def read_unsynced(self, path: str, *, timeout_ms: int | None = None) -> Znode | None:
        return await self._base.read_unsynced(self._full(path), timeout_ms=timeout_ms)

    async def children(self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None) -> list[str]:
        return await self._base.children(self._full(path), fired=fired, timeout_ms=timeout_ms)

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, timeout_ms: int | None = None
    ) -> WriteStatus:
        return await self._base.create(self._full(path), data, ephemeral=ephemeral, timeout_ms=timeout_ms)

    async def create_sequential(
        self, path: str, data: bytes, *, timeout_ms: int | None = None
    ) -> tuple[WriteStatus, str | None]:
        status, created = await self._base.create_sequential(self._full(path), data, timeout_ms=timeout_ms)
        return status, None if created is None else created.removeprefix(self._root)

    async def write(self, path: str, data: bytes, *, version: int, timeout_ms: int | None = None) -> WriteResult:
        return await self._base.write(self._full(path), data, version=version, timeout_ms=timeout_ms)

    async def delete(self, path: str, *, version: int, timeout_ms: int | None = None) -> WriteStatus:
        return await self._base.delete(self._full(path), version=version, timeout_ms=timeout_ms)

    async def transact(self, steps: Sequence[Step], *, timeout_ms: int | None = None) -> WriteStatus:
        rooted = [replace(step, path=self._full(step.path)) for step in steps]
        return await self._base.transact(rooted, timeout_ms=timeout_ms)

    async def ensure_path(self, path: str, *, timeout_ms: int | None = None) -> None:
        await self._base.ensure_path(self._full(path), timeout_ms=timeout_ms)

    async def note(self, records: Sequence[str], *, deleted: bool = False) -> None:
        await self._base.note([self._full(path) for path in records], deleted=deleted)

    async def close(self) -> None:
        await self._base.close()
