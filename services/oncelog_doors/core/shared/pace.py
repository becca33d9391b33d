"""How fast one role may open and look up: each of that costs the cluster more than it costs the client.

A request beyond the rate is delayed, never refused: a client that gets a refusal repeats the request, and adds to the
load. The first requests after a pause are handled at once, so a program that starts with a hundred producers does not
wait.
"""

from collections.abc import Hashable

PER_SECOND = 200
#: Requests after a pause that are not delayed.
BURST = 200
#: Roles whose pace is kept; above it those that have paused are forgotten.
KEPT_MAX = 10_000
_INTERVAL_MS = 1000 // PER_SECOND
_BURST_MS = BURST * _INTERVAL_MS


class Pace:
    """Of one door. who: a role and a kind of request; without authentication an address."""

    def __init__(self) -> None:
        #: {who: when all of its requests so far would have come at an even pace}
        self._even_ms: dict[Hashable, int] = {}

    def due_ms(self, who: Hashable, now_ms: int) -> int:
        """When a request that has come now is to be handled: now, or later."""
        even_ms = max(self._even_ms.get(who, 0), now_ms) + _INTERVAL_MS
        self._even_ms[who] = even_ms
        if len(self._even_ms) > KEPT_MAX:
            self._even_ms = {each: until for each, until in self._even_ms.items() if until > now_ms}
        return max(now_ms, even_ms - _BURST_MS)

    def __len__(self) -> int:
        return len(self._even_ms)
