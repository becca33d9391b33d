"""What may be deleted, what expires, and what a backlog quota does."""

import random
from dataclasses import replace

import pytest

from oncelog.core.acks.ack_set import AckSet
from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.acks.changes import (
    Acked,
    DeadLettered,
    DeadLetterPublished,
    IndexRange,
    SubscriptionCreated,
    SubscriptionType,
)
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import EntryId, LedgerId, Position, SeekEpoch, SubscriptionNumber
from oncelog.core.policies.retention_rules import (
    CLOCK_CHECK_MS_MAX,
    CLOCK_SKEW_MS_MAX,
    ROLL_AGE_MS_MIN,
    Backlog,
    BacklogQuota,
    ClockCheck,
    LedgerSpan,
    QuotaAction,
    QuotaVerdict,
    RetentionPolicy,
    Trim,
    backlog_bytes,
    check_quota,
    expired_below,
    expired_ranges,
    may_step_back,
    rolls_for_retention,
    trim_of,
)
from oncelog.core.retention.ledger_sizes import LedgerSizes
from oncelog.core.topic_events.events import EndOfLedger
from tests.core.builders import TOPIC, at

ONE, TWO = SubscriptionNumber(1), SubscriptionNumber(2)
HOUR = 3_600_000
NOW = 10 * HOUR
#: Four ledgers of 100 messages with 10 bytes each; each covers an hour, the last one is open.
LEDGERS = [
    LedgerSpan(LedgerId(5 + i), 100 * i, 100 * i + 100, 1000, i * HOUR, (i + 1) * HOUR, closed=i < 3) for i in range(4)
]
AT_ONCE = RetentionPolicy(time_ms=0, size_bytes=0)
#: The snapshots cover everything up to the open ledger.
BOUND = Position(LedgerId(8), at(0).entry_id)


def trim(
    policy: RetentionPolicy = AT_ONCE,
    *,
    first_needed: int | None = None,
    trim_bound: Position | None = BOUND,
    step_back_in_flight: bool = False,
    clock_agrees: bool = True,
    now_ms: int = NOW,
) -> Trim | None:
    return trim_of(
        LEDGERS, policy, first_needed=first_needed, trim_bound=trim_bound, step_back_in_flight=step_back_in_flight,
        clock_agrees=clock_agrees, now_ms=now_ms,
    )  # fmt: skip


def ledgers(*ids: int) -> tuple[LedgerId, ...]:
    return tuple(map(LedgerId, ids))


# --- trimming ---------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("indexes-after-a-trim")
def test_trim_takes_whole_closed_ledgers_and_names_the_first_index() -> None:
    """Never the last ledger: numbers would begin at 0 again after a crash. The first index is the next ledger's."""
    assert trim() == Trim(ledgers(5, 6, 7), 300)
    assert trim(first_needed=250) == Trim(ledgers(5, 6), 200)
    assert trim(first_needed=99) is None
    bound = Position(LedgerId(99), BOUND.entry_id)
    alone = trim_of(
        [replace(LEDGERS[3], closed=True)], AT_ONCE, first_needed=None, trim_bound=bound, step_back_in_flight=False,
        clock_agrees=True, now_ms=NOW,
    )  # fmt: skip
    assert alone is None


def test_trim_stays_below_the_snapshots() -> None:
    """A takeover replays from the oldest kept base; without one nothing may go."""
    assert trim(trim_bound=Position(LedgerId(6), at(0).entry_id)) == Trim(ledgers(5), 100)
    assert trim(trim_bound=None) is None


def test_trim_ends_at_a_ledger_that_is_still_open() -> None:
    """One that awaits its closing is not skipped either: the list stays without gaps."""
    waiting = [LEDGERS[0], replace(LEDGERS[1], closed=False), *LEDGERS[2:]]
    found = trim_of(
        waiting, AT_ONCE, first_needed=None, trim_bound=BOUND, step_back_in_flight=False, clock_agrees=True, now_ms=NOW
    )
    assert found == Trim(ledgers(5), 100)


