"""A lock whose users can see that others wait for it."""

import asyncio
from types import TracebackType


class FairLock:
    """`async with lock:` admits its users one at a time, in the order in which they asked.

    asyncio.Lock wakes its waiters in order, but `locked()` is False between its release and the first step of the next
    waiter. A caller that checked `locked()` just then would overtake the waiters; `taken` counts them.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        #: how many users hold the lock or wait for it
        self.taken = 0

    async def __aenter__(self) -> None:
        self.taken += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self.taken -= 1
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()
        self.taken -= 1
