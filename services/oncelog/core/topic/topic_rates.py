"""How fast messages come into one topic and go out of it, and which of its subscriptions falls behind, from samples.

Rules
- A sample reads what the topic counts anyway (`SubscriptionCounts`). A rate is the difference of the last two samples.
- A backlog is judged by its lowest value of each minute: that of a consumer that keeps up is nearly nothing again and
  again, however many messages come.
- A backlog grows if, of ten minutes, each of the last five had a higher one than each of the first five. So a topic is
  watched for ten minutes before anything is said to grow.
- A seek moves a subscription: it is watched anew, and what a seek takes back is not counted.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from oncelog.core.ids import SeekEpoch, SubscriptionNumber

MINUTE_MS = 60_000
#: Minutes whose lowest backlogs are kept.
MINUTES_KEPT = 11
_HALF = 5


#: (number, seek_epoch, messages acknowledged by whatever, from index 0 on, messages sent by this owner). A plain tuple,
#: because thousands of idle topics are sampled.
SubscriptionCounts: TypeAlias = tuple[SubscriptionNumber, SeekEpoch, int, int]


class Sampled(NamedTuple):
    """Between the last two samples. acknowledged: by consumers, administrators and policies."""

    stored: int
    delivered: int
    acknowledged: int


class _Subscription:
    """lows: the lowest backlog of each minute, the oldest first, that of the present minute last."""

    __slots__ = ("counts", "lows")

    def __init__(self, counts: SubscriptionCounts, backlog: int) -> None:
        self.counts = counts
        self.lows = [backlog]

    def note(self, counts: SubscriptionCounts, backlog: int, *, new_minute: bool) -> None:
        self.counts = counts
        if new_minute:
            self.lows.append(backlog)
            del self.lows[:-MINUTES_KEPT]
        elif backlog < self.lows[-1]:
            self.lows[-1] = backlog

    @property
    def change(self) -> int:
        return self.lows[-1] - self.lows[0]

    @property
    def grows(self) -> bool:
        return len(self.lows) >= 2 * _HALF and min(self.lows[-_HALF:]) > max(self.lows[:_HALF])


_IDLE = Sampled(0, 0, 0)


class TopicRates:
    """One topic while it is served."""

    __slots__ = ("_at_ms", "_minute_ms", "_next_index", "_subscriptions", "interval_ms", "last")

    def __init__(self) -> None:
        self._at_ms: int | None = None
        self._minute_ms = 0
        self._next_index = 0
        self._subscriptions: dict[SubscriptionNumber, _Subscription] = {}
        #: of the last two samples; 0: there are not two yet
        self.interval_ms = 0
        self.last = _IDLE

    def sample(self, next_index: int, subscriptions: Sequence[SubscriptionCounts], now_ms: int) -> Sampled:
        """Read the topic's counts; the first sample finds nothing. next_index: after the last stored message.
        now_ms: of a clock that is never set."""
        watched, first = self._subscriptions, self._at_ms is None
        new_minute = now_ms - self._minute_ms >= MINUTE_MS
        moved = new_minute or next_index != self._next_index
        delivered = acknowledged = 0
        for counts in subscriptions:
            number, seek_epoch, acked, sent = counts
            known = watched.get(number)
            if known is None:
                delivered += 0 if first else sent
                watched[number] = _Subscription(counts, next_index - acked)
                continue
            before = known.counts
            if before == counts and not moved:
                continue
            delivered += sent - before[3]
            if before[1] == seek_epoch:
                acknowledged += acked - before[2]
                known.note(counts, next_index - acked, new_minute=new_minute)
            else:
                watched[number] = _Subscription(counts, next_index - acked)
        if len(watched) != len(subscriptions):
            left = {counts[0] for counts in subscriptions}
            self._subscriptions = {number: each for number, each in watched.items() if number in left}
        if self._at_ms is not None:
            self.interval_ms = max(1, now_ms - self._at_ms)
            self.last = (
                _IDLE
                if not (moved or delivered or acknowledged)
                else Sampled(next_index - self._next_index, delivered, acknowledged)
            )
        self._at_ms, self._next_index = now_ms, next_index
        if new_minute:
            self._minute_ms = now_ms
        return self.last

    @property
    def rate_in(self) -> float | None:
        """Messages stored a second; None: not known yet."""
        return round(self.last.stored * 1000 / self.interval_ms, 3) if self.interval_ms else None

    @property
    def rate_out(self) -> float | None:
        """Messages sent to consumers a second, also those that were sent before; None: not known yet."""
        return round(self.last.delivered * 1000 / self.interval_ms, 3) if self.interval_ms else None

    @property
    def backlog_change(self) -> int | None:
        """By how many messages the backlog has grown in ten minutes, or since it is watched: of the subscription with
        the highest value. None: not known yet, or there is no subscription."""
        if not self.interval_ms:
            return None
        return max((each.change for each in self._subscriptions.values()), default=None)

    def change_of(self, number: SubscriptionNumber) -> int | None:
        """The same of one subscription; None: it is not known yet."""
        known = self._subscriptions.get(number)
        return None if known is None or not self.interval_ms else known.change

    def growing(self) -> tuple[SubscriptionNumber, int] | None:
        """The subscription whose backlog grows, the fastest of them, and by how many messages in ten minutes."""
        found = [(each.change, number) for number, each in self._subscriptions.items() if each.grows]
        change, number = max(found, default=(0, None))
        return None if number is None else (number, change)
