"""How far a topic's readers may go, and waiting for the topic to go further, to serve, or to end."""

import asyncio
import time

from oncelog.core.errors import NotOwner, Retriable
from oncelog.core.ids import BEFORE_ALL, Position
from oncelog.core.topic.topic import Phase, Topic
from oncelog.core.topic.wait_reasons import WaitReasons
from oncelog.topic_owner.shell.unavailable_entries import UnavailableEntries

_ENDED = (Phase.DEPOSED, Phase.CLOSED)


class TopicProgress:
    """Written by the topic's runner; read by readers and by unload requests."""

    def __init__(self, core: Topic) -> None:
        self._core = core
        #: the last position that is confirmed
        self.confirmed: Position = BEFORE_ALL
        #: when it last moved, ns
        self.moved_ns = 0
        #: when the event being handled was posted, ns
        self.event_ns = 0
        self._waiting: list[asyncio.Future[None]] = []
        #: why the topic is not served
        self.wait_reasons = WaitReasons(core)
        #: what no live storage node gives to readers
        self.unavailable = UnavailableEntries()
        #: why readers must not wait here for the next entries
        self._doubt: NotOwner | None = None

    @property
    def ended(self) -> bool:
        return self._core.phase in _ENDED

    @property
    def waiting_count(self) -> int:
        """The number of tasks that wait for a change."""
        return len(self._waiting)

    def moved(self, confirmed: Position) -> None:
        self.confirmed = confirmed
        self.moved_ns = time.time_ns()
        self.changed()

    def changed(self) -> None:
        """Wake all tasks that wait for a change."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def doubt(self, reason: NotOwner) -> None:
        """A newer owner may exist: readers that wait for the log to grow must look the topic up again."""
        self._doubt = reason
        self.changed()

    def trust(self) -> None:
        """This owner has proved that it is the current one."""
        self._doubt = None

    async def until_serving(self) -> None:
        """Raises NotOwner once this process has lost the topic, TopicNotFound once it was deleted."""
        while self._core.phase is not Phase.SERVING:
            self._require_owned()
            await self._change()

    async def until_after(self, position: Position) -> None:
        """Wait until an entry after `position` is confirmed. Raises as `until_serving`, and the error of `doubt`."""
        while self.confirmed <= position or self._core.phase is not Phase.SERVING:
            self._require_owned()
            if self._doubt is not None:
                raise self._doubt
            await self._change()

    async def until_ended(self) -> None:
        """Wait until the topic is closed or lost."""
        while not self.ended:
            await self._change()

    def not_served(self) -> Retriable:
        """The error for a request that cannot be answered because the topic is not served."""
        return self.wait_reasons.error(time.time_ns() // 1_000_000)

    def _require_owned(self) -> None:
        if self.ended:
            raise self._core.ownership.lost("look it up again")

    async def _change(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        finally:
            if waiter.cancelled():
                # On a quiet topic nothing changes, so the waiters of disconnected readers would pile up here.
                self._waiting = [other for other in self._waiting if other is not waiter]
