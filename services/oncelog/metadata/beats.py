"""Round trips over one owner's stream: whether it answered until it closed (`core.owner_suspicion`).

A beat is sent every BEAT_INTERVAL_MS, and the owner answers each at once. A stream that closes within ANSWERED_MS_MAX
after a beat was *sent* that came to be answered was not closed by silence: keepalive of either side needs twice as long
without a word (`rpc.options`). Only this process's own clock counts, and its stalls make the last round trip older.
"""

BEAT_INTERVAL_MS = 500
ANSWERED_MS_MAX = 1_500


class Beats:
    """Of one stream. now_ms: of a clock that only runs forward."""

    def __init__(self) -> None:
        self._last = 0
        self._last_sent_ms: int | None = None
        #: {number: when it was sent}, those that wait for an answer
        self._waiting: dict[int, int] = {}
        #: when the newest beat was sent that came to be answered
        self._answered_ms: int | None = None

    def due_ms(self, now_ms: int) -> int:
        """How long until the next one is due."""
        if self._last_sent_ms is None:
            return 0
        return max(0, self._last_sent_ms + BEAT_INTERVAL_MS - now_ms)

    def sent(self, now_ms: int) -> int:
        """The number of a beat that is being sent."""
        self._last += 1
        self._last_sent_ms = self._waiting[self._last] = now_ms
        return self._last

    def answered(self, number: int) -> None:
        """Every word of an owner may answer a beat; 0 and numbers that were never sent answer none."""
        sent_ms = self._waiting.get(number)
        if sent_ms is not None:
            self._answered_ms = sent_ms
            self._waiting = {other: ms for other, ms in self._waiting.items() if other > number}

    def answers(self, now_ms: int) -> bool:
        """Whether a round trip began so short a time ago, and succeeded."""
        return self._answered_ms is not None and now_ms - self._answered_ms <= ANSWERED_MS_MAX
