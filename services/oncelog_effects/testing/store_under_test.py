"""A store while `prove` tries a function on it: how its state is read, emptied, kept and brought back."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from pathlib import Path
from typing import Any

from oncelog.core.errors import InvalidArgument
from oncelog_effects.store import EffectsStore

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


async def _result(value: Any) -> Any:
    return await value if isawaitable(value) else value


def statements(reset: str | Sequence[str]) -> Sequence[str]:
    return [reset] if isinstance(reset, str) else reset