@pytest.mark.parametrize(
    ("policy", "gone"),
    [
        (RetentionPolicy(), ()),
        (RetentionPolicy(time_ms=8 * HOUR), (5, 6)),
        (RetentionPolicy(size_bytes=2500), (5, 6)),
        (RetentionPolicy(size_bytes=3000), (5,)),
        (RetentionPolicy(size_bytes=4000), ()),
        (RetentionPolicy(time_ms=8 * HOUR, size_bytes=4000), (5, 6)),
        (RetentionPolicy(time_ms=20 * HOUR, size_bytes=2000), (5, 6)),
        (RetentionPolicy(time_ms=20 * HOUR), ()),
    ],
)
def test_retention_by_time_and_size(policy: RetentionPolicy, gone: tuple[int, ...]) -> None:
    """For ever without a limit; with both, the first limit that lets a ledger go."""
    found = trim(policy)
    assert (found.ledgers if found else ()) == ledgers(*gone)


@pytest.mark.hazard("pending-dead-letter-trimmed")
def test_pending_dead_letter_keeps_its_ledger() -> None:
    """Every message is acknowledged, and one is still to be published."""
    created = SubscriptionCreated(ONE, "ab" * 16, "s", SubscriptionType.SHARED, 0)
    state = SubscriptionsState()
    acked = Acked(ONE, SeekEpoch(0), (IndexRange(0, 399),))
    state.fold_changes(at(0), [created, DeadLettered(ONE, 150, TOPIC, 0), acked])
    assert trim(first_needed=state.first_needed) == Trim(ledgers(5), 100)
    state.fold_changes(at(1), [DeadLetterPublished(ONE, TOPIC, 0)])
    assert trim(first_needed=state.first_needed) == Trim(ledgers(5, 6, 7), 300)


@pytest.mark.hazard("seek-below-a-trim")
def test_no_trim_begins_while_a_step_back_is_in_flight() -> None:
    """A seek to 100 is being written; the ledgers of 100 and above must be there when it is durable."""
    assert trim(first_needed=400, step_back_in_flight=True) is None


@pytest.mark.hazard("seek-below-a-trim")
def test_step_back_below_the_target_of_a_trim_waits_for_it() -> None:
    """Above the target it may be written at once; below the topic's first index it is refused."""
    assert may_step_back(250, first_index=100, trim_target=None) is True
    assert may_step_back(250, first_index=100, trim_target=300) is None
    assert may_step_back(300, first_index=100, trim_target=300) is True
    assert may_step_back(99, first_index=100, trim_target=300) is False
    assert may_step_back(250, first_index=300, trim_target=None) is False


@pytest.mark.hazard("seek-below-a-trim")
@pytest.mark.parametrize("seed", range(20))
def test_no_needed_message_is_trimmed_in_any_order_of_seeks_and_trims(seed: int) -> None:
    """Seeks and trims begin and end in any order; a durable position never lies below the first index."""
    rng = random.Random(seed)
    position, first_index, seeking, target = 350, 0, -1, -1
    waits = 0
    for _ in range(300):
        step = rng.choice(("seek", "sought", "trim", "trimmed", "ack"))
        if step == "seek" and seeking < 0:
            index = rng.randrange(400)
            allowed = may_step_back(index, first_index=first_index, trim_target=target if target >= 0 else None)
            waits += allowed is None
            seeking = index if allowed else -1
        elif step == "sought" and seeking >= 0:
            position, seeking = seeking, -1
        elif step == "trim" and target < 0:
            spans = [span for span in LEDGERS if span.first_index >= first_index]
            found = trim_of(
                spans, AT_ONCE, first_needed=position, trim_bound=BOUND, step_back_in_flight=seeking >= 0,
                clock_agrees=True, now_ms=NOW,
            )  # fmt: skip
            target = found.first_index if found else -1
        elif step == "trimmed" and target >= 0:
            first_index, target = target, -1
        elif step == "ack" and seeking < 0:
            position = min(400, position + rng.randrange(120))
        assert first_index <= position
    assert first_index > 0


# --- clocks -----------------------------------------------------------------------------------------------------------


