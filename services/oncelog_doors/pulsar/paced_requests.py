"""Requests of one connection that came faster than `core.shared.pace` allows: each is handled in its turn.

The connection is read meanwhile, so that SENDs, acknowledgements and PINGs do not wait for the openings of others. If
too many requests wait, it is not read until there are fewer.
"""

from collections import deque
from collections.abc import Callable, Hashable
from typing import NamedTuple, Protocol

from oncelog_doors.connections.ports import Timers
from oncelog_doors.core.shared.pace import Pace

#: A connection has no more producers or consumers, and looks each of their topics up.
WAITING_MAX = 1_000
_REASON = "pace"


class Reading(Protocol):
    """Of the connection."""

    def hold(self, reason: str) -> None: ...
    def release(self, reason: str) -> None: ...


class _Waiting(NamedTuple):
    due_ms: int
    call: Callable[[], None]
    opens: Hashable


class PacedRequests:
    """Of one connection, in their order."""

    def __init__(self, reading: Reading, timers: Timers, pace: Pace) -> None:
        self._reading, self._timers, self._pace = reading, timers, pace
        self._waiting: deque[_Waiting] = deque()
        self._cancel_timer: Callable[[], None] | None = None

    def take(self, who: Hashable, call: Callable[[], None], *, opens: Hashable = None) -> None:
        """Call it now or in its turn. opens: the producer or consumer of a request that `forget` drops."""
        now_ms = self._timers.now_ms()
        due_ms = self._pace.due_ms(who, now_ms)
        if due_ms <= now_ms and not self._waiting:
            call()
            return
        self._waiting.append(_Waiting(due_ms, call, opens))
        if len(self._waiting) >= WAITING_MAX:
            self._reading.hold(_REASON)
        if self._cancel_timer is None:
            self._watch()

    def forget(self, opens: Hashable) -> None:
        """The client closes this producer or consumer before its request was handled."""
        self._waiting = deque(each for each in self._waiting if each.opens != opens)

    def close(self) -> None:
        self._waiting.clear()
        self._watch()

    def _watch(self) -> None:
        if self._cancel_timer is not None:
            self._cancel_timer()
        self._cancel_timer = self._timers.at(self._waiting[0].due_ms, self._call_due) if self._waiting else None

    def _call_due(self) -> None:
        now_ms = self._timers.now_ms()
        while self._waiting and self._waiting[0].due_ms <= now_ms:
            self._waiting.popleft().call()
        if len(self._waiting) < WAITING_MAX:
            self._reading.release(_REASON)
        self._watch()
