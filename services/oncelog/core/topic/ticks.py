"""When a topic's next tick is: soon while something may depend on time, seldom while nothing does.

    AWAKE  --a tick, the topic is idle--> ASLEEP
    ASLEEP --a tick--> ASLEEP | AWAKE
           --any other event--> AWAKE

An owner has thousands of topics, and most of them wait for nothing.
"""

from oncelog.core.topic_events.effects import StartTopicTimer, Step

TICK_TIMER = "tick"
#: Prefix of the key of an idle topic's tick; a number follows, because a topic that wakes up leaves the timer behind.
IDLE_TICK_TIMER = "idle tick"


class Ticks:
    """Of one topic. Milliseconds."""

    def __init__(self, step: Step, tick_ms: int, idle_tick_ms: int) -> None:
        self._step = step
        self._tick_ms, self._idle_tick_ms = tick_ms, idle_tick_ms
        self._sleeps = 0
        #: the timer whose end is the next tick
        self._awaited = ""

    def begin(self) -> None:
        self._awaited = TICK_TIMER
        self._step.emit(StartTopicTimer(TICK_TIMER, self._tick_ms))

    def wake(self) -> None:
        """Something has happened."""
        if self._awaited.startswith(IDLE_TICK_TIMER):
            self.begin()

    def awaits(self, key: str) -> bool:
        """Whether this is the end of the awaited timer, and so a tick."""
        return key in (self._awaited, TICK_TIMER)

    def again(self, *, idle: bool) -> None:
        """A tick is over. idle: nothing depends on time."""
        if not idle or self._idle_tick_ms <= self._tick_ms:
            self.begin()
            return
        self._sleeps += 1
        self._awaited = f"{IDLE_TICK_TIMER} {self._sleeps}"
        self._step.emit(StartTopicTimer(self._awaited, self._idle_tick_ms))
