"""What of a topic's log may be deleted, which messages expire, and what a backlog quota does. Pure functions.

Rules
- A ledger is deleted as a whole, oldest first, and so is a page that was not read; never the open one, and only when
  everything allows it: the durable fold of every subscription (mark_delete, and the ledgers of pending dead letters),
  the trim bound of the snapshots, and retention by time or size.
- While a step back is in flight (a seek, or a new subscription at an earlier place) no trim begins; while a trim is in
  flight, a step back to a place below its target waits (hazard seek-below-a-trim).
- Clocks decide about messages only while they agree: this owner's own clock, and ZooKeeper's, as the owner's last write
  has shown it (hazard wrong-clock-expires).
- A retention of time or size alone is decided by that one; with both, by the first that lets a ledger go, as in Pulsar.
- Backlog quotas count the bytes of messages. Control entries, snapshots and the ack log do not count: a full quota
  must not stop the acknowledgements that empty it (hazard full-disk-refuses-acks).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from oncelog.core.acks.changes import IndexRange
from oncelog.core.ids import LedgerId, Position, SubscriptionNumber

if TYPE_CHECKING:  # the command line uses the limits below, and is installed without compressed bitmaps
    from oncelog.core.acks.ack_set import AckSet

#: How far this owner's clock and ZooKeeper's may differ.
CLOCK_SKEW_MS_MAX = 60_000
#: A comparison of clocks counts for so long.
CLOCK_CHECK_MS_MAX = 600_000
#: An open ledger is not rolled for retention before this age; Pulsar's minimum, too.
ROLL_AGE_MS_MIN = 600_000
#: Backlog quotas evict down to this part of the limit, in percent.
EVICT_PERCENT = 90
#: The highest limits of a backlog quota: bytes, and Pulsar's seconds.
QUOTA_BYTES_MAX = 2**62
QUOTA_SECONDS_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class LedgerSpan:
    """One ledger of the log, or the ledgers of one page together. It holds the messages first_index .. end_index - 1.

    message_bytes: of the entries with messages. began_ms, ended_ms: append times of the first and the last entry; 0: it
    has none; began_ms also where it was not read. closed: its end is decided. ledgers: how many; ledger_id is the last.
    """

    ledger_id: LedgerId
    first_index: int
    end_index: int
    message_bytes: int
    began_ms: int
    ended_ms: int
    closed: bool
    ledgers: int = 1


# --- clocks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClockCheck:
    """This owner's last write to ZooKeeper. answered_ms: own clock at the response. modified_ms: the record's mtime."""

    answered_ms: int
    modified_ms: int

    def agrees(self, now_ms: int) -> bool:
        """Whether the own clock may decide about messages now: both clocks agreed, not long ago, and the own one has
        not gone back since."""
        return (
            abs(self.answered_ms - self.modified_ms) <= CLOCK_SKEW_MS_MAX
            and 0 <= now_ms - self.answered_ms <= CLOCK_CHECK_MS_MAX
        )


# --- retention --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long messages that every subscription has acknowledged are kept. None: no limit; both None: for ever."""

    time_ms: int | None = None
    size_bytes: int | None = None

    @property
    def for_ever(self) -> bool:
        return self.time_ms is None and self.size_bytes is None


@dataclass(frozen=True, slots=True)
class Trim:
    """ledgers: to be deleted, oldest first. first_index: of the topic afterwards."""

    ledgers: tuple[LedgerId, ...]
    first_index: int


def trim_of(
    ledgers: Sequence[LedgerSpan],
    policy: RetentionPolicy,
    *,
    first_needed: int | None,
    trim_bound: Position | None,
    step_back_in_flight: bool,
    clock_agrees: bool,
    now_ms: int,
) -> Trim | None:
    """Which ledgers may be deleted now; None: none. ledgers: of the whole log, oldest first.

    first_needed: the lowest index that a subscription needs, by the durable fold (`SubscriptionsState.first_needed`);
    None without subscriptions. trim_bound: of the snapshots; None: nothing may be trimmed.
    """
    if step_back_in_flight or trim_bound is None or policy.for_ever:
        return None
    left_bytes = sum(span.message_bytes for span in ledgers)
    gone: list[LedgerId] = []
    first_index = 0
    for span in ledgers[:-1]:
        needed = first_needed is not None and span.end_index > first_needed
        # The bound's own ledger stays: a replay may begin in it.
        if not span.closed or needed or span.ledger_id >= trim_bound.ledger_id:
            break
        if not _released(span, policy, left_bytes, clock_agrees=clock_agrees, now_ms=now_ms):
            break
        left_bytes -= span.message_bytes
        gone.append(span.ledger_id)
        first_index = span.end_index
    return Trim(tuple(gone), first_index) if gone else None


def _released(span: LedgerSpan, policy: RetentionPolicy, kept_bytes: int, *, clock_agrees: bool, now_ms: int) -> bool:
    """kept_bytes: of this ledger and all after it."""
    if policy.size_bytes is not None and kept_bytes > policy.size_bytes:
        return True
    return policy.time_ms is not None and clock_agrees and now_ms - span.ended_ms >= policy.time_ms


def rolls_for_retention(
    open_ledger: LedgerSpan,
    policy: RetentionPolicy,
    *,
    first_needed: int | None,
    clock_agrees: bool,
    now_ms: int,
) -> bool:
    """Whether the open ledger is to be closed, because only that keeps its messages from being deleted (hazard
    wrong-clock-expires)."""
    span = open_ledger
    if span.end_index == span.first_index or (first_needed is not None and span.end_index > first_needed):
        return False
    age_ms = now_ms - span.began_ms
    return clock_agrees and age_ms >= ROLL_AGE_MS_MIN and _released(
        span, policy, span.message_bytes, clock_agrees=clock_agrees, now_ms=now_ms
    )  # fmt: skip


