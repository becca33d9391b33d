"""Who may hand messages over now: first come, first served, and nobody slips in between two turns."""

import asyncio
from types import TracebackType


class Turn:
    """`async with turn:` waits for one's turn.

    asyncio.Lock wakes its waiters in order, but looks free from the moment of its release until the first of them
    runs: whoever asked `locked()` just then went ahead of those who waited.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._count = 0

    @property
    def taken(self) -> bool:
        """Whether somebody has the turn, or waits for it."""
        return self._count > 0

    async def __aenter__(self) -> None:
        self._count += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._count -= 1
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()
        self._count -= 1
