"""Names whose holders lost their session through no fault of theirs, and have had no time to come back yet.

    a takeover        every name that the log knows: the new owner cannot tell who was connected
    a failed write    the names whose sessions it ended

While a holder is awaited, an opening that fences nobody waits instead of taking the name. The wait ends when the holder
comes back, and for all others by a timer, which starts when the topic serves again. It counts no clock.
"""

from collections.abc import Iterable

from oncelog.core.ids import OwnerEpoch, ProducerId

#: How keys of the timer begin.
RETURN_TIMER = "return"


class Returning:
    """For one stretch of serving."""

    def __init__(self, owner_epoch: OwnerEpoch, *, names_known: bool) -> None:
        """names_known: the log that was taken over names producers."""
        self._owner_epoch = owner_epoch
        self._everybody = names_known
        #: those that came back after the takeover, while everybody else is awaited
        self._back: dict[ProducerId, None] = {}
        #: those that a failed write ended, and that did not come back
        self._awaited: dict[ProducerId, None] = {}
        #: key of the timer that ends the wait; None: none runs
        self._timer: str | None = None
        self._came_back = False

    def ended(self, producer_ids: Iterable[ProducerId]) -> None:
        """A failed write ended the sessions of these producers."""
        for pid in producer_ids:
            self._awaited[pid] = None
            self._back.pop(pid, None)
        self._timer = None

    def serves(self, now_ms: int) -> str | None:
        """The topic takes batches. Returns the key of the timer to start, None when nobody new is awaited.

        now_ms tells the timers of several stretches apart, and nothing else.
        """
        if self._timer is not None or not (self._everybody or self._awaited):
            return None
        self._timer = f"{RETURN_TIMER} {self._owner_epoch}.{now_ms}"
        return self._timer

    def over(self, key: str) -> bool:
        """A timer fired: whether the wait is over."""
        if key != self._timer:
            return False
        self._everybody, self._timer = False, None
        self._back.clear()
        self._awaited.clear()
        return True

    def came_back(self, pid: ProducerId) -> None:
        """The producer has a session."""
        self._came_back = self._came_back or self.awaits(pid)
        self._awaited.pop(pid, None)
        if self._everybody:
            self._back[pid] = None

    def take_came_back(self) -> bool:
        """Whether a holder that was awaited came back since the last call: those who wait for its name can be told."""
        came_back, self._came_back = self._came_back, False
        return came_back

    def awaits(self, pid: ProducerId) -> bool:
        """Whether the producer's holder may still come back."""
        return pid in self._awaited or (self._everybody and pid not in self._back)