def may_step_back(index: int, *, first_index: int, trim_target: int | None) -> bool | None:
    """Whether a seek to `index`, or a subscription that begins there, may be written now.

    True: yes. False: it is below the topic's first index, refuse it. None: a trim to `trim_target` is in flight, and
    the place may be gone afterwards: wait for the trim's end.
    """
    if index < first_index:
        return False
    return True if trim_target is None or index >= trim_target else None


# --- time to live -----------------------------------------------------------------------------------------------------


def expired_below(entries: Iterable[tuple[int, int]], *, ttl_ms: int, now_ms: int) -> int | None:
    """The index below which messages are older than the time to live; None: no message is.

    entries: (end index, append time) from the oldest unacknowledged message on. It ends at the first younger entry, so
    a clock of an earlier owner that was behind takes no younger message with it.
    """
    below = None
    for end_index, append_time_ms in entries:
        if now_ms - append_time_ms < ttl_ms:
            break
        below = end_index
    return below


def expired_ranges(acks: "AckSet", below: int, *, clock_agrees: bool, ranges_max: int) -> tuple[IndexRange, ...]:
    """The unacknowledged messages below an index, as an `Evicted` names them; the lowest `ranges_max` ranges."""
    if not clock_agrees:
        return ()
    return tuple(acks.unacked_ranges(acks.mark_delete, below, ranges_max))


# --- backlog quotas ---------------------------------------------------------------------------------------------------


class QuotaAction(Enum):
    """What happens when the backlog of a subscription exceeds the quota; Pulsar's names in the comments."""

    HOLD = "hold"  # producer_request_hold: publishing waits
    REFUSE = "refuse"  # producer_exception: publishing fails
    EVICT = "evict"  # consumer_backlog_eviction: the oldest messages count as acknowledged


@dataclass(frozen=True, slots=True)
class BacklogQuota:
    """None: no limit."""

    action: QuotaAction
    bytes_max: int | None = None
    age_ms_max: int | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """The messages of one subscription from mark_delete on. oldest_ms: append time of the oldest; None: it has none."""

    number: SubscriptionNumber
    mark_delete: int
    message_bytes: int
    oldest_ms: int | None


@dataclass(frozen=True, slots=True)
class QuotaVerdict:
    """hold, refuse: what happens to publishing. evict: {subscription: index below which messages are evicted}."""

    hold: bool = False
    refuse: bool = False
    evict: tuple[tuple[SubscriptionNumber, int], ...] = ()


def backlog_bytes(ledgers: Sequence[LedgerSpan], mark_delete: int) -> int:
    """The message bytes from mark_delete on; of the ledger in which it lies, in proportion to its messages."""
    total = 0
    for span in ledgers:
        count = span.end_index - span.first_index
        left = span.end_index - max(span.first_index, mark_delete)
        if count > 0 and left > 0:
            total += span.message_bytes * left // count
    return total


def check_quota(
    quota: BacklogQuota | None,
    backlogs: Sequence[Backlog],
    ledgers: Sequence[LedgerSpan],
    *,
    clock_agrees: bool,
    now_ms: int,
) -> QuotaVerdict:
    """What the quota does now. Publishing is held or refused before deduplication judges the batch (hazard
    full-disk-refuses-acks)."""
    if quota is None:
        return QuotaVerdict()
    over = [each for each in backlogs if _exceeds(quota, each, clock_agrees=clock_agrees, now_ms=now_ms)]
    if not over:
        return QuotaVerdict()
    if quota.action is not QuotaAction.EVICT:
        return QuotaVerdict(hold=quota.action is QuotaAction.HOLD, refuse=quota.action is QuotaAction.REFUSE)
    evict = [
        (each.number, _evict_below(quota, each, ledgers, clock_agrees=clock_agrees, now_ms=now_ms)) for each in over
    ]
    return QuotaVerdict(evict=tuple((number, below) for number, below in evict if below is not None))


def _exceeds(quota: BacklogQuota, backlog: Backlog, *, clock_agrees: bool, now_ms: int) -> bool:
    if quota.bytes_max is not None and backlog.message_bytes > quota.bytes_max:
        return True
    if quota.age_ms_max is None or backlog.oldest_ms is None or not clock_agrees:
        return False
    return now_ms - backlog.oldest_ms > quota.age_ms_max


def _evict_below(
    quota: BacklogQuota, backlog: Backlog, ledgers: Sequence[LedgerSpan], *, clock_agrees: bool, now_ms: int
) -> int | None:
    """By size: down to 90 % of the limit. By age: the ledgers that are too old as a whole; Pulsar does it so, too."""
    below = backlog.mark_delete
    if quota.bytes_max is not None and backlog.message_bytes > quota.bytes_max:
        surplus = backlog.message_bytes - quota.bytes_max * EVICT_PERCENT // 100
        for span in ledgers:
            count = span.end_index - span.first_index
            held = backlog_bytes([span], backlog.mark_delete)
            if held and held >= surplus:
                first = max(span.first_index, backlog.mark_delete)
                below = min(span.end_index, first - (-surplus * count // span.message_bytes))
                break
            if held:
                surplus -= held
                below = span.end_index
    if quota.age_ms_max is not None and clock_agrees:
        for span in ledgers:
            if not span.closed or now_ms - span.ended_ms <= quota.age_ms_max:
                break
            below = max(below, span.end_index)
    return below if below > backlog.mark_delete else None
