"""Pauses between attempts: jittered, doubling, bounded; so that many who wait for one process do not come as one."""

import asyncio
import random

PAUSE_MS_MIN = 20
PAUSE_MS_MAX = 1_000


class Backoff:
    """One series of attempts."""

    def __init__(self) -> None:
        self._pause_ms: float = PAUSE_MS_MIN

    def next_pause_ms(self) -> float:
        """Between half and the whole of a pause that doubles each time."""
        pause_ms = self._pause_ms
        self._pause_ms = min(pause_ms * 2, PAUSE_MS_MAX)
        return pause_ms * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """There was progress."""
        self._pause_ms = PAUSE_MS_MIN

    async def pause(self) -> None:
        await asyncio.sleep(self.next_pause_ms() / 1000)
