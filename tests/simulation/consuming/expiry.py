"""Time to live, a backlog quota and retention in a run: what an owner decides with the clock that it has.

A tick counts as 100 ms of age, so that a run is long against the difference of clocks that is allowed.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.acks.changes import Change, Evicted, EvictionReason, IndexRange
from oncelog.core.ids import EntryId, LedgerId, Position, SubscriptionNumber
from oncelog.core.policies.retention_rules import (
    CLOCK_SKEW_MS_MAX,
    Backlog,
    BacklogQuota,
    ClockCheck,
    LedgerSpan,
    QuotaAction,
    RetentionPolicy,
    check_quota,
    expired_below,
    expired_ranges,
    trim_of,
)
from oncelog.verify.violation import Violation

TICK_MS = 100
_BEHIND_ALL = Position(LedgerId(1 << 40), EntryId(0))
Evict = Callable[[SubscriptionNumber, tuple[IndexRange, ...], EvictionReason], None]


@dataclass(slots=True)
class Expiry:
    """The policies of one run, and when each message was appended. A message counts as one byte."""

    ttl_ms: int
    quota: BacklogQuota
    retention: RetentionPolicy
    now_ms: Callable[[], int]
    #: {owner: by how much its clock is ahead}
    skews: dict[str, int]
    clock_agrees: Callable[[ClockCheck, int], bool] = ClockCheck.agrees
    #: the append time of each message
    appended_ms: list[int] = field(default_factory=list)

    @classmethod
    def draw(cls, seed: int, now: Callable[[], int], agrees: Callable[[ClockCheck, int], bool]) -> "Expiry":
        rng = random.Random(f"{seed}/expiry")
        hour = 3_600_000
        return cls(
            rng.choice((100_000, 150_000, 1 << 40)),
            BacklogQuota(QuotaAction.EVICT, bytes_max=rng.choice((10, 20, 1000))),
            RetentionPolicy(rng.choice((0, 90_000)), None),
            lambda: now() * TICK_MS,
            {name: rng.choice((0, 0, 30_000, -30_000, hour, -hour)) for name in ("o1", "o2")},
            agrees,
        )

    def stored(self, count: int) -> None:
        self.appended_ms += [self.now_ms()] * count

    def spans(self) -> list[LedgerSpan]:
        """Each message as a ledger of its own, and an open one behind them."""
        closed = [
            LedgerSpan(LedgerId(index), index, index + 1, 1, appended, appended, closed=True)
            for index, appended in enumerate(self.appended_ms)
        ]
        end = len(closed)
        return [*closed, LedgerSpan(LedgerId(end), end, end, 0, 0, 0, closed=False)]

    # --- what an owner decides ----------------------------------------------------------------------------------------

    def _clock(self, owner: str) -> tuple[int, bool]:
        """(the owner's time, whether it may decide)."""
        own_ms = self.now_ms() + self.skews[owner]
        return own_ms, self.clock_agrees(ClockCheck(own_ms, self.now_ms()), own_ms)

    def evict(self, owner: str, state: SubscriptionsState, evict: Evict) -> int:
        """Evict what is due; returns in how many subscriptions."""
        own_ms, agrees = self._clock(owner)
        evicted = 0
        for number, each in list(state.subscriptions.items()):
            mark = each.acks.mark_delete
            ages = ((index + 1, self.appended_ms[index]) for index in range(mark, len(self.appended_ms)))
            below = expired_below(ages, ttl_ms=self.ttl_ms, now_ms=own_ms) if agrees else None
            reason = EvictionReason.TTL
            if below is None:
                backlog = Backlog(number, mark, len(self.appended_ms) - mark, None)
                judged = check_quota(self.quota, [backlog], self.spans(), clock_agrees=agrees, now_ms=own_ms)
                below = max((index for _, index in judged.evict), default=None)
                reason = EvictionReason.BACKLOG_QUOTA
            if below is not None and below > mark:
                evict(number, expired_ranges(each.acks, below, clock_agrees=True, ranges_max=8), reason)
                evicted += 1
        return evicted

    def trim_below(self, owner: str, first_index: int, first_needed: int | None, *, step_back: bool) -> int:
        """The index below which retention lets the log go now."""
        own_ms, agrees = self._clock(owner)
        trim = trim_of(
            self.spans()[first_index:], self.retention, first_needed=first_needed, trim_bound=_BEHIND_ALL,
            step_back_in_flight=step_back, clock_agrees=agrees, now_ms=own_ms,
        )  # fmt: skip
        return first_index if trim is None else trim.first_index

    # --- the oracle ---------------------------------------------------------------------------------------------------

    def check(self, change: Change, acked: set[int]) -> None:
        """What is evicted is old enough, by the true time, or leaves the quota's part. Raises Violation."""
        if not isinstance(change, Evicted):
            return
        indexes = {index for first, last in change.ranges for index in range(first, last + 1)} - acked
        if not indexes:
            return
        youngest = max(indexes)
        if change.reason is EvictionReason.TTL:
            age_ms = self.now_ms() - self.appended_ms[youngest]
            if age_ms < self.ttl_ms - CLOCK_SKEW_MS_MAX:
                raise Violation("time to live", f"message {youngest} expires at the age of {age_ms} ms")
        elif len(self.appended_ms) - youngest - 1 < (self.quota.bytes_max or 0) * 90 // 100 - 1:
            raise Violation("backlog quota", f"message {youngest} is evicted, and fewer than the quota are left")

    def check_trim(self, first_index: int, below: int) -> None:
        """What leaves the log was kept for long enough. Raises Violation."""
        for index in range(first_index, below):
            age_ms = self.now_ms() - self.appended_ms[index]
            if age_ms < (self.retention.time_ms or 0) - CLOCK_SKEW_MS_MAX:
                raise Violation("retention", f"message {index} is deleted at the age of {age_ms} ms")
