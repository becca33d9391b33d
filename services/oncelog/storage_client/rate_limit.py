"""Limits the bytes per second of what work in the background reads: a token bucket."""

import asyncio
from collections.abc import Callable

#: Bytes that may be taken at once after a pause, in seconds of the rate.
BURST_S = 1.0


class RateLimit:
    """The limit of one kind of work of a process."""

    def __init__(self, bytes_per_s: int, *, now_s: Callable[[], float]) -> None:
        """now_s: a monotonic clock."""
        self._rate = bytes_per_s
        self._now_s = now_s
        #: when everything taken so far is paid for
        self._paid_s = now_s() - BURST_S

    def take(self, count: int) -> float:
        """Take `count` bytes; returns the seconds to wait before they are used. More than a burst may be taken."""
        now_s = self._now_s()
        self._paid_s = max(self._paid_s, now_s - BURST_S) + count / self._rate
        return max(0.0, self._paid_s - now_s)

    async def wait(self, count: int) -> None:
        """Take `count` bytes, and return when they may be used."""
        pause_s = self.take(count)
        if pause_s > 0:
            await asyncio.sleep(pause_s)
