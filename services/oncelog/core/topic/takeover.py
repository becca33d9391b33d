"""A takeover up to the end of the log: the phases recover, load snapshot and replay.

Acquire is over: the record names this owner. Open (a new ledger) belongs to `serving`, as does every later roll. Three
chains are read, each by a `ChainReplay`: the log, the ack log and the cursor's snapshots.

    recover        LOG       the last ledgers of the log and of the ack log are fenced, recovered and closed, side by
                             side; meanwhile the cursor's record is read, and the record of its last ledger
    load snapshot  CLAIM     the cursor's record is written with this owner_epoch, so that no former owner can add a
                             ledger to it
                   CURSOR    the cursor's last ledger is fenced, recovered and closed; after a timeout (a timer), the
                             snapshots of the ledgers before it are used
                   SNAPSHOT  its entries are read; without a complete snapshot, those of the ledger before it, and so on
    replay         REPLAY    the log after the snapshot is folded, entry by entry, and beside it the ack log
                   DONE | FAILED

Rules
- The phases keep this order. A snapshot that is read before both chains are fenced leaves a hole when the old owner
  trims in between. Only two records are read during recover; `cursor_claim` explains why they are no snapshot.
- Replay begins exactly after the snapshot, in the same ledger, or fails. An unreadable entry of the log fails the
  takeover, and the failure names it.
- A snapshot only saves time. If the cursor cannot be recovered or read, an older snapshot and a longer replay follow.
- A ledger that an operator has given up may end before the snapshot, which then is the better copy of the state.
- After FAILED the topic reads its record again before it reports the failure.
"""

from collections.abc import Callable, Container, Sequence
from enum import Enum
from functools import partial
from typing import Any

from oncelog.core.chain.next_ledger import LedgerIdClaimed, NextLedger
from oncelog.core.chain.replay import (
    ChainReplay,
    EntriesRead,
    EntriesUnavailable,
    EntryUnreadable,
    ReplayState,
    TakeoverFailed,
)
from oncelog.core.chain.replay_list import ReplayList
from oncelog.core.formats.batch import Checksum
from oncelog.core.formats.entry import GivenUp
from oncelog.core.formats.topic_record import CursorRecord, LedgerLink, TopicRecord
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata
from oncelog.core.ledger.recovery import MemberErased, MemberFenced, RecoveryAdded, RecoveryReadAnswered, ledger_of
from oncelog.core.ledger.recovery_range import MemberAnswers
from oncelog.core.publishing.producers import RECENT_BYTES_MAX
from oncelog.core.records.records import CursorKey, Kind, PageKey, RecordRead, RecordWritten
from oncelog.core.snapshots.cursor_claim import ClaimStep, CursorClaim
from oncelog.core.snapshots.taken_over import TakenOver
from oncelog.core.topic.folds import AckFold, LogFold, SnapshotFold
from oncelog.core.topic_events.effects import (
    CursorRecoveryTimedOut,
    StartTopicTimer,
    Step,
    TakeoverPhase,
    TakeoverPhaseEnded,
)
from oncelog.core.topic_events.events import TakeoverEvent, TopicTimerFired

#: {kind of an event (`kind_of`): what handles it}
Handlers = dict[Kind, Callable[[Any], None]]
#: Prefix of the timer's keys; the rest distinguishes the takeovers of one topic.
CURSOR_TIMER = "cursor"
#: How long a takeover waits for the recovery of the cursor's last ledger: twice what that of the log took, within these
#: bounds. The members of that ledger may stay absent, and a newer snapshot only shortens the replay.
CURSOR_TIMEOUT_MS, CURSOR_TIMEOUT_MS_MAX = 3_000, 30_000
#: How often a takeover reads the record of a ledger whose members do not answer.
LOOK_AGAIN_MS = 10_000


class TakeoverState(Enum):
    LOG = "recover"
    CLAIM = "load snapshot (claim)"
    CURSOR = "load snapshot (recovery)"
    SNAPSHOT = "load snapshot (read)"
    REPLAY = "replay"
    DONE = "done"
    FAILED = "failed"


