"""Retries: the first at once, then after 20 ms, growing by half to 1 s; jitter shortens each pause by up to a half."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from oncelog.core.errors import DeadlineExceeded, LedgerUnavailable, OncelogError
from oncelog.core.sdk.owner_attempts import retry_pause_ms
from oncelog.runtime.backoff import Backoff

ResultT = TypeVar("ResultT")
#: After this long without a failure, the pauses start again from the shortest.
_QUIET_S = 5.0


def session_backoff() -> Backoff:
    """The pauses of a producer session, for calls that have no session."""
    return Backoff(retry_pause_ms, forget_after_s=_QUIET_S)


async def persist(
    ask: Callable[[bool], Awaitable[ResultT]],
    *,
    timeout_ms: int | None,
    what: str,
    hopeless: Callable[[OncelogError], bool] = lambda _: False,
) -> ResultT:
    """Call `ask(again)` until it succeeds; again: whether this is a retry. what: the subject, for the error.

    Raises its first fatal error, or retriable one that is `hopeless`, or DeadlineExceeded with the last retriable one;
    LedgerUnavailable is raised itself.
    """
    backoff = session_backoff()
    trouble: BaseException | None = None
    try:
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            while True:
                try:
                    return await ask(trouble is not None)
                except OncelogError as error:
                    if not error.retriable or hopeless(error):
                        raise
                    trouble = error
                await backoff.pause()
    except TimeoutError as error:
        if isinstance(trouble, LedgerUnavailable):
            raise trouble from error
        raise DeadlineExceeded(f"{what}: no answer within {timeout_ms} ms: {trouble or error}") from trouble
