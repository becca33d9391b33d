"""How long the next answer of one peer is waited for: it follows what its recent answers took.

    limit = SLOW_FACTOR times the slowest answer of the last RECENT_S seconds, within the bounds of the caller
    no answer within the limit --> the limit doubles, until there is an answer

A fixed limit turns slow into repeated work: on a machine that needs a little longer, each attempt is given up just
before its answer, and the next one begins from nothing, which makes the machine slower still. With a limit that follows
the answers, a slow peer costs one attempt or a few, and then none. A peer that answers within milliseconds keeps the
lower bound, so its death is noticed as fast as ever. Source: the retransmission timer of TCP (RFC 6298), which follows
the measured round trips and doubles.
"""

import time
from collections import deque
from collections.abc import Callable

#: The slowest of the recent answers, times this, is slow.
SLOW_FACTOR = 3
#: Answers count for this long, so that a slow start of a machine does not matter later.
RECENT_S = 60.0
_ANSWERS_MAX = 32


class AnswerTimes:
    """Of one peer, for one kind of answer. min_ms, max_ms: bounds of the limit."""

    def __init__(self, *, min_ms: int, max_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.min_ms = min_ms
        self.max_ms = max_ms
        self._clock = clock
        #: (when it arrived, in seconds of the clock; how long it took, in ms)
        self._answers: deque[tuple[float, float]] = deque(maxlen=_ANSWERS_MAX)
        #: of the last attempt without an answer, doubled; 0 after an answer
        self._raised_ms = 0

    @property
    def limit_ms(self) -> int:
        """How long to wait for the next answer."""
        return max(self.measured_ms(self.max_ms), self._raised_ms)

    def measured_ms(self, max_ms: int) -> int:
        """The same from answers alone, and with another upper bound: for a caller that has something else to try."""
        since = self._clock() - RECENT_S
        slowest = max((ms for at, ms in self._answers if at >= since), default=0.0)
        return max(self.min_ms, min(int(SLOW_FACTOR * slowest), max_ms))

    @property
    def raised(self) -> bool:
        """Whether the last attempt was late."""
        return self._raised_ms > 0

    def answered(self, after_ms: float) -> None:
        """There was an answer. after_ms: from the beginning of its attempt."""
        self._answers.append((self._clock(), after_ms))
        self._raised_ms = 0

    def late(self, after_ms: int) -> None:
        """There was no answer within a limit, and no sign that the peer is gone. after_ms: that limit."""
        self._raised_ms = min(max(self._raised_ms, 2 * after_ms), self.max_ms)