class Takeover:
    """One attempt for one epoch. The next attempt starts with recover again."""

    def __init__(
        self,
        step: Step,
        record: TopicRecord,
        next_ledger: NextLedger,
        *,
        checksum: Checksum,
        done: Callable[[TakenOver | TakeoverFailed], None],
        recent_bytes_max: int = RECENT_BYTES_MAX,
        cursor_timeout_ms: int = CURSOR_TIMEOUT_MS,
        cursor_timeout_ms_max: int = CURSOR_TIMEOUT_MS_MAX,
        number: int = 0,
    ) -> None:
        """next_ledger: the log's, which is prepared meanwhile: opening needs one, whatever the takeover finds. done:
        called once, at the end. number: differs between the takeovers of one topic in one process."""
        self._step, self._done = step, done
        self.next_ledger = next_ledger
        self._cursor_timer = StartTopicTimer(f"{CURSOR_TIMER} {number}", cursor_timeout_ms)
        self._began_ms, self._cursor_timeout_ms_max = step.now_ms, cursor_timeout_ms_max
        self.state = TakeoverState.LOG
        self.cursor = CursorClaim(step, record.topic_id, record.owner_epoch)
        self.snapshot = SnapshotFold(checksum, recent_bytes_max)
        self._log_fold = LogFold(record, self.snapshot.state)
        self._ack_fold = AckFold(record, checksum)
        self._topic_id, self._given_up_behind = record.topic_id, record.given_up_behind
        self._replay_of = partial(ChainReplay, step.emit, checksum=checksum, failed=self._fail)
        self.log = self._replay_of(
            ReplayList(step.emit, record.topic_id, record.ledgers, record.pages), self._log_fold,
            fenced=self._chain_fenced, begins=self._log_begins, replayed=self._chain_replayed,
        )  # fmt: skip
        self.acks = self._replay_of(
            ReplayList(step.emit, record.topic_id, _links(record.acks)), self._ack_fold,
            fenced=self._chain_fenced, replayed=self._chain_replayed,
        )  # fmt: skip
        #: once the cursor's record is claimed
        self.snapshots: ChainReplay | None = None
        #: when the members were last found silent
        self._looked_ms: int | None = None
        of_ledgers: tuple[Kind, ...] = (
            EntriesRead, EntriesUnavailable, EntryUnreadable, (RecordRead, LedgerKey),
            MemberErased, MemberFenced, RecoveryReadAnswered, RecoveryAdded,
        )  # fmt: skip
        self.handlers: Handlers = {
            LedgerIdClaimed: next_ledger.id_claimed,
            (RecordWritten, LedgerKey): self._ledger_written,
            (RecordRead, PageKey): self.log.page_read,
            (RecordRead, CursorKey): self.cursor_read,
            (RecordWritten, CursorKey): self.cursor_written,
            **dict.fromkeys(of_ledgers, self.handle),
        }

    def start(self) -> None:
        """Recover the last ledgers of both chains, and read the cursor's record meanwhile."""
        self.acks.start()
        self.log.start()
        self.cursor.read()

    def handle(self, event: TakeoverEvent) -> None:
        """Take one completion. Completions of another ledger or step are late and are ignored."""
        if isinstance(event, TopicTimerFired):
            self._timer_fired(event.key)
            return
        ledger_id, snapshots = ledger_of(event), self.snapshots
        if self.acks.owns(ledger_id):
            self.acks.handle(event)
        elif snapshots is not None and snapshots.owns(ledger_id):
            snapshots.handle(event)
        elif isinstance(event, RecordRead) and self.cursor.requested(ledger_id):
            self.cursor.ledger_read(event)
        else:
            self.log.handle(event)

    def _ledger_written(self, event: RecordWritten[LedgerKey, LedgerMetadata]) -> None:
        self.next_ledger.record_written(event)
        self.handle(event)

    def _chain_fenced(self) -> None:
        """Go on to the snapshot when the log and the ack log are fenced."""
        if not self.log.is_fenced or not self.acks.is_fenced:
            return
        took_ms = min(2 * (self._step.now_ms - self._began_ms), self._cursor_timeout_ms_max)
        self._cursor_timer = StartTopicTimer(self._cursor_timer.key, max(self._cursor_timer.after_ms, took_ms))
        self.state = TakeoverState.CLAIM
        entries = 0 if self.log.end is None else self.log.end.end + 1
        self._step.emit(TakeoverPhaseEnded(TakeoverPhase.RECOVER, entries))
        self._claim_step(self.cursor.log_fenced())

    def _fail(self, failure: TakeoverFailed) -> None:
        self.state = TakeoverState.FAILED
        for chain in self._chains():
            chain.stop()
        self._done(failure)

    def _chains(self) -> list[ChainReplay]:
        return [chain for chain in (self.log, self.snapshots, self.acks) if chain is not None]

    # --- what it waits for --------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Look at the records of the last ledgers again while their members do not answer: an operator may end the
        log's, and repair may replace members."""
        now_ms = self._step.now_ms
        if self.state is not TakeoverState.LOG:
            return
        if self._looked_ms is None:
            self._looked_ms = now_ms
        elif now_ms - self._looked_ms >= LOOK_AGAIN_MS:
            self._looked_ms = now_ms
            self.acks.look()
            self.log.look()

    @property
    def _waiting(self) -> ChainReplay:
        """The chain that the takeover waits for; of several, the first."""
        return next((chain for chain in self._chains() if chain.busy), self.acks)

    def cannot_end(self, able: Container[Incarnation]) -> bool:
        """Whether too few members of the ledger being recovered can answer, of which only `able` ones do."""
        return self._waiting.cannot_end(able)

    def waits_for(self) -> tuple[LedgerId, EntryId | None, MemberAnswers] | None:
        """(ledger, entry if known, members that have not answered); None while no member is asked."""
        return self._waiting.waits_for()

    @property
    def unavailable(self) -> EntriesUnavailable | None:
        """The entries that no live storage node has."""
        return self._waiting.unavailable

    # --- load snapshot ------------------------------------------------------------------------------------------------

    def cursor_read(self, event: RecordRead[CursorKey, CursorRecord]) -> None:
        self._claim_step(self.cursor.record_read(event))

    def cursor_written(self, event: RecordWritten[CursorKey, CursorRecord]) -> None:
        self.cursor.record_written(event)
        self._claim_step(None)

    def _claim_step(self, failure: TakeoverFailed | None) -> None:
        if failure is not None:
            self._fail(failure)
        elif self.state is TakeoverState.CLAIM and self.cursor.step is ClaimStep.CLAIMED:
            self._claimed()

    def _claimed(self) -> None:
        """Recover the cursor's last ledger."""
        self.state = TakeoverState.CURSOR
        ledgers = ReplayList(
            self._step.emit,
            self._topic_id,
            _links([link.ledger_id for link in self.cursor.record.ledgers]),
            newest_first=True,
        )
        self.snapshots = self._replay_of(
            ledgers, self.snapshot, fenced=self._cursor_fenced, replayed=self._snapshot_loaded
        )
        requested = ledgers.last is not None and self.cursor.requested(ledgers.last)
        self.snapshots.start(self.cursor.last, record_requested=requested)
        if self.snapshots.recovery is not None:
            self._step.emit(self._cursor_timer)

    def _timer_fired(self, key: str) -> None:
        """Stop waiting for the cursor's last ledger. The timer of an earlier takeover is ignored."""
        recovery = self.snapshots.recovery if self.snapshots is not None else None
        if self.snapshots is not None and recovery is not None and key == self._cursor_timer.key:
            self._step.emit(CursorRecoveryTimedOut(recovery.ledger_id))
            self.snapshots.pass_over_last()

    def _cursor_fenced(self) -> None:
        self.state = TakeoverState.SNAPSHOT
        if self.snapshots is not None:
            self.snapshots.replay()

    # --- replay -------------------------------------------------------------------------------------------------------

    def _snapshot_loaded(self) -> None:
        """Fold what comes after the snapshot, or everything without one."""
        self.state = TakeoverState.REPLAY
        self._log_fold.no_snapshots = self._ack_fold.no_snapshots = not self.cursor.record.ledgers
        self._log_fold.state, self._ack_fold.state = self.snapshot.state, self.snapshot.subscriptions
        self._log_fold.unavailable = self.snapshots.unavailable if self.snapshots is not None else None
        self.log.replay()

    def _log_begins(self) -> None:
        """The first ledger of the log to replay is known, and it follows the snapshot."""
        self._step.emit(TakeoverPhaseEnded(TakeoverPhase.LOAD_SNAPSHOT, len(self.snapshot.state.producers)))
        self.acks.replay()

    def _chain_replayed(self) -> None:
        """End when both chains are folded."""
        log, acks = self.log, self.acks
        if log.state is not ReplayState.DONE or acks.state is not ReplayState.DONE:
            return
        self.state = TakeoverState.DONE
        self._step.emit(TakeoverPhaseEnded(TakeoverPhase.REPLAY, log.replayed_entries, self._log_fold.last_append_ms))
        behind = self._given_up_behind
        given_up = _owed(log, self._log_fold.position, behind and (behind.log, behind.by))
        acks_given_up = _owed(acks, self._ack_fold.position, behind and (behind.acks, behind.by))
        for _ in acks_given_up:
            self._ack_fold.state.gave_up()
        self._done(
            TakenOver(
                self._log_fold.state, self.cursor.record, self.cursor.version, self.snapshot.loaded,
                log.replayed_entries, given_up, self._ack_fold.state, acks.replayed_bytes,
                acks_given_up, tuple(end for end in (log.end, acks.end) if end is not None),
                log.replayed_bytes,
            )
        )  # fmt: skip


def _owed(chain: ChainReplay, position: Position, behind: tuple[LedgerId, str] | None) -> tuple[GivenUp, ...]:
    """What the chain must say: what operators gave up in its ledgers, and what a restore gave up behind this one. The
    chain says the latter in its next ledger, before anything else. A snapshot may have a position in a ledger that the
    missing nodes had."""
    owed = dict(chain.given_up)
    if behind is not None and (position.ledger_id <= behind[0] or chain.lacks(position.ledger_id)):
        ledger_id, by = behind
        end = chain.end if chain.end is not None and chain.end.ledger_id == ledger_id else None
        first = 0 if end is None else end.end + 1
        owed.setdefault(ledger_id, GivenUp(ledger_id, EntryId(first), by))
    return tuple(owed.values())


def _links(ledgers: Sequence[LedgerId]) -> list[LedgerLink]:
    """Ledgers of a chain without messages."""
    return [LedgerLink(ledger_id, 0) for ledger_id in ledgers]
