"""One run of the application's function: what it raises is told from what the store raises, and it ends in order."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from inspect import isawaitable
from typing import Any

from oncelog.core.errors import OncelogError


class FunctionFailedError(Exception):
    """The application's function raised; the cause is its error."""


def is_retriable(error: Exception) -> bool:
    """Whether the cluster says that a repetition helps: then the message is not to blame."""
    return isinstance(error, OncelogError) and error.retriable


def noted(call: Callable[[], Awaitable[None] | None], failed: list[Exception]) -> Awaitable[None] | None:
    """Call, and add what it raises to `failed`, too."""
    try:
        result = call()
    except Exception as error:
        failed.append(error)
        raise
    return _Noted(result, failed) if isawaitable(result) else None


class _Noted:
    """What an async function returned. A store that cannot await it closes it."""

    def __init__(self, result: Awaitable[None], failed: list[Exception]) -> None:
        self._result = result
        self._failed = failed

    def __await__(self) -> Generator[Any, None, None]:
        return self._awaited().__await__()

    async def _awaited(self) -> None:
        try:
            await self._result
        except Exception as error:
            self._failed.append(error)
            raise

    def close(self) -> None:
        if isinstance(self._result, Coroutine):
            self._result.close()


async def to_its_end(applying: Coroutine[Any, Any, None]) -> asyncio.CancelledError | None:
    """A transaction that is under way ends before a process that is asked to: what it commits is acknowledged. Returns
    the cancellation that came meanwhile; a second one ends the transaction."""
    task = asyncio.ensure_future(applying)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError as cancelled:
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
        if task.cancelled() or task.exception() is not None:
            raise
        return cancelled
    return None
