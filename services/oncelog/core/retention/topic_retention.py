"""What of a topic's log is deleted, which messages expire, and whether publishing is held back: by its policies.

    tick --policies ask for nothing--> nothing
         --the ends of former owners' ledgers are unknown--> ReadLedgerEnds -> ledger_ends_read
         --somebody has asked how old a message is--> ReadStoredTimes -> stored_times_read
         --ages matter, the clock was not compared lately--> CheckClock -> clock_checked
         --otherwise--> expired messages and those over a quota are evicted; publishing is held, refused or released;
                        a ledger is rolled; ledgers that may go leave the topic record

Rules
- `core.policies.retention_rules` decides; here is what it decides from. What is unknown deletes nothing.
- When only the snapshots hold a ledger back, another base is written, so that their bound moves.
- A trim is one compare-and-set of the topic record; the ledgers' records and copies go after it.
- Of a log with pages (`paging`), a page that need not be read is judged, and trimmed, as a whole.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from oncelog.core.acks.ack_log import AckLog
from oncelog.core.acks.changes import EvictionReason
from oncelog.core.chain.ownership import LogTrim, Ownership
from oncelog.core.delivery.subscriptions import Subscriptions
from oncelog.core.formats.entry import GIVEN_UP_INDEXES
from oncelog.core.formats.ledger_page import ListPage
from oncelog.core.ids import BEFORE_ALL, EntryId, LedgerId, Position, SubscriptionNumber
from oncelog.core.policies.ack_state_limit import AckStateLimit
from oncelog.core.policies.retention_rules import (
    CLOCK_CHECK_MS_MAX,
    Backlog,
    ClockCheck,
    QuotaAction,
    QuotaVerdict,
    RetentionPolicy,
    Trim,
    backlog_bytes,
    check_quota,
    expired_below,
    expired_ranges,
    rolls_for_retention,
    trim_of,
)
from oncelog.core.policies.topic_policies import TopicPolicies
from oncelog.core.publishing.log import TopicLog
from oncelog.core.records.records import PageKey, ReadRecord, RecordRead
from oncelog.core.retention.ledger_sizes import LedgerSizes
from oncelog.core.retention.paging import PageSettings, Paging
from oncelog.core.retention.truncations import Truncations
from oncelog.core.snapshots.snapshot_writer import SnapshotWriter
from oncelog.core.topic_events.effects import (
    CheckClock,
    LogTrimmed,
    PublishingSwitched,
    ReadLedgerEnds,
    ReadStoredTimes,
    Step,
)
from oncelog.core.topic_events.events import (
    ClockChecked,
    LedgerEndsRead,
    StoredTimesRead,
    TrimRequested,
)

#: How often policies are applied: where something has changed, and where only time has passed.
CHECK_MS = 1_000
IDLE_CHECK_MS = 10_000
#: How long the response to a comparison of clocks is waited for.
CLOCK_WAIT_MS = 10_000
#: An eviction that is not durable after this time is written again.
EVICT_AGAIN_MS = 5_000
#: Ranges in one eviction; the next check names further ones.
EVICTED_RANGES_MAX = 1_000
#: Between two bases that are written so that the trim bound moves.
REBASE_MS = 5_000
_NO_TARGET = Position(LedgerId(1 << 62), EntryId(0))


class HeldPublishing(NamedTuple):
    """Publishing does not go on. action: "held" or "refused". since_ms: since 1970, at this owner. number: the
    subscription whose backlog exceeds the quota."""

    action: str
    since_ms: int
    number: SubscriptionNumber | None


class TopicRetention:
    """Applies the policies of one topic, and trims its log."""

    def __init__(
        self,
        step: Step,
        ownership: Ownership,
        log: TopicLog,
        acks: AckLog,
        subscriptions: Subscriptions,
        cursor: SnapshotWriter,
        policies: TopicPolicies,
        *,
        pages: PageSettings,
        ack_state_bytes_max: int,
        on_verdict: Callable[[QuotaVerdict], None],
    ) -> None:
        """ack_state_bytes_max: the hard limit of the ack state of the topic. on_verdict: called with the verdict of the
        backlog quota when it changes."""
        self._step = step
        self._ownership = ownership
        self._log = log
        self._acks = acks
        self._subscriptions = subscriptions
        self._cursor = cursor
        self._on_verdict = on_verdict
        self.ledgers = LedgerSizes(ownership.record, log.table.state.next_index)
        self.paging = Paging(step, ownership, self.ledgers, pages, read_ends=self._read_ends)
        self.policies = policies
        self.verdict = QuotaVerdict()
        #: what the verdict does to publishing; None: it is open
        self.held: HeldPublishing | None = None
        self._ack_state_bytes_max = ack_state_bytes_max
        self._ack_limit: AckStateLimit | None = None
        #: the trim of the log that is in flight
        self._trimming: Trim | None = None
        self._clock: ClockCheck | None = None
        self._clock_asked_ms: int | None = None
        #: former owners' ledgers whose ends were asked for, and pages that were
        self._asked_ends: dict[LedgerId, None] = {}
        self._asked_pages: dict[LedgerId, None] = {}
        #: messages whose times are being read
        self._asked_times: dict[int, None] = {}
        self._checked_ms = step.now_ms
        #: what the last check was based on
        self._checked: tuple[int, Position] | None = None
        #: {subscription: (index below which messages are being evicted, since when)}
        self._evicting: dict[SubscriptionNumber, tuple[int, int]] = {}
        self._rebased_ms: int | None = None
        self.truncations = Truncations(step, ownership, log, subscriptions, self.ledgers, self)
        self.follow(policies)

    def follow(self, policies: TopicPolicies) -> None:
        """The policies have changed, or are known now."""
        self.policies = policies
        self.ledgers.follow_age(policies.age_ms)
        self._evicting.clear()
        self._set_ack_limit()
        if policies.quota is None:
            self._give_verdict(QuotaVerdict())

    def _set_ack_limit(self) -> None:
        ack_limit = AckStateLimit(self.policies.pause, self._acks.writable, self._ack_state_bytes_max)
        if ack_limit != self._ack_limit:
            self._ack_limit = ack_limit
            self._subscriptions.set_ack_state_limit(ack_limit)

    # --- the log ------------------------------------------------------------------------------------------------------

    def opened(self, ledger_id: LedgerId) -> None:
        """The log's next ledger is open; nothing is appended to it yet."""
        self.ledgers.opened(ledger_id, self._log.next_index)
        self.truncations.opened()

    # --- time ---------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Time has passed. Costs nearly nothing while the policies keep everything."""
        if self._ack_limit is None or self._ack_limit.writable is not self._acks.writable:
            self._set_ack_limit()
        self.truncations.tick()
        if self._trimming is None:
            self.paging.tick()
        self._read_times()
        policies, now_ms = self.policies, self._step.now_ms
        if policies.keeps_everything:
            self._know_backlogs()
            return
        basis = (self.ledgers.changes, self._acks.state.position)
        wait_ms = IDLE_CHECK_MS if basis == self._checked else CHECK_MS
        if 0 <= now_ms - self._checked_ms < wait_ms or not self.all_known():
            return
        self._checked_ms, self._checked = now_ms, basis
        self._compare_clocks()
        self._expire()
        self._judge_quota()
        self._roll()
        self._trim_by_policy()

    @property
    def idle(self) -> bool:
        """Whether the policies have nothing to do soon."""
        if self.trimming or not self.truncations.idle:
            return False
        return self.policies.keeps_everything or self._checked == (self.ledgers.changes, self._acks.state.position)

    def _know_backlogs(self) -> None:
        """A subscription that is behind in the ledgers of former owners has a backlog whose size is shown. Only the
        ledgers of that backlog are read: after a restore all topics are taken over, and many have lots of others."""
        lowest = self._lowest_mark() if self.ledgers.unknown else None
        if lowest is not None and lowest < self.ledgers.unknown_below:
            self._read_ends(self.ledgers.unknown_from(lowest))
            self._pages_known()

    def all_known(self) -> bool:
        """Whether the ends of all ledgers are known, and the pages that matter were read; otherwise they are read."""
        unknown = self.ledgers.unknown
        self._read_ends(unknown)
        return self._pages_known() and not unknown

    def _pages_known(self) -> bool:
        pages = self.ledgers.pages_to_read(self._lowest_mark())
        for name in pages:
            if name not in self._asked_pages:
                self._asked_pages[name] = None
                self._step.emit(ReadRecord(PageKey(self._ownership.topic_id, name)))
        return not pages

    def _read_ends(self, ledger_ids: Sequence[LedgerId]) -> None:
        wanted = tuple(ledger_id for ledger_id in ledger_ids if ledger_id not in self._asked_ends)
        if wanted:
            self._asked_ends |= dict.fromkeys(wanted)
            self._step.emit(ReadLedgerEnds(wanted))

    def _read_times(self) -> None:
        wanted = tuple(index for index in self.ledgers.times_to_read() if index not in self._asked_times)
        if wanted:
            self._asked_times |= dict.fromkeys(wanted)
            self._step.emit(ReadStoredTimes(wanted))

    def stored_times_read(self, event: StoredTimesRead) -> None:
        for index in event.times:
            self._asked_times.pop(index, None)
        self.ledgers.times_read(event.times)

    def ledger_ends_read(self, event: LedgerEndsRead) -> None:
        self.ledgers.ends_read(event.ends)

    def page_read(self, event: RecordRead[PageKey, ListPage]) -> None:
        self._asked_pages.pop(event.key.name, None)
        self.ledgers.page_read(event.key.name, event.value)

    def _compare_clocks(self) -> None:
        if self.policies.age_ms is None:
            return
        now_ms, clock = self._step.now_ms, self._clock
        if clock is not None and 0 <= now_ms - clock.answered_ms < CLOCK_CHECK_MS_MAX // 2:
            return
        if self._clock_asked_ms is None or not 0 <= now_ms - self._clock_asked_ms < CLOCK_WAIT_MS:
            self._clock_asked_ms = now_ms
            self._step.emit(CheckClock())

    def clock_checked(self, event: ClockChecked) -> None:
        self._clock, self._clock_asked_ms = ClockCheck(event.answered_ms, event.modified_ms), None
        self._checked = None

    @property
    def publishing(self) -> str:
        """Whether the backlog quota lets producers publish: "open", "held" or "refused"."""
        return "open" if self.held is None else self.held.action

    @property
    def clock_agrees(self) -> bool:
        return self._clock is not None and self._clock.agrees(self._step.now_ms)

    # --- expiry and quota ---------------------------------------------------------------------------------------------

    def _expire(self) -> None:
        ttl_ms, lowest = self.policies.ttl_ms, self._lowest_mark()
        if ttl_ms is None or lowest is None or not self.clock_agrees:
            return
        below = expired_below(self.ledgers.ages_from(lowest), ttl_ms=ttl_ms, now_ms=self._step.now_ms)
        if below is not None:
            for number in self._acks.state.subscriptions:
                self._evict(number, below, EvictionReason.TTL)

    def _lowest_mark(self) -> int | None:
        return min((each.acks.mark_delete for each in self._acks.state.subscriptions.values()), default=None)

    def _evict(self, number: SubscriptionNumber, below: int, reason: EvictionReason) -> None:
        acks, now_ms = self._acks.state.subscriptions[number].acks, self._step.now_ms
        if acks.mark_delete >= below:
            self._evicting.pop(number, None)
            return
        before = self._evicting.get(number)
        if before is not None and before[0] == below and now_ms - before[1] < EVICT_AGAIN_MS:
            return
        self._evicting[number] = (below, now_ms)
        ranges = expired_ranges(acks, below, clock_agrees=True, ranges_max=EVICTED_RANGES_MAX)
        if len(ranges) == EVICTED_RANGES_MAX:
            del self._evicting[number]
        self._subscriptions.evict(number, ranges, reason)

    def _judge_quota(self) -> None:
        quota = self.policies.quota
        if quota is None:
            return
        spans, now_ms, agrees = self.ledgers.spans(), self._step.now_ms, self.clock_agrees
        marks = sorted((each.acks.mark_delete, number) for number, each in self._acks.state.subscriptions.items())
        old_below = None
        if quota.age_ms_max is not None and marks:
            ages = self.ledgers.ages_from(marks[0][0])
            old_below = expired_below(ages, ttl_ms=quota.age_ms_max + 1, now_ms=now_ms)
        verdict, holder = QuotaVerdict(), None
        for mark, number in marks:
            oldest_ms = now_ms - (quota.age_ms_max or 0) - 1 if old_below is not None and mark < old_below else None
            backlog = Backlog(number, mark, backlog_bytes(spans, mark), oldest_ms)
            judged = check_quota(quota, [backlog], spans, clock_agrees=agrees, now_ms=now_ms)
            if judged == QuotaVerdict():
                break  # the others have acknowledged more
            for evicted, below in judged.evict:
                self._evict(evicted, below, EvictionReason.BACKLOG_QUOTA)
            if quota.action is not QuotaAction.EVICT:
                verdict, holder = judged, number
                break
        self._give_verdict(verdict, holder)

    def _give_verdict(self, verdict: QuotaVerdict, holder: SubscriptionNumber | None = None) -> None:
        action = "held" if verdict.hold else "refused" if verdict.refuse else None
        before = self.held
        since_ms = self._step.now_ms if before is None else before.since_ms
        self.held = None if action is None else HeldPublishing(action, since_ms, holder)
        if verdict != self.verdict:
            self.verdict = verdict
            self._on_verdict(verdict)
        if action != (None if before is None else before.action):
            name = None if holder is None else self._acks.state.subscriptions[holder].name
            self._step.emit(PublishingSwitched(action, name))

    # --- retention ----------------------------------------------------------------------------------------------------

    def _roll(self) -> None:
        spans = self.ledgers.spans()
        if spans and not spans[-1].closed and rolls_for_retention(
            spans[-1], self.policies.retention, first_needed=self._first_needed(), clock_agrees=self.clock_agrees,
            now_ms=self._step.now_ms,
        ):  # fmt: skip
            self._log.ledgers.roll()

    def _first_needed(self) -> int | None:
        """The lowest index that a subscription needs, by the durable fold (hazard failed-ack-write)."""
        return self._acks.state.first_needed

    def _trim_by_policy(self) -> None:
        bound = self.ledgers.covered(self._cursor.trim_bound())
        trim = self._may_go(self.policies.retention, bound)
        if trim is not None:
            self._begin_trim(trim)
        elif self._may_go(self.policies.retention, _NO_TARGET) is not None:
            self._rebase(after_ms=REBASE_MS)

    def _may_go(self, policy: RetentionPolicy, bound: Position | None) -> Trim | None:
        """Which ledgers may go, with this trim bound."""
        return trim_of(
            self.ledgers.spans(), policy, first_needed=self._first_needed(), trim_bound=bound,
            step_back_in_flight=self._subscriptions.steps_back_to() is not None, clock_agrees=self.clock_agrees,
            now_ms=self._step.now_ms,
        )  # fmt: skip

    def _rebase(self, *, after_ms: int) -> None:
        """Write another base if that can move the trim bound, but not more often than this."""
        bound, now_ms, position = self._cursor.trim_bound(), self._step.now_ms, self._log.table.state.position
        if position == BEFORE_ALL or (bound is not None and bound >= position):
            return
        if self._rebased_ms is None or not 0 <= now_ms - self._rebased_ms < after_ms:
            self._rebased_ms = now_ms
            self._cursor.rebase()

    def rebase(self) -> None:
        """Write another base at once, if that can move the trim bound."""
        self._rebase(after_ms=0)

    # --- trimming -----------------------------------------------------------------------------------------------------

    @property
    def trimming(self) -> bool:
        """Whether a trim is in flight."""
        return self._trimming is not None

    def trim(self, event: TrimRequested) -> None:
        """Ledgers that end before both `before` and the trim bound leave the list, never the last one.

        A ledger stays as long as a subscription needs one of its messages by the durable fold, and so do the ledgers
        from the place of a step back that is in flight (hazards failed-ack-write and seek-below-a-trim).
        """
        bound = self.ledgers.covered(self._cursor.trim_bound())
        if bound is None or self._trimming is not None:
            return
        self._pages_known()  # until then the first page goes as a whole, or not at all
        limit = min(bound, event.before).ledger_id
        places = (self._first_needed(), self._subscriptions.steps_back_to())
        needed = min((place for place in places if place is not None), default=None)
        trim: Trim | None = None
        for ledger_id, end_index in self.ledgers.boundaries():
            if ledger_id >= limit or (needed is not None and end_index > needed):
                break
            trim = Trim((ledger_id,), end_index)
        if trim is not None:
            self._begin_trim(trim)

    def _begin_trim(self, trim: Trim) -> None:
        if self._trimming is None and self.paging.moving is None:
            self._trimming = trim
            self._subscriptions.trim_began(trim.first_index)
            self._ownership.trim(LogTrim(trim.ledgers[-1], *self.ledgers.cut(trim.ledgers[-1])))

    def trimmed(self) -> None:
        """Ledgers left one of the topic's lists. Those of the log without messages do not move the index of its first
        message, so which ledger is the first one tells whether the trim in flight is over."""
        first, trim = self._ownership.record.first, self._trimming
        if first is not None and trim is not None and first.ledger_id > trim.ledgers[-1]:
            self._trimming = None
            gone = self.ledgers.trimmed(self._ownership.record)
            # Numbers that were given up are no messages (hazard index-given-twice).
            messages = sum((span.end_index - span.first_index) % GIVEN_UP_INDEXES for span in gone)
            ledgers = sum(span.ledgers for span in gone)
            self._step.emit(LogTrimmed(ledgers, messages, sum(span.message_bytes for span in gone)))
            self._subscriptions.trim_ended(first.base_index)
