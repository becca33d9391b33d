"""The one way to wait in the lab: check a condition again and again, up to a deadline."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, TypeVar, overload

from oncelog_lab.failures import LabFailed

T = TypeVar("T")
CHECK_EVERY_S = 0.05


@overload
async def until(
    condition: Callable[[], Awaitable[T | None]], deadline_s: float, what: str, *, every_s: float = CHECK_EVERY_S
) -> T: ...


@overload
async def until(
    condition: Callable[[], bool], deadline_s: float, what: str, *, every_s: float = CHECK_EVERY_S
) -> bool: ...


async def until(condition: Callable[[], Any], deadline_s: float, what: str, *, every_s: float = CHECK_EVERY_S) -> Any:
    """Return the first true result of the condition. `what` names the awaited event in the error. Raises LabFailed."""
    ends_at = time.monotonic() + deadline_s
    while True:
        result = condition()
        if isawaitable(result):
            result = await result
        if result:
            return result
        if time.monotonic() > ends_at:
            raise LabFailed(f"timeout after {deadline_s:.0f} s: {what}")
        await asyncio.sleep(every_s)
