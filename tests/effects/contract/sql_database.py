"""A database of an application, by a synchronous engine or an asynchronous one."""

from collections.abc import Awaitable, Callable
from typing import Any

from sqlalchemy import Connection, Engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncelog_effects.sql_store import SqlEffects


class Database:
    def __init__(self, engine: Engine | AsyncEngine) -> None:
        self.engine = engine

    @property
    def is_postgres(self) -> bool:
        return self.engine.dialect.name == "postgresql"

    @property
    def is_async(self) -> bool:
        return isinstance(self.engine, AsyncEngine)

    def effects(self, **settings: Any) -> SqlEffects[Any]:
        return SqlEffects(self.engine, **settings)

    async def close(self) -> None:
        if isinstance(self.engine, AsyncEngine):
            await self.engine.dispose()
        else:
            self.engine.dispose()

    async def run(self, statement: str) -> list[tuple[Any, ...]]:
        """In a transaction of its own; the rows, if it gives any."""
        if isinstance(self.engine, AsyncEngine):
            async with self.engine.begin() as connection:
                result = await connection.execute(text(statement))
                return [tuple(row) for row in result] if result.returns_rows else []
        with self.engine.begin() as connection:
            result = connection.execute(text(statement))
            return [tuple(row) for row in result] if result.returns_rows else []

    def function(self, *statements: str) -> Callable[[Any], Awaitable[None] | None]:
        """A function of an application that performs these."""

        async def perform_async(connection: AsyncConnection) -> None:
            for statement in statements:
                await connection.execute(text(statement))

        def perform(connection: Connection) -> None:
            for statement in statements:
                connection.execute(text(statement))

        return perform_async if isinstance(self.engine, AsyncEngine) else perform

    async def invoices(self) -> list[int]:
        return [row[0] for row in await self.run("SELECT id FROM invoices ORDER BY id")]