def test_clock_decides_only_while_it_agrees_with_zookeeper() -> None:
    """An owner whose clock is an hour ahead must take no fresh message (hazard wrong-clock-expires)."""
    check = ClockCheck(answered_ms=NOW, modified_ms=NOW - CLOCK_SKEW_MS_MAX)
    assert check.agrees(NOW)
    assert not replace(check, modified_ms=NOW - CLOCK_SKEW_MS_MAX - 1).agrees(NOW)
    assert not replace(check, modified_ms=NOW + CLOCK_SKEW_MS_MAX + 1).agrees(NOW)
    assert check.agrees(NOW + CLOCK_CHECK_MS_MAX)
    assert not check.agrees(NOW + CLOCK_CHECK_MS_MAX + 1)
    assert not check.agrees(NOW - 1)


def test_clock_that_does_not_agree_evicts_and_deletes_nothing_by_age() -> None:
    """Retention by size goes on: it needs no clock (hazard wrong-clock-expires)."""
    assert trim(RetentionPolicy(time_ms=1), clock_agrees=False) is None
    assert trim(RetentionPolicy(time_ms=1, size_bytes=2500), clock_agrees=False) == Trim(ledgers(5, 6), 200)
    assert expired_ranges(AckSet(), 100, clock_agrees=False, ranges_max=9) == ()
    quota = BacklogQuota(QuotaAction.EVICT, age_ms_max=1)
    backlog = Backlog(ONE, 0, 4000, oldest_ms=0)
    assert check_quota(quota, [backlog], LEDGERS, clock_agrees=False, now_ms=NOW) == QuotaVerdict()


def test_idle_open_ledger_past_its_retention_is_rolled() -> None:
    """Otherwise it never closes, and its messages are never deleted (hazard wrong-clock-expires)."""
    open_ledger = LEDGERS[3]

    def rolls(
        policy: RetentionPolicy, *, first_needed: int | None = None, now_ms: int = NOW, agrees: bool = True
    ) -> bool:
        return rolls_for_retention(
            open_ledger, policy, first_needed=first_needed, clock_agrees=agrees, now_ms=now_ms
        )  # fmt: skip

    assert rolls(RetentionPolicy(time_ms=6 * HOUR))
    assert rolls(AT_ONCE, first_needed=400)
    assert rolls(RetentionPolicy(size_bytes=999))
    assert not rolls(RetentionPolicy(size_bytes=1000))
    assert not rolls(RetentionPolicy(time_ms=7 * HOUR))
    assert not rolls(AT_ONCE, first_needed=399)
    assert not rolls(AT_ONCE, agrees=False)
    assert not rolls(AT_ONCE, now_ms=3 * HOUR + ROLL_AGE_MS_MIN - 1)
    assert not rolls_for_retention(
        replace(open_ledger, end_index=300), AT_ONCE, first_needed=None, clock_agrees=True, now_ms=NOW
    )


# --- time to live -----------------------------------------------------------------------------------------------------


def test_messages_expire_up_to_the_first_younger_entry() -> None:
    """A later entry with an older time, by an earlier owner's clock, waits until those before it have expired."""
    entries = [(10, 1000), (20, 2000), (30, 9000), (40, 1500)]
    assert expired_below(entries, ttl_ms=3000, now_ms=5000) == 20
    assert expired_below(entries, ttl_ms=3000, now_ms=3999) is None
    assert expired_below(entries, ttl_ms=3000, now_ms=12_000) == 40
    assert expired_below([], ttl_ms=3000, now_ms=12_000) is None


def test_expired_messages_are_named_by_their_indexes() -> None:
    """An eviction names what it acknowledges, so that it is in the ack log before a trim (hazard
    wrong-clock-expires)."""
    acks = AckSet(3)
    acks.add([IndexRange(5, 6), IndexRange(12, 12)])
    assert expired_ranges(acks, 10, clock_agrees=True, ranges_max=9) == (IndexRange(3, 4), IndexRange(7, 9))
    assert expired_ranges(acks, 10, clock_agrees=True, ranges_max=1) == (IndexRange(3, 4),)
    assert expired_ranges(acks, 3, clock_agrees=True, ranges_max=9) == ()


# --- backlog quotas ---------------------------------------------------------------------------------------------------


