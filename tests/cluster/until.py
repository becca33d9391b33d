"""The only function of the tests that waits: a condition with a deadline. No other file under tests/ may sleep.

A condition is asked again and again until what it returns is truthy; that result is handed on. At the deadline an
AssertionError names the condition, its last answer and what the caller waited for. What the condition raises passes:
a condition that may fail for a while says so itself, by catching the one error it expects.

What takes long is asked less and less often: a question over REST takes 10 ms of CPU, and the processes that are waited
for need it. `closely` is for what must not be missed by a moment, such as a kill.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")

#: The pause after a wait of t seconds is a twentieth of t, within these bounds.
_SHARE = 20
EVERY_MAX_S = 0.3


@overload
async def until(
    condition: Callable[[], Awaitable[T]],
    deadline_s: float,
    *,
    every_s: float = 0.02,
    closely: bool = False,
    waiting_for: str = "",
) -> T: ...


@overload
async def until(
    condition: Callable[[], T],
    deadline_s: float,
    *,
    every_s: float = 0.02,
    closely: bool = False,
    waiting_for: str = "",
) -> T: ...


async def until(
    condition: Callable[[], Awaitable[T] | T],
    deadline_s: float,
    *,
    every_s: float = 0.02,
    closely: bool = False,
    waiting_for: str = "",
) -> T:
    """Return the first truthy result of `condition`; an awaitable is awaited, within the same deadline.

    every_s: the first pauses; closely: all of them. Raises AssertionError `deadline_s` seconds from now.
    """
    answer: T | str = "no answer yet"
    deadline, began = asyncio.timeout(deadline_s), time.monotonic()
    try:
        async with deadline:
            while True:
                result = condition()
                answer = await result if inspect.isawaitable(result) else result
                if answer:
                    return answer
                await asyncio.sleep(pause_s(time.monotonic() - began, every_s, closely=closely))
    except TimeoutError:
        if not deadline.expired():
            raise
    raise AssertionError(_story(condition, deadline_s, answer, waiting_for))


def until_sync(
    condition: Callable[[], T],
    deadline_s: float,
    *,
    every_s: float = 0.02,
    closely: bool = False,
    waiting_for: str = "",
) -> T:
    """The same for tests without an event loop; the condition must bound its own calls."""
    began = time.monotonic()
    ends_at = began + deadline_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= ends_at:
            raise AssertionError(_story(condition, deadline_s, answer, waiting_for))
        time.sleep(pause_s(time.monotonic() - began, every_s, closely=closely))


def pause_s(waited_s: float, every_s: float, *, closely: bool) -> float:
    """The pause before the next question; none if the condition is asked in each turn of the loop."""
    return every_s if closely or not every_s else max(every_s, min(EVERY_MAX_S, waited_s / _SHARE))


async def yield_to_loop() -> None:
    """Let the other tasks of the event loop run once, as a call over the network does."""
    await asyncio.sleep(0)


def _story(condition: Callable[[], object], deadline_s: float, answer: object, waiting_for: str) -> str:
    code = getattr(condition, "__code__", None)
    place = f"{code.co_filename}:{code.co_firstlineno}" if code else ""
    name = getattr(condition, "__qualname__", repr(condition))
    return f"not within {deadline_s} s: {waiting_for or name} ({name} {place}); last answer: {answer!r:.500}"
