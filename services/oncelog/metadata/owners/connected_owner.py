"""One open stream of a topic owner: assignments for the owner to receive, and heartbeats.

A heartbeat is sent every HEARTBEAT_INTERVAL_MS, and the owner answers each at once. The time of the last answered
heartbeat tells `core.placement.owner_suspicion` why a stream closed: if a heartbeat that was sent within the last
ANSWERED_MS_MAX was answered, then the owner was reachable, because keepalive closes a silent connection only after
twice that time (`rpc.options`). Only this process's own clock is used. If this process stalls, the last round trip
only looks older.
"""

import asyncio
from dataclasses import dataclass, field

from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId

HEARTBEAT_INTERVAL_MS = 500
ANSWERED_MS_MAX = 1_500
#: Assignments queued for a slow stream. When the queue is full, the owner gets a unary call instead.
ASSIGNMENTS_MAX = 10_000
#: Assignments in one message.
ASSIGNMENTS_AT_ONCE = 1_000


def now_ms() -> int:
    """Milliseconds of a monotonic clock, for pacing and timeouts."""
    return int(asyncio.get_running_loop().time() * 1000)


@dataclass(frozen=True, slots=True)
class Assignment:
    topic_id: TopicId
    owner_epoch: OwnerEpoch


class Heartbeats:
    """Heartbeats of one stream. now_ms: from a monotonic clock."""

    def __init__(self) -> None:
        self._last_number = 0
        self._last_sent_ms: int | None = None
        #: {number: when it was sent}, heartbeats without an answer yet
        self._pending: dict[int, int] = {}
        #: when the newest answered heartbeat was sent
        self._answered_ms: int | None = None

    def due_ms(self, now_ms: int) -> int:
        """Time until the next heartbeat is due."""
        if self._last_sent_ms is None:
            return 0
        return max(0, self._last_sent_ms + HEARTBEAT_INTERVAL_MS - now_ms)

    def sent(self, now_ms: int) -> int:
        """Record that a heartbeat is sent now; returns its number."""
        self._last_number += 1
        self._last_sent_ms = self._pending[self._last_number] = now_ms
        return self._last_number

    def answered(self, number: int) -> None:
        """Record the answer to heartbeat `number`. A number that is not pending, such as 0, is ignored."""
        sent_ms = self._pending.get(number)
        if sent_ms is not None:
            self._answered_ms = sent_ms
            self._pending = {other: ms for other, ms in self._pending.items() if other > number}

    def answered_recently(self, now_ms: int) -> bool:
        """Whether a heartbeat sent within the last ANSWERED_MS_MAX was answered."""
        return self._answered_ms is not None and now_ms - self._answered_ms <= ANSWERED_MS_MAX


@dataclass(slots=True, eq=False)
class ConnectedOwner:
    """One open stream of an owner. address: the owner's gRPC address, as the owner reported it. takes_lists: the owner
    takes several assignments in one message."""

    owner: Incarnation
    address: str
    number: int
    draining: bool = False
    topic_count: int = 0
    takes_lists: bool = False
    assignments: "asyncio.Queue[Assignment]" = field(default_factory=lambda: asyncio.Queue(ASSIGNMENTS_MAX))
    heartbeats: Heartbeats = field(default_factory=Heartbeats)
    #: where to probe the owner's listener: `address`, until its host name is resolved
    probe_address: str = ""

    async def waiting(self) -> list[Assignment]:
        """Take the assignments that are to be sent in one message; waits for the first one."""
        found = [await self.assignments.get()]
        most = ASSIGNMENTS_AT_ONCE if self.takes_lists else 1
        while len(found) < most and not self.assignments.empty():
            found.append(self.assignments.get_nowait())
        return found