def verdict(quota: BacklogQuota, *marks: int, now_ms: int = NOW) -> QuotaVerdict:
    backlogs = [
        Backlog(SubscriptionNumber(1 + i), mark, backlog_bytes(LEDGERS, mark), oldest_ms=mark * HOUR // 100)
        for i, mark in enumerate(marks)
    ]
    return check_quota(quota, backlogs, LEDGERS, clock_agrees=True, now_ms=now_ms)


def test_backlog_counts_the_bytes_of_messages() -> None:
    """In proportion within a ledger; entries without messages have none (hazard full-disk-refuses-acks)."""
    assert [backlog_bytes(LEDGERS, mark) for mark in (0, 50, 100, 399, 400, 500)] == [4000, 3500, 3000, 10, 0, 0]
    control = LedgerSpan(LedgerId(9), 400, 400, 0, NOW, NOW, closed=True)
    assert backlog_bytes([*LEDGERS, control], 400) == 0


def test_quota_holds_or_refuses_publishing_and_never_acknowledgements() -> None:
    """The verdict is about messages alone, and ends when the slowest subscription has caught up (hazard
    full-disk-refuses-acks)."""
    hold = BacklogQuota(QuotaAction.HOLD, bytes_max=2000)
    assert verdict(hold, 100, 400) == QuotaVerdict(hold=True)
    assert verdict(replace(hold, action=QuotaAction.REFUSE), 100) == QuotaVerdict(refuse=True)
    assert verdict(hold, 200, 400) == QuotaVerdict()
    assert verdict(hold) == QuotaVerdict()
    assert check_quota(None, [], LEDGERS, clock_agrees=True, now_ms=NOW) == QuotaVerdict()


def test_quota_evicts_down_to_ninety_percent() -> None:
    """Of every subscription that exceeds it: the oldest messages, as few as it takes."""
    quota = BacklogQuota(QuotaAction.EVICT, bytes_max=2000)
    assert verdict(quota, 0, 250, 100) == QuotaVerdict(evict=((ONE, 220), (SubscriptionNumber(3), 220)))
    assert backlog_bytes(LEDGERS, 220) == 1800
    assert verdict(quota, 200) == QuotaVerdict()
    assert verdict(replace(quota, bytes_max=0), 350) == QuotaVerdict(evict=((ONE, 400),))


def test_quota_by_age_evicts_whole_ledgers() -> None:
    """The oldest message is too old: the ledgers whose newest message is too old are evicted."""
    quota = BacklogQuota(QuotaAction.EVICT, age_ms_max=8 * HOUR)
    assert verdict(quota, 0) == QuotaVerdict(evict=((ONE, 100),))
    assert verdict(quota, 150) == QuotaVerdict(evict=())
    assert verdict(quota, 250) == QuotaVerdict()
    assert verdict(replace(quota, action=QuotaAction.HOLD), 0) == QuotaVerdict(hold=True)


@pytest.mark.hazard("wrong-clock-expires")
def test_open_ledger_without_messages_makes_no_message_older() -> None:
    """It ends where the last message does, and has no append time: that message must not get the time before."""
    record = TopicRecord(TOPIC, "a/b/t", ledgers=(LedgerLink(LedgerId(1), 0), LedgerLink(LedgerId(2), 5)))
    sizes = LedgerSizes(record, 9)
    sizes.ends_read((EndOfLedger(LedgerId(1), EntryId(0), 10, 1_000), EndOfLedger(LedgerId(2), EntryId(0), 10, 5_000)))
    sizes.opened(LedgerId(3), 9)
    assert list(sizes.ages_from(0)) == [(5, 1_000), (9, 5_000)]


def test_bytes_of_a_log_follow_what_it_holds() -> None:
    """They are added up only when something has changed: former owners' ledgers are read, ledgers leave the log."""
    record = TopicRecord(TOPIC, "a/b/t", ledgers=(LedgerLink(LedgerId(1), 0), LedgerLink(LedgerId(2), 5)))
    sizes = LedgerSizes(record, 9)
    found = [sizes.message_bytes]
    for ledger_id, length in ((1, 10), (2, 7)):
        sizes.ends_read((EndOfLedger(LedgerId(ledger_id), EntryId(0), length, 1_000),))
        found.append(sizes.message_bytes)
    sizes.trimmed(replace(record, ledgers=record.ledgers[1:]))
    assert [*found, sizes.message_bytes] == [None, None, 17, 7]
    assert LedgerSizes(TopicRecord(TOPIC, "a/b/t"), 0).message_bytes == 0
