"""The timers of a session end with it."""

import asyncio
import gc
import weakref

import pytest

from oncelog.client.network.session_driver import SessionTimers
from oncelog.core.sdk.owner_attempts import SessionTimerFired, StartSessionTimer, TimerKey, TimerKind

pytestmark = pytest.mark.asyncio


def key(number: int) -> TimerKey:
    return TimerKey(TimerKind.SEND, number)


async def test_timer_fires_once() -> None:
    """And is forgotten."""
    fired: asyncio.Queue[SessionTimerFired] = asyncio.Queue()
    timers = SessionTimers(fired.put_nowait)
    timers.start(StartSessionTimer(key(1), 1, jitter=True))
    timers.start(StartSessionTimer(key(2), 60_000))
    assert await asyncio.wait_for(fired.get(), 30) == SessionTimerFired(key(1))
    assert len(timers) == 1


async def test_what_is_over_has_no_timer() -> None:
    """A deadline of a minute must not outlive the answer, nor the session."""
    timers = SessionTimers(lambda _: None)
    for number in range(3):
        timers.start(StartSessionTimer(key(number), 60_000))
    timers.cancel(key(1))
    timers.cancel(key(7))
    assert len(timers) == 2
    timers.cancel_all()
    assert len(timers) == 0


async def test_closed_session_is_not_kept_by_its_timers() -> None:
    """A program that opens a thousand producers a second kept 30,000 closed ones."""

    class Session:
        def __init__(self) -> None:
            self.timers = SessionTimers(self.fired)

        def fired(self, _event: SessionTimerFired) -> None: ...

    session = Session()
    session.timers.start(StartSessionTimer(key(1), 60_000))
    session.timers.cancel_all()
    kept = weakref.ref(session)
    del session
    gc.collect()
    assert kept() is None
