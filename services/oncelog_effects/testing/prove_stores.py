"""The stores that `prove` knows: for each of them a `StoreUnderTest`."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from oncelog_effects.file_store import FileEffects
from oncelog_effects.store import EffectsStore
from oncelog_effects.testing.memory_effects import MemoryEffects
from oncelog_effects.testing.store_under_test import Restore, StoreUnderTest


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
