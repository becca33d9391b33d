"""What every door needs of the cluster and of time."""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from oncelog.core.access import Caller


class ProvedCaller(NamedTuple):
    """Whose token it is. ends_in_ms: how long the token is still valid; None: for ever."""

    caller: Caller
    ends_in_ms: int | None = None


class Timers(Protocol):
    """Time, for a shell that decides nothing by it."""

    def now_ms(self) -> int:
        """It never goes back."""

    def wall_ms(self) -> int:
        """Since 1970."""

    def at(self, when_ms: int, call: Callable[[], None]) -> Callable[[], None]:
        """Call a function then. Returns a function that cancels it."""


class LoopTimers:
    """Those of the running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def at(self, when_ms: int, call: Callable[[], None]) -> Callable[[], None]:
        # A timer that fires a moment too early would be set again and again.
        return self._loop.call_at((when_ms + 1) / 1000, call).cancel
