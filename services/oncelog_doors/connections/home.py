"""What all connections of one listener share: their places, time, tasks, and the graceful end."""

import asyncio
from typing import Generic, Protocol, TypeVar

from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.connections.ports import Timers
from oncelog_doors.core.shared.admissions import Admissions


class Drained(Protocol):
    """A connection that is open."""

    def drain(self) -> None:
        """Take nothing more, and end when all that was taken is answered."""

    def fail(self, reason: str) -> None:
        """End the connection."""


C = TypeVar("C", bound=Drained)


class ConnectionHome(Generic[C]):
    """admissions: of all listeners of the process, or of this one."""

    def __init__(self, timers: Timers, admissions: Admissions | None = None) -> None:
        self.timers = timers
        self.admissions = admissions or Admissions()
        self.tasks = BackgroundTasks()
        #: {number: connection}, those that are open
        self.connections: dict[int, C] = {}
        self._connection_count = 0
        self._drained: asyncio.Future[None] | None = None

    def next_connection(self) -> int:
        self._connection_count += 1
        return self._connection_count

    def refused(self) -> None:
        """A connection was refused: it is counted."""

    def gone(self, number: int) -> None:
        """A connection is over."""
        self.connections.pop(number, None)
        if self._drained is not None and not self.connections and not self._drained.done():
            self._drained.set_result(None)

    async def drain(self, limit_ms: int) -> None:
        """End all connections, then the tasks. limit_ms: for answers that are not out."""
        self._drained = asyncio.get_running_loop().create_future()
        for connection in list(self.connections.values()):
            connection.drain()
        cancel = self.timers.at(self.timers.now_ms() + limit_ms, self._close_all)
        if self.connections:
            await self._drained
        cancel()
        await self.before_tasks_end()
        await self.tasks.close()

    async def before_tasks_end(self) -> None:
        """The connections are over."""

    def _close_all(self) -> None:
        for connection in list(self.connections.values()):
            connection.fail("the door ends")
