"""Whether a client is still there: PING, and who holds a name that another client wants.

    each 30 s without a byte   PING; after 60 s without one the connection is closed
    wanted                     another client wants a name that this connection holds. PING; if no byte comes in 5 s,
                               the connection is closed, and the name is free (hazard half-open-holder)

Any byte proves that the client lives. While the door does not read, because it keeps too much, a PONG waits behind
unread SENDs: then the client counts as alive (hazard name-lost-behind-unread-sends).
"""

from dataclasses import dataclass

PING_MS = 30_000
SILENCE_MAX_MS = 60_000
WANTED_MS = 5_000


@dataclass(frozen=True, slots=True)
class WritePing:
    pass


@dataclass(frozen=True, slots=True)
class SayAlive:
    """Answer the owner: the client that holds the wanted names lives."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection; the sessions of its producers end by that."""

    reason: str


LivenessEffect = WritePing | SayAlive | Drop


class Liveness:
    """Of one connection. `next_ms` says when `tick` is called next."""

    def __init__(self, now_ms: int) -> None:
        self._heard_ms = now_ms
        self._pinged_ms: int | None = None
        self._wanted_ms: int | None = None
        self._reads = True

    @property
    def next_ms(self) -> int:
        due = [self._heard_ms + (PING_MS if self._pinged_ms is None else SILENCE_MAX_MS)]
        if self._wanted_ms is not None:
            due.append(self._wanted_ms + WANTED_MS)
        return min(due)

    def heard(self, now_ms: int) -> list[LivenessEffect]:
        """Bytes came."""
        self._heard_ms, self._pinged_ms = now_ms, None
        if self._wanted_ms is None:
            return []
        self._wanted_ms = None
        return [SayAlive()]

    def reading(self, reads: bool, now_ms: int) -> list[LivenessEffect]:
        """The door stops reading, or reads again; then silence counts from now on."""
        self._reads = reads
        return self.heard(now_ms)

    def wanted(self, now_ms: int) -> list[LivenessEffect]:
        """A name of this connection is wanted."""
        if not self._reads:
            return [SayAlive()]
        if self._wanted_ms is not None:
            return []
        self._wanted_ms = now_ms
        return [WritePing()]

    def tick(self, now_ms: int) -> list[LivenessEffect]:
        """Some time has passed."""
        if not self._reads:
            self._heard_ms = now_ms
            return []
        if self._wanted_ms is not None and now_ms >= self._wanted_ms + WANTED_MS:
            return [Drop(f"no answer to PING in {WANTED_MS // 1000} s, and another client wants a name that it holds")]
        if now_ms >= self._heard_ms + SILENCE_MAX_MS:
            return [Drop(f"nothing was received for {SILENCE_MAX_MS // 1000} s")]
        if self._pinged_ms is None and now_ms >= self._heard_ms + PING_MS:
            self._pinged_ms = now_ms
            return [WritePing()]
        return []
