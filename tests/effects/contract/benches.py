"""Stores of effects as a test uses them: each with an application whose effects are numbers, kept in order."""

import asyncio
import shutil
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import redis
import redis.asyncio

from oncelog_effects.file_store import FileAppend, FileEffects
from oncelog_effects.redis_commands import EffectPipeline
from oncelog_effects.redis_store import RedisEffects
from oncelog_effects.store import EffectsStore
from oncelog_effects.testing.memory_effects import MemoryEffects
from tests.cluster.kills import idle
from tests.contract.stores.redis_process import RedisProcess
from tests.effects.contract.sql_database import Database

Function = Callable[[Any], Awaitable[None] | None]


class Refused(Exception):
    """What an application's function raises."""


@dataclass
class Pause:
    """Where a function stops, until the test lets it go on."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: threading.Event = field(default_factory=threading.Event)


class Bench(Protocol):
    def effects(self) -> EffectsStore[Any]:
        """The store, as another process sees it."""

    def function(self, *numbers: int, error: Exception | None = None, pause: Pause | None = None) -> Function:
        """Of an application: it writes the numbers; then it stops, or raises."""

    async def numbers(self) -> list[int]:
        """What was written and is there."""

    async def backup(self) -> Callable[[], Awaitable[None]]:
        """Returns what restores the store and the application's data to now."""

    async def close(self) -> None: ...


def _then(error: Exception | None, pause: Pause | None, loop: asyncio.AbstractEventLoop) -> None:
    """Called by a function that is not `async`, in its thread."""
    if pause is not None:
        loop.call_soon_threadsafe(pause.reached.set)
        pause.go_on.wait(30)
    if error is not None:
        raise error


class SqlBench:
    def __init__(self, database: Database) -> None:
        self.database = database

    def effects(self) -> EffectsStore[Any]:
        return self.database.effects()

    def function(self, *numbers: int, error: Exception | None = None, pause: Pause | None = None) -> Function:
        values = ", ".join(f"({number})" for number in numbers)
        write = self.database.function(*([f"INSERT INTO invoices VALUES {values}"] if numbers else []))
        loop = asyncio.get_running_loop()

        async def run_async(connection: Any) -> None:
            written = write(connection)
            assert written is not None
            await written
            await asyncio.to_thread(_then, error, pause, loop)

        def run(connection: Any) -> None:
            write(connection)
            _then(error, pause, loop)

        return run_async if self.database.is_async else run

    async def numbers(self) -> list[int]:
        return await self.database.invoices()

    async def backup(self) -> Callable[[], Awaitable[None]]:
        tables = ("invoices", "oncelog_effects", "oncelog_effects_meta")
        for table in tables:
            await self.database.run(f"CREATE TABLE backup_{table} AS SELECT * FROM {table}")

        async def restore() -> None:
            for table in tables:
                await self.database.run(f"DELETE FROM {table}")
                await self.database.run(f"INSERT INTO {table} SELECT * FROM backup_{table}")

        return restore

    async def close(self) -> None:
        await self.database.close()


class FileBench:
    def __init__(self, directory: Path) -> None:
        self.path = directory / "numbers-{partition}"
        self.directory = directory

    def effects(self) -> EffectsStore[Any]:
        return FileEffects(self.path)

    def function(self, *numbers: int, error: Exception | None = None, pause: Pause | None = None) -> Function:
        loop = asyncio.get_running_loop()

        def run(append: FileAppend) -> None:
            for number in numbers:
                print(number, file=append)
            _then(error, pause, loop)

        return run

    async def numbers(self) -> list[int]:
        found = self.directory / "numbers-all"
        return [int(line) for line in found.read_text().splitlines()] if found.exists() else []

    async def backup(self) -> Callable[[], Awaitable[None]]:
        saved = self.directory.with_name("backup")
        shutil.copytree(self.directory, saved)

        async def restore() -> None:
            shutil.rmtree(self.directory)
            shutil.copytree(saved, self.directory)

        return restore

    async def close(self) -> None:
        """Only what is its own may be beside the files."""
        assert {path.suffix for path in self.directory.iterdir()} <= {"", ".oncelog", ".lock", ".id"}


class RedisBench:
    def __init__(self, server: RedisProcess, *, is_async: bool) -> None:
        self.server = server
        self.client: Any = (redis.asyncio.Redis if is_async else redis.Redis)(port=server.port)
        self._is_async = is_async

    def effects(self) -> RedisEffects:
        return RedisEffects(self.client)

    def function(self, *numbers: int, error: Exception | None = None, pause: Pause | None = None) -> Function:
        loop = asyncio.get_running_loop()

        def run(pipe: EffectPipeline) -> None:
            for number in numbers:
                pipe.rpush("numbers", number)
            _then(error, pause, loop)

        return run

    async def run(self, *words: Any) -> Any:
        """A command."""
        if self._is_async:
            return await self.client.execute_command(*words)
        return self.client.execute_command(*words)

    async def numbers(self) -> list[int]:
        return [int(each) for each in await self.run("LRANGE", "numbers", 0, -1)]

    async def backup(self) -> Callable[[], Awaitable[None]]:
        """As an operator makes it: a copy of the append-only file."""
        directory, saved = self.server.directory / "appendonlydir", self.server.directory / "backup"
        shutil.copytree(directory, saved)

        async def restore() -> None:
            self.server.kill(once=idle)
            shutil.rmtree(directory)
            shutil.copytree(saved, directory)
            self.server.start()

        return restore

    async def close(self) -> None:
        if self._is_async:
            await self.client.aclose()
        else:
            self.client.close()


class MemoryBench:
    def __init__(self) -> None:
        self._effects = MemoryEffects()

    def effects(self) -> EffectsStore[Any]:
        return self._effects

    def function(self, *numbers: int, error: Exception | None = None, pause: Pause | None = None) -> Function:
        loop = asyncio.get_running_loop()

        def run(data: dict[str, Any]) -> None:
            data.setdefault("numbers", []).extend(numbers)
            _then(error, pause, loop)

        return run

    async def numbers(self) -> list[int]:
        return list(self._effects.data.get("numbers", ()))

    async def backup(self) -> Callable[[], Awaitable[None]]:
        return self._effects.backup()

    async def close(self) -> None:
        pass
