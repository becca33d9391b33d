"""How far a topic's readers may go, and waiting for the topic to go further, to serve, or to end."""

import asyncio
import time
from collections.abc import Callable

from oncelog.core.errors import LedgerUnavailable, NotOwner, Retriable
from oncelog.core.ids import BEFORE_ALL, LedgerId, Position
from oncelog.core.topic.topic import Phase, Topic
from oncelog.core.topic.wait_reasons import WaitReasons
from oncelog.storage_client.reader import missing_entries

#: A reader asks again every few seconds. What no reader reported for so long is not shown any more.
_SHOWN_FOR_S = 60.0
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


class UnavailableEntries:
    """What readers could not get because no live storage node has it, for statistics. clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: {ledger: (the newest error, when it came)}
        self._errors: dict[int, tuple[LedgerUnavailable, float]] = {}

    def failed(self, error: LedgerUnavailable) -> None:
        """A reader could not get these entries."""
        ledger_id = error.details.get("ledger_id")
        if isinstance(ledger_id, int):
            self._errors[ledger_id] = (error, self._clock())

    def answered(self, ledger_id: LedgerId) -> None:
        """A storage node gave entries of this ledger."""
        self._errors.pop(ledger_id, None)

    def as_json(self) -> list[dict[str, object]]:
        """ledger_id, first, last, and the storage nodes that are waited for."""
        since_s = self._clock() - _SHOWN_FOR_S
        self._errors = {ledger_id: each for ledger_id, each in self._errors.items() if each[1] >= since_s}
        shown = []
        for ledger_id, (error, _) in sorted(self._errors.items()):
            first, last, waiting_for = missing_entries(error)
            shown.append({"ledger_id": ledger_id, "first": first, "last": last, "waiting_for": list(waiting_for)})
        return shown
