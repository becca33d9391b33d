"""Retries: the first at once, then after 20 ms, growing by half to 1 s; jitter shortens each pause by up to a half."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from math import inf
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
#: After so long a call with a time limit says so, once: its error comes late.
LIMITED_TOLD_AFTER_S = 3.0


def session_backoff() -> Backoff:
    """The pauses of a producer session, for calls that have no session."""
    return Backoff(retry_pause_ms, forget_after_s=_QUIET_S)


class WaitingReport:
    """Warnings in the log about one call. what: it waits for. began_s: loop time. timeout_s: its time limit, if any."""

    def __init__(self, what: str, began_s: float, timeout_s: float | None = None) -> None:
        self._what = what
        self._ends_s = None if timeout_s is None else began_s + timeout_s
        self._told_again_s = began_s + (WAITING_TOLD_AFTER_S if timeout_s is None else LIMITED_TOLD_AFTER_S)

    def failed(self, error: OncelogError, now_s: float) -> None:
        """An attempt has failed at this loop time."""
        if now_s < self._told_again_s:
            return
        if self._ends_s is None:
            self._told_again_s = now_s + WAITING_TOLD_EVERY_S
            logger.warning("still waiting for %s: %s", self._what, error.message)
        else:
            self._told_again_s = inf
            left_s = self._ends_s - now_s
            logger.warning("still waiting for %s, for another %.0f s: %s", self._what, left_s, error.message)


async def persist(
    ask: Callable[[bool], Awaitable[ResultT]],
    *,
    timeout_ms: int | None,
    what: str,
    hopeless: Callable[[OncelogError], bool] = lambda _: False,
) -> ResultT:
    """Call `ask(again)` until it succeeds; again: whether this is a retry. what: the subject, for the error.

    timeout_ms: None: no limit. The log says what is waited for; see WaitingReport.

    Raises its first fatal error, or retriable one that is `hopeless`, or DeadlineExceeded with the last retriable one;
    LedgerUnavailable is raised itself.
    """
    backoff = session_backoff()
    trouble: BaseException | None = None
    now_s = asyncio.get_running_loop().time
    timeout_s = None if timeout_ms is None else timeout_ms / 1000
    report = WaitingReport(what, now_s(), timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    return await ask(trouble is not None)
                except OncelogError as error:
                    if not error.retriable or hopeless(error):
                        raise
                    trouble = error
                    report.failed(error, now_s())
                await backoff.pause()
    except TimeoutError as error:
        if isinstance(trouble, LedgerUnavailable):
            raise trouble from error
        raise DeadlineExceeded(f"{what}: no answer within {timeout_ms} ms: {trouble or error}") from trouble
