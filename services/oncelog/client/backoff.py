"""Trying again: at once the first time, then after 20 ms growing by half to 1 s, each pause drawn from its half up."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from oncelog.core.errors import DeadlineExceeded, OncelogError
from oncelog.core.producer.opening import retry_pause_ms
from oncelog.runtime.backoff import Backoff

ResultT = TypeVar("ResultT")
#: Failures further apart than this have nothing to do with each other.
_QUIET_S = 5.0


def session_backoff() -> Backoff:
    """The pauses of a producer session, for calls that have no session."""
    return Backoff(retry_pause_ms, forget_after_s=_QUIET_S)


async def persist(ask: Callable[[bool], Awaitable[ResultT]], *, timeout_ms: int | None, what: str) -> ResultT:
    """What `ask` returns, however often it takes; it is told whether it was asked before.

    Raises its fatal error, or DeadlineExceeded with the last retriable one.
    """
    backoff = session_backoff()
    trouble: BaseException | None = None
    try:
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            while True:
                try:
                    return await ask(trouble is not None)
                except OncelogError as error:
                    if not error.retriable:
                        raise
                    trouble = error
                await backoff.pause()
    except TimeoutError as error:
        raise DeadlineExceeded(f"{what}: no answer in time: {trouble or error}") from trouble
