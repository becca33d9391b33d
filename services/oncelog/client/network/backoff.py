"""Retries: the first at once, then after 20 ms, growing by half to 1 s; jitter shortens each pause by up to a half."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from oncelog.core.errors import DeadlineExceeded, LedgerUnavailable, OncelogError
from oncelog.core.sdk.owner_attempts import retry_pause_ms
from oncelog.runtime.backoff import Backoff

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")
#: After this long without a failure, the pauses start again from the shortest.
_QUIET_S = 5.0
#: After so long without an answer a call without a time limit says what it waits for, and how often it says so again.
WAITING_TOLD_AFTER_S = 1.0
WAITING_TOLD_EVERY_S = 30.0


def session_backoff() -> Backoff:
    """The pauses of a producer session, for calls that have no session."""
    return Backoff(retry_pause_ms, forget_after_s=_QUIET_S)


class WaitingReport:
    """Warnings in the log about one call that has no time limit. what: it waits for. began_s: loop time."""

    def __init__(self, what: str, began_s: float) -> None:
        self._what = what
        self._told_again_s = began_s + WAITING_TOLD_AFTER_S

    def failed(self, error: OncelogError, now_s: float) -> None:
        """An attempt has failed at this loop time."""
        if now_s >= self._told_again_s:
            self._told_again_s = now_s + WAITING_TOLD_EVERY_S
            logger.warning("still waiting for %s: %s", self._what, error.message)


async def persist(
    ask: Callable[[bool], Awaitable[ResultT]],
    *,
    timeout_ms: int | None,
    what: str,
    hopeless: Callable[[OncelogError], bool] = lambda _: False,
) -> ResultT:
    """Call `ask(again)` until it succeeds; again: whether this is a retry. what: the subject, for the error.

    timeout_ms: None: no limit; then the log says what is waited for.

    Raises its first fatal error, or retriable one that is `hopeless`, or DeadlineExceeded with the last retriable one;
    LedgerUnavailable is raised itself.
    """
    backoff = session_backoff()
    trouble: BaseException | None = None
    now_s = asyncio.get_running_loop().time
    report = WaitingReport(what, now_s())
    try:
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            while True:
                try:
                    return await ask(trouble is not None)
                except OncelogError as error:
                    if not error.retriable or hopeless(error):
                        raise
                    trouble = error
                    if timeout_ms is None:
                        report.failed(error, now_s())
                await backoff.pause()
    except TimeoutError as error:
        if isinstance(trouble, LedgerUnavailable):
            raise trouble from error
        raise DeadlineExceeded(f"{what}: no answer within {timeout_ms} ms: {trouble or error}") from trouble
