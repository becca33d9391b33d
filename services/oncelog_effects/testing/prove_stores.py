"""The stores that `prove` knows: how their state is read, emptied, kept and brought back."""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from pathlib import Path
from typing import Any, cast

from oncelog.core.errors import InvalidArgument
from oncelog_effects.file_store import FileEffects
from oncelog_effects.store import EffectsStore
from oncelog_effects.testing.memory_effects import MemoryEffects

Restore = Callable[[], Awaitable[None] | None]


class StoreUnderTest:
    """By the functions that the test has given."""

    def __init__(self, effects: EffectsStore[Any], state: Any, reset: Any, backup: Callable[[], Any] | None) -> None:
        self.effects = effects
        self.loop = asyncio.get_running_loop()
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._state = state
        self._reset = reset
        self._backup = backup
        if state is None:
            raise InvalidArgument("say what the function has written: a statement or a function", field="state")
        if reset is None:
            raise InvalidArgument("say what empties it: statements or a function", field="reset")

    @property
    def is_restorable(self) -> bool:
        return self._backup is not None

    async def state(self) -> Any:
        return await _result(self._state())

    async def reset(self) -> None:
        await _result(self._reset())

    async def empty(self) -> None:
        """As a user does before a redo: what the function has written goes, the position stays."""
        await self.reset()

    async def backup(self) -> Restore:
        assert self._backup is not None
        restore: Restore = await _result(self._backup())
        return restore

    @property
    def directory(self) -> Path:
        """For copies, until `close`."""
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="oncelog-prove-")
        return Path(self._directory.name)

    async def close(self) -> None:
        if self._directory is not None:
            self._directory.cleanup()


class _OfMemory(StoreUnderTest):
    def __init__(self, effects: MemoryEffects, state: Any, reset: Any, backup: Any) -> None:
        super().__init__(
            effects, state or (lambda: dict(effects.data)), reset or (lambda: None), backup or effects.backup
        )
        self._memory = effects

    async def reset(self) -> None:
        self._memory.data.clear()
        await super().reset()


class _OfFile(StoreUnderTest):
    def __init__(self, effects: FileEffects, state: Any, reset: Any, backup: Any) -> None:
        self._path = effects.path_of(-1)
        super().__init__(effects, state or self._read, reset or (lambda: None), backup or self._copy)

    def _read(self) -> bytes:
        return self._path.read_bytes() if self._path.exists() else b""

    async def reset(self) -> None:
        for path in self._files():
            path.unlink(missing_ok=True)
        await super().reset()

    async def empty(self) -> None:
        self._path.write_bytes(b"")
        await super().reset()

    def _files(self) -> tuple[Path, Path]:
        return self._path, self._path.with_name(f"{self._path.name}.oncelog")

    def _copy(self) -> Restore:
        copies = [self.directory / path.name for path in self._files()]
        for path, copy in zip(self._files(), copies, strict=True):
            shutil.copy(path, copy)

        def restore() -> None:
            for path, copy in zip(self._files(), copies, strict=True):
                shutil.copy(copy, path)

        return restore


def under_test(effects: EffectsStore[Any], state: Any, reset: Any, backup: Callable[[], Any] | None) -> StoreUnderTest:
    """Raises InvalidArgument."""
    if isinstance(effects, MemoryEffects):
        return _OfMemory(effects, state, reset, backup)
    if isinstance(effects, FileEffects):
        return _OfFile(effects, state, reset, backup)
    if hasattr(effects, "tables"):
        from oncelog_effects.testing.prove_sql import OfSql

        return OfSql(cast("Any", effects), state, reset, backup)
    return StoreUnderTest(effects, state, reset, backup)


async def _result(value: Any) -> Any:
    return await value if isawaitable(value) else value


def statements(reset: str | Sequence[str]) -> Sequence[str]:
    return [reset] if isinstance(reset, str) else reset
