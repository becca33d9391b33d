"""What this process notices while it reads from storage nodes: how long they take, and which copies are damaged.

    watch.hedge_after_s              # ask a second member when the first was silent for so long
    watch.may_hedge()                # whether a second read is allowed now; counts it
    watch.silence_ms(member)         # pass a member over when it was silent for so long
    watch.answered(member, after_s)  # a frame arrived so long after it was requested
    watch.damaged(member, ledger_id) # a member served wrong bytes, or cannot read an entry: the node is asked to look

Second reads are bounded: one for ten answers, and at most `HEDGES_MAX` at once after a quiet time. So slow storage
nodes do not get twice the load.
"""

from collections import deque
from collections.abc import Callable

from oncelog.core.ids import Incarnation, LedgerId
from oncelog.rpc.answer_times import AnswerTimes

#: A first frame is waited for this long at least and at most before a second member is asked. Until there are enough
#: measurements, the longest time counts.
HEDGE_AFTER_S_MIN = 0.05
HEDGE_AFTER_S_MAX = 1.0
#: A member that is silent for this long at least and at most is passed over: a multiple of what its own recent answers
#: took, so that a slow member is not asked again and again, and a fast one that dies is passed over at once.
SILENCE_MS_MIN = 1_000
SILENCE_MS_MAX = 8_000
#: The slowest of the recent answers, times this, is slow.
_SLOW_FACTOR = 3
_MEASUREMENTS_MIN = 16
_MEASUREMENTS_MAX = 128
_HEDGES_PER_ANSWER = 0.1
HEDGES_MAX = 10
#: Copies that were reported lately. A copy is reported again only after so many others.
_REPORTED_MAX = 1024


class ReadWatch:
    """One per process, shared by all its reads. report: called once for each damaged copy (member, ledger)."""

    def __init__(self, report: Callable[[Incarnation, LedgerId], None] | None = None) -> None:
        self._report = report
        self._seconds: deque[float] = deque(maxlen=_MEASUREMENTS_MAX)
        #: {member: how long its answers took}; there are as many as storage nodes
        self._times: dict[Incarnation, AnswerTimes] = {}
        self._hedges_left: float = HEDGES_MAX
        self._reported: dict[tuple[Incarnation, LedgerId], None] = {}
        #: second reads; entries that a member could not give because its copy is damaged
        self.hedged_count = 0
        self.damaged_count = 0

    @property
    def hedge_after_s(self) -> float:
        if len(self._seconds) < _MEASUREMENTS_MIN:
            return HEDGE_AFTER_S_MAX
        return min(max(_SLOW_FACTOR * max(self._seconds), HEDGE_AFTER_S_MIN), HEDGE_AFTER_S_MAX)

    def silence_ms(self, member: Incarnation) -> int:
        """How long its next frame is waited for before it is passed over."""
        times = self._times.get(member)
        return SILENCE_MS_MIN if times is None else times.limit_ms

    def answered(self, member: Incarnation, after_s: float) -> None:
        self._seconds.append(after_s)
        times = self._times.get(member)
        if times is None:
            times = self._times[member] = AnswerTimes(min_ms=SILENCE_MS_MIN, max_ms=SILENCE_MS_MAX)
        times.answered(after_s * 1000)
        self._hedges_left = min(self._hedges_left + _HEDGES_PER_ANSWER, HEDGES_MAX)

    def may_hedge(self) -> bool:
        if self._hedges_left < 1:
            return False
        self._hedges_left -= 1
        self.hedged_count += 1
        return True

    def damaged(self, member: Incarnation, ledger_id: LedgerId) -> None:
        self.damaged_count += 1
        copy = (member, ledger_id)
        if copy in self._reported:
            return
        self._reported[copy] = None
        while len(self._reported) > _REPORTED_MAX:
            del self._reported[next(iter(self._reported))]
        if self._report is not None:
            self._report(member, ledger_id)
