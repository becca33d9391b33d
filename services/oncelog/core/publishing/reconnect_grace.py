"""Names whose holders have lost their session and may still come back.

    a takeover        all names in the log, because the new owner does not know which producers were connected
    a failed write    the names whose sessions it ended

While a holder may come back, a request that fences no other instance waits instead of taking the name. The wait ends
when the holder comes back, or for all names when a timer fires. The timer starts when the topic serves again.
"""

from collections.abc import Iterable

from oncelog.core.ids import OwnerEpoch, ProducerId

#: Prefix of the timer's keys.
RETURN_TIMER = "return"


class ReconnectGrace:
    """For the time between a takeover and its end."""

    def __init__(self, owner_epoch: OwnerEpoch, *, names_known: bool) -> None:
        """names_known: the log that was taken over names producers."""
        self._owner_epoch = owner_epoch
        self._all_awaited = names_known
        #: producers that came back after the takeover, while all others are awaited
        self._back: dict[ProducerId, None] = {}
        #: producers whose sessions a failed write ended, and that have not come back
        self._awaited: dict[ProducerId, None] = {}
        #: key of the running timer
        self._timer: str | None = None
        self._came_back = False

    def ended(self, producer_ids: Iterable[ProducerId]) -> None:
        """A failed write ended the sessions of these producers."""
        for pid in producer_ids:
            self._awaited[pid] = None
            self._back.pop(pid, None)
        self._timer = None

    def serves(self, now_ms: int) -> str | None:
        """The topic takes batches. Returns the key of the timer to start, None when no further holder is awaited.

        now_ms only distinguishes the timers.
        """
        if self._timer is not None or not (self._all_awaited or self._awaited):
            return None
        self._timer = f"{RETURN_TIMER} {self._owner_epoch}.{now_ms}"
        return self._timer

    def over(self, key: str) -> bool:
        """A timer fired. Returns whether the wait is over."""
        if key != self._timer:
            return False
        self._all_awaited, self._timer = False, None
        self._back.clear()
        self._awaited.clear()
        return True

    def came_back(self, pid: ProducerId) -> None:
        """The producer has a session."""
        self._came_back = self._came_back or self.awaits(pid)
        self._awaited.pop(pid, None)
        if self._all_awaited:
            self._back[pid] = None

    def take_came_back(self) -> bool:
        """Whether an awaited holder came back since the last call, so that requests for its name can be decided."""
        came_back, self._came_back = self._came_back, False
        return came_back

    def awaits(self, pid: ProducerId) -> bool:
        """Whether the producer's holder may still come back."""
        return pid in self._awaited or (self._all_awaited and pid not in self._back)
