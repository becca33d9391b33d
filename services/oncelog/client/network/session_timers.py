"""The timers of one producer's or consumer's session."""

import asyncio
import random
from collections.abc import Callable

from oncelog.core.sdk.owner_attempts import SessionTimerFired, StartSessionTimer, TimerKey


class SessionTimers:
    """Timers end with their session: one of 30 seconds would keep a closed producer in memory for so long, and a
    program that opens a thousand producers a second would keep 30,000 of them.

    fired: called when a time is up.
    """

    def __init__(self, fired: Callable[[SessionTimerFired], None]) -> None:
        self._fired = fired
        self._running: dict[TimerKey, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._running)

    def start(self, effect: StartSessionTimer) -> None:
        share = random.uniform(0.5, 1.0) if effect.jitter else 1.0
        loop = asyncio.get_running_loop()
        self._running[effect.key] = loop.call_later(effect.after_ms * share / 1000, self._fire, effect.key)

    def _fire(self, key: TimerKey) -> None:
        self._running.pop(key, None)
        self._fired(SessionTimerFired(key))

    def cancel(self, key: TimerKey) -> None:
        """What this timer is for has happened."""
        timer = self._running.pop(key, None)
        if timer is not None:
            timer.cancel()

    def cancel_all(self) -> None:
        """The session is over."""
        for timer in self._running.values():
            timer.cancel()
        self._running.clear()
