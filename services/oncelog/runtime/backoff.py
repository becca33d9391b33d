"""Pauses between the attempts of one series: jittered, growing and bounded.

The jitter spreads out the many processes that wait for the same peer.
"""

import asyncio
import random
from collections.abc import Callable

PAUSE_MS_MIN = 20
PAUSE_MS_MAX = 1_000


def doubling_pause_ms(failures: int) -> int:
    """The pause after `failures` in a row, without jitter: from 20 ms, doubling up to a second."""
    return min(PAUSE_MS_MIN << min(failures - 1, 20), PAUSE_MS_MAX)


class Backoff:
    """One series of attempts.

    pause_ms: the pause after that many failures in a row, without jitter. forget_after_s: a failure that comes so long
    after the last pause begins the count anew.
    """

    def __init__(
        self, pause_ms: Callable[[int], int] = doubling_pause_ms, *, forget_after_s: float = float("inf")
    ) -> None:
        self._pause_ms = pause_ms
        self._forget_after_s = forget_after_s
        self._failures = 0
        self._last_failure_s = float("-inf")

    def reset(self) -> None:
        """Forget the failures: there was progress."""
        self._failures = 0

    async def pause(self) -> None:
        """Sleep after one more failure: between half of its pause and the whole."""
        now_s = asyncio.get_running_loop().time
        if now_s() - self._last_failure_s >= self._forget_after_s:
            self._failures = 0
        self._failures += 1
        await asyncio.sleep(random.uniform(0.5, 1.0) * self._pause_ms(self._failures) / 1000)
        self._last_failure_s = now_s()
