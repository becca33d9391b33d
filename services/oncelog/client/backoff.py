"""Pauses between tries: none before the first, then from 20 ms growing by half to 1 s, each drawn from its half up."""

import asyncio
import random

from oncelog.core.session_opening import RETRY_GROWTH, RETRY_MS_MAX, RETRY_MS_MIN

#: Failures further apart than this have nothing to do with each other.
_QUIET_S = 5.0


class Backoff:
    """The pauses of a producer session, for whatever has no session."""

    def __init__(self) -> None:
        self._failures = 0
        self._last_failure_s = float("-inf")

    async def pause(self) -> None:
        """Called after each failure."""
        now_s = asyncio.get_running_loop().time()
        failures = self._failures if now_s - self._last_failure_s < _QUIET_S else 0
        self._failures = failures + 1
        if failures:
            pause_ms = min(RETRY_MS_MAX, RETRY_MS_MIN * RETRY_GROWTH ** min(failures - 1, 20))
            await asyncio.sleep(random.uniform(0.5, 1.0) * pause_ms / 1000)
        self._last_failure_s = asyncio.get_running_loop().time()
