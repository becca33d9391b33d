"""Databases for `prove`: statements as state and reset, and copies of a file of SQLite."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncelog_effects.sql_store import SqlEffects
from oncelog_effects.testing.store_under_test import Restore, StoreUnderTest, statements


class OfSql(StoreUnderTest):
    def __init__(self, effects: SqlEffects[Any], state: Any, reset: Any, backup: Callable[[], Any] | None) -> None:
        self._engine: Engine | AsyncEngine = effects.engine
        path = self._engine.url.database if self._engine.dialect.name == "sqlite" else None
        self._file = Path(path) if path and path != ":memory:" else None
        super().__init__(
            effects,
            (lambda: self._rows(state)) if isinstance(state, str) else state,
            reset if callable(reset) or reset is None else lambda: self._performed(statements(reset)),
            backup or (self._copy if self._file is not None else None),
        )

    async def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        return await self._in_transaction(
            lambda connection: [tuple(row) for row in connection.execute(text(statement))]
        )

    async def _performed(self, texts: Sequence[str]) -> None:
        def perform(connection: Connection) -> list[tuple[Any, ...]]:
            for each in texts:
                connection.execute(text(each))
            return []

        await self._in_transaction(perform)

    async def _in_transaction(self, work: Callable[[Connection], list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        if isinstance(self._engine, AsyncEngine):
            async with self._engine.begin() as connection:
                return await connection.run_sync(work)
        with self._engine.begin() as connection:
            return work(connection)

    async def _dispose(self) -> None:
        """Connections would keep what they know of the file."""
        if isinstance(self._engine, AsyncEngine):
            await self._engine.dispose()
        else:
            self._engine.dispose()

    async def _copy(self) -> Restore:
        assert self._file is not None
        await self._dispose()
        file, copy = self._file, self.directory / "copy"
        shutil.copy(file, copy)

        async def restore() -> None:
            await self._dispose()
            for suffix in ("-wal", "-shm", "-journal"):
                file.with_name(f"{file.name}{suffix}").unlink(missing_ok=True)
            shutil.copy(copy, file)

        return restore

    async def close(self) -> None:
        await super().close()
        await self._dispose()
