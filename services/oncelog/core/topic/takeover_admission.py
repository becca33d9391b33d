"""Which of the topics that an owner was assigned it takes over now, and which wait.

After the death of an owner thousands of topics are assigned within a second. If all were taken over at once, each would
take as long as all together, and requests that time out and are repeated would add to the work. So a bounded number is
taken over at a time, first the topics that a client has asked for.

    WAITING (a client asks: WANTED) --a slot is free--> RUNNING --it serves, failed, or left--> gone
                                                        RUNNING --for longer than slot_ms--> its slot is free

A takeover may have to wait for a storage node that is absent for hours. It goes on, but it does not keep the others
waiting: its slot is given to the next one after `slot_ms`. That is twice what most of the recent takeovers took, within
bounds: on a slow machine a fixed time would give each slot away before its takeover is over, and so begin all of them
at once after all.
"""

from collections import deque
from statistics import median

from oncelog.core.ids import TopicId

#: Takeovers of one owner that run at once: enough to fill every call to a storage node and to ZooKeeper.
TAKEOVERS_MAX = 64
#: Bounds of the time that a takeover keeps its slot.
SLOT_MS = 2_000
SLOT_MS_MAX = 20_000
#: How many takeovers say what is usual, at least and at most.
RECENT_MIN = 8
_RECENT_MAX = 32


class TakeoverAdmission:
    """Every method that returns topics returns those to take over now, in order. Times are of one monotonic clock."""

    def __init__(self, at_once: int = TAKEOVERS_MAX, slot_ms: int = SLOT_MS) -> None:
        self._at_once = at_once
        self._slot_ms_min = slot_ms
        #: how long the takeovers that ended lately took
        self._took_ms: deque[int] = deque(maxlen=_RECENT_MAX)
        #: topics that a client has asked for, and the others, each in the order of their assignment
        self._wanted: dict[TopicId, None] = {}
        self._others: dict[TopicId, None] = {}
        #: {topic: when its takeover began}, the oldest first; and those that hold no slot any more
        self._running: dict[TopicId, int] = {}
        self._overdue: dict[TopicId, int] = {}

    @property
    def slot_ms(self) -> int:
        """How long a takeover keeps its slot. The median: a few that wait for a storage node do not count."""
        usual_ms = int(median(self._took_ms)) if len(self._took_ms) >= RECENT_MIN else 0
        return max(self._slot_ms_min, min(2 * usual_ms, SLOT_MS_MAX))

    def __len__(self) -> int:
        """The topics that wait."""
        return len(self._wanted) + len(self._others)

    def waits(self, topic_id: TopicId) -> bool:
        return topic_id in self._others or topic_id in self._wanted

    def assigned(self, topic_id: TopicId, now_ms: int) -> list[TopicId]:
        """A topic is to be taken over. Nothing changes if it waits already."""
        if not self.waits(topic_id):
            self._others[topic_id] = None
        return self.due(now_ms)

    def wanted(self, topic_id: TopicId) -> None:
        """A client asks for this topic."""
        if topic_id in self._others:
            del self._others[topic_id]
            self._wanted[topic_id] = None

    def ended(self, topic_id: TopicId, now_ms: int) -> list[TopicId]:
        """The topic serves, its takeover has failed, or it has left this owner."""
        began_ms = self._running.pop(topic_id, self._overdue.pop(topic_id, None))
        if began_ms is not None:
            self._took_ms.append(max(0, now_ms - began_ms))
        for topics in (self._wanted, self._others):
            topics.pop(topic_id, None)
        return self.due(now_ms)

    def due(self, now_ms: int) -> list[TopicId]:
        """The slots that are free now are given away."""
        while self._running:
            oldest = next(iter(self._running))
            if now_ms - self._running[oldest] < self.slot_ms:
                break
            self._overdue[oldest] = self._running.pop(oldest)
        begin: list[TopicId] = []
        while len(self) and len(self._running) < self._at_once:
            waiting = self._wanted or self._others
            topic_id = next(iter(waiting))
            del waiting[topic_id]
            self._overdue.pop(topic_id, None)
            self._running[topic_id] = now_ms
            begin.append(topic_id)
        return begin
