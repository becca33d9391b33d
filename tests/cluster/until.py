"""The only function of the tests that waits: a condition with a deadline. No other file under tests/ may sleep.

A condition is asked again and again until what it returns is truthy; that result is handed on. At the deadline an
AssertionError names the condition, its last answer and what the caller waited for. What the condition raises passes:
a condition that may fail for a while says so itself, by catching the one error it expects.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")


@overload
async def until(
    condition: Callable[[], Awaitable[T]], deadline_s: float, *, every_s: float = 0.02, waiting_for: str = ""
) -> T: ...


@overload
async def until(
    condition: Callable[[], T], deadline_s: float, *, every_s: float = 0.02, waiting_for: str = ""
) -> T: ...


async def until(
    condition: Callable[[], Awaitable[T] | T], deadline_s: float, *, every_s: float = 0.02, waiting_for: str = ""
) -> T:
    """Return the first truthy result of `condition`; an awaitable is awaited, within the same deadline.

    Raises AssertionError `deadline_s` seconds from now.
    """
    answer: T | str = "no answer yet"
    deadline = asyncio.timeout(deadline_s)
    try:
        async with deadline:
            while True:
                result = condition()
                answer = await result if inspect.isawaitable(result) else result
                if answer:
                    return answer
                await asyncio.sleep(every_s)
    except TimeoutError:
        if not deadline.expired():
            raise
    raise AssertionError(_story(condition, deadline_s, answer, waiting_for))


def until_sync(condition: Callable[[], T], deadline_s: float, *, every_s: float = 0.02, waiting_for: str = "") -> T:
    """The same for tests without an event loop; the condition must bound its own calls."""
    ends_at = time.monotonic() + deadline_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= ends_at:
            raise AssertionError(_story(condition, deadline_s, answer, waiting_for))
        time.sleep(every_s)


async def yield_to_loop() -> None:
    """Let the other tasks of the event loop run once, as a call over the network does."""
    await asyncio.sleep(0)


def _story(condition: Callable[[], object], deadline_s: float, answer: object, waiting_for: str) -> str:
    code = getattr(condition, "__code__", None)
    place = f"{code.co_filename}:{code.co_firstlineno}" if code else ""
    name = getattr(condition, "__qualname__", repr(condition))
    return f"not within {deadline_s} s: {waiting_for or name} ({name} {place}); last answer: {answer!r:.500}"
