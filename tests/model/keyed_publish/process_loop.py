"""The event loop of one simulated process. It runs only when it is told to, so a crashed process is one that is not.

What a crash interrupts is kept until the run ends: a coroutine that is closed or collected would run its `finally`.
"""

import asyncio
import contextvars
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any


class ProcessLoop(asyncio.AbstractEventLoop):
    """now_ms: the clock of the run. problems: the exceptions that nobody caught."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[asyncio.TimerHandle] = []
        self.problems: list[str] = []

    def step(self) -> None:
        """Run everything that can run now. Timers that are due come first, in the order of their times."""
        due = sorted((timer for timer in self._timers if timer.when() <= self.time()), key=asyncio.TimerHandle.when)
        self._timers = [timer for timer in self._timers if timer not in due]
        self._ready.extend(due)
        events._set_running_loop(self)
        try:
            while self._ready:
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            events._set_running_loop(None)

    def start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Start a task from outside of the loop; it runs with the next step."""
        return asyncio.Task(work, loop=self)

    # --- what asyncio calls ---

    def time(self) -> float:
        return self._now_ms() / 1000

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        self._timers.append(timer)
        return timer

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **named: Any) -> "asyncio.Task[Any]":
        return asyncio.Task(coro, loop=self, **named)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.problems.append(repr(context.get("exception") or context["message"]))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is skipped when it is due."""
